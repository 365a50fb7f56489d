// ir/op_fused.cc -- attention and its gradient: what ir/raise_attention.cc makes of a composition.
//
//   s = scale * sum over K of q k, -inf where hidden;  P = softmax over S of s;  out = (P o D) v
//   D: dropout's factors, 0 or 1 / (1 - p);  lse = log of the sum over S of e^s, -inf if all hidden
//
// (C1) q, k, v of one float dtype; the mask, if attrs.masked, bool; then loop numbers, each i32[].
// (C2) attrs.dims = {T, S, K}; q has T and K, not S; k has S and K, not T; v has S, not T or K.
// (C3) attrs.probs holds q's dims and S, without K. (C4) k's dims but S and K are q's; the mask's
// are among attrs.probs. (C5) the gradient's out, lse and g have the types that attention gives.
#include <cmath>
#include <limits>

#include "ir/op_random.h"  // defines: RandomStream, dropout_factor

namespace cad::ir {

using Code = ShapeError::Code;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// `own` operands before the mask: 3 for attention, 6 for its gradient.
std::optional<ShapeResult> wrong_attention(const Graph& g, Values operands, const Attrs& attrs,
                                           size_t own) {
  const size_t fixed = own + (attrs.masked ? 1 : 0);
  if (operands.size() < fixed || attrs.dims.size() != 3) {
    return failed(Code::kOther, -1, {},
                  fmt::format("{} operands and dims T, S, K are wanted", fixed));
  }
  if (auto wrong = unknown(g, joined(attrs.dims, attrs.probs))) return wrong;
  for (int i : {0, 1, 2}) {
    if (auto wrong = wrong_dtype(g, operands, i, Accepts::kFloat)) return wrong;
    if (g.type(operands[static_cast<size_t>(i)]).dtype != g.type(operands[0]).dtype) {
      return failed(Code::kDType, i, {}, "q, k and v have different dtypes");
    }
  }
  for (size_t i = fixed; i < operands.size(); ++i) {
    const Type& number = g.type(operands[i]);
    if (number.dtype != DType::kI32 || number.rank() != 0) {
      return failed(Code::kRank, static_cast<int>(i), number.dims, "loop numbers are `i32[]`");
    }
  }
  const Dims &q = g.type(operands[0]).dims, &k = g.type(operands[1]).dims,
             &v = g.type(operands[2]).dims;
  const DimId t = attrs.dims[0], s = attrs.dims[1], c = attrs.dims[2];
  const bool placed = contains(q, t) && contains(q, c) && !contains(q, s) && contains(k, s) &&
                      contains(k, c) && !contains(k, t) && contains(v, s) && !contains(v, t) &&
                      !contains(v, c);
  if (!placed)
    return failed(Code::kMissingDim, 0, attrs.dims,
                  "T, S and K do not stand where attention has them");
  if (!same_set(attrs.probs, joined(without(q, {c}), {s})) || !contains_all(q, without(k, {s}))) {
    return failed(Code::kOther, 1, attrs.probs,
                  fmt::format("{} are not the dims of the scores", names(g, attrs.probs)));
  }
  if (attrs.masked) {
    if (auto wrong = wrong_dtype(g, operands, static_cast<int>(own), Accepts::kBool)) return wrong;
    if (!contains_all(attrs.probs, g.type(operands[own]).dims)) {
      return failed(Code::kNotSubset, static_cast<int>(own), g.type(operands[own]).dims,
                    "the mask has dims of its own");
    }
  }
  return std::nullopt;
}

Type out_type(const Graph& g, Values operands, const Attrs& attrs) {
  Type type = g.type(operands[0]);
  type.dims = joined(without(type.dims, {attrs.dims[2]}),
                     without(g.type(operands[2]).dims, {attrs.dims[1]}));
  return type;
}

Type lse_type(const Attrs& attrs) {
  Type type;
  type.dims = without(attrs.probs, {attrs.dims[1]});
  return type;
}

ShapeResult attention_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_attention(g, operands, attrs, 3)) return *wrong;
  ShapeResult result = typed(out_type(g, operands, attrs));
  result.types.push_back(lse_type(attrs));
  return result;
}

ShapeResult attention_grad_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_attention(g, operands, attrs, 6)) return *wrong;
  const Type out = out_type(g, operands, attrs);
  if (g.type(operands[3]) != out || g.type(operands[4]) != lse_type(attrs) ||
      g.type(operands[5]) != out) {
    return failed(Code::kOther, 3, {}, "out, lse and g are not what attention gives");
  }
  ShapeResult result;
  for (size_t i : {0, 1, 2}) result.types.push_back(g.type(operands[i]));
  return result;
}

