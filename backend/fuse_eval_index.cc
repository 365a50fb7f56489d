// backend/fuse_eval_index.cc -- index arithmetic (ranges, division, splitting of loops) and the ops
// of the index family. See backend/fuse_eval.h.
#include <algorithm>

#include "backend/fuse_eval.h"
#include "base/check.h"

namespace cad::backend::fuse {

using ir::DimId;
using ir::DType;
using ir::Op;

ExprId Evaluator::index_value(const Index& i) {
  if (i.dynamic.empty() && i.affine.is_constant())
    return constant(static_cast<double>(i.affine.constant), DType::kI32);
  if (i.dynamic.size() == 1 && i.dynamic[0].second == 1 && i.affine.is_constant() &&
      i.affine.constant == 0)
    return i.dynamic[0].first;
  LoopExpr e;
  e.kind = kernel::Expr::Kind::kIndex;
  e.dtype = DType::kI32;
  e.index = i;
  return add_expr(std::move(e));
}

bool Evaluator::range(const Index& i, int64_t& low, int64_t& high) const {
  low = high = i.affine.constant;
  for (size_t l = 0; l < i.affine.coefs.size(); ++l) {
    int64_t reach = i.affine.coefs[l] * std::max<int64_t>(0, p_.loops[l].extent - 1);
    (reach < 0 ? low : high) += reach;
  }
  return i.dynamic.empty();
}

ExprId Evaluator::both(ExprId a, ExprId b) {
  if (a < 0) return b;
  if (b < 0 || a == b) return a;
  return op(Op::kAnd, {a, b}, DType::kBool);
}

ExprId Evaluator::in_range(const Index& i, int64_t low, int64_t high) {
  int64_t least = 0, most = 0;
  const bool known = range(i, least, most);
  ExprId result = -1;
  if (!known || least < low)
    result = op(Op::kGe, {index_value(i), constant(static_cast<double>(low), DType::kI32)},
                DType::kBool);
  if (!known || most >= high)
    result =
        both(result, op(Op::kLt, {index_value(i), constant(static_cast<double>(high), DType::kI32)},
                        DType::kBool));
  return result;
}

// Asks for `loop` to become two, the minor of extent `minor`; the attempt starts again.
void Evaluator::split(size_t loop, int64_t minor) {
  const auto [dim, factor] = loop_dim_[loop];
  std::vector<int64_t>& factors = factors_[dim];
  factors[factor] /= minor;
  factors.insert(factors.begin() + static_cast<std::ptrdiff_t>(factor) + 1, minor);
  restart_ = true;
}

// quotient and rest of a non-negative index by a positive number.
void Evaluator::divide(const Index& i, int64_t by, Index& quotient, Index& rest) {
  quotient = Index();
  rest = Index();
  if (by <= 1) {
    quotient = i;
    return;
  }
  if (i.dynamic.empty()) {
    quotient.affine.coefs.assign(p_.loops.size(), 0);
    rest.affine.coefs.assign(p_.loops.size(), 0);
    int64_t part = i.affine.constant % by;
    if (part < 0) part += by;
    rest.affine.constant = part;
    quotient.affine.constant = (i.affine.constant - part) / by;
    for (size_t l = 0; l < i.affine.coefs.size(); ++l) {
      int64_t c = i.affine.coefs[l];
      if (c % by == 0)
        quotient.affine.coefs[l] = c / by;
      else
        rest.affine.coefs[l] = c;
    }
    int64_t low = 0, high = 0;
    range(rest, low, high);
    if (low >= 0 && high < by) return;
    for (size_t l = 0; l < i.affine.coefs.size(); ++l) {
      int64_t c = rest.affine.coefs[l];
      if (c <= 0 || by % c != 0) continue;
      int64_t minor = by / c, extent = p_.loops[l].extent;
      if (extent > minor && extent % minor == 0) {
        split(l, minor);
        return;
      }
    }
  }
  ExprId whole = index_value(i);
  ExprId divisor = constant(static_cast<double>(by), DType::kI32);
  ExprId q = op(Op::kFloorDiv, {whole, divisor}, DType::kI32);
  ExprId r = op(Op::kSub, {whole, op(Op::kMul, {q, divisor}, DType::kI32)}, DType::kI32);
  quotient = Index();
  rest = Index();
  quotient.dynamic.emplace_back(q, 1);
  rest.dynamic.emplace_back(r, 1);
}

// condition ? v[indices] : other, with v's loads masked by the condition.
ExprId Evaluator::guarded(ExprId condition, ir::ValueId v, const Indices& indices, ExprId predicate,
                          double other) {
  if (condition < 0) return value(v, indices, predicate);
  ExprId inside = value(v, indices, both(predicate, condition));
  if (failed_ || restart_) return inside;
  const LoopExpr& e = p_.exprs[static_cast<size_t>(inside)];
  if (other == 0 && e.kind == kernel::Expr::Kind::kLoad && e.predicate == condition) return inside;
  DType dtype = g_.type(v).dtype;
  if (ir::is_float(dtype)) dtype = DType::kF32;
  return op(Op::kWhere, {condition, inside, constant(other, dtype)}, dtype);
}

ExprId Evaluator::gather(const ir::Node& n, const DimIndex& at, ExprId predicate) {
  ExprId id = operand(n, 1, at, predicate);
  if (failed_ || restart_) return id;
  Index row;
  row.dynamic.emplace_back(id, 1);
  Indices indices;
  for (DimId d : g_.type(n.operands[0]).dims) indices.push_back(d == n.attrs.dim ? row : at.at(d));
  ExprId inside = in_range(row, 0, c_.extent(n.attrs.dim));
  return guarded(inside, n.operands[0], indices, predicate, 0);
}

ExprId Evaluator::select(const ir::Node& n, const DimIndex& at, ExprId predicate) {
  return gather(n, at, predicate);
}

ExprId Evaluator::unselect(const ir::Node& n, const DimIndex& at, ExprId predicate) {
  ExprId id = operand(n, 1, at, -1);
  if (failed_ || restart_) return id;
  ExprId here = op(Op::kEq, {index_value(at.at(n.attrs.dim)), id}, DType::kBool);
  return guarded(here, n.operands[0], operand_indices(n.operands[0], at), predicate, 0);
}

// y = y2 * stride + ky * dilation - pad; outside: the fill value.
ExprId Evaluator::window(const ir::Node& n, const DimIndex& at, ExprId predicate) {
  const ir::Attrs& a = n.attrs;
  Index y;
  y.add(at.at(a.to), a.stride);
  y.add(at.at(a.window), a.dilation);
  y.affine.constant -= a.pad;
  Indices indices;
  for (DimId d : g_.type(n.operands[0]).dims) indices.push_back(d == a.dim ? y : at.at(d));
  std::optional<double> fill = a.scalar.evaluate(*c_.bindings);
  CAD_CHECK(fill.has_value(), "window's fill value is not bound");
  return guarded(in_range(y, 0, c_.extent(a.dim)), n.operands[0], indices, predicate, *fill);
}

// sum over ky of g[y2, ky] where y2 = (y + pad - ky * dilation) / stride is whole and in range.
ExprId Evaluator::unwindow(const ir::Node& n, const DimIndex& at, ExprId predicate) {
  if (predicate >= 0) return fail("a sum under a condition");
  const ir::Attrs& a = n.attrs;
  if (!open_inner({a.window})) return 0;
  Index ky = loop_index(a.window);
  Index reach = at.at(a.dim);
  reach.affine.constant += a.pad;
  reach.add(ky, -a.dilation);
  ExprId valid = -1;
  Index y2 = reach;
  if (a.stride != 1) {
    // floor division of a possibly negative number is what the kernel's floordiv does
    ExprId whole = index_value(reach);
    ExprId stride = constant(static_cast<double>(a.stride), DType::kI32);
    ExprId q = op(Op::kFloorDiv, {whole, stride}, DType::kI32);
    valid = op(Op::kEq, {op(Op::kMul, {q, stride}, DType::kI32), whole}, DType::kBool);
    y2 = Index();
    y2.dynamic.emplace_back(q, 1);
  }
  valid = both(valid, in_range(y2, 0, c_.extent(a.to)));
  Indices indices;
  for (DimId d : g_.type(n.operands[0]).dims)
    indices.push_back(d == a.to ? y2 : d == a.window ? ky : at.at(d));
  ExprId term = guarded(valid, n.operands[0], indices, -1, 0);
  if (failed_ || restart_) return term;
  std::vector<const Index*> outer;
  for (const Index& i : *at.indices) outer.push_back(&i);
  DType dtype = p_.exprs[static_cast<size_t>(term)].dtype;
  return reduction(kernel::Reduction::Kind::kSum, dtype, term, -1, outer, {a.window});
}

}  // namespace cad::backend::fuse
