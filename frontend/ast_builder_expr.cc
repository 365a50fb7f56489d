// frontend/ast_builder_expr.cc -- expressions, arguments and bracket items of the syntax tree.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "frontend/ast_builder.h"

namespace cad::frontend {
namespace {

using P = grammar::CadParser;

AstOp binary_op(size_t token_type) {
  switch (static_cast<Tok>(token_type)) {
    case Tok::CARET:
      return AstOp::kPow;
    case Tok::STAR:
      return AstOp::kMul;
    case Tok::SLASH:
      return AstOp::kDiv;
    case Tok::DSLASH:
      return AstOp::kFloorDiv;
    case Tok::PERCENT:
      return AstOp::kMod;
    case Tok::PLUS:
      return AstOp::kAdd;
    case Tok::MINUS:
      return AstOp::kSub;
    case Tok::LT:
      return AstOp::kLt;
    case Tok::LE:
      return AstOp::kLe;
    case Tok::GT:
      return AstOp::kGt;
    case Tok::GE:
      return AstOp::kGe;
    case Tok::EQ:
      return AstOp::kEq;
    case Tok::NE:
      return AstOp::kNe;
    case Tok::AND:
      return AstOp::kAnd;
    case Tok::OR:
      return AstOp::kOr;
    default:
      return AstOp::kPipe;
  }
}

// The value of a string token, quotes included; unknown escapes (reported before) stay.
std::string unescape(std::string_view text) {
  std::string value;
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') break;
    if (text[i] != '\\' || i + 1 >= text.size()) {
      value += text[i];
      continue;
    }
    ++i;
    value += text[i] == 'n' ? '\n' : text[i] == 't' ? '\t' : text[i];
  }
  return value;
}

// The left operand a chain goes on with, or null.
P::ExprContext* left_operand(P::ExprContext* context) {
  if (context->children.empty() || context->exception != nullptr) return nullptr;
  if (dynamic_cast<P::UnaryExprContext*>(context) != nullptr) return nullptr;
  return dynamic_cast<P::ExprContext*>(context->children.front());
}

}  // namespace

ExprId AstBuilder::add(Expr expr) {
  ast_.exprs.push_back(std::move(expr));
  return ExprId{static_cast<int32_t>(ast_.exprs.size()) - 1};
}

ExprId AstBuilder::error_expr(Span place) {
  Expr expr;
  expr.span = place;
  return add(std::move(expr));
}

ExprId AstBuilder::expr(P::ExprContext* context) {
  if (context == nullptr) return error_expr(Span{file_, 0, 0});
  std::vector<P::ExprContext*> spine;
  for (P::ExprContext* at = context; at != nullptr; at = left_operand(at)) spine.push_back(at);
  ExprId id = leaf(spine.back());
  spine.pop_back();
  for (; !spine.empty(); spine.pop_back()) id = extend(id, spine.back());
  return id;
}

ExprId AstBuilder::leaf(P::ExprContext* context) {
  if (context->exception != nullptr) return error_expr(span(context));
  if (auto* node = dynamic_cast<P::AtomExprContext*>(context)) return atom(node);
  Expr expr;
  expr.span = span(context);
  if (auto* node = dynamic_cast<P::UnaryExprContext*>(context)) {
    expr.kind = ExprKind::kUnary;
    expr.op = node->op->getType() == P::MINUS ? AstOp::kNeg : AstOp::kNot;
    expr.op_span = span(node->op);
    expr.right = this->expr(node->expr());
    return add(std::move(expr));
  }
  auto* node = dynamic_cast<P::ParenExprContext*>(context);
  if (node == nullptr) return error_expr(expr.span);
  std::vector<Arg> entries = args(node->arg());
  const bool one = entries.size() == 1 && entries[0].name.empty() && node->COMMA().empty();
  expr.kind = one ? ExprKind::kParen : ExprKind::kTuple;
  if (one) {
    expr.left = entries[0].value;
  } else {
    expr.args = std::move(entries);
  }
  return add(std::move(expr));
}

