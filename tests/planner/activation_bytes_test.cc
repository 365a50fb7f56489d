// tests/planner/activation_bytes_test.cc -- what the planner says a transformer layer keeps for its
// backward pass, against the published formulas, by how many devices share it. What one device
// keeps by the program alone: tests/ir/profile_test.cc.
#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "planner/baselines.h"
#include "planner/planner.h"
#include "tests/ir/transformer.h"
#include "tests/planner/joint_testing.h"

namespace cad::planner {
namespace {

// Of one layer: batch, sequence, width, heads.
struct Sizes {
  int64_t b, s, h, a;
};

// `fused`: attention is one op, as it is in every plan.
std::unique_ptr<Planned> layers(const Sizes& z, int64_t count, bool fused) {
  ir::Transformer t;
  t.p.g.batch_dim = t.B;
  std::vector<ir::Pass> passes = ir::passes_before_autodiff();
  if (!fused) {
    passes.erase(std::remove_if(passes.begin(), passes.end(),
                                [](const ir::Pass& pass) {
                                  return pass.name == std::string("raise_attention");
                                }),
                 passes.end());
  }
  auto p = std::make_unique<Planned>();
  p->graph = ir::run_passes(t.p.g, passes);
  p->training.bindings = {{"b", z.b}, {"s", z.s}, {"h", z.h}, {"a", z.a}, {"L", count}};
  p->training.mixed = true;
  p->training.state_bytes.assign(p->graph.inputs.size(), 8);
  p->sites = find_sites(p->graph);
  return p;
}

// Bytes that a layer keeps on each of t devices.
double of_a_layer(const Sizes& z, int t, const std::string& name, bool fused,
                  bool recompute = false) {
  const Cluster cluster = equal_links(t, 1e9, 1e-6);
  const auto saved = [&](int64_t count) {
    const auto p = layers(z, count, fused);
    const Problem problem =
        make_problem(p->sites, mesh_of(cluster, {t}), p->training, cost_model(cluster.device));
    const BaselineResult result = baseline(problem, name, recompute);
    EXPECT_TRUE(result.plan.has_value()) << name << result.why;
    EXPECT_TRUE(result.evaluation.valid);
    EXPECT_EQ(evaluate(problem, *result.plan).bytes.saved, result.evaluation.bytes.saved);
    return result.evaluation.bytes.saved;
  };
  return (saved(4) - saved(2)) / 2;
}

constexpr Sizes kSizes[] = {{4, 512, 768, 16}, {2, 1024, 512, 8}, {8, 64, 1024, 32}};

// Mean and variance of two norms, a number of 4 bytes each a position: more than is published.
double norms(const Sizes& z) {
  return static_cast<double>(16 * z.b * z.s);
}
double sbh(const Sizes& z) {
  return static_cast<double>(z.s * z.b * z.h);
}
// 2 bytes each, the probabilities and what dropout leaves of them: 4 a s / h of s b h.
double probabilities(const Sizes& z) {
  return static_cast<double>(4 * z.a * z.s * z.s * z.b);
}
// Of fused attention: a number of 4 bytes a head and position instead.
double sums(const Sizes& z) {
  return static_cast<double>(4 * z.a * z.s * z.b);
}

// Korthikanti et al. (arXiv 2205.05198) have s b h (34 + 5 a s / h) bytes with three stored masks
// of dropout; masks that are drawn again leave 32 and 4.
TEST(ActivationBytes, OfALayerOnOneDevice) {
  for (const Sizes& z : kSizes) {
    EXPECT_EQ(of_a_layer(z, 1, "single", false), 32 * sbh(z) + probabilities(z) + norms(z));
    EXPECT_EQ(of_a_layer(z, 1, "single", true), 32 * sbh(z) + sums(z) + norms(z));
  }
}

// Published: s b h (10 + 24 / t + 5 a s / (h t)). What enters norms and products, and the sums, is
// whole on every device; of the 10, two are masks.
TEST(ActivationBytes, WithTensorParallelism) {
  for (const Sizes& z : kSizes) {
    for (const int t : {2, 4, 8}) {
      EXPECT_EQ(of_a_layer(z, t, "megatron", false),
                sbh(z) * (8 + 24.0 / t) + probabilities(z) / t + norms(z))
          << t;
      EXPECT_EQ(of_a_layer(z, t, "megatron", true),
                sbh(z) * (8 + 24.0 / t) + sums(z) / t + norms(z))
          << t;
    }
  }
}

// Published: s b h (34 / t + 5 a s / (h t)).
TEST(ActivationBytes, WithSequenceParallelism) {
  for (const Sizes& z : kSizes) {
    for (const int t : {2, 4, 8}) {
      EXPECT_EQ(of_a_layer(z, t, "megatron-sp", false),
                (32 * sbh(z) + probabilities(z) + norms(z)) / t)
          << t;
      EXPECT_EQ(of_a_layer(z, t, "megatron-sp", true), (32 * sbh(z) + sums(z) + norms(z)) / t) << t;
    }
  }
}

// The batch split, or everything run again: only what enters the layer is left, 2 s b h.
TEST(ActivationBytes, WithDataParallelismAndWithRecomputation) {
  for (const Sizes& z : kSizes) {
    EXPECT_EQ(of_a_layer(z, 2, "dp", false), (32 * sbh(z) + probabilities(z) + norms(z)) / 2);
    EXPECT_EQ(of_a_layer(z, 1, "single", false, true), 2 * sbh(z));
    EXPECT_EQ(of_a_layer(z, 2, "dp", true, true), sbh(z));
    EXPECT_EQ(of_a_layer(z, 4, "megatron", true, true), 2 * sbh(z));
    EXPECT_EQ(of_a_layer(z, 4, "megatron-sp", true, true), sbh(z) / 2);
  }
}

// A published model of 22 billion parameters, 8-way: 1,325,400,064 bytes a layer with a byte for
// each element of a mask; three masks and two norms are the whole difference. With the sequence
// split and attention fused 9.5625 GiB in 48 layers, of which masks are 0.5625; with nothing but
// what enters a layer 4.5 GiB.
TEST(ActivationBytes, OfAPublishedModel) {
  constexpr Sizes kLarge{4, 2048, 6144, 64};
  const double masks = 2 * sbh(kLarge) + probabilities(kLarge) / 4 / 8;
  EXPECT_EQ(of_a_layer(kLarge, 8, "megatron", false) + masks - norms(kLarge), 1'325'400'064);
  const double split = of_a_layer(kLarge, 8, "megatron-sp", true);
  EXPECT_EQ(split + 2 * sbh(kLarge) / 8 - (norms(kLarge) + sums(kLarge)) / 8, 34 * sbh(kLarge) / 8);
  EXPECT_LT(48 * split / 0x1p30, 9.5625);
  EXPECT_EQ(48 * of_a_layer(kLarge, 8, "megatron", true, true) / 0x1p30, 4.5);
}

}  // namespace
}  // namespace cad::planner
