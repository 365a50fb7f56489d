// backend/spmd/lower_op.cc -- one op at one split: the same op on the device's parts, with its dims
// named anew, where a part of the result needs a part of the operands. Where it needs more, more
// ops: what devices agree on (maxima, sums of exponentials), look-ups and positions counted from
// the device's own begin.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/spmd/lowering.h"
#include "base/check.h"
#include "ir/shard.h"

namespace cad::backend {

using ir::Attrs;
using ir::Builder;
using ir::DimId;
using ir::DType;
using ir::Op;
using ir::Scalar;
using ir::ValueId;
using planner::Layout;
using planner::Strategy;

namespace {

ValueId number(Builder& b, double value, DType dtype) {
  return b.constant(Scalar(value), dtype);
}

ValueId all_reduce(Builder& b, ValueId x, uint32_t axes, ir::Reduction reduction) {
  Attrs attrs;
  attrs.axes = axes;
  attrs.reduction = reduction;
  return b.make(Op::kAllReduce, {x}, std::move(attrs));
}

ValueId reduce(Builder& b, Op op, ValueId x, const std::vector<DimId>& dims) {
  Attrs attrs;
  attrs.dims = dims;
  return b.make(op, {x}, std::move(attrs));
}

bool contains(const std::vector<DimId>& dims, DimId dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

// Softmax or logsumexp: the maximum cancels out, so no gradient goes through it.
ValueId softmax(Builder& b, Op op, ValueId from, const std::vector<DimId>& dims, uint32_t axes) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const DType dtype = b.graph().type(from).dtype;
  const ValueId x = b.cast(from, DType::kF32);
  const ValueId most =
      b.unary(Op::kStop, all_reduce(b, reduce(b, Op::kReduceMax, b.unary(Op::kStop, x), dims), axes,
                                    ir::Reduction::kMax));
  const ValueId hidden = b.make(Op::kEq, {most, number(b, -kInfinity, DType::kF32)});
  const ValueId base = b.where(hidden, number(b, 0, DType::kF32), most);
  const ValueId e = b.unary(Op::kExp, b.sub(x, base));
  const ValueId sum = all_reduce(b, reduce(b, Op::kSum, e, dims), axes, ir::Reduction::kSum);
  const ValueId none = b.make(Op::kEq, {sum, number(b, 0, DType::kF32)});
  const ValueId safe = b.where(none, number(b, 1, DType::kF32), sum);
  if (op == Op::kSoftmax) return b.cast(b.div(e, safe), dtype);
  const ValueId value =
      b.where(none, number(b, -kInfinity, DType::kF32), b.add(b.unary(Op::kLog, safe), base));
  return b.cast(value, dtype);
}

}  // namespace

const planner::OpSharding& Lowering::sharding(ir::NodeId id) {
  const auto known = shardings_.find(id.index);
  if (known != shardings_.end()) return known->second;
  return shardings_.emplace(id.index, planner::OpSharding(g_, id, extents_)).first->second;
}

// Which dims the op means, as the device has them.
Attrs Lowering::attributes(const ir::Node& n, const Strategy& s) {
  std::map<int, DimId> given, made;
  for (size_t k = 0; k < n.operands.size(); ++k) {
    const ir::Type& type = g_.type(n.operands[k]);
    for (size_t p = 0; p < type.rank(); ++p)
      given.emplace(type.dims[p].index, dims_->part(type, s.operands[k], p));
  }
  for (size_t r = 0; r < n.results.size(); ++r) {
    const ir::Type& type = g_.type(n.results[r]);
    for (size_t p = 0; p < type.rank(); ++p)
      made.emplace(type.dims[p].index, dims_->part(type, s.results[r], p));
  }
  const auto local = [](DimId d, const std::map<int, DimId>& first,
                        const std::map<int, DimId>& second) {
    if (!d.valid()) return d;
    if (const auto at = first.find(d.index); at != first.end()) return at->second;
    if (const auto at = second.find(d.index); at != second.end()) return at->second;
    return d;
  };
  const auto of_operand = [&](DimId d) { return local(d, given, made); };
  const auto of_result = [&](DimId d) { return local(d, made, given); };
  Attrs attrs = n.attrs;
  bool result_dims = true;
  switch (n.op) {
    case Op::kContract:
    case Op::kSum:
    case Op::kMean:
    case Op::kReduceMax:
    case Op::kReduceMin:
    case Op::kArgmax:
    case Op::kLogSumExp:
    case Op::kSoftmax:
    case Op::kConcat:
    case Op::kAttention:
    case Op::kAttentionGrad:
      result_dims = false;
      break;
    default:
      break;
  }
  for (DimId& d : attrs.dims) d = result_dims ? of_result(d) : of_operand(d);
  for (ir::DimGroup& group : attrs.groups) {
    for (DimId& d : group.from) d = of_operand(d);
    for (DimId& d : group.to) d = of_result(d);
  }
  const bool restores = n.op == Op::kIota || n.op == Op::kScatterAdd || n.op == Op::kUnselect ||
                        n.op == Op::kUnwindow;
  attrs.dim = restores ? of_result(attrs.dim) : of_operand(attrs.dim);
  attrs.to = n.op == Op::kUnwindow ? of_operand(attrs.to) : of_result(attrs.to);
  attrs.window = n.op == Op::kUnwindow ? of_operand(attrs.window) : of_result(attrs.window);
  for (DimId& d : attrs.probs) d = of_operand(d);
  return attrs;
}

// Ids into a dim as ids into the device's part of it; -1 where they are another's.
ValueId Lowering::shifted(Builder& b, ValueId ids, DimId whole, const AxisOrder& axes) {
  if (axes.empty()) return ids;
  const ValueId local = b.sub(ids, dims_->offset(b, whole, axes));
  if (!ir::is_uneven(out_.graph, dims_->part(whole, axes), {})) return local;  // outside is outside
  const ValueId own = b.make(Op::kLt, {local, dims_->own_extent(b, whole, axes)});
  return b.where(own, local, number(b, -1, DType::kI32));
}

// Axes that split dims which the op reduces, of its operand k.
uint32_t Lowering::reduced_axes(const ir::Node& n, const Strategy& s, size_t k) const {
  uint32_t axes = 0;
  const ir::Type& type = g_.type(n.operands[k]);
  for (size_t p = 0; p < type.rank(); ++p) {
    if (contains(n.attrs.dims, type.dims[p])) axes |= set_of(axis_order(s.operands[k], p));
  }
  return axes;
}

// Normalised or reduced over dims that devices share: they agree on maxima and sums.
ValueId Lowering::statistic(Builder& b, const ir::Node& n, const Strategy& s,
                            const std::vector<ValueId>& operands, const Attrs& attrs) {
  const uint32_t axes = reduced_axes(n, s, 0);
  const ValueId x = operands[0];
  switch (n.op) {
    case Op::kReduceMax:
      return all_reduce(b, reduce(b, n.op, x, attrs.dims), axes, ir::Reduction::kMax);
    case Op::kReduceMin:
      return all_reduce(b, reduce(b, n.op, x, attrs.dims), axes, ir::Reduction::kMin);
    case Op::kMean:
      return weighted_mean(b, n, s, operands, attrs);
    case Op::kArgmax:
      return argmax(b, n, s, x, attrs);
    case Op::kSoftmax:
    case Op::kLogSumExp:
      return softmax(b, n.op, x, attrs.dims, axes);
    default:
      CAD_CHECK(false, "`{}` has no rule for shared dims", ir::op_name(n.op));
  }
  return {};
}

// sum(x * w) / sum(w), 0 where the weights are.
ValueId Lowering::weighted_mean(Builder& b, const ir::Node& n, const Strategy& s,
                                const std::vector<ValueId>& operands, const Attrs& attrs) {
  const ValueId w = b.cast(operands[1], DType::kF32), x = b.cast(operands[0], DType::kF32);
  // the weight may lack dims of x, and have others
  const uint32_t counted = reduced_axes(n, s, 1), axes = reduced_axes(n, s, 0) | counted;
  const ValueId total =
      all_reduce(b, reduce(b, Op::kSum, b.mul(x, w), attrs.dims), axes, ir::Reduction::kSum);
  std::vector<DimId> shared;
  for (const DimId d : attrs.dims) {
    if (b.graph().type(w).has(d)) shared.push_back(d);
  }
  double rest = 1;  // dims that the weight lacks count each of its elements
  for (const DimId d : g_.type(n.operands[0]).dims) {
    if (contains(n.attrs.dims, d) && !g_.type(n.operands[1]).has(d))
      rest *= static_cast<double>(extents_[static_cast<size_t>(d.index)]);
  }
  ValueId count = reduce(b, Op::kSum, w, shared);
  if (counted != 0) count = all_reduce(b, count, counted, ir::Reduction::kSum);
  if (rest != 1) count = b.mul(count, number(b, rest, DType::kF32));
  const ValueId none = b.make(Op::kEq, {count, number(b, 0, DType::kF32)});
  const ValueId safe = b.where(none, number(b, 1, DType::kF32), count);
  const ValueId mean = b.where(none, number(b, 0, DType::kF32), b.div(total, safe));
  return b.cast(mean, g_.type(n.results[0]).dtype);
}

// Over one dim: the least place, in the whole, of those where the maximum of all devices is.
ValueId Lowering::argmax(Builder& b, const ir::Node& n, const Strategy& s, ValueId x,
                         const Attrs& attrs) {
  const ir::Type& type = g_.type(n.operands[0]);
  const DimId split = n.attrs.dims[0];
  const AxisOrder order = axis_order(s.operands[0], static_cast<size_t>(type.position(split)));
  const uint32_t axes = set_of(order);
  const ValueId most = reduce(b, Op::kReduceMax, x, attrs.dims);
  const ValueId best = all_reduce(b, most, axes, ir::Reduction::kMax);
  const ValueId place = b.add(b.make(Op::kArgmax, {x}, attrs), dims_->offset(b, split, order));
  const ValueId far = number(b, std::numeric_limits<int32_t>::max(), DType::kI32);
  const ValueId mine = b.where(b.make(Op::kEq, {most, best}), place, far);
  return all_reduce(b, mine, axes, ir::Reduction::kMin);
}

std::vector<ValueId> Lowering::emit(Frame& f, ir::NodeId id, const Strategy& s) {
  const ir::Node& n = g_.node(id);
  std::vector<ValueId> operands;
  for (size_t k = 0; k < n.operands.size(); ++k)
    operands.push_back(get(f, n.operands[k], s.operands[k]));
  Builder b = builder(f);
  b.scope = n.scope;
  b.span = n.span;
  Attrs attrs = attributes(n, s);
  const ir::ShardingRule& rule = sharding(id).rule();
  uint32_t summed = 0;  // axes whose partial integers are summed here
  bool agrees = false;
  for (size_t a = 0; a < out_.mesh.axes.size(); ++a) {
    const int8_t factor = s.assignment[a];
    if (factor < 0) continue;
    const ir::Factor& used = rule.factors[static_cast<size_t>(factor)];
    agrees = agrees || used.kind == ir::Factor::Kind::kStatistic;
    if (used.results[0].partial && s.results[0].axis[a] != planner::kPartial) summed |= 1U << a;
  }
  std::vector<ValueId> results;
  // The axes that split the dim which ids point into.
  const auto axes_of_dim = [&](const ir::Type& type, const Layout& layout) {
    const int p = type.position(n.attrs.dim);
    return p < 0 ? AxisOrder{} : axis_order(layout, static_cast<size_t>(p));
  };
  if (agrees) {
    results = {statistic(b, n, s, operands, attrs)};
  } else if (n.op == Op::kMean && n.operands.size() == 1) {
    // of the whole, whatever part is here
    double count = 1;
    for (const DimId d : n.attrs.dims)
      count *= static_cast<double>(extents_[static_cast<size_t>(d.index)]);
    const DType dtype = g_.type(n.results[0]).dtype;
    const ValueId sum = reduce(b, Op::kSum, b.cast(operands[0], DType::kF32), attrs.dims);
    results = {b.cast(b.mul(sum, number(b, count == 0 ? 0 : 1 / count, DType::kF32)), dtype)};
  } else if (n.op == Op::kIota) {
    const AxisOrder axes = axis_order(s.results[0], 0);
    const ValueId own = b.make(n.op, {}, attrs);
    results = {axes.empty() ? own : b.add(own, dims_->offset(b, n.attrs.dim, axes))};
  } else {
    if (n.op == Op::kGather || n.op == Op::kSelect) {
      const AxisOrder axes = axes_of_dim(g_.type(n.operands[0]), s.operands[0]);
      attrs.dim = dims_->part(n.attrs.dim, axes);
      operands[1] = shifted(b, operands[1], n.attrs.dim, axes);
    } else if (n.op == Op::kScatterAdd || n.op == Op::kUnselect) {
      operands[1] =
          shifted(b, operands[1], n.attrs.dim, axes_of_dim(g_.type(n.results[0]), s.results[0]));
    }
    results = b.make_all(n.op, operands, attrs);
  }
  for (size_t r = 0; r < results.size(); ++r) {
    if (summed != 0) results[r] = all_reduce(b, results[r], summed, ir::Reduction::kSum);
    const ir::Type wanted = dims_->type(g_.type(n.results[r]), s.results[r]);
    CAD_CHECK(out_.graph.type(results[r]) == wanted, "`{}` gives {}, {} is wanted",
              ir::op_name(n.op), out_.graph.str(out_.graph.type(results[r])),
              out_.graph.str(wanted));
    out_.graph.value(results[r]).name = g_.value(n.results[r]).name;
    out_.graph.value(results[r]).saving = g_.value(n.results[r]).saving;
  }
  return results;
}

}  // namespace cad::backend