ExprId AstBuilder::atom(P::AtomExprContext* context) {
  Expr expr;
  expr.span = span(context);
  const std::string_view written = text(expr.span);
  switch (static_cast<Tok>(context->getStart()->getType())) {
    case Tok::NUMBER:
      expr.kind = ExprKind::kNumber;
      expr.text = written;
      number(written, expr);
      break;
    case Tok::QUANTITY: {
      expr.kind = ExprKind::kQuantity;
      size_t unit = 0;  // a unit starts at the first letter that no exponent explains
      while (unit < written.size() &&
             ((std::isalpha(static_cast<unsigned char>(written[unit])) == 0) ||
              ((written[unit] == 'e' || written[unit] == 'E') && unit + 1 < written.size() &&
               (std::isdigit(static_cast<unsigned char>(written[unit + 1])) != 0 ||
                written[unit + 1] == '+' || written[unit + 1] == '-')))) {
        ++unit;
      }
      size_t digits = unit;
      while (digits > 0 && (written[digits - 1] == ' ' || written[digits - 1] == '\t')) --digits;
      expr.text = written.substr(0, digits);
      number(expr.text, expr);
      expr.unit.text = written.substr(unit);
      expr.unit.span = {file_, expr.span.begin + static_cast<uint32_t>(unit), expr.span.end};
      break;
    }
    case Tok::STRING:
      expr.kind = ExprKind::kString;
      expr.text = unescape(written);
      break;
    default:
      expr.kind = ExprKind::kName;
      expr.text = written;
  }
  return add(std::move(expr));
}

void AstBuilder::number(std::string_view text, Expr& expr) {
  std::string digits(text);
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  expr.number = std::strtod(digits.c_str(), nullptr);
  if (digits.find_first_of(".eE") != std::string::npos) return;
  errno = 0;
  expr.whole = std::strtoll(digits.c_str(), nullptr, 10);
  expr.integer = errno == 0;
}

// The node for `context`, whose left operand is built already.
ExprId AstBuilder::extend(ExprId left, P::ExprContext* context) {
  if (auto* node = dynamic_cast<P::BinaryExprContext*>(context)) return binary(left, node);
  Expr expr;
  expr.span = span(context);
  expr.left = left;
  if (auto* node = dynamic_cast<P::CallExprContext*>(context)) {
    expr.kind = ExprKind::kCall;
    expr.op_span = braces(node->LPAREN(), node->RPAREN());
    expr.args = args(node->arg());
  } else if (auto* node = dynamic_cast<P::DimsExprContext*>(context)) {
    expr.kind = ExprKind::kDims;
    expr.op_span = braces(node->LBRACK(), node->RBRACK());
    for (P::DimArgContext* item : node->dimArg()) expr.dims.push_back(dim_item(item));
  } else if (auto* node = dynamic_cast<P::MemberExprContext*>(context)) {
    expr.kind = ExprKind::kMember;
    expr.op_span = span(node->DOT());
    expr.member = name(node->NAME());
  } else {
    return error_expr(expr.span);
  }
  return add(std::move(expr));
}

ExprId AstBuilder::binary(ExprId left, P::BinaryExprContext* context) {
  Expr expr;
  expr.kind = ExprKind::kBinary;
  expr.span = span(context);
  expr.left = left;
  const std::vector<P::ExprContext*> operands = context->expr();
  if (context->op != nullptr) {
    expr.op = binary_op(context->op->getType());
    expr.op_span = span(context->op);
  } else if (P::ContractContext* node = context->contract()) {
    expr.op = AstOp::kContract;
    expr.op_span = span(node);
    for (P::DimTermContext* term : node->dimTerm()) {
      DimItem item;
      item.span = span(term);
      if (term->expr() != nullptr) {
        item.left = dim_side(term->expr());
      } else {
        item.kind = DimItemKind::kDots;
      }
      expr.dims.push_back(std::move(item));
    }
    if (node->exception != nullptr) expr.kind = ExprKind::kError;
  }
  expr.right = this->expr(operands.size() > 1 ? operands.back() : nullptr);
  const Expr& before = ast_.expr(left);
  if (is_comparison(expr.op) && before.kind == ExprKind::kBinary && is_comparison(before.op)) {
    Diagnostic error = make_diagnostic(DiagId::E0009, expr.op_span, "comparisons do not chain",
                                       "a second comparison");
    error.label(before.op_span, "the first");
    const std::string_view middle = text(ast_.expr(before.right).span);
    const auto part = [&](ExprId id) { return text(ast_.expr(id).span); };
    error.help(fmt::format("join two comparisons: `{} {} {} and {} {} {}`", part(before.left),
                           op_text(before.op), middle, middle, op_text(expr.op), part(expr.right)));
    report(expr.op_span, std::move(error));
    expr.kind = ExprKind::kError;
  }
  return add(std::move(expr));
}

