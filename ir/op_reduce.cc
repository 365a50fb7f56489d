// ir/op_reduce.cc -- ops that reduce or normalise along dims, with all their rules.
//
// (C1) x's dtype is the op's (floats; numbers for max, min, argmax, cumsum; any for sum and mean).
// (C2) attrs.dims (cumsum: attrs.dim) are dims of x, none twice. (C3) argmax: exactly one.
// (C4) mean with a weight: one side's dims contain the other's; the weight has the result's dtype,
//      or i32 or bool. (C5) step_total: rank 0.
// Sums are accumulated in f32 or better. Of nothing: sum 0, mean 0, max -inf (i32: the least).
#include <cmath>
#include <limits>

#include "ir/op_rules.h"  // defines: Axes, Named, walk, shape helpers

namespace cad::ir {

using Code = ShapeError::Code;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::optional<ShapeResult> wrong_dims(const Graph& g, Values operands, const Dims& dims) {
  if (auto wrong = unknown(g, dims)) return wrong;
  if (auto wrong = missing(g, operands, 0, dims)) return wrong;
  if (auto twice = duplicate(dims)) {
    return failed(Code::kDuplicateDim, -1, {*twice},
                  fmt::format("`{}` is listed twice", g.dim(*twice).name));
  }
  return std::nullopt;
}

// A result without attrs.dims (or with them, for softmax).
ShapeResult reduced(const Graph& g, Values operands, const Attrs& attrs, Accepts accepts,
                    bool keep = false) {
  if (auto wrong = wrong_operands(g, operands, {accepts})) return *wrong;
  if (auto wrong = wrong_dims(g, operands, attrs.dims)) return *wrong;
  const Type& x = g.type(operands[0]);
  return typed(x.dtype, keep ? x.dims : without(x.dims, attrs.dims));
}

// What a rule needs to iterate: the kept dims outside, the reduced inside.
struct Reduction {
  Reduction(const Graph& g, const Node& n, const Dims& dims, const Bindings& bindings)
      : kept(axes_of(g, without(operand_type(g, n, 0).dims, dims), bindings)),
        inner(axes_of(g, dims, bindings)),
        all(axes_of(g, joined(kept.dims, dims), bindings)) {}

  // body(kept index) gets each row; `over` visits the row's full indices.
  template <class F>
  void over(const Index& outer, F&& body) const {
    Index index(all.dims.size());
    std::copy(outer.begin(), outer.end(), index.begin());
    walk(inner, [&](const Index& i) {
      std::copy(i.begin(), i.end(), index.begin() + static_cast<ptrdiff_t>(outer.size()));
      body(static_cast<const Index&>(index));
    });
  }

  Axes kept, inner, all;
};

// --- sum
// ------------------------------------------------------------------------------------------

ShapeResult sum_shape(const Graph& g, Values operands, const Attrs& attrs) {
  ShapeResult result = reduced(g, operands, attrs, Accepts::kAny);
  if (result.errors.empty() && result.types[0].dtype == DType::kBool)
    result.types[0].dtype = DType::kI32;
  return result;
}

std::vector<Tensor> sum_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  Tensor out = filled(g, result_type(g, n), context.bindings, 0);
  const Reduction r(g, n, n.attrs.dims, context.bindings);
  const Named x(r.all, operand_type(g, n, 0).dims, *in[0]);
  const Named result(r.all, result_type(g, n).dims, out);
  walk(r.all, [&](const Index& i) { result(i) += x(i); });
  return {out};
}

// dx = g, repeated
std::vector<ValueId> sum_grad(Builder& b, NodeId node, Values grads) {
  const Type x = b.graph().type(b.graph().node(node).operands[0]);
  if (!is_float(x.dtype)) return {{}};
  return {b.broadcast(grads[0], x.dims)};
}

// --- mean
// -----------------------------------------------------------------------------------------

ShapeResult mean_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (operands.empty() || operands.size() > 2) {
    return failed(Code::kOther, -1, {}, "`mean` takes one operand and a weight");
  }
  if (auto wrong = unknown(g, attrs.dims)) return *wrong;
  const Type& x = g.type(operands[0]);
  const DType dtype = is_float(x.dtype) ? x.dtype : DType::kF32;
  if (operands.size() == 1) {
    if (auto wrong = wrong_dims(g, operands, attrs.dims)) return *wrong;
    return typed(dtype, without(x.dims, attrs.dims));
  }
  const Type& w = g.type(operands[1]);
  if (is_float(w.dtype) && w.dtype != dtype) {
    return failed(Code::kDType, 1, {},
                  fmt::format("the values are `{}`, the weight `{}`", dtype_name(dtype),
                              dtype_name(w.dtype)));
  }
  const bool first = contains_all(x.dims, w.dims);
  if (!first && !contains_all(w.dims, x.dims)) {
    const Dims apart = joined(without(x.dims, w.dims), without(w.dims, x.dims));
    return failed(Code::kNotSubset, 1, apart,
                  fmt::format("one side's dims must contain the other's; {} are not on both",
                              names(g, apart)));
  }
  if (auto wrong = wrong_dims(g, operands.subspan(first ? 0 : 1, 1), attrs.dims)) return *wrong;
  return typed(dtype, without(joined(x.dims, w.dims), attrs.dims));
}

