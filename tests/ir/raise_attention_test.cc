// tests/ir/raise_attention_test.cc -- attention written in many ways becomes one node with the same
// value and gradients; what is not attention stays as it is.
#include "tests/ir/pass_test_util.h"

namespace cad::ir {
namespace {

struct Options {
  enum class Scale { kScores, kDivided, kAfterMask, kQuery, kKey, kNone } scale = Scale::kScores;
  enum class Causal {
    kNone,
    kWhere,
    kFlipped,
    kNot,
    kSwapped,
    kRenamedIota,
    kBeforeTyped
  } causal = Causal::kWhere;
  enum class Keys { kRenamedAfter, kRenamedBefore, kScoresRenamed } keys = Keys::kRenamedAfter;
  bool dropout = false, padding = false, padding_added = false, and_mask = false, grouped = false;
  bool values_first = false, other_value_dim = false, cast = false, second_user = false,
       finite_fill = false;
};

// Self attention over x: [B, T, D].
class AttentionProgram {
 public:
  explicit AttentionProgram(const Options& o) : o_(o) {
    B = p.dim("B", 2), T = p.dim("T", 3), S = p.dim("S", 3), D = p.dim("D", 2), H = p.dim("H", 2),
    R = p.dim("R", 2), K = p.dim("K", 2), W = p.dim("W", 3);
    p.g.batch_dim = B;
    build();
  }

  Program p;
  DimId B, T, S, D, H, R, K, W;

 private:
  void build() {
    Builder& b = p.b;
    const ValueId x = p.data("x", {B, T, D});
    const std::vector<DimId> query =
        o_.grouped ? std::vector<DimId>{D, H, R, K} : std::vector<DimId>{D, H, K};
    const DimId value = o_.other_value_dim ? W : K;
    const ValueId wq = p.input("wq", query), wk = p.input("wk", {D, H, K}),
                  wv = p.input("wv", {D, H, value});
    const ValueId scale = b.constant(Scalar::call("rsqrt", {Scalar(2.0)}), DType::kF32);
    ValueId q = contract(b, x, wq, {D}), k, v = renamed(b, contract(b, x, wv, {D}), T, S);
    if (o_.scale == Options::Scale::kQuery) q = b.mul(q, scale);
    const bool before = o_.keys == Options::Keys::kRenamedBefore;
    k = before ? contract(b, renamed(b, x, T, S), wk, {D})
               : renamed(b, contract(b, x, wk, {D}), T, S);
    if (o_.scale == Options::Scale::kKey) k = b.mul(scale, k);
    ValueId s = scores(q, k);
    if (o_.cast) s = b.cast(s, DType::kF32);
    const ValueId probs = b.make(Op::kSoftmax, {s}, dims_attr({S}));
    ValueId dropped = probs;
    if (o_.dropout) {
      Attrs drop;
      drop.scalar = Scalar(0.3);
      drop.site = "dropout";
      dropped = b.make(Op::kDropout, {probs}, drop);
    }
    const ValueId out =
        o_.values_first ? contract(b, v, dropped, {S}) : contract(b, dropped, v, {S});
    const std::vector<DimId> dims = p.g.type(out).dims;
    ValueId loss = b.sum(b.mul(out, b.unary(Op::kSin, out)), dims);
    if (o_.second_user) loss = b.add(loss, b.sum(b.mul(probs, probs), p.g.type(probs).dims));
    p.output("loss", loss);
  }

  ValueId scores(ValueId q, ValueId k) {
    Builder& b = p.b;
    const ValueId scale = b.constant(Scalar::call("rsqrt", {Scalar(2.0)}), DType::kF32);
    ValueId s;
    if (o_.keys == Options::Keys::kScoresRenamed) {
      const DimId U = p.dim("U", 3);
      s = renamed(b, contract(b, q, renamed(b, k, S, U), {K}), U, S);
    } else {
      s = contract(b, q, k, {K});
    }
    if (o_.scale == Options::Scale::kScores) s = b.mul(s, scale);
    if (o_.scale == Options::Scale::kDivided)
      s = b.div(s, b.constant(Scalar::call("sqrt", {Scalar(2.0)}), DType::kF32));
    s = masked(s);
    if (o_.scale == Options::Scale::kAfterMask) s = b.mul(s, scale);
    return s;
  }

