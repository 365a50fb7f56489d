// backend/fuse_eval_math.cc -- arithmetic, random values and reductions (softmax and logsumexp as
// reductions in phases). See backend/fuse_eval.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "backend/fuse_eval.h"
#include "base/check.h"
#include "ir/random.h"

namespace cad::backend::fuse {

using ir::DimId;
using ir::DType;
using ir::Op;
using ReductionKind = kernel::Reduction::Kind;

namespace {
DType computed(DType d) {
  return ir::is_float(d) ? DType::kF32 : d;
}
constexpr double kInfinity = std::numeric_limits<double>::infinity();
}  // namespace

ExprId Evaluator::constant(double value, DType dtype) {
  LoopExpr e;
  e.kind = kernel::Expr::Kind::kConst;
  e.dtype = computed(dtype);
  e.value = value;
  if (dtype == DType::kBF16 || dtype == DType::kF16) e.rounds = dtype;
  return add_expr(std::move(e));
}

ExprId Evaluator::op(Op op, std::vector<ExprId> operands, DType dtype) {
  LoopExpr e;
  e.kind = kernel::Expr::Kind::kOp;
  e.op = op;
  e.dtype = dtype;
  e.operands = std::move(operands);
  return add_expr(std::move(e));
}

ExprId Evaluator::cast(ExprId x, DType from, DType to) {
  if (from == to || (ir::is_float(from) && to == DType::kF32)) return x;
  LoopExpr e;
  e.kind = kernel::Expr::Kind::kOp;
  e.op = Op::kCast;
  e.dtype = computed(to);
  if (to == DType::kBF16 || to == DType::kF16) e.rounds = to;
  e.operands = {x};
  return add_expr(std::move(e));
}

ExprId Evaluator::pointwise(const ir::Node& n, const DimIndex& at, ExprId predicate) {
  std::vector<ExprId> x;
  for (size_t i = 0; i < n.operands.size(); ++i) {
    x.push_back(operand(n, i, at, predicate));
    if (failed_ || restart_) return x.back();
  }
  const DType dtype = computed(at.type->dtype);
  switch (n.op) {
    case Op::kStop:
    case Op::kBroadcast:
      return x[0];
    case Op::kCast:
      return cast(x[0], g_.type(n.operands[0]).dtype, at.type->dtype);
    case Op::kPow: {
      const LoopExpr& power = p_.exprs[static_cast<size_t>(x[1])];
      if (power.kind != kernel::Expr::Kind::kConst || dtype != DType::kF32) break;
      const double p = power.value;
      if (p == 1) return x[0];
      if (p == 2) return op(Op::kMul, {x[0], x[0]}, dtype);
      if (p == 3) return op(Op::kMul, {op(Op::kMul, {x[0], x[0]}, dtype), x[0]}, dtype);
      if (p == 4) {
        ExprId square = op(Op::kMul, {x[0], x[0]}, dtype);
        return op(Op::kMul, {square, square}, dtype);
      }
      if (p == -1) return op(Op::kDiv, {constant(1, dtype), x[0]}, dtype);
      break;
    }
    default:
      break;
  }
  return op(n.op, std::move(x), dtype);
}

// uniform01 of the element's first Philox word (or the standard normal of the first two).
ExprId Evaluator::uniform(const ir::Node& n, const DimIndex& at, size_t first_number, Op kind) {
  LoopExpr e;
  e.kind = kernel::Expr::Kind::kRandom;
  e.op = kind;
  e.dtype = DType::kF32;
  e.site = ir::site_hash(n.attrs.site);
  for (size_t i = first_number; i < n.operands.size(); ++i) {
    e.operands.push_back(value(n.operands[i], {}, -1));
    if (failed_ || restart_) return e.operands.back();
  }
  // Elements are numbered in the whole tensor: a device's part of a dim adds where it begins. Dims
  // before the batch dim have the whole step's rows in their stride.
  const int batch = batch_position(g_, at.type->dims);
  int64_t stride = 1;
  Index rows;
  for (size_t d = at.type->rank(); d-- > 0;) {
    const Index& i = (*at.indices)[d];
    const DimId dim = at.type->dims[d];
    const bool before = static_cast<int>(d) < batch;
    (before ? rows : e.index).add(i, stride);
    if (!g_.dim(dim).axes.empty()) (before ? e.row_shards : e.shards).push_back({dim, stride});
    if (static_cast<int>(d) == batch)
      e.row_stride = stride;  // and the batch extent itself is left to step_rows
    else
      stride *= c_.extent(whole_dim(g_, dim));
  }
  if (!rows.dynamic.empty()) return fail("a random value before the batch dim at a computed index");
  e.rows = rows.affine;
  return add_expr(std::move(e));
}

ExprId Evaluator::random(const ir::Node& n, const DimIndex& at, ExprId predicate) {
  switch (n.op) {
    case Op::kDropout: {
      ExprId x = operand(n, 0, at, predicate);
      ExprId u = uniform(n, at, 1, Op::kUniform);
      std::optional<double> p = n.attrs.scalar.evaluate(*c_.bindings);
      CAD_CHECK(p.has_value(), "dropout's probability is not bound");
      ExprId keep = op(Op::kGe, {u, constant(static_cast<float>(*p), DType::kF32)}, DType::kBool);
      ExprId scaled =
          op(Op::kMul, {x, constant(*p < 1 ? 1 / (1 - *p) : 0, DType::kF32)}, DType::kF32);
      return op(Op::kWhere, {keep, scaled, constant(0, DType::kF32)}, DType::kF32);
    }
    case Op::kNormal: {
      ExprId z = uniform(n, at, 1, Op::kNormal);
      return op(Op::kMul, {z, operand(n, 0, at, predicate)}, DType::kF32);
    }
    case Op::kUniform: {
      ExprId u = uniform(n, at, 2, Op::kUniform);
      ExprId low = operand(n, 0, at, predicate), high = operand(n, 1, at, predicate);
      ExprId width = op(Op::kSub, {high, low}, DType::kF32);
      return op(Op::kAdd, {low, op(Op::kMul, {u, width}, DType::kF32)}, DType::kF32);
    }
    case Op::kBernoulli: {
      ExprId u = uniform(n, at, 1, Op::kUniform);
      return op(Op::kLt, {u, operand(n, 0, at, predicate)}, DType::kBool);
    }
    default:
      CAD_CHECK(false, "op `{}` is not random", ir::op_name(n.op));
  }
}

// Makes the loops of `dims` the inner ones, or checks that they are.
bool Evaluator::open_inner(const std::vector<DimId>& dims) {
  std::set<size_t> wanted;
  for (DimId d : dims) {
    if (dim_loops_.count(d) == 0) {
      // another name for an inner dim of the same size (keys and positions, say)
      const DimId* alias = nullptr;
      if (inner_fixed_)
        for (const auto& [other, loops] : dim_loops_) {
          bool inner =
              !loops.empty() && c_.extent(other) == c_.extent(d) && factors_[other] == factors_[d];
          for (size_t l : loops) inner = inner && p_.loops[l].inner && wanted.count(l) == 0;
          if (inner) alias = &other;
        }
      if (alias != nullptr) {
        dim_loops_[d] = dim_loops_[*alias];
      } else {
        if (inner_fixed_ && c_.extent(d) != 1) {
          fail("reductions over different loops");
          return false;
        }
        add_loops(d, true);
      }
    }
    wanted.insert(dim_loops_[d].begin(), dim_loops_[d].end());
  }
  if (wanted.empty()) return !failed_;
  std::set<size_t> inner;
  for (size_t l = 0; l < p_.loops.size(); ++l)
    if (p_.loops[l].inner) inner.insert(l);
  if (inner_fixed_) {
    if (inner == wanted) return !failed_;
    fail("reductions over different loops");
    return false;
  }
  for (size_t l : wanted) p_.loops[l].inner = true;
  inner_fixed_ = true;
  return !failed_;
}

ExprId Evaluator::reduction(ReductionKind kind, DType dtype, ExprId operand, ExprId index,
                            const std::vector<const Index*>& outer,
                            const std::vector<DimId>& dims) {
  // over dims of size 1 there is no loop and nothing to do
  if (std::all_of(dims.begin(), dims.end(), [this](DimId d) { return c_.extent(d) == 1; }))
    return kind == ReductionKind::kArgmax ? constant(0, DType::kI32) : operand;
  uint64_t mask = 0;
  for (const Index* i : outer) mask |= loops_of(*i);
  LoopReduction r{kind, dtype, operand, index, p_.exprs[static_cast<size_t>(operand)].level};
  if (index >= 0) r.phase = std::max(r.phase, p_.exprs[static_cast<size_t>(index)].level);
  LoopExpr e;
  e.kind = kernel::Expr::Kind::kReduction;
  e.dtype = kind == ReductionKind::kArgmax ? DType::kI32 : dtype;
  e.level = r.phase + 1;
  e.loops = mask;
  for (size_t k = 0; k < p_.reductions.size(); ++k) {
    const LoopReduction& other = p_.reductions[k];
    if (other.kind == kind && other.dtype == dtype && other.operand == operand &&
        other.index == index && reduction_outer_[k] == mask) {
      e.reduction = static_cast<int32_t>(k);
      return add_expr(std::move(e));
    }
  }
  e.reduction = static_cast<int32_t>(p_.reductions.size());
  p_.reductions.push_back(r);
  reduction_outer_.push_back(mask);
  return add_expr(std::move(e));
}

// sum / count, or sum(x w) / sum(w); 0 where the divisor is, and where w is 0 x does not matter.
ExprId Evaluator::mean(const ir::Node& n, const DimIndex& at) {
  std::vector<const Index*> outer;
  for (const Index& i : *at.indices) outer.push_back(&i);
  auto rows = [&](ir::ValueId v) {
    Indices result;
    for (DimId d : g_.type(v).dims) {
      bool gone = std::find(n.attrs.dims.begin(), n.attrs.dims.end(), d) != n.attrs.dims.end();
      result.push_back(gone ? loop_index(d) : at.at(d));
    }
    return result;
  };
  const DType f = DType::kF32;
  ExprId zero = constant(0, f);
  ExprId x = value(n.operands[0], rows(n.operands[0]), -1);
  if (failed_ || restart_) return x;
  x = cast(x, computed(g_.type(n.operands[0]).dtype), f);
  if (n.operands.size() == 1) {
    double count = 1;
    for (DimId d : n.attrs.dims) count *= static_cast<double>(c_.extent(d));
    if (count == 0) return zero;
    ExprId total = reduction(ReductionKind::kSum, f, x, -1, outer, n.attrs.dims);
    return op(Op::kDiv, {total, constant(count, f)}, f);
  }
  ExprId w = value(n.operands[1], rows(n.operands[1]), -1);
  if (failed_ || restart_) return w;
  w = cast(w, computed(g_.type(n.operands[1]).dtype), f);
  ExprId term =
      op(Op::kWhere, {op(Op::kEq, {w, zero}, DType::kBool), zero, op(Op::kMul, {x, w}, f)}, f);
  ExprId total = reduction(ReductionKind::kSum, f, term, -1, outer, n.attrs.dims);
  ExprId count = reduction(ReductionKind::kSum, f, w, -1, outer, n.attrs.dims);
  return op(Op::kWhere,
            {op(Op::kEq, {count, zero}, DType::kBool), zero, op(Op::kDiv, {total, count}, f)}, f);
}

// m = max x, s = sum exp(x - m): log(s) + m, or exp(x - m) / s. A row of -inf alone has m taken as
// 0.
ExprId Evaluator::softmax_like(const ir::Node& n, const DimIndex& at, const Indices& rows) {
  const DType f = DType::kF32;
  std::vector<const Index*> outer;
  for (size_t d = 0; d < at.type->rank(); ++d) {
    DimId dim = at.type->dims[d];
    if (std::find(n.attrs.dims.begin(), n.attrs.dims.end(), dim) == n.attrs.dims.end())
      outer.push_back(&(*at.indices)[d]);
  }
  ExprId x = value(n.operands[0], rows, -1);
  if (failed_ || restart_) return x;
  ExprId top = reduction(ReductionKind::kMax, f, x, -1, outer, n.attrs.dims);
  ExprId none = op(Op::kEq, {top, constant(-kInfinity, f)}, DType::kBool);
  ExprId zero = constant(0, f);
  ExprId shift = op(Op::kWhere, {none, zero, top}, f);
  ExprId e = op(Op::kExp, {op(Op::kSub, {x, shift}, f)}, f);
  ExprId total = reduction(ReductionKind::kSum, f, e, -1, outer, n.attrs.dims);
  if (n.op == Op::kLogSumExp) return op(Op::kAdd, {op(Op::kLog, {total}, f), shift}, f);
  ExprId scale = op(Op::kWhere, {none, zero, op(Op::kDiv, {constant(1, f), total}, f)}, f);
  ExprId here = value(n.operands[0], *at.indices, -1);
  if (failed_ || restart_) return here;
  return op(Op::kMul, {op(Op::kExp, {op(Op::kSub, {here, shift}, f)}, f), scale}, f);
}

ExprId Evaluator::reduce(const ir::Node& n, const DimIndex& at, ExprId predicate) {
  if (predicate >= 0) return fail("a reduction under a condition");
  if (!open_inner(n.attrs.dims)) return 0;
  if (n.op == Op::kMean) return mean(n, at);
  const ir::Type& type = g_.type(n.operands[0]);
  Indices rows;
  for (DimId d : type.dims) {
    bool gone = std::find(n.attrs.dims.begin(), n.attrs.dims.end(), d) != n.attrs.dims.end();
    rows.push_back(gone ? loop_index(d) : at.at(d));
  }
  if (n.op == Op::kSoftmax || n.op == Op::kLogSumExp) return softmax_like(n, at, rows);
  std::vector<const Index*> outer;
  for (const Index& i : *at.indices) outer.push_back(&i);
  ExprId x = value(n.operands[0], rows, -1);
  if (failed_ || restart_) return x;
  DType dtype = computed(type.dtype);
  switch (n.op) {
    case Op::kSum: {
      if (dtype == DType::kBool) {
        x = cast(x, DType::kBool, DType::kI32);
        dtype = DType::kI32;
      }
      return reduction(ReductionKind::kSum, dtype, x, -1, outer, n.attrs.dims);
    }
    case Op::kReduceMax:
      return reduction(ReductionKind::kMax, dtype, x, -1, outer, n.attrs.dims);
    case Op::kReduceMin:
      return reduction(ReductionKind::kMin, dtype, x, -1, outer, n.attrs.dims);
    case Op::kArgmax:
      return reduction(ReductionKind::kArgmax, dtype, x, index_value(loop_index(n.attrs.dims[0])),
                       outer, n.attrs.dims);
    default:
      CAD_CHECK(false, "op `{}` is no reduction of a kernel", ir::op_name(n.op));
  }
}

}  // namespace cad::backend::fuse