Arg AstBuilder::arg(P::ArgContext* context) {
  Arg arg;
  arg.span = span(context);
  if (context->NAME() != nullptr) arg.name = name(context->NAME());
  arg.value = expr(context->expr());
  return arg;
}

std::vector<Arg> AstBuilder::args(const std::vector<P::ArgContext*>& contexts) {
  std::vector<Arg> list;
  list.reserve(contexts.size());
  for (P::ArgContext* context : contexts) list.push_back(arg(context));
  return list;
}

DimSide AstBuilder::dim_side(P::ExprContext* context) {
  return side_of(expr(context));
}

// `T`, `(H, K)` or `()` as a side; the tuple's own node is left unused.
DimSide AstBuilder::side_of(ExprId id) {
  DimSide side;
  const Expr& expr = ast_.expr(id);
  side.span = expr.span;
  if (expr.kind != ExprKind::kTuple) {
    side.dims.push_back(id);
    return side;
  }
  side.tuple = true;
  for (const Arg& entry : expr.args) {
    if (!entry.name.empty()) {
      report(entry.name.span, make_diagnostic(DiagId::E0017, entry.name.span,
                                              "a dim in brackets has no name of an argument"));
    }
    side.dims.push_back(entry.value);
  }
  return side;
}

DimItem AstBuilder::dim_item(P::DimArgContext* context) {
  DimItem item;
  item.span = span(context);
  if (context->DOTS() != nullptr) {
    item.kind = DimItemKind::kDots;
    return item;
  }
  const std::vector<P::ExprContext*> parts = context->expr();
  size_t used = 0;
  if (context->ASSIGN() != nullptr) {
    item.kind = DimItemKind::kIndex;
    item.name = name(context->NAME());
    item.value = expr(parts.empty() ? nullptr : parts[used++]);
    if (context->COLON() != nullptr) {
      item.kind = DimItemKind::kSlice;
      item.end = expr(used < parts.size() ? parts[used++] : nullptr);
    }
  } else {
    item.left = dim_side(parts.empty() ? nullptr : parts[used++]);
  }
  if (context->ARROW() != nullptr) {
    item.arrow = span(context->ARROW());
    item.right = dim_side(used < parts.size() ? parts[used] : nullptr);
    if (item.kind == DimItemKind::kPlain) item.kind = DimItemKind::kArrow;
  }
  if (context->exception == nullptr) check_dim_item(item);
  return item;
}

void AstBuilder::check_dim_item(const DimItem& item) {
  if (item.kind == DimItemKind::kSlice && !item.arrow.valid()) {
    Diagnostic error =
        make_diagnostic(DiagId::E0017, item.span, "a slice needs a name for its new dim");
    error.help(fmt::format("write `{} -> N`, with `dim N = ..` its length", text(item.span)));
    report(item.span, std::move(error));
  } else if (item.kind == DimItemKind::kIndex && item.arrow.valid()) {
    Diagnostic error = make_diagnostic(DiagId::E0017, item.arrow, "an index makes no new dim");
    error.help("a slice is `T = begin : end -> N`; an index takes its dims from the index tensor");
    report(item.arrow, std::move(error));
  } else if (item.kind == DimItemKind::kSlice && plain_name(ast_, item.right) == nullptr &&
             !(item.right.dims.size() == 1 &&
               ast_.expr(item.right.dims[0]).kind == ExprKind::kError)) {
    Diagnostic error =
        make_diagnostic(DiagId::E0017, item.right.span, "the new dim of a slice is one name");
    report(item.right.span, std::move(error));
  }
}

}  // namespace cad::frontend