  ValueId masked(ValueId s) {
    Builder& b = p.b;
    const ValueId hidden = number(b, o_.finite_fill ? -1e9 : -INFINITY);
    using Causal = Options::Causal;
    if (o_.causal != Causal::kNone) {
      const auto wide = [&](ValueId x) { return b.broadcast(x, {T, S}); };
      const ValueId t = wide(iota(b, T));
      const ValueId key =
          wide(o_.causal == Causal::kRenamedIota ? renamed(b, iota(b, T), T, S) : iota(b, S));
      ValueId shown = b.make(Op::kGe, {t, key});
      if (o_.causal == Causal::kFlipped) shown = b.make(Op::kLe, {key, t});
      if (o_.causal == Causal::kNot) shown = b.unary(Op::kNot, b.make(Op::kLt, {t, key}));
      if (o_.and_mask)
        shown =
            b.make(Op::kAnd, {b.broadcast(shown, {B, T, S}), p.data("keep", {B, S}, DType::kBool)});
      if (o_.causal == Causal::kSwapped) {
        s = b.where(b.make(Op::kGt, {key, t}), hidden, s);
      } else {
        s = b.where(shown, s, hidden);
      }
    }
    if (o_.padding) s = b.where(p.data("pad", {B, S}, DType::kBool), s, hidden);
    if (o_.padding_added) {
      const ValueId pad = p.data("pad", {B, S}, DType::kBool);
      s = b.add(s, b.make(Op::kWhere, {pad, number(b, 0), hidden}, dims_attr({B, S})));
    }
    return s;
  }

