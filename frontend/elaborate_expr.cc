// frontend/elaborate_expr.cc -- expressions but calls and brackets: names, numbers, operators.
// Left-leaning chains are walked by their spine, so that 10,000 operators need no deep recursion.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/suggest.h"
#include "frontend/constants.h"
#include "frontend/elaborator.h"

namespace cad::frontend {

using ir::Attrs;
using ir::DType;
using ir::Op;
using ir::ValueId;

EValue Elaborator::flag_of_known(const Constant& c, Span span) {
  if (c.kind == Constant::Kind::kNumber) return number_of(c.number, c.whole, span);
  if (c.kind == Constant::Kind::kBool) return flag_of(c.flag, span);
  return {};
}

namespace {

bool elementwise(const Expr& e) {
  return e.kind == ExprKind::kBinary && e.op != AstOp::kContract && e.op != AstOp::kPipe;
}

}  // namespace

// Reads a name in value position.
EValue Elaborator::name_value(const Expr& e) {
  const std::string& name = e.text;
  if (auto at = body->values.find(name); at != body->values.end())
    return read_binding(name, at->second, e.span);
  if (name == "inf")
    return number_of(ir::Scalar(std::numeric_limits<double>::infinity()), true, e.span);
  if (name == "true" || name == "false") return flag_of(name == "true" ? 1 : 0, e.span);
  if (name == "training")
    return flag_of(mode == Mode::kCheck ? -1 : options.training ? 1 : 0, e.span);
  if (auto dims = find_dims(name)) return number_of(ir::Scalar::size(size(*dims)), true, e.span);
  if (auto at = body->unit->lets.find(name); at != body->unit->lets.end()) {
    const LetDecl& let = at->second;
    if (let.state != LetDecl::State::kResolved) return {};
    return let.is_bool ? flag_of(let.bool_value ? 1 : 0, e.span)
                       : number_of(let.scalar, let.scalar.is_whole(), e.span);
  }
  return unknown_name(e);
}

EValue Elaborator::read_binding(const std::string& name, Binding& b, Span span) {
  EValue v = b.value;
  if (b.kind == BindKind::kState && mode == Mode::kLower) {
    v = tensor_of(state_in(region, b.path).current, span);
  } else if (b.kind == BindKind::kParam && !b.path.empty()) {
    v = tensor_of(read_parameter(b), span);
  } else if (v.tensor()) {
    v.value = local(v.value);
  }
  v.bound = v.span.valid() ? v.span : b.span;
  v.span = span;
  (void)name;
  return v;
}

EValue Elaborator::unknown_name(const Expr& e) {
  statement_failed_ = true;
  if (body->broken_names.count(e.text) != 0 || body->unit->silent(e.text)) return {};
  if (auto at = body->unit->imports.find(e.text); at != body->unit->imports.end()) {
    error(DiagId::E0112, e.span, fmt::format("`{}` is an import, not a value", e.text),
          "used as a value")
        .help(fmt::format("its definitions are `{}.Name`", e.text));
    return {};
  }
  if (module.find(*body->unit, e.text) != nullptr || find_builtin(e.text) != nullptr) {
    error(DiagId::E0112, e.span, fmt::format("`{}` is a function, not a value", e.text),
          "not called")
        .help(fmt::format("call it: `{}(..)`", e.text));
    return {};
  }
  Diagnostic& d =
      error(DiagId::E0101, e.span, fmt::format("unknown name `{}`", e.text), "not bound here");
  std::vector<std::string> names = visible_dims();
  for (const auto& [name, binding] : body->values) names.push_back(name);
  for (const auto& [name, let] : body->unit->lets) names.push_back(name);
  std::sort(names.begin(), names.end());
  if (auto near = suggest(e.text, names)) d.help(fmt::format("did you mean `{}`?", *near));
  return {};
}

EValue Elaborator::leaf(const Expr& e, const DimList* target) {
  switch (e.kind) {
    case ExprKind::kError:
      statement_failed_ = true;
      return {};
    case ExprKind::kNumber:
      return number_of(ir::Scalar(e.number), e.integer, e.span);
    case ExprKind::kName:
      return name_value(e);
    case ExprKind::kParen:
      return eval(e.left, target);
    case ExprKind::kUnary: {
      EValue v = eval(e.right, target);
      if (v.error()) return v;
      return e.op == AstOp::kNeg ? unary_minus(v, e.span) : logical_not(v, e);
    }
    case ExprKind::kQuantity:
      error(DiagId::E0112, e.span, "a quantity with a unit has no place in an expression",
            "only settings take units");
      return {};
    case ExprKind::kString:
      error(DiagId::E0112, e.span, "a text has no place in an expression", "not a value");
      return {};
    case ExprKind::kTuple:
      error(DiagId::E0213, e.span, "a tuple has no place in an expression", "not a value")
          .help("several results are bound as `a, b = ..` and returned as `return a, b`");
      return {};
    default:
      break;
  }
  CAD_CHECK(false, "expression kind {} has no left operand", static_cast<int>(e.kind));
}

EValue Elaborator::eval(ExprId id, const DimList* target) {
  if (!id.valid()) return {};
  const Ast& ast = *body->ast;
  // One body nests at most kMaxNesting deep; bodies of calls in calls nest on top of each other.
  if (nesting_ > kMaxNesting + 500) {
    error(DiagId::E0005, ast.expr(id).span, "nested too deeply", "in calls of calls");
    return {};
  }
  ++nesting_;
  const std::vector<ExprId> spine = left_spine(ast, id);
  // Operators at the top of the expression, from here up, are those a typed binding broadcasts.
  size_t top = spine.size();
  while (top > 0 && elementwise(ast.expr(spine[top - 1]))) --top;
  size_t i = 0;
  EValue v = start(spine, i, top <= 1 ? target : nullptr);
  for (; i < spine.size() && !v.error(); ++i) {
    const Expr& e = ast.expr(spine[i]);
    v = step(v, e, target != nullptr && i >= top ? target : nullptr);
  }
  --nesting_;
  if (v.error()) statement_failed_ = true;
  return v;
}

// The first value of a spine: a leaf, or a call when the leaf is a callee; `i` is moved past it.
EValue Elaborator::start(const std::vector<ExprId>& spine, size_t& i, const DimList* target) {
  const Ast& ast = *body->ast;
  const Expr& first = ast.expr(spine[0]);
  i = 1;
  if (first.kind != ExprKind::kName) return leaf(first, target);
  size_t callee = 0;  // the last node of the callee's name: alias.Name, instance.inner
  const bool value = body->values.count(first.text) != 0;
  while (callee + 1 < spine.size() && ast.expr(spine[callee + 1]).kind == ExprKind::kMember) {
    if (callee == 0 && !value && body->unit->imports.count(first.text) == 0) break;
    ++callee;
  }
  size_t at = callee + 1;
  const Expr* dims = nullptr;
  if (at < spine.size() && ast.expr(spine[at]).kind == ExprKind::kDims)
    dims = &ast.expr(spine[at++]);
  if (at < spine.size() && ast.expr(spine[at]).kind == ExprKind::kCall) {
    const Expr& call = ast.expr(spine[at]);
    i = at + 1;
    return call_expression(spine[callee], dims, &call, nullptr, call.span);
  }
  if (dims != nullptr && callee == 0 && !value && first.text == "iota") {
    i = 2;
    return iota_expression(*dims);
  }
  if (callee > 0 && !value) {
    error(DiagId::E0112, ast.expr(spine[callee]).span, "a definition is not a value", "not called")
        .help("call it: `(..)`");
    i = spine.size();
    return {};
  }
  return leaf(first, target);
}

EValue Elaborator::step(const EValue& v, const Expr& e, const DimList* target) {
  switch (e.kind) {
    case ExprKind::kDims:
      return index(v, e);
    case ExprKind::kMember:
      return member(v, e);
    case ExprKind::kCall:
      error(DiagId::E0112, e.span, "only functions, layers and instances can be called", "a value")
          .primary->span = body->ast->expr(e.left).span;
      return {};
    case ExprKind::kBinary: {
      if (e.op == AstOp::kPipe) return pipe(v, e);
      EValue right = eval(e.right, target);
      if (right.error()) return {};
      if (e.op == AstOp::kContract) return contract(v, right, e);
      return binary(e.op, v, right, e, target);
    }
    default:
      break;
  }
  CAD_CHECK(false, "expression kind {} in a spine", static_cast<int>(e.kind));
}

EValue Elaborator::pipe(const EValue& v, const Expr& e) {
  const Ast& ast = *body->ast;
  const Expr& right = ast.expr(e.right);
  const Expr* call = right.kind == ExprKind::kCall ? &right : nullptr;
  ExprId callee = call != nullptr ? right.left : e.right;
  const Expr* dims = nullptr;
  if (ast.expr(callee).kind == ExprKind::kDims) {
    dims = &ast.expr(callee);
    callee = dims->left;
  }
  const ExprKind kind = ast.expr(callee).kind;
  if (kind == ExprKind::kError) return {};
  if (kind != ExprKind::kName && kind != ExprKind::kMember) {
    error(DiagId::E0112, right.span, "the right side of `|>` is a function, a layer or an instance",
          "not something to call");
    return {};
  }
  return call_expression(callee, dims, call, &v, e.span);
}

EValue Elaborator::iota_expression(const Expr& dims) {
  Call call;
  call.name = "iota";
  call.dims = &dims.dims;
  call.span = dims.span;
  auto list = dims_of_items(call);
  if (!list) return {};
  if (dims.dims.size() != 1) {
    error(DiagId::E0110, dims.op_span, "`iota` takes one dim", "in brackets");
    return {};
  }
  builder.span = dims.span;
  return tensor_of(iota(*list), dims.span);
}

EValue Elaborator::contract(const EValue& a, const EValue& b, const Expr& e) {
  Call items;
  items.name = "@";
  items.dims = &e.dims;
  items.span = e.op_span;
  auto dims = dims_of_items(items);
  if (!dims) return {};
  Site site{"`@`", e.op_span, {&a, &b}};
  auto x = as_tensor(a, std::nullopt, e.op_span, "`@`");
  auto y = as_tensor(b, std::nullopt, e.op_span, "`@`");
  if (!x || !y) return {};
  Attrs attrs;
  attrs.dims = *dims;
  if (options.compute != DType::kF32 && ir::is_float(type(*x).dtype) &&
      ir::is_float(type(*y).dtype)) {
    x = cast(*x, options.compute);
    y = cast(*y, options.compute);
  } else {
    unify_floats(*x, *y);
  }
  auto r = make(Op::kContract, {*x, *y}, std::move(attrs), site);
  return r ? tensor_of(*r, e.span) : EValue{};
}

// bf16 and f32 that meet: both as f32.
void Elaborator::unify_floats(ValueId& x, ValueId& y) {
  const DType a = type(x).dtype, b = type(y).dtype;
  if (a == b || !ir::is_float(a) || !ir::is_float(b)) return;
  x = as_f32(x);
  y = as_f32(y);
}

EValue Elaborator::unary_minus(const EValue& a, Span span) {
  if (a.is_number()) return number_of(ir::Scalar::call("neg", {*a.number}), a.whole, span);
  auto x = as_tensor(a, std::nullopt, span, "`-`");
  if (!x) return {};
  auto r = make(Op::kNeg, {*x}, {}, Site{"`-`", span, {&a}});
  return r ? tensor_of(*r, span) : EValue{};
}

EValue Elaborator::logical_not(const EValue& a, const Expr& e) {
  if (a.kind == EValue::Kind::kBool) return flag_of(a.flag < 0 ? -1 : 1 - a.flag, e.span);
  if (a.is_number()) return type_clash("`not`", e.op_span, a, a);
  auto x = as_tensor(a, std::nullopt, e.op_span, "`not`");
  if (!x) return {};
  if (type(*x).dtype != DType::kBool) return type_clash("`not`", e.op_span, a, a);
  auto r = make(Op::kNot, {*x}, {}, Site{"`not`", e.op_span, {&a}});
  return r ? tensor_of(*r, e.span) : EValue{};
}

namespace {

Op ir_op(AstOp op) {
  switch (op) {
    case AstOp::kAdd:
      return Op::kAdd;
    case AstOp::kSub:
      return Op::kSub;
    case AstOp::kMul:
      return Op::kMul;
    case AstOp::kDiv:
      return Op::kDiv;
    case AstOp::kFloorDiv:
      return Op::kFloorDiv;
    case AstOp::kMod:
      return Op::kMod;
    case AstOp::kPow:
      return Op::kPow;
    case AstOp::kLt:
      return Op::kLt;
    case AstOp::kLe:
      return Op::kLe;
    case AstOp::kGt:
      return Op::kGt;
    case AstOp::kGe:
      return Op::kGe;
    case AstOp::kEq:
      return Op::kEq;
    case AstOp::kNe:
      return Op::kNe;
    case AstOp::kAnd:
      return Op::kAnd;
    case AstOp::kOr:
      return Op::kOr;
    default:
      break;
  }
  CAD_CHECK(false, "operator {} is not elementwise", op_text(op));
}

}  // namespace

EValue Elaborator::fold_constants(AstOp op, const EValue& a, const EValue& b, const Expr& e) {
  if (a.is_number() && b.is_number()) {
    if (auto r = fold(op, *a.number, *b.number))
      return number_of(*r, fold_whole(op, a.whole, b.whole, *r), e.span);
    if (is_comparison(op))
      return flag_of(fold_comparison(op, *a.number, *b.number, *known), e.span);
    return type_clash(fmt::format("`{}`", op_text(op)), e.op_span, a, b);
  }
  const int x = a.flag, y = b.flag;
  if (op == AstOp::kAnd) return flag_of(x == 0 || y == 0 ? 0 : x < 0 || y < 0 ? -1 : 1, e.span);
  if (op == AstOp::kOr) return flag_of(x == 1 || y == 1 ? 1 : x < 0 || y < 0 ? -1 : 0, e.span);
  if (op == AstOp::kEq || op == AstOp::kNe) {
    return flag_of(x < 0 || y < 0 ? -1 : (x == y) == (op == AstOp::kEq), e.span);
  }
  return type_clash(fmt::format("`{}`", op_text(op)), e.op_span, a, b);
}

EValue Elaborator::binary(AstOp op, const EValue& a, const EValue& b, const Expr& e,
                          const DimList* target) {
  using Kind = EValue::Kind;
  const bool constant_a = a.kind == Kind::kNumber || a.kind == Kind::kBool;
  const bool constant_b = b.kind == Kind::kNumber || b.kind == Kind::kBool;
  const std::string what = fmt::format("`{}`", op_text(op));
  if (constant_a && constant_b) {
    if (a.kind != b.kind) return type_clash(what, e.op_span, a, b);
    return fold_constants(op, a, b, e);
  }
  if (op == AstOp::kPow && b.is_number() && a.tensor()) return power(a, b, e);
  const std::optional<DType> like = a.tensor()   ? std::optional(type(a.value).dtype)
                                    : b.tensor() ? std::optional(type(b.value).dtype)
                                                 : std::nullopt;
  std::optional<DType> number_dtype = like;
  // `/` of integers is a float division: its numbers may have fractions.
  if (op == AstOp::kDiv && like == DType::kI32) number_dtype = DType::kF32;
  auto x = as_tensor(a, number_dtype, e.op_span, what);
  if (!x) return {};
  auto y = as_tensor(b, number_dtype, e.op_span, what);
  if (!y) return {};
  if (op == AstOp::kDiv) {
    if (type(*x).dtype == DType::kI32 && (type(*y).dtype == DType::kI32 || !b.tensor()))
      x = as_f32(*x);
    if (type(*y).dtype == DType::kI32 && type(*x).dtype == DType::kF32 &&
        (!a.tensor() || type(a.value).dtype == DType::kI32)) {
      y = as_f32(*y);
    }
  }
  unify_floats(*x, *y);
  const DType dx = type(*x).dtype, dy = type(*y).dtype;
  const bool logical = op == AstOp::kAnd || op == AstOp::kOr;
  const bool bool_ok = logical || op == AstOp::kEq || op == AstOp::kNe;
  if (dx != dy || (logical && dx != DType::kBool) || (dx == DType::kBool && !bool_ok)) {
    return type_clash(what, e.op_span, a, b);
  }
  auto r = pointwise(ir_op(op), *x, *y, Site{what, e.op_span, {&a, &b}}, target);
  return r ? tensor_of(*r, e.span) : EValue{};
}

// Small whole powers are products, so that negative bases and gradients are exact.
EValue Elaborator::power(const EValue& a, const EValue& b, const Expr& e) {
  const auto n = value_of(*b.number);
  ValueId x = local(a.value);
  builder.span = e.span;
  if (type(x).dtype == DType::kBool) return type_clash("`^`", e.op_span, a, b);
  if (n && (*n == 1 || *n == 2 || *n == 3 || *n == 4)) {
    ValueId r = x;
    if (*n >= 2) r = node(Op::kMul, {x, x});
    if (*n == 3) r = node(Op::kMul, {r, x});
    if (*n == 4) r = node(Op::kMul, {r, r});
    return tensor_of(r, e.span);
  }
  if (type(x).dtype == DType::kI32) {
    if (!b.whole || (n && *n < 0)) x = as_f32(x);
  } else if (n && *n == 0.5) {
    return tensor_of(node(Op::kSqrt, {x}), e.span);
  } else if (n && *n == -0.5) {
    return tensor_of(node(Op::kRsqrt, {x}), e.span);
  }
  auto y = as_tensor(b, type(x).dtype, e.op_span, "`^`");
  if (!y) return {};
  auto r = make(Op::kPow, {x, *y}, {}, Site{"`^`", e.op_span, {&a, &b}});
  return r ? tensor_of(*r, e.span) : EValue{};
}

std::optional<ir::Size> Elaborator::size_of(ExprId id, const char* what) {
  const EValue v = eval(id);
  if (v.error()) return std::nullopt;
  const Span span = body->ast->expr(id).span;
  if (v.is_number()) {
    if (auto s = v.number->as_size()) return s;
    if (auto n = value_of(*v.number); n && std::floor(*n) == *n && std::abs(*n) < 9e15) {
      return ir::Size(static_cast<int64_t>(*n));
    }
  }
  Diagnostic& d =
      error(v.is_number() ? DiagId::E0220 : DiagId::E0208, span, fmt::format("{} is a size", what),
            v.tensor() ? fmt::format("{}, a tensor", show(v.value)) : "not a size");
  d.note("sizes are whole numbers and `+ - * / //` of dims and constant arguments");
  return std::nullopt;
}

}  // namespace cad::frontend