// The scores s over attrs.probs, hidden ones -inf; `mask` may be null.
Tensor scores(const Graph& g, const Node& n, Operands in, const Tensor* mask, size_t mask_operand,
              const EvalContext& context) {
  Type type;
  type.dims = n.attrs.probs;
  Tensor s = filled(g, type, context.bindings, 0);
  const Axes axes = axes_of(g, joined(n.attrs.probs, {n.attrs.dims[2]}), context.bindings);
  const Named q(axes, operand_type(g, n, 0).dims, *in[0]),
      k(axes, operand_type(g, n, 1).dims, *in[1]);
  const Named score(axes, type.dims, s);
  walk(axes, [&](const Index& i) { score(i) += q(i) * k(i); });

  const double scale = evaluated(n.attrs.scalar, context.bindings);
  const Axes probs = axes_of(g, n.attrs.probs, context.bindings);
  const auto t = static_cast<size_t>(probs.position(n.attrs.dims[0]));
  const auto key = static_cast<size_t>(probs.position(n.attrs.dims[1]));
  const Tensor all = filled(g, Type{}, context.bindings, 1);
  const Named shown(probs, mask != nullptr ? operand_type(g, n, mask_operand).dims : Dims{},
                    mask != nullptr ? *mask : all);
  const int64_t ahead = place_in_whole(g, n.attrs.dims[0], context).offset -
                        place_in_whole(g, n.attrs.dims[1], context).offset;
  size_t at = 0;
  walk(probs, [&](const Index& i) {
    const bool hidden = shown(i) == 0 || (n.attrs.causal && i[key] > i[t] + ahead);
    s.data[at] = hidden ? -kInf : s.data[at] * scale;
    ++at;
  });
  return s;
}

// D over attrs.probs: ones without dropout.
Tensor dropout_factors(const Graph& g, const Node& n, Operands numbers,
                       const EvalContext& context) {
  Type type;
  type.dims = n.attrs.probs;
  Tensor factors = filled(g, type, context.bindings, 1);
  const double p = evaluated(n.attrs.p, context.bindings);
  if (p == 0) return factors;
  const RandomStream stream(g, n.attrs.site, numbers, type.dims, context);
  size_t at = 0;
  walk(axes_of(g, type.dims, context.bindings),
       [&](const Index& i) { factors.data[at++] = dropout_factor(stream.words(i)[0], p); });
  return factors;
}

std::vector<Tensor> attention_eval(const Graph& g, const Node& n, Operands in,
                                   EvalContext& context) {
  const Tensor* mask = n.attrs.masked ? in[3] : nullptr;
  Tensor p = scores(g, n, in, mask, 3, context);
  const Tensor factors = dropout_factors(g, n, in.subspan(mask != nullptr ? 4 : 3), context);
  Tensor out = filled(g, result_type(g, n, 0), context.bindings, 0);
  Tensor lse = filled(g, result_type(g, n, 1), context.bindings, -kInf);

  const Dims row_dims = result_type(g, n, 1).dims;
  const Axes rows = axes_of(g, row_dims, context.bindings);
  const Named score(rows, n.attrs.probs, p);
  const int64_t keys = extent_of(g, n.attrs.dims[1], context.bindings),
                stride = score.stride(n.attrs.dims[1]);
  size_t row_at = 0;
  walk(rows, [&](const Index& row) {
    double most = -kInf, sum = 0;
    for (int64_t s = 0; s < keys; ++s) most = std::max(most, score(row, s * stride));
    for (int64_t s = 0; s < keys; ++s) {
      double& e = score(row, s * stride);
      e = most == -kInf ? 0 : std::exp(e - most);
      sum += e;
    }
    for (int64_t s = 0; s < keys && sum > 0; ++s) score(row, s * stride) /= sum;
    if (most != -kInf) lse.data[row_at] = most + std::log(sum);
    ++row_at;
  });

  const Axes axes =
      axes_of(g, joined(result_type(g, n, 0).dims, {n.attrs.dims[1]}), context.bindings);
  const Named prob(axes, n.attrs.probs, p), result(axes, result_type(g, n, 0).dims, out);
  const Named factor(axes, n.attrs.probs, factors), v(axes, operand_type(g, n, 2).dims, *in[2]);
  walk(axes, [&](const Index& i) { result(i) += prob(i) * factor(i) * v(i); });
  return {out, lse};
}