std::vector<Tensor> mean_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  Tensor out = filled(g, result_type(g, n), context.bindings, 0), weights = out;
  Dims dims = operand_type(g, n, 0).dims;
  if (in.size() > 1) dims = joined(dims, operand_type(g, n, 1).dims);
  const Axes axes = axes_of(g, dims, context.bindings);
  const Named x(axes, operand_type(g, n, 0).dims, *in[0]);
  const Tensor ones = filled(g, Type{}, context.bindings, 1);
  const Named w(axes, in.size() > 1 ? operand_type(g, n, 1).dims : Dims{},
                in.size() > 1 ? *in[1] : ones);
  const Named sum(axes, result_type(g, n).dims, out), count(axes, result_type(g, n).dims, weights);
  // Without a weight the count is that of the whole dims: a part gives its summand of the mean.
  double whole = 1;
  for (DimId d : n.attrs.dims) whole *= static_cast<double>(shard_of(g, d, context).whole);
  walk(axes, [&](const Index& i) {
    sum(i) += w(i) == 0 ? 0 : x(i) * w(i);
    count(i) += w(i);
  });
  for (size_t i = 0; i < out.data.size(); ++i) {
    const double divisor = in.size() > 1 ? weights.data[i] : whole;
    out.data[i] = divisor == 0 ? 0 : out.data[i] / divisor;
  }
  return {out};
}

// One operand: dx = g / n. With a weight, s = sum(w): dx = g w / s, dw = g (x - y) / s; 0 where s =
// 0.
std::vector<ValueId> mean_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  const Type x = operand_type(b.graph(), n, 0);
  const DType dtype = result_type(b.graph(), n).dtype;
  if (n.operands.size() == 1) {
    if (!is_float(x.dtype)) return {{}};
    Size count = 1;
    for (DimId d : n.attrs.dims) count = count * b.graph().dim(d).size;
    ValueId share = b.constant(Scalar::call("div", {1.0, Scalar::size(count)}), dtype);
    return {b.broadcast(b.mul(grads[0], share), x.dims)};
  }
  const Type weight = operand_type(b.graph(), n, 1);
  Attrs over;
  over.dims = joined(x.dims, weight.dims);
  const ValueId w = b.broadcast(b.cast(n.operands[1], dtype), over.dims);
  const ValueId s = b.sum(w, n.attrs.dims);
  const ValueId zero = b.constant(0.0, dtype);
  const ValueId share = b.where(b.make(Op::kEq, {s, zero}), zero, b.div(grads[0], s));
  std::vector<ValueId> result(2);
  if (is_float(x.dtype)) result[0] = b.sum_to(b.make(Op::kMul, {share, w}, over), x.dims);
  if (is_float(weight.dtype)) {
    // x alone may lack dims that y has, so both meet over all dims.
    ValueId apart = b.make(Op::kSub, {b.cast(n.operands[0], dtype), n.results[0]}, over);
    result[1] = b.sum_to(b.make(Op::kMul, {share, apart}, over), weight.dims);
  }
  return result;
}

// --- max, min, argmax
// -------------------------------------------------------------------------------

ShapeResult extremum_shape(const Graph& g, Values operands, const Attrs& attrs) {
  return reduced(g, operands, attrs, Accepts::kNumber);
}

// NaN in a row is kept, as in the elementwise max.
std::vector<Tensor> extremum_eval(const Graph& g, const Node& n, Operands in,
                                  EvalContext& context) {
  const double sign = n.op == Op::kReduceMax ? 1 : -1;
  const double least = result_type(g, n).dtype == DType::kI32
                           ? (sign > 0 ? -2147483648.0 : 2147483647.0)
                           : -sign * kInf;
  Tensor out = filled(g, result_type(g, n), context.bindings, least);
  const Reduction r(g, n, n.attrs.dims, context.bindings);
  const Named x(r.all, operand_type(g, n, 0).dims, *in[0]);
  const Named result(r.all, result_type(g, n).dims, out);
  walk(r.all, [&](const Index& i) {
    if (std::isnan(x(i)) || sign * x(i) > sign * result(i)) result(i) = x(i);
  });
  return {out};
}

