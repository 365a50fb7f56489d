// tests/ir/profile_test.cc -- profiles of small programs against formulas by hand: FLOPs of a layer
// forward and backward, parameters and optimizer state, saved activations of a transformer layer
// as written and as colauto keeps them, live memory.
#include "ir/profile.h"

#include <chrono>
#include <cmath>

#include "tests/ir/transformer.h"

namespace cad::ir {
namespace {

std::string text(const Profile& p, const Amount& amount) {
  return amount.size(p.graph).str();
}
int64_t value(const Profile& p, const Amount& amount, const Bindings& bindings) {
  const Size::Evaluated size = amount.size(p.graph).evaluate(bindings);
  EXPECT_TRUE(size.ok()) << text(p, amount) << ": " << size.detail;
  return size.value;
}

// p <- p - lr * g, with `states` unused but kept: what state takes is read off the graph.
OptimizerEntry optimizer(int states, bool scalar_state = false) {
  OptimizerEntry entry;
  entry.name = "test";
  for (Graph* g : {&entry.decayed, &entry.plain}) {
    Builder b(*g, RegionId{0});
    const DimId n = g->add_dim("n", symbol("n"));
    const auto input = [&](const char* path, InputKind kind, std::vector<DimId> dims) {
      Input in;
      in.kind = kind;
      in.path = path;
      return b.input(in, Type{DType::kF32, std::move(dims)});
    };
    const ValueId p = input("p", InputKind::kOther, {n}), grad = input("g", InputKind::kOther, {n}),
                  lr = input("lr", InputKind::kOther, {});
    ValueId sum = grad;
    for (int i = 0; i < states; ++i)
      sum = b.add(sum, input(i == 0 ? "m" : "v", InputKind::kState, {n}));
    if (scalar_state) sum = b.mul(sum, input("t", InputKind::kState, {}));
    g->outputs.push_back({"p"});
    g->regions[0].results.push_back(b.sub(p, b.mul(sum, lr)));
  }
  return entry;
}

TrainSpec mlp(int layers) {
  Program p;
  const DimId B = p.dim("B", symbol("B")), D = p.dim("D", symbol("D")), F = p.dim("F", symbol("F"));
  p.g.batch_dim = B;
  ValueId h = p.data("x", {B, D});
  for (int i = 0; i < layers; ++i) {
    h = contract(p.b, h,
                 p.input("w" + std::to_string(i),
                         i % 2 == 0 ? std::vector<DimId>{D, F} : std::vector<DimId>{F, D}),
                 {i % 2 == 0 ? D : F});
    h = p.b.unary(Op::kTanh, h);
  }
  p.output("loss", p.b.sum(h, p.g.type(h).dims));
  TrainSpec spec;
  spec.forward = p.g;
  spec.optimizers.push_back(optimizer(2));
  return spec;
}

// The first layer has no input gradient: once; the others twice.
TEST(Profile, BackwardOfALayerIsTwiceButForTheFirst) {
  const Profile one = profile(mlp(1));
  EXPECT_EQ(text(one, one.total.forward.matmul), "2*B*D*F");
  EXPECT_EQ(text(one, one.total.backward.matmul), "2*B*D*F");
  const Profile three = profile(mlp(3));
  EXPECT_EQ(text(three, three.total.forward.matmul), "6*B*D*F");
  EXPECT_EQ(text(three, three.total.backward.matmul), "10*B*D*F");
}

TEST(Profile, ModelStatesByPrecisionAndOptimizer) {
  const Bindings bindings = {{"B", 2}, {"D", 1000}, {"F", 1000}};
  TrainSpec spec = mlp(1);
  Profile p = profile(spec);
  const auto states = [&] {
    Amount sum = p.total.param_bytes;
    sum += p.total.grad_bytes;
    sum += p.total.optimizer_bytes;
    return value(p, sum, bindings);
  };
  EXPECT_EQ(value(p, p.total.params, bindings), 1'000'000);
  EXPECT_EQ(states(), 16'000'000);
  spec.precision = DType::kBF16;
  p = profile(spec);
  EXPECT_EQ(states(), 16'000'000);  // gradients are f32 once
  EXPECT_EQ(value(p, p.total.copy_bytes, bindings), 2'000'000);
  spec.precision = DType::kF32;
  spec.optimizers[0] = optimizer(0);
  p = profile(spec);
  EXPECT_EQ(states(), 8'000'000);
  EXPECT_EQ(value(p, p.total.optimizer_flops, bindings), 2'000'000);
  spec.optimizers[0] = optimizer(1, true);
  spec.ema = 0.99;
  p = profile(spec);
  EXPECT_EQ(states(), 12'000'004);  // the scalar state once
  EXPECT_EQ(value(p, p.total.average_bytes, bindings), 4'000'000);
  spec.optimizers[0].frozen = true;
  p = profile(spec);
  EXPECT_FALSE(p.training);
  EXPECT_TRUE(p.total.grad_bytes.terms().empty() && p.total.backward.flops().terms().empty());
}

// Only iteration 0 of three is updated by the first entry; the second has no state.
TEST(Profile, OptimizerEntriesShareTheIterationsOfARepeat) {
  Program p;
  const DimId L = p.dim("L", symbol("L")), D = p.dim("D", symbol("D")), B = p.dim("B", symbol("B"));
  Body body(p.g, L);
  const ValueId x = body.carry(p.data("x", {B, D})), w = body.scan(p.input("h.{}.w", {L, D}));
  p.g.inputs.back().loop_dims = 1;
  Builder b = body.builder();
  const ValueId out = body.close(p.b, {b.unary(Op::kTanh, b.mul(x, w))})[0];
  p.output("loss", p.b.sum(out, {B, D}));
  TrainSpec spec;
  spec.forward = p.g;
  spec.bindings = {{"L", 3}, {"D", 10}, {"B", 2}};
  spec.optimizers = {optimizer(2), optimizer(0)};
  spec.optimizers[0].of = {"h.0.*"};
  const Profile got = profile(spec);
  EXPECT_EQ(value(got, got.total.optimizer_bytes, spec.bindings), 8 * 10);
  EXPECT_EQ(value(got, got.total.param_bytes, spec.bindings), 4 * 30);
}

TrainSpec spec_of(const Transformer& t) {
  TrainSpec spec;
  spec.forward = t.p.g;
  spec.precision = DType::kBF16;
  spec.optimizers.push_back(optimizer(2));
  spec.bindings = {{"b", 4}, {"s", 512}, {"h", 768}, {"a", 12}, {"L", 6}};
  return spec;
}

Size in_the_loop(const Profile& p) {
  Size sum;
  for (const SavedValue& saved : p.memory.saved) {
    if (p.graph.node(p.graph.value(saved.value).def).op == Op::kRepeat)
      sum = sum + saved.bytes.size(p.graph);
  }
  return sum;
}

// Korthikanti et al. (arXiv 2205.05198): s b h (34 + 5 a s / h) a layer with stored masks; without,
// 32 and 4. Ours adds what they leave out: mean and scale of two norms, 4 bytes each a position.
TEST(Profile, ActivationsOfATransformerLayerWithNothingRecomputed) {
  const Transformer t;
  ProfileOptions all;
  all.activations = ProfileOptions::Activations::kAll;
  const Profile p = profile(spec_of(t), all);
  const Size b = symbol("b"), s = symbol("s"), h = symbol("h"), a = symbol("a"), L = symbol("L");
  EXPECT_EQ(in_the_loop(p).str(), (L * (s * b * (32 * h + 4 * a * s) + 16 * b * s)).str());
  for (const SavedValue& saved : p.memory.saved)
    EXPECT_NE(p.graph.type(saved.value).dtype, DType::kBool) << "masks are drawn again";
}

// With attention fused and what is cheap computed again, nothing grows with s^2.
TEST(Profile, ActivationsThatAreKept) {
  const Transformer t;
  const Profile p = profile(spec_of(t));
  const Size kept = in_the_loop(p);
  const Bindings once = {{"b", 1}, {"s", 1024}, {"h", 4096}, {"a", 32}, {"L", 1}},
                 twice = {{"b", 1}, {"s", 2048}, {"h", 4096}, {"a", 32}, {"L", 1}};
  EXPECT_EQ(kept.evaluate(twice).value, 2 * kept.evaluate(once).value);
  EXPECT_LT(kept.evaluate(once).value, int64_t{1024} * 4096 * 22);
}

// Attention's backward is 2 times its forward with the probabilities at hand, 2.5 times fused.
TEST(Profile, FlopsOfATransformerLayer) {
  const Transformer t;
  ProfileOptions all;
  all.activations = ProfileOptions::Activations::kAll;
  const Size b = symbol("b"), s = symbol("s"), h = symbol("h"), L = symbol("L");
  const Size layer = 24 * b * s * h * h, attention = 4 * b * s * s * h;
  const Profile stored = profile(spec_of(t), all), fused = profile(spec_of(t));
  EXPECT_EQ(stored.total.forward.matmul.size(stored.graph), L * (layer + attention));
  EXPECT_EQ(stored.total.backward.matmul.size(stored.graph), L * (2 * layer + 2 * attention));
  EXPECT_EQ(fused.total.forward.matmul.size(fused.graph), L * (layer + attention));
  EXPECT_EQ(fused.total.backward.matmul.size(fused.graph),
            L * (2 * layer + attention + attention + attention / 2));
}

// A repeat multiplies: no node more, no time more.
TEST(Profile, DoesNotUnroll) {
  Transformer t;
  TrainSpec spec = spec_of(t);
  const Profile few = profile(spec);
  spec.bindings["L"] = 1'000'000;
  const Profile many = profile(spec);
  EXPECT_EQ(few.ops.size(), many.ops.size());
  EXPECT_EQ(few.memory.points.size(), many.memory.points.size());
  const double ratio = many.total.forward.matmul.at(many.extents(spec.bindings)) /
                       few.total.forward.matmul.at(few.extents(spec_of(t).bindings));
  EXPECT_DOUBLE_EQ(ratio, 1'000'000 / 6.0);
}

TEST(Profile, TakenAgainIsTheSame) {
  const Transformer t;
  const Profile first = profile(spec_of(t));
  const std::vector<double> extents = first.extents(spec_of(t).bindings);
  for (int round = 0; round < 3; ++round) {
    const Profile again = profile(spec_of(t));
    EXPECT_EQ(text(again, again.total.forward.flops()), text(first, first.total.forward.flops()));
    EXPECT_EQ(text(again, again.total.backward.flops()), text(first, first.total.backward.flops()));
    EXPECT_EQ(again.peak(extents).bytes, first.peak(extents).bytes);
  }
}

// Layers nest: the model is all, a loop's scope is the sum of what it holds.
TEST(Profile, LayersAddUp) {
  const Profile p = profile(mlp(3));
  ASSERT_FALSE(p.layers.empty());
  EXPECT_EQ(p.layers[0].scope, "");
  EXPECT_EQ(text(p, p.layers[0].forward.flops()), text(p, p.total.forward.flops()));
  EXPECT_EQ(text(p, p.layers[0].params), text(p, p.total.params));
}

TEST(Profile, FreeSizesHaveFormulasAndNoNumbers) {
  const Profile p = profile(mlp(2));
  const std::vector<double> extents = p.extents({{"B", 4}, {"D", 8}});
  EXPECT_TRUE(std::isnan(p.total.forward.flops().at(extents)));
  const Profile::Peak peak = p.peak(extents);
  EXPECT_TRUE(std::isnan(peak.bytes));
  EXPECT_TRUE(peak.nominal);
  EXPECT_GE(peak.point, 0);
}

// Weights of 4096 x 4096 and a batch of one: memory is the states. A wide batch: activations.
TEST(Profile, WhatDominatesThePeak) {
  TrainSpec spec = mlp(8);
  const Profile p = profile(spec);
  const auto share = [&](const Bindings& bindings) {
    const std::vector<double> extents = p.extents(bindings);
    return p.peak(extents).transient / p.peak(extents).bytes;
  };
  EXPECT_LT(share({{"B", 1}, {"D", 4096}, {"F", 4096}}), 0.01);
  EXPECT_GT(share({{"B", 4096}, {"D", 64}, {"F", 64}}), 0.8);
}

// Four values of one size in a chain of contractions: two are alive at a time, and the backward
// pass holds those that it reads.
TEST(LiveMemory, FollowsLiveness) {
  Program p;
  const DimId B = p.dim("B", symbol("B")), D = p.dim("D", symbol("D")), E = p.dim("E", symbol("D"));
  ValueId h = p.data("x", {B, D});
  for (int i = 0; i < 4; ++i)
    h = renamed(p.b, contract(p.b, h, p.data("w" + std::to_string(i), {D, E}), {D}), E, D);
  p.output("result", h);
  const std::vector<char> forward(p.g.nodes.size(), 1);
  const LiveMemory memory = live_memory(p.g, step_groups(p.g), forward);
  ASSERT_EQ(memory.points.size(), 1U);
  EXPECT_EQ(memory.bytes(memory.points[0]).size(p.g).str(), "8*B*D");
  EXPECT_TRUE(memory.saved.empty());
}

}  // namespace
}  // namespace cad::ir