// lse has no gradient of its own: nothing but attention_grad reads it.
std::vector<ValueId> attention_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  std::vector<ValueId> result(n.operands.size());
  if (!grads[0].valid()) return result;
  std::vector<ValueId> operands{n.operands[0], n.operands[1], n.operands[2],
                                n.results[0],  n.results[1],  grads[0]};
  operands.insert(operands.end(), n.operands.begin() + 3, n.operands.end());
  const std::vector<ValueId> made = b.make_all(Op::kAttentionGrad, std::move(operands), n.attrs);
  std::copy(made.begin(), made.end(), result.begin());
  return result;
}

// P = e^(s - lse);  dv = (P o D)' g;  dP = D o (g v');  delta = sum of g out over v's own dims;
// ds = P o (dP - delta);  dq = scale ds k;  dk = scale ds' q
std::vector<Tensor> attention_grad_eval(const Graph& g, const Node& n, Operands in,
                                        EvalContext& context) {
  const Tensor* mask = n.attrs.masked ? in[6] : nullptr;
  Tensor p = scores(g, n, in, mask, 6, context);
  const Tensor d = dropout_factors(g, n, in.subspan(mask != nullptr ? 7 : 6), context);
  std::vector<Tensor> result;
  for (size_t i : {0, 1, 2}) result.push_back(filled(g, result_type(g, n, i), context.bindings, 0));
  const Dims q_dims = operand_type(g, n, 0).dims, k_dims = operand_type(g, n, 1).dims;
  const Dims v_dims = operand_type(g, n, 2).dims, out_dims = operand_type(g, n, 3).dims;
  const Dims row_dims = operand_type(g, n, 4).dims;

  Tensor delta = filled(g, operand_type(g, n, 4), context.bindings, 0);
  {
    const Axes axes = axes_of(g, out_dims, context.bindings);
    const Named row(axes, row_dims, delta);
    size_t at = 0;
    walk(axes, [&](const Index& i) {
      row(i) += in[3]->data[at] * in[5]->data[at];
      ++at;
    });
  }
  Tensor dp = filled(g, Type{DType::kF32, n.attrs.probs}, context.bindings, 0);
  {
    const Axes axes = axes_of(g, n.attrs.probs, context.bindings);
    const Named lse(axes, row_dims, *in[4]);
    size_t at = 0;
    walk(axes, [&](const Index& i) {
      p.data[at] = lse(i) == -kInf ? 0 : std::exp(p.data[at] - lse(i));
      ++at;
    });
  }
  {
    const Axes axes = axes_of(g, joined(out_dims, {n.attrs.dims[1]}), context.bindings);
    const Named prob(axes, n.attrs.probs, p), dprob(axes, n.attrs.probs, dp),
        dv(axes, v_dims, result[2]);
    const Named factor(axes, n.attrs.probs, d), v(axes, v_dims, *in[2]),
        grad(axes, out_dims, *in[5]);
    walk(axes, [&](const Index& i) {
      dv(i) += prob(i) * factor(i) * grad(i);
      dprob(i) += factor(i) * grad(i) * v(i);
    });
  }
  const double scale = evaluated(n.attrs.scalar, context.bindings);
  const Axes axes = axes_of(g, joined(n.attrs.probs, {n.attrs.dims[2]}), context.bindings);
  const Named prob(axes, n.attrs.probs, p), dprob(axes, n.attrs.probs, dp),
      row(axes, row_dims, delta);
  const Named q(axes, q_dims, *in[0]), k(axes, k_dims, *in[1]);
  const Named dq(axes, q_dims, result[0]), dk(axes, k_dims, result[1]);
  walk(axes, [&](const Index& i) {
    const double ds = scale * prob(i) * (dprob(i) - row(i));
    dq(i) += ds * k(i);
    dk(i) += ds * q(i);
  });
  return result;
}

}  // namespace

const OpInfo kAttentionInfo{"softmax(scale * q k) v, in one op",
                            attention_shape,
                            attention_grad,
                            attention_eval,
                            attention_cost,
                            attention_sharding};
const OpInfo kAttentionGradInfo{
    "gradient of attention", attention_grad_shape, nullptr,
    attention_grad_eval,     attention_grad_cost,  attention_grad_sharding};

}  // namespace cad::ir
