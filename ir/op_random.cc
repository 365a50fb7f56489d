// ir/op_random.cc -- dropout and random tensors, with all their rules. What is drawn is a function
// of (seed, site, loop numbers, step, element): see ir/random.h.
//
// (C1) operands: the op's own, then loop numbers, each i32[]. (C2) attrs.dims are dims of the
// graph, none twice. (C3) std, lo, hi and p are f32[]. (C4) dropout's p, where known, is in [0, 1].
#include "ir/op_random.h"

#include "ir/random.h"  // defines: philox, site_hash, stream_key, uniform01, standard_normal

namespace cad::ir {

using Code = ShapeError::Code;

RandomStream::RandomStream(const Graph& g, const std::string& site, Operands numbers,
                           const Dims& dims, const EvalContext& context)
    : step_(static_cast<uint64_t>(context.step)) {
  std::vector<int64_t> loops;
  for (const Tensor* number : numbers) loops.push_back(static_cast<int64_t>(number->data[0]));
  key_ = stream_key(context.seed, site_hash(site), loops);
  for (DimId d : dims) {
    const bool rows = counts_rows(g, d) && context.step_rows > 0;
    const Shard shard = place_in_whole(g, d, context);
    extents_.push_back(rows ? context.step_rows : shard.whole);
    shifts_.push_back(shard.offset + (rows ? context.row_offset : 0));
  }
}

std::array<uint32_t, 4> RandomStream::words(const Index& index) const {
  uint64_t element = 0;
  for (size_t i = 0; i < extents_.size(); ++i) {
    element =
        element * static_cast<uint64_t>(extents_[i]) + static_cast<uint64_t>(index[i] + shifts_[i]);
  }
  return philox(key_, element, step_);
}

double dropout_factor(uint32_t word, double p) {
  return uniform01(word) >= static_cast<float>(p) ? 1 / (1 - p) : 0;
}

namespace {

// (C1) from operand `first` on.
std::optional<ShapeResult> wrong_numbers(const Graph& g, Values operands, size_t first) {
  if (operands.size() < first) {
    return failed(Code::kOther, -1, {},
                  fmt::format("{} operands are wanted, there are {}", first, operands.size()));
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    const Type& x = g.type(operands[i]);
    const DType wanted = i < first ? DType::kF32 : DType::kI32;
    if (x.dtype != wanted || x.rank() != 0) {
      return failed(x.dtype == wanted ? Code::kRank : Code::kDType, static_cast<int>(i), x.dims,
                    fmt::format("`{}[]` is wanted, this is {}", dtype_name(wanted), g.str(x)));
    }
  }
  return std::nullopt;
}

ShapeResult drawn(const Graph& g, Values operands, const Attrs& attrs, size_t own, DType dtype) {
  if (auto wrong = wrong_numbers(g, operands, own)) return *wrong;
  if (auto wrong = unknown(g, attrs.dims)) return *wrong;
  if (auto wrong = repeated(g, attrs.dims)) return *wrong;
  return typed(dtype, attrs.dims);
}

ShapeResult normal_shape(const Graph& g, Values v, const Attrs& a) {
  return drawn(g, v, a, 1, DType::kF32);
}
ShapeResult uniform_shape(const Graph& g, Values v, const Attrs& a) {
  return drawn(g, v, a, 2, DType::kF32);
}
ShapeResult bernoulli_shape(const Graph& g, Values v, const Attrs& a) {
  return drawn(g, v, a, 1, DType::kBool);
}

// value(words) for every element.
template <class F>
std::vector<Tensor> draw(const Graph& g, const Node& n, Operands in, size_t own,
                         EvalContext& context, F&& value) {
  const Type& type = result_type(g, n);
  Tensor out = filled(g, type, context.bindings, 0);
  const RandomStream stream(g, n.attrs.site, in.subspan(own), type.dims, context);
  size_t at = 0;
  walk(axes_of(g, type.dims, context.bindings), [&](const Index& i) {
    out.data[at] = value(stream.words(i), at);
    ++at;
  });
  return {out};
}

using Words = std::array<uint32_t, 4>;

std::vector<Tensor> normal_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  const double std = in[0]->data[0];
  return draw(g, n, in, 1, context,
              [&](const Words& w, size_t) { return std * standard_normal(w[0], w[1]); });
}

std::vector<Tensor> uniform_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  const double lo = in[0]->data[0], hi = in[1]->data[0];
  return draw(g, n, in, 2, context,
              [&](const Words& w, size_t) { return lo + (hi - lo) * uniform01(w[0]); });
}

std::vector<Tensor> bernoulli_eval(const Graph& g, const Node& n, Operands in,
                                   EvalContext& context) {
  const auto p = static_cast<float>(in[0]->data[0]);
  return draw(g, n, in, 1, context,
              [&](const Words& w, size_t) { return uniform01(w[0]) < p ? 1.0 : 0.0; });
}

ShapeResult dropout_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (operands.empty()) return failed(Code::kOther, -1, {}, "`dropout` of nothing");
  if (auto wrong = wrong_dtype(g, operands, 0, Accepts::kFloat)) return *wrong;
  if (auto wrong = wrong_numbers(g, operands.subspan(1), 0)) {
    for (ShapeError& error : wrong->errors) ++error.operand;
    return *wrong;
  }
  const auto p = attrs.scalar.number();
  if (p && !(*p >= 0 && *p <= 1)) {
    return failed(Code::kOther, -1, {}, fmt::format("the probability {} is not in 0 to 1", *p));
  }
  return typed(g.type(operands[0]));
}

std::vector<Tensor> dropout_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  const double p = evaluated(n.attrs.scalar, context.bindings);
  return draw(g, n, in, 1, context, [&](const Words& w, size_t at) {
    const double factor = dropout_factor(w[0], p);
    return factor == 0 ? 0.0 : in[0]->data[at] * factor;
  });
}

// dx = g under the same mask: the same node on g draws it again, so nothing is saved.
std::vector<ValueId> dropout_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  std::vector<ValueId> operands = n.operands;
  operands[0] = grads[0];
  std::vector<ValueId> result(n.operands.size());
  result[0] = b.make(Op::kDropout, std::move(operands), n.attrs);
  return result;
}

}  // namespace

const OpInfo kDropoutInfo{"zeros at random, the rest scaled up",
                          dropout_shape,
                          dropout_grad,
                          dropout_eval,
                          dropout_cost,
                          pointwise_sharding};
const OpInfo kNormalInfo{"normal random values", normal_shape, nullptr, normal_eval, draw_cost,
                         made_sharding};
const OpInfo kUniformInfo{
    "uniform random values", uniform_shape, nullptr, uniform_eval, draw_cost, made_sharding};
const OpInfo kBernoulliInfo{"random bools", bernoulli_shape, nullptr,
                            bernoulli_eval, draw_cost,       made_sharding};

}  // namespace cad::ir
