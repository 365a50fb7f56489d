// tests/ir/simplify_test.cc -- identities, common and dead nodes, and what must not be touched.
#include "tests/ir/pass_test_util.h"

namespace cad::ir {
namespace {

struct Case {
  Program p;
  DimId B = p.dim("B", 2), D = p.dim("D", 3), T = p.dim("T", 3), S = p.dim("S", 3);
  ValueId x = p.input("x", {B, D});
  // Ops other than inputs that are left when `value` is the only output.
  size_t left(ValueId value) {
    Graph g = p.g;
    g.outputs = {{"out"}};
    g.regions[0].results = {value};
    g = eliminate_dead(eliminate_common(simplify(std::move(g))));
    expect_valid(g);
    return g.nodes.size() - count_ops(g, Op::kInput);
  }
};

TEST(Simplify, Identities) {
  Case c;
  Builder& b = c.p.b;
  const ValueId zero = number(b, 0), one = number(b, 1);
  EXPECT_EQ(c.left(b.mul(c.x, one)), 0U);
  EXPECT_EQ(c.left(b.mul(one, c.x)), 0U);
  EXPECT_EQ(c.left(b.div(c.x, one)), 0U);
  EXPECT_EQ(c.left(b.add(b.zeros(Type{DType::kF32, {c.B, c.D}}), c.x)), 0U);
  EXPECT_EQ(c.left(b.sub(c.x, zero)), 0U);
  EXPECT_EQ(c.left(b.unary(Op::kNeg, b.unary(Op::kNeg, c.x))), 0U);
  EXPECT_EQ(c.left(b.make(Op::kSum, {c.x}, dims_attr({}))), 0U);
  EXPECT_EQ(c.left(b.make(Op::kTranspose, {b.make(Op::kTranspose, {c.x}, dims_attr({c.D, c.B}))},
                          dims_attr({c.B, c.D}))),
            0U);
  EXPECT_EQ(c.left(renamed(b, renamed(b, c.x, c.D, c.T), c.T, c.D)), 0U);
  EXPECT_EQ(c.left(renamed(b, renamed(b, c.x, c.D, c.T), c.T, c.S)), 1U);
  EXPECT_EQ(c.left(b.cast(b.cast(b.cast(c.x, DType::kBF16), DType::kF32), DType::kBF16)), 1U);
  EXPECT_EQ(c.left(b.where(b.constant(Scalar(1.0), DType::kBool), c.x, b.unary(Op::kExp, c.x))),
            0U);
  EXPECT_EQ(c.left(b.broadcast(b.broadcast(one, {c.B}), {c.B, c.D})), 2U);
  EXPECT_EQ(c.left(b.mul(c.x, b.add(number(b, 2), b.unary(Op::kSqrt, number(b, 4))))), 2U);
}

TEST(Simplify, LeavesWhatRounds) {
  Case c;
  Builder& b = c.p.b;
  EXPECT_EQ(c.left(b.cast(b.cast(c.x, DType::kBF16), DType::kF32)), 2U);
  EXPECT_EQ(c.left(b.cast(b.cast(c.x, DType::kI32), DType::kF32)), 2U);
  EXPECT_EQ(c.left(b.mul(c.x, number(b, 0))), 2U);  // NaN and infinities stay
  EXPECT_EQ(c.left(b.mul(b.mul(c.x, number(b, 3)), number(b, 5))), 4U);
}

TEST(Simplify, FoldsSizes) {
  Program p;
  const DimId K = p.dim("K", Size::symbol("K"));
  const ValueId x = p.input("x", {K});
  const ValueId k = p.b.constant(Scalar::size(Size::symbol("K")), DType::kF32);
  p.output("out", p.b.div(x, p.b.unary(Op::kSqrt, p.b.mul(k, number(p.b, 4)))));
  const Graph g = eliminate_dead(simplify(p.g));
  EXPECT_EQ(g.nodes.size(), 3U);
  EvalContext context;
  context.bindings = {{"K", 4}};
  Tensor t;
  t.extents = {4};
  t.data = {4, 8, 12, 16};
  EXPECT_EQ(run(g, {t}, context).at("out").data, (std::vector<double>{1, 2, 3, 4}));
}

TEST(EliminateCommon, EqualNodesAreOne) {
  Case c;
  Builder& b = c.p.b;
  const auto wave = [&](double k) { return b.unary(Op::kSin, b.mul(c.x, number(b, k))); };
  EXPECT_EQ(c.left(b.add(wave(2), wave(2))), 4U);
  EXPECT_EQ(c.left(b.add(wave(2), wave(3))), 7U);
  EXPECT_EQ(c.left(b.div(b.div(c.x, number(b, 0.0)), number(b, -0.0))), 4U);  // -0 is not 0
}

TEST(EliminateDead, LoopsLoseWhatNothingNeeds) {
  Program p;
  const DimId D = p.dim("D", 2), L = p.dim("h", 3);
  const ValueId x = p.input("x", {D}), y = p.input("y", {D}), w = p.input("w", {L, D}),
                v = p.input("v", {L, D}), c = p.input("c", {D}), d = p.input("d", {D});
  Body body(p.g, L);
  const ValueId a = body.carry(x), dead = body.carry(y), ws = body.scan(w), vs = body.scan(v),
                ci = body.invariant(c), di = body.invariant(d);
  Builder b = body.builder();
  const ValueId next = b.mul(b.add(a, ws), ci), other = b.mul(b.add(dead, vs), di);
  const std::vector<ValueId> out = body.close(p.b, {next, other, next, other});
  p.output("out", out[2]);
  const Graph g = eliminate_dead(p.g);
  expect_valid(g);
  for (const Node& node : g.nodes) {
    if (node.op != Op::kRepeat) continue;
    EXPECT_EQ(node.loop.carries, 1);
    EXPECT_EQ(node.loop.scanned, 1);
    EXPECT_EQ(node.loop.invariants, 1);
    EXPECT_EQ(node.loop.collected, 1);
    EXPECT_EQ(g.region(node.loop.body).nodes.size(), 2U);
  }
  EXPECT_EQ(g.inputs.size(), 6U);
  EvalContext context;
  const std::vector<Tensor> inputs = random_inputs(p.g, {}, 1);
  expect_near(run(g, inputs, context).at("out"), run(p.g, inputs, context).at("out"), 0, "out");
}

}  // namespace
}  // namespace cad::ir
