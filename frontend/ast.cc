// frontend/ast.cc -- the few helpers of the syntax tree: operator tables and chain walks.
#include "frontend/ast.h"

#include <algorithm>

namespace cad::frontend {

const char* op_text(AstOp op) {
  switch (op) {
#define CAD_AST_OP_CASE(name, text) \
  case AstOp::name:                 \
    return text;
    CAD_AST_OPS(CAD_AST_OP_CASE)
#undef CAD_AST_OP_CASE
  }
  return "?";
}

bool is_comparison(AstOp op) {
  return op >= AstOp::kLt && op <= AstOp::kNe;
}

int precedence(AstOp op) {
  switch (op) {
    case AstOp::kPow:
      return 9;
    case AstOp::kNeg:
      return 8;
    case AstOp::kMul:
    case AstOp::kDiv:
    case AstOp::kFloorDiv:
    case AstOp::kMod:
    case AstOp::kContract:
      return 7;
    case AstOp::kAdd:
    case AstOp::kSub:
      return 6;
    case AstOp::kNot:
      return 4;
    case AstOp::kAnd:
      return 3;
    case AstOp::kOr:
      return 2;
    case AstOp::kPipe:
      return 1;
    default:
      return 5;
  }
}

const char* def_keyword(DefKind kind) {
  switch (kind) {
    case DefKind::kFn:
      return "fn";
    case DefKind::kLayer:
      return "layer";
    case DefKind::kModel:
      return "model";
  }
  return "?";
}

std::vector<ExprId> left_spine(const Ast& ast, ExprId id) {
  std::vector<ExprId> spine;
  while (id.valid()) {
    spine.push_back(id);
    const Expr& expr = ast.expr(id);
    switch (expr.kind) {
      case ExprKind::kBinary:
      case ExprKind::kCall:
      case ExprKind::kDims:
      case ExprKind::kMember:
        id = expr.left;
        break;
      default:
        id = ExprId{};
    }
  }
  std::reverse(spine.begin(), spine.end());
  return spine;
}

ExprId strip_parens(const Ast& ast, ExprId id) {
  while (id.valid() && ast.expr(id).kind == ExprKind::kParen) id = ast.expr(id).left;
  return id;
}

const Expr* plain_name(const Ast& ast, const DimSide& side) {
  if (side.tuple || side.dims.size() != 1) return nullptr;
  const Expr& expr = ast.expr(side.dims[0]);
  return expr.kind == ExprKind::kName ? &expr : nullptr;
}

void collect_names(const Ast& ast, ExprId id, std::set<std::string>& names) {
  if (!id.valid()) return;
  for (ExprId part : left_spine(ast, id)) {
    const Expr& e = ast.expr(part);
    if (e.kind == ExprKind::kName) names.insert(e.text);
    if (e.kind == ExprKind::kParen) collect_names(ast, e.left, names);
    if (e.kind == ExprKind::kUnary || e.kind == ExprKind::kBinary)
      collect_names(ast, e.right, names);
    for (const Arg& a : e.args) collect_names(ast, a.value, names);
    for (const DimItem& item : e.dims) {
      for (const DimSide* side : {&item.left, &item.right}) {
        for (ExprId d : side->dims) collect_names(ast, d, names);
      }
      if (!item.name.empty()) names.insert(item.name.text);
      collect_names(ast, item.value, names);
      collect_names(ast, item.end, names);
    }
  }
}

}  // namespace cad::frontend