// To the first extremum in storage order: dim by dim from the innermost, g goes where iota =
// argmax.
std::vector<ValueId> extremum_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  const Type x = operand_type(b.graph(), n, 0);
  if (!is_float(x.dtype)) return {{}};
  Dims inner;
  for (size_t i = x.dims.size(); i-- > 0;) {
    if (contains(n.attrs.dims, x.dims[i])) inner.push_back(x.dims[i]);
  }
  std::vector<ValueId> stages{n.operands[0]};  // x with one, two, .. dims reduced
  for (size_t i = 0; i + 1 < inner.size(); ++i) {
    Attrs attrs;
    attrs.dims = {inner[i]};
    stages.push_back(b.make(n.op, {stages.back()}, attrs));
  }
  ValueId grad = grads[0];
  const ValueId zero = b.constant(0.0, x.dtype);
  for (size_t i = inner.size(); i-- > 0;) {
    Attrs attrs, over;
    attrs.dims = {inner[i]};
    ValueId stage = stages[i];
    over.dims = b.graph().type(stage).dims;
    ValueId best =
        b.make(Op::kArgmax, {n.op == Op::kReduceMax ? stage : b.unary(Op::kNeg, stage)}, attrs);
    attrs.dim = inner[i];
    ValueId here = b.make(Op::kEq, {b.make(Op::kIota, {}, attrs), best}, over);
    grad = b.where(here, grad, zero);
  }
  return {grad};
}

ShapeResult argmax_shape(const Graph& g, Values operands, const Attrs& attrs) {
  ShapeResult result = reduced(g, operands, attrs, Accepts::kNumber);
  if (!result.errors.empty()) return result;
  if (attrs.dims.size() != 1) {
    return failed(Code::kOther, -1, attrs.dims,
                  fmt::format("`argmax` is over one dim, not {}", attrs.dims.size()));
  }
  result.types[0].dtype = DType::kI32;
  return result;
}

std::vector<Tensor> argmax_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  Tensor out = filled(g, result_type(g, n), context.bindings, 0);
  const Reduction r(g, n, n.attrs.dims, context.bindings);
  const Named x(r.all, operand_type(g, n, 0).dims, *in[0]);
  size_t at = 0;
  walk(r.kept, [&](const Index& row) {
    double best = -kInf;
    r.over(row, [&](const Index& i) {
      if (i.back() == 0 || x(i) > best) {
        best = x(i);
        out.data[at] = static_cast<double>(i.back());
      }
    });
    ++at;
  });
  return {out};
}

// --- logsumexp, softmax
// -----------------------------------------------------------------------------

ShapeResult logsumexp_shape(const Graph& g, Values operands, const Attrs& attrs) {
  return reduced(g, operands, attrs, Accepts::kFloat);
}

ShapeResult softmax_shape(const Graph& g, Values operands, const Attrs& attrs) {
  return reduced(g, operands, attrs, Accepts::kFloat, true);
}

// The row's maximum and sum of e^(x - maximum); {-inf, 0} when every element is -inf.
template <class X>
std::pair<double, double> stable_sum(const Reduction& r, const Index& row, const X& x) {
  double most = -kInf, sum = 0;
  r.over(row, [&](const Index& i) { most = std::isnan(x(i)) || x(i) > most ? x(i) : most; });
  if (most == -kInf) return {most, 0};
  r.over(row, [&](const Index& i) { sum += std::exp(x(i) - most); });
  return {most, sum};
}

std::vector<Tensor> logsumexp_eval(const Graph& g, const Node& n, Operands in,
                                   EvalContext& context) {
  Tensor out = filled(g, result_type(g, n), context.bindings, 0);
  const Reduction r(g, n, n.attrs.dims, context.bindings);
  const Named x(r.all, operand_type(g, n, 0).dims, *in[0]);
  size_t at = 0;
  walk(r.kept, [&](const Index& row) {
    auto [most, sum] = stable_sum(r, row, x);
    out.data[at++] = most == -kInf ? -kInf : most + std::log(sum);
  });
  return {out};
}

// dx = g e^(x - y). A row of -inf: e^(-inf - 0) = 0.
std::vector<ValueId> logsumexp_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  const Type x = operand_type(b.graph(), n, 0);
  const ValueId y = n.results[0];
  ValueId finite = b.make(Op::kGt, {y, b.constant(-kInf, x.dtype)});
  ValueId safe = b.where(finite, y, b.constant(0.0, x.dtype));
  Attrs over;
  over.dims = x.dims;
  ValueId share = b.unary(Op::kExp, b.make(Op::kSub, {n.operands[0], safe}, over));
  return {b.mul(share, grads[0])};
}