  Options o_;
};

void expect_raised(const Options& options, const std::string& what, bool raised = true) {
  SCOPED_TRACE(what);
  AttentionProgram program(options);
  const Graph trained = train_and_check(program.p.g, {});
  EXPECT_EQ(count_ops(trained, Op::kAttention), raised ? 1U : 0U);
  EXPECT_EQ(count_ops(trained, Op::kAttentionGrad), raised ? 1U : 0U);
  EXPECT_EQ(count_ops(trained, Op::kSoftmax) == 0, raised);
}

TEST(RaiseAttention, EveryScale) {
  for (auto scale : {Options::Scale::kScores, Options::Scale::kDivided, Options::Scale::kAfterMask,
                     Options::Scale::kQuery, Options::Scale::kKey, Options::Scale::kNone}) {
    Options o;
    o.scale = scale;
    expect_raised(o, "scale " + std::to_string(static_cast<int>(scale)));
  }
}

TEST(RaiseAttention, EveryCausalSpelling) {
  using Causal = Options::Causal;
  for (Causal causal : {Causal::kNone, Causal::kWhere, Causal::kFlipped, Causal::kNot,
                        Causal::kSwapped, Causal::kRenamedIota}) {
    Options o;
    o.causal = causal;
    expect_raised(o, "causal " + std::to_string(static_cast<int>(causal)));
    const Graph g = raise_attention(simplify(AttentionProgram(o).p.g));
    for (const Node& node : g.nodes) {
      if (node.op == Op::kAttention) {
        EXPECT_EQ(node.attrs.causal, causal != Causal::kNone);
      }
      if (node.op == Op::kAttention) {
        EXPECT_FALSE(node.attrs.masked);
      }
    }
  }
}

TEST(RaiseAttention, EveryRename) {
  for (auto keys : {Options::Keys::kRenamedAfter, Options::Keys::kRenamedBefore,
                    Options::Keys::kScoresRenamed}) {
    Options o;
    o.keys = keys;
    expect_raised(o, "keys " + std::to_string(static_cast<int>(keys)));
  }
}

TEST(RaiseAttention, MasksDropoutGroupsAndValues) {
  Options o;
  o.dropout = true;
  expect_raised(o, "dropout");
  o.values_first = true;
  expect_raised(o, "dropout, values first");
  o = Options();
  o.causal = Options::Causal::kNone;
  o.padding = true;
  expect_raised(o, "padding");
  o.causal = Options::Causal::kWhere;
  o.dropout = true;
  expect_raised(o, "padding, causal, dropout");
  o = Options();
  o.and_mask = true;
  expect_raised(o, "causal and keep");
  o = Options();
  o.padding_added = true;
  expect_raised(o, "padding added");
  o = Options();
  o.grouped = true;
  expect_raised(o, "grouped");
  o.other_value_dim = true;
  expect_raised(o, "grouped, other value dim");
}

TEST(RaiseAttention, LeavesTheRest) {
  Options o;
  o.second_user = true;
  expect_raised(o, "the probabilities have another user", false);
  o = Options();
  o.finite_fill = true;
  expect_raised(o, "hidden scores are finite", false);
}

// The mask is made once, outside of two nested loops.
TEST(RaiseAttention, CausalMaskFromOutsideTheLoops) {
  Program p;
  const DimId T = p.dim("T", 3), S = p.dim("S", 3), K = p.dim("K", 2), L = p.dim("h", 2),
              M = p.dim("i", 2);
  const ValueId x = p.input("x", {T, K}), w = p.input("w", {L, M, K});
  const ValueId shown = p.b.make(Op::kGe, {iota(p.b, T), iota(p.b, S)}, dims_attr({T, S}));
  const ValueId hidden = number(p.b, -INFINITY);
  Body outer(p.g, L);
  const ValueId h = outer.carry(x), wo = outer.scan(w), so = outer.invariant(shown),
                ho = outer.invariant(hidden);
  Builder ob = outer.builder();
  Body inner(p.g, M);
  const ValueId y = inner.carry(h), wi = inner.scan(wo), si = inner.invariant(so),
                hi = inner.invariant(ho);
  Builder b = inner.builder();
  const ValueId k = renamed(b, b.mul(y, wi), T, S);
  const ValueId probs =
      b.make(Op::kSoftmax, {b.where(si, contract(b, y, k, {K}), hi)}, dims_attr({S}));
  const ValueId next = inner.close(ob, {contract(b, probs, k, {S})})[0];
  const ValueId out = outer.close(p.b, {next})[0];
  p.output("loss", p.b.sum(p.b.mul(out, out), {T, K}));
  const Graph g = train_and_check(p.g, {});
  EXPECT_EQ(count_ops(g, Op::kAttention), 1U);
  for (const Node& node : g.nodes) {
    if (node.op == Op::kAttention) {
      EXPECT_TRUE(node.attrs.causal && !node.attrs.masked);
    }
    if (node.op == Op::kRepeat && !node.loop.reverse) {
      EXPECT_EQ(node.loop.invariants, 0);
    }
  }
}

// Row 2 sees nothing: zeros, and finite gradients elsewhere.
TEST(RaiseAttention, FullyMaskedRow) {
  for (bool raise : {false, true}) {
    Program p;
    const DimId T = p.dim("T", 4), S = p.dim("S", 4), K = p.dim("K", 2);
    const ValueId q = p.input("q", {T, K}), k = p.input("k", {S, K}), v = p.input("v", {S, K});
    const ValueId keep = p.b.make(Op::kNe, {iota(p.b, T), p.b.constant(Scalar(2.0), DType::kI32)});
    const ValueId s = p.b.where(keep, contract(p.b, q, k, {K}), number(p.b, -INFINITY));
    const ValueId out = contract(p.b, p.b.make(Op::kSoftmax, {s}, dims_attr({S})), v, {S});
    p.output("out", out);
    p.output("loss", p.b.sum(p.b.mul(out, out), {T, K}));
    Graph g = p.g;
    if (raise) g = raise_attention(std::move(g));
    EXPECT_EQ(count_ops(g, Op::kAttention), raise ? 1U : 0U);
    g = differentiate(g, output_value(g, "loss"));
    EvalContext context;
    const std::vector<Tensor> inputs = random_inputs(p.g, {}, 3);
    check_gradients(p.g, g, inputs, context);
    const Tensor result = run(g, inputs, context).at("out");
    EXPECT_EQ(result.data[4], 0);
    EXPECT_EQ(result.data[5], 0);
  }
}

}  // namespace
}  // namespace cad::ir
