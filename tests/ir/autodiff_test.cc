// tests/ir/autodiff_test.cc -- gradients of whole small programs through the interpreter against
// central differences: straight-line graphs, loops, nested loops, scans, zero trips.
#include "tests/ir/pass_test_util.h"

namespace cad::ir {
namespace {

ValueId mean_all(Builder& b, ValueId x) {
  return b.make(Op::kMean, {x}, dims_attr(b.graph().type(x).dims));
}

TEST(Autodiff, Mlp) {
  Program p;
  const DimId B = p.dim("B", 3), D = p.dim("D", 2), F = p.dim("F", 4);
  p.g.batch_dim = B;
  const ValueId x = p.data("x", {B, D}), w = p.input("w", {D, F}), c = p.input("c", {F}),
                v = p.input("v", {F, D});
  ValueId h = p.b.unary(Op::kTanh, p.b.add(contract(p.b, x, w, {D}), c));
  h = contract(p.b, h, v, {F});
  p.output("loss", mean_all(p.b, p.b.mul(h, h)));
  train_and_check(p.g, {});
}

TEST(Autodiff,
     BroadcastOperandsAreSummed) {  // add, sub, mul, div of [2, 3] with [1]-like smaller operands
  for (Op op : {Op::kAdd, Op::kSub, Op::kMul, Op::kDiv}) {
    for (int side = 0; side < 2; ++side) {
      for (int form = 0; form < 4; ++form) {
        Program p;
        const DimId X = p.dim("X", 2), Y = p.dim("Y", 3);
        const std::vector<std::vector<DimId>> forms = {{Y}, {X}, {}, {Y, X}};
        const ValueId a = p.input("a", {X, Y}), s = p.input("s", forms[static_cast<size_t>(form)]);
        const ValueId shifted = p.b.add(p.b.mul(s, s), number(p.b, 1));
        const ValueId out = side == 0
                                ? p.b.make(op, {a, shifted})
                                : p.b.make(op, {shifted, p.b.add(p.b.mul(a, a), number(p.b, 1))});
        p.output("loss", p.b.sum(p.b.mul(out, out), p.g.type(out).dims));
        train_and_check(p.g, {});
      }
    }
  }
}

TEST(Autodiff, AddedBiasGetsTheSumOfOnes) {
  Program p;
  const DimId X = p.dim("X", 2), Y = p.dim("Y", 3);
  const ValueId a = p.data("a", {X, Y}), s = p.input("s", {Y});
  p.output("loss", p.b.sum(p.b.add(a, s), {X, Y}));
  const Graph g = training_graph(p.g);
  EvalContext context;
  EXPECT_EQ(run(g, random_inputs(p.g, {}, 1), context).at("grad:s").data,
            (std::vector<double>{2, 2, 2}));
}

TEST(Autodiff, SharedParameterUsedThreeTimes) {
  Program p;
  const DimId B = p.dim("B", 2), D = p.dim("D", 3), E = p.dim("E", 3);
  const ValueId x = p.data("x", {B, D}), w = p.input("w", {D, E});
  ValueId h = x;
  for (int i = 0; i < 3; ++i)
    h = renamed(p.b, p.b.unary(Op::kTanh, contract(p.b, h, w, {D})), E, D);
  p.output("loss", p.b.sum(p.b.mul(h, h), {B, D}));
  train_and_check(p.g, {});
}

ValueId layer_norm(Builder& b, ValueId x, DimId D, ValueId gain) {
  const ValueId centred = b.sub(x, b.make(Op::kMean, {x}, dims_attr({D})));
  const ValueId variance = b.make(Op::kMean, {b.mul(centred, centred)}, dims_attr({D}));
  return b.mul(b.mul(centred, b.unary(Op::kRsqrt, b.add(variance, number(b, 1e-5)))), gain);
}

TEST(Autodiff, LayerNorm) {
  Program p;
  const DimId B = p.dim("B", 2), D = p.dim("D", 4);
  const ValueId x = p.input("x", {B, D}), gain = p.input("gain", {D}), t = p.data("t", {B, D});
  p.output("loss", mean_all(p.b, p.b.mul(layer_norm(p.b, x, D, gain), t)));
  train_and_check(p.g, {});
}

// x = x + tanh(norm(x) @ W[i] + c) @ V[i], with an invariant bias c and dropout.
Graph residual_stack(int64_t layers, bool frozen_gain = false) {
  Program p;
  const DimId B = p.dim("B", 2), D = p.dim("D", 3), F = p.dim("F", 4), L = p.dim("h", layers);
  p.g.batch_dim = B;
  const ValueId x = p.data("x", {B, D}), w = p.input("h.{}.w", {L, D, F}),
                v = p.input("h.{}.v", {L, F, D}), gain = p.input("gain", {D}),
                c = p.input("c", {F});
  p.g.inputs[3].frozen = frozen_gain;
  Body body(p.g, L);
  const ValueId h = body.carry(x), wi = body.scan(w), vi = body.scan(v), gi = body.invariant(gain),
                ci = body.invariant(c);
  Builder b = body.builder();
  ValueId y = b.unary(Op::kTanh, b.add(contract(b, layer_norm(b, h, D, gi), wi, {D}), ci));
  Attrs drop;
  drop.scalar = Scalar(0.25);
  drop.site = "h.{}.dropout";
  y = b.make(Op::kDropout, {y, body.number}, drop);
  y = b.add(h, contract(b, y, vi, {F}));
  const ValueId out = body.close(p.b, {y})[0];
  p.output("loss", p.b.sum(p.b.mul(out, out), {B, D}));
  return p.g;
}

TEST(Autodiff, Repeat) {
  train_and_check(residual_stack(3), {});
}

TEST(Autodiff, RepeatOfNoIterations) {
  Program p;
  const DimId D = p.dim("D", 3), L = p.dim("h", 0);
  const ValueId x = p.input("x", {D}), w = p.input("w", {L, D}), c = p.input("c", {D});
  Body body(p.g, L);
  const ValueId h = body.carry(x), wi = body.scan(w), ci = body.invariant(c);
  Builder b = body.builder();
  const ValueId out = body.close(p.b, {b.mul(b.mul(h, wi), ci)})[0];
  p.output("loss", p.b.sum(out, {D}));
  const Graph g = training_graph(p.g);
  EvalContext context;
  const auto results = run(g, random_inputs(p.g, {}, 1), context);
  EXPECT_EQ(results.at("grad:x").data, (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(results.at("grad:c").data, (std::vector<double>{0, 0, 0}));
  EXPECT_TRUE(results.at("grad:w").data.empty());
}

TEST(Autodiff, FrozenParametersCostNothing) {
  const Graph g = train_and_check(residual_stack(2, true), {});
  EXPECT_FALSE(output_value(g, "grad:gain").valid());
  const Graph all = training_graph(residual_stack(2));
  EXPECT_LT(g.nodes.size(), all.nodes.size());
}

TEST(Autodiff, LoopWithoutTrainedValuesIsNotDifferentiated) {
  Program p;
  const DimId D = p.dim("D", 3), L = p.dim("h", 2);
  const ValueId x = p.data("x", {D}), w = p.input("w", {D});
  Body body(p.g, L);
  const ValueId h = body.carry(x);
  Builder b = body.builder();
  const ValueId out = body.close(p.b, {b.unary(Op::kTanh, h)})[0];
  p.output("loss", p.b.sum(p.b.mul(out, w), {D}));
  EXPECT_EQ(count_ops(train_and_check(p.g, {}), Op::kRepeat), 1U);
}

TEST(Autodiff, NestedRepeats) {
  Program p;
  const DimId D = p.dim("D", 2), E = p.dim("E", 2), L = p.dim("outer", 3), M = p.dim("inner", 2);
  const ValueId x = p.input("x", {D}), w = p.input("w", {L, M, D, E}), c = p.input("c", {D}),
                s = p.input("s", {L, D});
  Body outer(p.g, L);
  const ValueId h = outer.carry(x), wo = outer.scan(w), so = outer.scan(s), co = outer.invariant(c);
  Builder ob = outer.builder();
  const ValueId start = ob.mul(ob.unary(Op::kSin, h), so);
  Body inner(p.g, M);
  const ValueId hi = inner.carry(start), wi = inner.scan(wo), ci = inner.invariant(co),
                si = inner.invariant(so);
  Builder ib = inner.builder();
  const ValueId step =
      renamed(ib, ib.unary(Op::kTanh, contract(ib, ib.mul(hi, ci), wi, {D})), E, D);
  const ValueId next = ib.add(hi, ib.mul(step, si));
  const std::vector<ValueId> results = inner.close(ob, {next, step});
  const ValueId sum = ob.sum(results[1], {M});
  const std::vector<ValueId> out = outer.close(p.b, {ob.add(results[0], ob.mul(sum, co)), sum});
  const ValueId all =
      p.b.add(p.b.sum(p.b.mul(out[0], out[0]), {D}), p.b.sum(p.b.mul(out[1], out[1]), {L, D}));
  p.output("loss", all);
  const Graph g = train_and_check(p.g, {});
  EXPECT_EQ(count_ops(g, Op::kRepeat), 4U);
}

TEST(Autodiff, ReversedLoopAndPassedThroughCarry) {
  Program p;
  const DimId D = p.dim("D", 2), T = p.dim("t", 4);
  const ValueId x = p.input("x", {D}), y = p.input("y", {D}), w = p.input("w", {T, D});
  Body body(p.g, T);
  body.loop.reverse = true;
  const ValueId a = body.carry(x), kept = body.carry(y), wi = body.scan(w);
  Builder b = body.builder();
  const ValueId next = b.mul(b.add(a, wi), kept);
  const std::vector<ValueId> out = body.close(p.b, {next, kept, b.mul(next, wi)});
  p.output("loss", p.b.add(p.b.sum(p.b.mul(out[0], out[1]), {D}), p.b.sum(out[2], {T, D})));
  train_and_check(p.g, {});
}

// A recurrent net that reads x[T = t]: the input's gradient is collected, not T sums of T slices.
Graph scan_program() {
  Program p;
  const DimId B = p.dim("B", 2), T = p.dim("T", 4), D = p.dim("D", 2), E = p.dim("E", 2),
              t = p.dim("t", 4);
  const ValueId x = p.input("x", {B, T, D}), u = p.input("u", {D, E}), h0 = p.input("h0", {B, D});
  Body body(p.g, t);
  const ValueId h = body.carry(h0), xs = body.invariant(x), ui = body.invariant(u);
  Builder b = body.builder();
  const ValueId slice = select(b, xs, T, body.number);
  const ValueId next = b.unary(Op::kTanh, b.add(slice, renamed(b, contract(b, h, ui, {D}), E, D)));
  const ValueId hs = renamed(p.b, body.close(p.b, {next, next})[1], t, T);
  p.output("loss", p.b.sum(p.b.mul(hs, hs), {T, B, D}));
  return p.g;
}

TEST(Autodiff, Scan) {
  const Graph g = train_and_check(scan_program(), {});
  EXPECT_EQ(count_ops(g, Op::kSelect), 0U);
  EXPECT_EQ(count_ops(g, Op::kUnselect), 0U);
}

// The recurrent weight's gradient is one product after the loop, not a sum in it.
TEST(Autodiff, RecurrentWeightIsHoisted) {
  const Graph g = train_and_check(scan_program(), {});
  size_t loops = 0;
  for (const Node& node : g.nodes) {
    if (node.op != Op::kRepeat || !node.loop.reverse) continue;
    ++loops;
    EXPECT_EQ(node.loop.carries, 1);
  }
  EXPECT_EQ(loops, 1U);
}

TEST(Autodiff, SelectWithoutTheScanPassIsTheSame) {
  const Graph forward = scan_program();
  const Graph plain = differentiate(forward, output_value(forward, "loss"));
  expect_valid(plain);
  EvalContext context;
  const std::vector<Tensor> inputs = random_inputs(forward, {}, 5);
  const auto a = run(plain, inputs, context), b = run(training_graph(forward), inputs, context);
  for (const char* name : {"grad:x", "grad:u", "grad:h0"})
    expect_near(a.at(name), b.at(name), 1e-12, name);
}

// Cheap values are recomputed: of tanh(x W + c) only one of sum and tanh is stacked.
TEST(Autodiff, SavesTheMinimum) {
  const Graph g = training_graph(residual_stack(3));
  size_t wide = 0, stacked = 0;
  for (NodeId id : g.regions[0].nodes) {
    const Node& node = g.node(id);
    if (node.op != Op::kRepeat || node.loop.reverse) continue;
    stacked = static_cast<size_t>(node.loop.collected);
    for (int i = node.loop.carries; i < node.loop.carries + node.loop.collected; ++i) {
      for (DimId dim : g.type(node.results[static_cast<size_t>(i)]).dims)
        wide += g.dim(dim).name == "F" ? 1 : 0;
    }
  }
  EXPECT_EQ(wide, 1U);
  EXPECT_LE(stacked, 4U);  // x, rstd (and mean), one of F
}

TEST(Autodiff, PolicyDictates) {
  const Graph forward = run_passes(residual_stack(3), passes_before_autodiff());
  DifferentiateOptions save;
  save.save.choose = [](const Graph&, ValueId) { return SavePolicy::Choice::kSave; };
  DifferentiateOptions recompute;
  recompute.save.choose = [](const Graph&, ValueId) { return SavePolicy::Choice::kRecompute; };
  EvalContext context;
  const std::vector<Tensor> inputs = random_inputs(forward, {}, 2);
  int collected[3] = {0, 0, 0};
  std::map<std::string, Tensor> results[3];
  int at = 0;
  for (const DifferentiateOptions& options : {DifferentiateOptions(), save, recompute}) {
    const Graph g = run_passes(differentiate(forward, output_value(forward, "loss"), options),
                               passes_after_autodiff());
    for (NodeId id : g.regions[0].nodes) {
      const Node& node = g.node(id);
      if (node.op == Op::kRepeat && !node.loop.reverse) collected[at] = node.loop.collected;
    }
    results[at++] = run(g, inputs, context);
  }
  EXPECT_EQ(collected[2], 1);  // the carry alone
  EXPECT_LT(collected[0], collected[1]);
  for (const auto& [name, tensor] : results[0]) {
    expect_near(results[1].at(name), tensor, 1e-12, name);
    expect_near(results[2].at(name), tensor, 1e-12, name);
  }
}

}  // namespace
}  // namespace cad::ir
