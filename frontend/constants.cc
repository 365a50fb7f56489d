// frontend/constants.cc -- see constants.h.
#include "frontend/constants.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace cad::frontend {

Constant Constant::of(ir::Scalar number, bool whole) {
  Constant c;
  c.kind = Kind::kNumber;
  c.number = std::move(number);
  c.whole = whole;
  return c;
}

Constant Constant::of(bool flag) {
  Constant c;
  c.kind = Kind::kBool;
  c.flag = flag ? 1 : 0;
  return c;
}

std::optional<ir::Scalar> fold(AstOp op, const ir::Scalar& a, const ir::Scalar& b) {
  const char* fn = nullptr;
  switch (op) {
    case AstOp::kAdd:
      fn = "add";
      break;
    case AstOp::kSub:
      fn = "sub";
      break;
    case AstOp::kMul:
      fn = "mul";
      break;
    case AstOp::kDiv:
      fn = "div";
      break;
    case AstOp::kFloorDiv:
      fn = "floordiv";
      break;
    case AstOp::kMod:
      fn = "mod";
      break;
    case AstOp::kPow:
      fn = "pow";
      break;
    default:
      return std::nullopt;
  }
  return ir::Scalar::call(fn, {a, b});
}

bool fold_whole(AstOp op, bool a, bool b, const ir::Scalar& result) {
  if (auto n = result.number()) return std::floor(*n) == *n;
  return a && b && op != AstOp::kDiv && op != AstOp::kPow;
}

int8_t fold_comparison(AstOp op, const ir::Scalar& a, const ir::Scalar& b,
                       const ir::Bindings& known) {
  const auto x = a.evaluate(known), y = b.evaluate(known);
  if (!x || !y) return -1;
  switch (op) {
    case AstOp::kLt:
      return *x < *y;
    case AstOp::kLe:
      return *x <= *y;
    case AstOp::kGt:
      return *x > *y;
    case AstOp::kGe:
      return *x >= *y;
    case AstOp::kEq:
      return *x == *y;
    case AstOp::kNe:
      return *x != *y;
    default:
      return -1;
  }
}

bool folds(const std::string& function) {
  static const char* const kNames[] = {"exp", "log", "sqrt", "rsqrt", "abs", "sin", "cos", "tanh"};
  for (const char* name : kNames) {
    if (function == name) return true;
  }
  return false;
}

namespace {

class Evaluator {
 public:
  Evaluator(const Ast& ast, const ConstantLookup& lookup, Diagnostics& diagnostics)
      : ast_(ast), lookup_(lookup), diagnostics_(diagnostics) {}

  Constant eval(ExprId id) {
    if (!id.valid()) return {};
    const std::vector<ExprId> spine = left_spine(ast_, id);
    // A call's spine starts at the function's name.
    if (spine.size() > 1 && ast_.expr(spine[1]).kind == ExprKind::kCall) {
      Constant value = call(ast_.expr(spine[1]));
      return rest(spine, 2, std::move(value));
    }
    return rest(spine, 1, leaf(ast_.expr(spine[0])));
  }

 private:
  Constant rest(const std::vector<ExprId>& spine, size_t from, Constant value) {
    for (size_t i = from; i < spine.size(); ++i) {
      const Expr& e = ast_.expr(spine[i]);
      if (e.kind != ExprKind::kBinary) return wrong(e);
      value = binary(e, value, eval(e.right));
      if (value.kind == Constant::Kind::kError) return value;
    }
    return value;
  }

  Constant wrong(const Expr& e) {
    if (e.kind == ExprKind::kError) return {};
    diagnostics_.add(
        make_diagnostic(DiagId::E0208, e.span, "a constant is needed here", "not a constant"));
    return {};
  }

  Constant leaf(const Expr& e) {
    switch (e.kind) {
      case ExprKind::kNumber:
        return Constant::of(ir::Scalar(e.number), e.integer);
      case ExprKind::kParen:
        return eval(e.left);
      case ExprKind::kName:
        if (e.text == "inf")
          return Constant::of(ir::Scalar(std::numeric_limits<double>::infinity()), true);
        if (e.text == "true" || e.text == "false") return Constant::of(e.text == "true");
        return lookup_(e.text, e.span);
      case ExprKind::kUnary: {
        Constant v = eval(e.right);
        if (v.kind == Constant::Kind::kError) return v;
        if (e.op == AstOp::kNot && v.kind == Constant::Kind::kBool) {
          if (v.flag >= 0) v.flag = static_cast<int8_t>(1 - v.flag);
          return v;
        }
        if (e.op == AstOp::kNeg && v.kind == Constant::Kind::kNumber) {
          v.number = ir::Scalar::call("neg", {v.number});
          return v;
        }
        return wrong(e);
      }
      default:
        return wrong(e);
    }
  }

  Constant binary(const Expr& e, const Constant& a, const Constant& b) {
    using Kind = Constant::Kind;
    if (a.kind == Kind::kError || b.kind == Kind::kError) return {};
    if (a.kind == Kind::kNumber && b.kind == Kind::kNumber) {
      if (auto r = fold(e.op, a.number, b.number))
        return Constant::of(*r, fold_whole(e.op, a.whole, b.whole, *r));
      if (is_comparison(e.op)) {
        Constant c = Constant::of(false);
        c.flag = fold_comparison(e.op, a.number, b.number, {});
        return c;
      }
    }
    if (a.kind == Kind::kBool && b.kind == Kind::kBool && a.flag >= 0 && b.flag >= 0) {
      if (e.op == AstOp::kAnd) return Constant::of(a.flag == 1 && b.flag == 1);
      if (e.op == AstOp::kOr) return Constant::of(a.flag == 1 || b.flag == 1);
    }
    return wrong(e);
  }

  Constant call(const Expr& e) {
    const Expr& callee = ast_.expr(e.left);
    std::vector<Constant> args;
    for (const Arg& a : e.args) {
      args.push_back(eval(a.value));
      if (args.back().kind == Constant::Kind::kError) return {};
      if (args.back().kind != Constant::Kind::kNumber || !a.name.empty()) return wrong(e);
    }
    if (args.size() == 1 && folds(callee.text)) {
      return Constant::of(ir::Scalar::call(callee.text, {args[0].number}), false);
    }
    if (args.size() == 2 && (callee.text == "min" || callee.text == "max")) {
      return Constant::of(ir::Scalar::call(callee.text, {args[0].number, args[1].number}),
                          args[0].whole && args[1].whole);
    }
    return wrong(e);
  }

  const Ast& ast_;
  const ConstantLookup& lookup_;
  Diagnostics& diagnostics_;
};

}  // namespace

Constant evaluate_constant(const Ast& ast, ExprId expr, const ConstantLookup& lookup,
                           Diagnostics& diagnostics) {
  return Evaluator(ast, lookup, diagnostics).eval(expr);
}

}  // namespace cad::frontend