std::vector<Tensor> softmax_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  Tensor out = filled(g, result_type(g, n), context.bindings, 0);
  const Reduction r(g, n, n.attrs.dims, context.bindings);
  const Named x(r.all, operand_type(g, n, 0).dims, *in[0]);
  const Named y(r.all, result_type(g, n).dims, out);
  walk(r.kept, [&](const Index& row) {
    const auto stable = stable_sum(r, row, x);
    if (stable.first == -kInf) return;  // zeros
    r.over(row, [&](const Index& i) { y(i) = std::exp(x(i) - stable.first) / stable.second; });
  });
  return {out};
}

// dx = y (g - sum(g y))
std::vector<ValueId> softmax_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  const ValueId y = n.results[0];
  ValueId dot = b.sum(b.mul(grads[0], y), n.attrs.dims);
  return {b.mul(y, b.sub(grads[0], dot))};
}

// --- cumsum
// -----------------------------------------------------------------------------------------

ShapeResult cumsum_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kNumber})) return *wrong;
  if (auto wrong = wrong_dims(g, operands, {attrs.dim})) return *wrong;
  return typed(g.type(operands[0]));
}

std::vector<Tensor> cumsum_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  Tensor out = filled(g, result_type(g, n), context.bindings, 0);
  const Reduction r(g, n, {n.attrs.dim}, context.bindings);
  const Named x(r.kept, operand_type(g, n, 0).dims, *in[0]);
  const Named y(r.kept, result_type(g, n).dims, out);
  const int64_t extent = r.inner.extents[0], stride = x.stride(n.attrs.dim);
  walk(r.kept, [&](const Index& row) {
    double sum = 0;
    for (int64_t i = 0; i < extent; ++i) {
      const int64_t at = (n.attrs.reverse ? extent - 1 - i : i) * stride;
      y(row, at) = sum += x(row, at);
    }
  });
  return {out};
}

// dx = cumsum of g the other way
std::vector<ValueId> cumsum_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  if (!is_float(result_type(b.graph(), n).dtype)) return {{}};
  Attrs attrs = n.attrs;
  attrs.reverse = !attrs.reverse;
  return {b.make(Op::kCumSum, {grads[0]}, attrs)};
}

// --- step_total
// -------------------------------------------------------------------------------------

ShapeResult step_total_shape(const Graph& g, Values operands, const Attrs&) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kNumber})) return *wrong;
  const Type& x = g.type(operands[0]);
  if (x.rank() != 0)
    return failed(Code::kRank, 0, x.dims, fmt::format("rank 0 is wanted, this is {}", g.str(x)));
  return typed(x);
}

std::vector<Tensor> step_total_eval(const Graph& g, const Node& n, Operands in,
                                    EvalContext& context) {
  auto total = context.totals.find(g.value(n.results[0]).def.index);
  Tensor out = *in[0];
  if (total != context.totals.end()) out.data[0] = total->second;
  return {out};
}

}  // namespace

const OpInfo kSumInfo{"sum over dims", sum_shape, sum_grad, sum_eval, reduce_cost, reduce_sharding};
const OpInfo kMeanInfo{"mean over dims, weighted or not",
                       mean_shape,
                       mean_grad,
                       mean_eval,
                       reduce_cost,
                       reduce_sharding};
const OpInfo kReduceMaxInfo{"largest over dims", extremum_shape, extremum_grad,
                            extremum_eval,       reduce_cost,    reduce_sharding};
const OpInfo kReduceMinInfo{"smallest over dims", extremum_shape, extremum_grad,
                            extremum_eval,        reduce_cost,    reduce_sharding};
const OpInfo kArgmaxInfo{"index of the largest along a dim",
                         argmax_shape,
                         nullptr,
                         argmax_eval,
                         reduce_cost,
                         kept_sharding};
const OpInfo kLogSumExpInfo{"log of the sum of e^x over dims",
                            logsumexp_shape,
                            logsumexp_grad,
                            logsumexp_eval,
                            reduce_cost,
                            reduce_sharding};
const OpInfo kSoftmaxInfo{"e^x over its sum along dims",
                          softmax_shape,
                          softmax_grad,
                          softmax_eval,
                          reduce_cost,
                          reduce_sharding};
const OpInfo kCumSumInfo{"running sum along a dim, inclusive",
                         cumsum_shape,
                         cumsum_grad,
                         cumsum_eval,
                         reduce_cost,
                         kept_sharding};
const OpInfo kStepTotalInfo{"sum over the micro-batches of a step",
                            step_total_shape,
                            nullptr,
                            step_total_eval,
                            free_cost,
                            whole_sharding};

}  // namespace cad::ir
