// ir/op_shardings.cc -- the sharding rules of all ops, by kind. A rule lists the loops that devices
// may divide; what it does not list stays whole. See ir/sharding.h for the terms and
// ir/op_shardings.h for which op has which.
#include "ir/op_shardings.h"

#include "ir/op_rules.h"  // defines: operand_type, result_type, without, joined

namespace cad::ir {

namespace {

using Kind = Factor::Kind;

// The loop over `dim`, found by name: what has the dim is split, what has not is whole.
Factor named(const Graph& g, const Node& n, DimId dim) {
  Factor factor;
  for (ValueId x : n.operands) factor.operands.push_back(g.type(x).has(dim) ? dim : DimId{});
  for (ValueId y : n.results) factor.results.push_back({g.type(y).has(dim) ? dim : DimId{}, false});
  return factor;
}

// A loop that no operand and no result takes part in yet.
Factor empty_factor(const Node& n, Kind kind = Kind::kMap) {
  Factor factor;
  factor.kind = kind;
  factor.operands.resize(n.operands.size());
  factor.results.resize(n.results.size());
  return factor;
}

// Over `dim` by name where operands have it; results without it are partial.
Factor summed(const Graph& g, const Node& n, DimId dim) {
  Factor factor = named(g, n, dim);
  for (Factor::Result& result : factor.results) result.partial = !result.dim.valid();
  return factor;
}

bool is_zero(const Scalar& scalar) {
  const auto number = scalar.number();
  return number && *number == 0;
}

// Which operands of a pointwise op may be partial together.
std::vector<std::vector<int>> pointwise_linear(const Graph& g, const Node& n) {
  switch (n.op) {
    case Op::kAdd:
    case Op::kSub:
      return {{0, 1}};
    case Op::kMul:
      return {{0}, {1}};
    case Op::kDiv:
    case Op::kNeg:
    case Op::kStop:
    case Op::kBroadcast:
    case Op::kTranspose:
    case Op::kDropout:
      return {{0}};
    case Op::kWhere:
      return {{1, 2}};
    case Op::kCast:  // between floats, up to rounding
      if (is_float(operand_type(g, n, 0).dtype) && is_float(result_type(g, n).dtype)) return {{0}};
      return {};
    default:
      return {};
  }
}

}  // namespace

ShardingRule whole_sharding(const Graph&, const Node& n) {
  ShardingRule rule;
  if (n.op == Op::kStepTotal) rule.linear = {{0}};
  return rule;
}

// iota, random tensors, inputs: each device makes (holds) its own part.
ShardingRule made_sharding(const Graph& g, const Node& n) {
  ShardingRule rule;
  for (DimId d : result_type(g, n).dims) {
    Factor factor = empty_factor(n);
    factor.results[0].dim = d;
    rule.factors.push_back(std::move(factor));
  }
  return rule;
}

// out[m.., n..] = sum over k of a b: k leaves partial sums, everything else splits the result.
ShardingRule contract_sharding(const Graph& g, const Node& n) {
  ShardingRule rule;
  for (DimId d : joined(operand_type(g, n, 0).dims, operand_type(g, n, 1).dims)) {
    rule.factors.push_back(contains(n.attrs.dims, d) ? summed(g, n, d) : named(g, n, d));
  }
  rule.linear = {{0}, {1}};
  return rule;
}

ShardingRule pointwise_sharding(const Graph& g, const Node& n) {
  ShardingRule rule;
  for (DimId d : result_type(g, n).dims) rule.factors.push_back(named(g, n, d));
  rule.linear = pointwise_linear(g, n);
  return rule;
}

// sum, mean: partial sums (a mean's are divided by the whole count). max, min: one maximum.
// logsumexp, softmax: a maximum and a sum; their gradients sum g (logsumexp: g itself is partial)
// or g y. A weighted mean: two sums. Extremes' gradients agree on the first place and on g.
ShardingRule reduce_sharding(const Graph& g, const Node& n) {
  ShardingRule rule;
  Dims dims = operand_type(g, n, 0).dims;
  if (n.operands.size() > 1) dims = joined(dims, operand_type(g, n, 1).dims);
  const bool weighted = n.op == Op::kMean && n.operands.size() > 1;
  const bool sums = n.op == Op::kSum || (n.op == Op::kMean && !weighted);
  for (DimId d : dims) {
    if (!contains(n.attrs.dims, d)) {
      rule.factors.push_back(named(g, n, d));
      rule.statistic.dims.push_back(d);
    } else if (sums) {
      rule.factors.push_back(summed(g, n, d));
    } else {
      rule.factors.push_back(named(g, n, d));
      rule.factors.back().kind = Kind::kStatistic;
    }
  }
  if (sums) {
    rule.statistic.dims.clear();
  } else if (weighted) {
    rule.statistic.forward = 2;
    rule.statistic.backward = 1;
  } else if (n.op == Op::kReduceMax || n.op == Op::kReduceMin) {
    rule.statistic.forward = 1;
    rule.statistic.backward = 2;
  } else {
    rule.statistic.forward = 2;
    rule.statistic.backward = 1;
  }
  if (n.op == Op::kSum || n.op == Op::kMean) rule.linear = {{0}};
  return rule;
}

// One dim becomes one (rename), or the major ones of a split and a merge are one loop: stretches of
// D = (H, K) are whole ks if those of H line up with them.
ShardingRule regroup_sharding(const Graph& g, const Node& n) {
  // A leading dim of size 1 moves nothing; the next is major.
  const auto major = [&](const Dims& dims) {
    for (DimId d : dims) {
      if (g.dim(d).size.constant() != 1) return d;
    }
    return DimId{};
  };
  ShardingRule rule;
  Dims grouped;
  for (const DimGroup& group : n.attrs.groups) grouped = joined(grouped, group.from);
  for (DimId d : operand_type(g, n, 0).dims) {
    if (contains(grouped, d)) continue;
    Factor factor = empty_factor(n);
    factor.operands[0] = d;
    factor.results[0].dim = d;
    rule.factors.push_back(std::move(factor));
  }
  for (const DimGroup& group : n.attrs.groups) {
    Factor factor = empty_factor(n);
    factor.operands[0] = major(group.from);
    factor.results[0].dim = major(group.to);
    if (factor.operands[0].valid() && factor.results[0].dim.valid())
      rule.factors.push_back(std::move(factor));
  }
  rule.linear = {{0}};
  return rule;
}

// Slices, pads, joins, windows, running sums, top-k, argmax: the dims they work on stay whole, all
// others are free. Linear, but for the picks and where something else than zero is filled in.
ShardingRule kept_sharding(const Graph& g, const Node& n) {
  ShardingRule rule;
  Dims own{n.attrs.dim, n.attrs.to, n.attrs.window};
  if (n.op == Op::kConcat || n.op == Op::kArgmax) own = joined(own, n.attrs.dims);
  for (DimId d : operand_type(g, n, 0).dims) {
    if (!contains(own, d)) rule.factors.push_back(named(g, n, d));
  }
  const bool picks = n.op == Op::kArgmax || n.op == Op::kTopK;
  const bool fills = n.op == Op::kPad || n.op == Op::kWindow;
  if (picks || (fills && !is_zero(n.attrs.scalar))) return rule;
  std::vector<int> all;
  for (size_t i = 0; i < n.operands.size(); ++i) all.push_back(static_cast<int>(i));
  rule.linear = {all};
  return rule;
}

// out[i.., r..] = w[V = ids[i..], r..]: V is a look-up in each device's rows. select: i has rank 0.
ShardingRule gather_sharding(const Graph& g, const Node& n) {
  ShardingRule rule;
  const Dims rest = without(operand_type(g, n, 0).dims, {n.attrs.dim});
  for (DimId d : joined(rest, operand_type(g, n, 1).dims)) {
    Factor factor = named(g, n, d);
    if (!contains(rest, d)) factor.operands[0] = {};  // ids over the table's own dim: V of ids
    rule.factors.push_back(std::move(factor));
  }
  Factor table = empty_factor(n, Kind::kLookup);
  table.operands[0] = n.attrs.dim;
  table.results[0].partial = true;
  rule.factors.push_back(std::move(table));
  rule.linear = {{0}};
  return rule;
}

// The adjoint: each device adds what falls in its stretch of V; dims of ids alone are summed.
ShardingRule scatter_sharding(const Graph& g, const Node& n) {
  ShardingRule rule;
  const Dims rest = without(result_type(g, n).dims, {n.attrs.dim});
  for (DimId d : joined(rest, operand_type(g, n, 1).dims)) {
    Factor factor = named(g, n, d);
    if (!contains(rest, d)) factor.results[0] = {{}, true};
    rule.factors.push_back(std::move(factor));
  }
  Factor table = empty_factor(n);
  table.results[0].dim = n.attrs.dim;
  rule.factors.push_back(std::move(table));
  rule.linear = {{0}};
  return rule;
}

// Query rows, batch dims, heads and v's own dims are free; keys and K are under the softmax.
ShardingRule attention_sharding(const Graph& g, const Node& n) {
  ShardingRule rule;
  const Dims under{n.attrs.dims[1], n.attrs.dims[2]};
  for (DimId d : without(joined(operand_type(g, n, 0).dims, operand_type(g, n, 2).dims), under)) {
    rule.factors.push_back(named(g, n, d));
  }
  return rule;
}

// (q, k, v, out, lse, g, ..) -> (dq, dk, dv): a gradient is a sum over what its tensor has not.
// Over v's own dims, dq and dk are: both are linear in g v' summed over them.
ShardingRule attention_grad_sharding(const Graph& g, const Node& n) {
  ShardingRule rule = attention_sharding(g, n);
  for (Factor& factor : rule.factors) {
    for (Factor::Result& result : factor.results) result.partial = !result.dim.valid();
  }
  rule.linear = {{5}};
  return rule;
}

}  // namespace cad::ir
