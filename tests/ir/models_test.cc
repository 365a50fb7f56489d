// tests/ir/models_test.cc -- the pipeline on models of the usual make: a small GPT with tied
// embeddings, grouped queries, dropout and a weighted loss, its layers in a loop; in f32 and with
// bf16 inside; and what its backward loop saves.
#include "tests/ir/pass_test_util.h"

namespace cad::ir {
namespace {

class Gpt {
 public:
  explicit Gpt(DType compute) : compute_(compute) {
    B = p.dim("B", 2), T = p.dim("T", 3), S = p.dim("S", 3), D = p.dim("D", 4), G = p.dim("G", 1),
    R = p.dim("R", 2), K = p.dim("K", 2), F = p.dim("F", 5), V = p.dim("V", 3), L = p.dim("h", 2);
    p.g.batch_dim = B;
    build();
  }
  Program p;
  DimId B, T, S, D, G, R, K, F, V, L;

 private:
  ValueId norm(Builder& b, ValueId x, ValueId gain) {
    x = b.cast(x, DType::kF32);
    const ValueId centred = b.sub(x, b.make(Op::kMean, {x}, dims_attr({D})));
    const ValueId variance = b.make(Op::kMean, {b.mul(centred, centred)}, dims_attr({D}));
    return b.mul(b.mul(centred, b.unary(Op::kRsqrt, b.add(variance, number(b, 1e-3)))), gain);
  }
  ValueId project(Builder& b, ValueId x, ValueId w, std::vector<DimId> dims) {
    return contract(b, b.cast(x, compute_), b.cast(w, compute_), std::move(dims));
  }
  ValueId drop(Builder& b, ValueId x, ValueId layer, const std::string& site) {
    Attrs attrs;
    attrs.scalar = Scalar(0.2);
    attrs.site = "h.{}." + site;
    return b.make(Op::kDropout, {x, layer}, attrs);
  }

  ValueId block(Body& body, const std::vector<ValueId>& w, ValueId gain) {
    Builder b = body.builder();
    ValueId x = body.g.region(body.loop.body).args[1];
    const ValueId n = norm(b, x, gain);
    const ValueId q = project(b, n, w[0], {D}), k = renamed(b, project(b, n, w[1], {D}), T, S),
                  v = renamed(b, project(b, n, w[2], {D}), T, S);
    ValueId s =
        b.div(contract(b, q, k, {K}), b.constant(Scalar::call("sqrt", {Scalar(2.0)}), compute_));
    const ValueId shown = b.make(Op::kGe, {iota(b, T), iota(b, S)}, dims_attr({T, S}));
    s = b.where(shown, s, b.constant(Scalar(-INFINITY), compute_));
    const ValueId probs = drop(b, b.make(Op::kSoftmax, {s}, dims_attr({S})), body.number, "probs");
    const ValueId mixed = project(b, contract(b, probs, v, {S}), w[3], {G, R, K});
    x = b.add(x, b.cast(drop(b, mixed, body.number, "out"), DType::kF32));
    ValueId h = project(b, norm(b, x, gain), w[4], {D});
    h = b.mul(h, b.unary(Op::kSigmoid, h));
    return b.add(x, b.cast(project(b, h, w[5], {F}), DType::kF32));
  }

  void build() {
    Builder& b = p.b;
    const ValueId ids = p.data("ids", {B, T}, DType::kI32),
                  labels = p.data("labels", {B, T}, DType::kI32);
    const ValueId wte = p.input("wte", {V, D}), wpe = p.input("wpe", {T, D}),
                  gain = p.input("gain", {D});
    std::vector<ValueId> stacked = {
        p.input("h.{}.wq", {L, D, G, R, K}), p.input("h.{}.wk", {L, D, G, K}),
        p.input("h.{}.wv", {L, D, G, K}),    p.input("h.{}.wo", {L, G, R, K, D}),
        p.input("h.{}.w1", {L, D, F}),       p.input("h.{}.w2", {L, F, D})};
    Attrs rows;
    rows.dim = V;
    ValueId x = b.add(b.make(Op::kGather, {wte, ids}, rows), wpe);
    Body body(p.g, L);
    body.carry(x);
    std::vector<ValueId> w;
    for (ValueId value : stacked) w.push_back(body.scan(value));
    const ValueId inner_gain = body.invariant(gain);
    x = body.close(b, {block(body, w, inner_gain)})[0];
    const ValueId logits = b.cast(project(b, norm(b, x, gain), wte, {D}), DType::kF32);
    const ValueId lse = b.make(Op::kLogSumExp, {logits}, dims_attr({V}));
    const ValueId nll = b.sub(lse, b.make(Op::kGather, {logits, labels}, rows));
    const ValueId counted = b.make(Op::kNe, {labels, b.constant(Scalar(0.0), DType::kI32)});
    p.output("loss", b.make(Op::kMean, {nll, counted}, dims_attr({B, T})));
  }

  DType compute_;
};

const Node& forward_loop(const Graph& g) {
  for (NodeId id : g.regions[0].nodes) {
    if (g.node(id).op == Op::kRepeat && !g.node(id).loop.reverse) return g.node(id);
  }
  ADD_FAILURE() << "no forward loop";
  return g.node(g.regions[0].nodes[0]);
}

TEST(Models, Gpt) {
  const Graph g = train_and_check(Gpt(DType::kF32).p.g, {});
  EXPECT_EQ(count_ops(g, Op::kAttention), 1U);
  EXPECT_EQ(count_ops(g, Op::kAttentionGrad), 1U);
  EXPECT_EQ(count_ops(g, Op::kRepeat), 2U);
  EXPECT_EQ(count_ops(g, Op::kStepTotal), 1U);
  Result<Graph> read = parse_graph(print(g));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(print(*read), print(g));
}

TEST(Models, GptInBf16) {
  const Graph g = train_and_check(Gpt(DType::kBF16).p.g, {});
  EXPECT_EQ(count_ops(g, Op::kAttention), 1U);
  for (size_t i = 0; i < g.outputs.size(); ++i)
    EXPECT_EQ(g.type(g.regions[0].results[i]).dtype, DType::kF32);
}

// x, two means and two rstds, q, k, v, the attention's out and lse, the middle x or its increment,
// and the first projection: 12. Not the norms' results, activations, masks or dropped values.
TEST(Models, GptSavesTheKnownSet) {
  const Gpt gpt(DType::kF32);
  const Graph g = training_graph(gpt.p.g);
  const Node& loop = forward_loop(g);
  EXPECT_LE(loop.loop.collected, 12);
  int wide = 0, model = 0;
  for (int i = loop.loop.carries; i < loop.loop.carries + loop.loop.collected; ++i) {
    const Type& type = g.type(loop.results[static_cast<size_t>(i)]);
    EXPECT_NE(type.dtype, DType::kBool);
    wide += type.has(gpt.F) ? 1 : 0;
    model += type.has(gpt.D) ? 1 : 0;
    EXPECT_FALSE(type.has(gpt.T) && type.has(gpt.S));
  }
  EXPECT_EQ(wide, 1);
  EXPECT_EQ(model, 2);
}

}  // namespace
}  // namespace cad::ir
