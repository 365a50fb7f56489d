// tests/planner/budget_ladder_test.cc -- budgets half a percent apart, in calls that know nothing
// of each other: less memory never predicts a faster step, and no plan needs more than it was
// given.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <gtest/gtest.h>

#include "planner/machines.h"
#include "planner/planner.h"
#include "tests/planner/joint_testing.h"

namespace cad::planner {
namespace {

constexpr int kRungs = 40;
constexpr double kStep = 0.995;

struct Case {
  std::string text;
  std::string cluster;
  int devices = 1;
};

class Ladder {
 public:
  explicit Ladder(const Case& c) : program_(planned(c.text)) {
    request_.graph = &program_->graph;
    request_.training = program_->training;
    request_.cluster = *find_cluster({}, c.cluster, c.devices);
    request_.meshes = *meshes(request_.cluster, c.devices);
    for (const int some : fewer_devices(c.devices)) {
      const std::vector<Mesh> fewer = *meshes(request_.cluster, some);
      request_.fewer.insert(request_.fewer.end(), fewer.begin(), fewer.end());
    }
    request_.segments = true;
    request_.alternatives = false;
    request_.proof_s = 0;
  }

  Planning plan(double budget) {
    request_.budget = std::floor(budget);
    return make_plan(request_);
  }

  // From `top` bytes down, agreeing to this part of a step; how many of the plans run loops again
  // in segments. Memory has a price where a plan is slower than the `fastest`.
  int descend(double top, double within, double fastest) {
    double before = 0, proven = 0;
    int segments = 0;
    for (int i = 0; i < kRungs; ++i) {
      const double budget = top * std::pow(kStep, i);
      const Planning planning = plan(budget);
      if (!planning.feasible) break;
      const Predicted& predicted = planning.plan.predicted;
      EXPECT_LE(predicted.peak_bytes, budget);
      EXPECT_GE(predicted.step_s, proven * (1 - 1e-6)) << budget;
      EXPECT_TRUE(planning.price > 0 || predicted.step_s <= fastest * 1.005) << budget;
      proven = std::max(proven, planning.plan.solver.bound);
      EXPECT_GE(predicted.step_s, before * (1 - within))
          << fmt::format("{:.0f} bytes, {:.4f} % faster than with more", budget,
                         100 * (1 - predicted.step_s / before));
      before = std::max(before, predicted.step_s);
      for (const std::vector<Run>& loop : planning.body.loops) {
        segments += std::any_of(loop.begin(), loop.end(),
                                [](const planner::Run& run) { return run.segment > 0; });
      }
    }
    return segments;
  }

 private:
  std::unique_ptr<Planned> program_;
  PlanRequest request_;
};

std::string blocks(int layers, int batch, int width, int hidden) {
  return fmt::format(
      "dim B, D = {}, F = {}, L = {}\nmodel Net(x: [B, D]) -> [B, D] {{\n  repeat L as h {{\n"
      "    x = x + Linear[F -> D](gelu(Linear[D -> F](LayerNorm[D](x))))\n  }}\n  return x\n}}\n"
      "train t {{\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
      "  optimizer: adam(lr: 1e-3)\n  B: {}\n  steps: 1\n}}\n",
      width, hidden, layers, batch);
}

std::string transformer(int layers, int batch, int length, int width, int heads) {
  return fmt::format(
      "dim B, T = {}, S = T, D = {}, F = {}, L = {}, H = {}, K = {}, V = 1000\n"
      "layer Att(x: [B, T, D]) -> [B, T, D] {{\n"
      "  param Wq, Wk, Wv : [D, H, K] = normal(0.02)\n  param Wo : [H, K, D] = normal(0.02)\n"
      "  q = x @[D] Wq\n  k = (x @[D] Wk)[T -> S]\n  v = (x @[D] Wv)[T -> S]\n"
      "  p = softmax[S](causal[T, S]((q @[K] k) / sqrt(K)))\n  return (p @[S] v) @[H, K] Wo\n}}\n"
      "model Net(ids: i32[B, T]) -> [B, T, V] {{\n  param emb : [V, D] = normal(0.02)\n"
      "  x = emb[V = ids]\n  repeat L as l {{\n    x = x + Att(LayerNorm[D](x))\n"
      "    x = x + Linear[F -> D](gelu(Linear[D -> F](LayerNorm[D](x))))\n  }}\n"
      "  return LayerNorm[D](x) @[D] emb\n}}\n"
      "train t {{\n  data: synthetic(x: i32[B, T], y: i32[B, T])\n"
      "  loss: cross_entropy[V](Net(x), y)\n  optimizer: adam(lr: 1e-3)\n  B: {}\n  steps: 1\n}}\n",
      length, width, 4 * width, layers, heads, width / heads, batch);
}

// From so many parts (0: the most that is of use, 1: the least that suffices), in logarithms.
int ladders(const Case& c, const std::vector<double>& from, double within = 1e-6) {
  Ladder ladder(c);
  const Planning ample = ladder.plan(1e15);
  EXPECT_TRUE(ample.feasible);
  const double least = ladder.plan(1).least_peak;
  const double most = ample.plan.predicted.peak_bytes;
  EXPECT_GT(most, least);
  int segments = 0;
  for (const double part : from)
    segments +=
        ladder.descend(most * std::pow(least / most, part), within, ample.plan.predicted.step_s);
  return segments;
}

TEST(BudgetLadder, DenseBlocksOnFour) {
  ladders({blocks(3, 512, 256, 1024), "dgx_a100", 4}, {0.1, 0.5});
}
TEST(BudgetLadder, DenseBlocksOnEight) {
  ladders({blocks(12, 4096, 1024, 4096), "dgx_a100", 8}, {0.3, 0.6});
}
TEST(BudgetLadder, DenseBlocksInSegments) {
  EXPECT_GE(ladders({blocks(48, 65536, 128, 512), "dgx_a100", 1}, {0.5, 0.8}), 20);
}
TEST(BudgetLadder, ManyBlocksOnTwo) {
  EXPECT_GE(ladders({blocks(100, 16384, 256, 1024), "pairs_a100", 2}, {0.7}), 10);
}
TEST(BudgetLadder, ATransformerOnTwo) {
  ladders({transformer(2, 8, 32, 64, 2), "p3_16xlarge", 2}, {0.3}, 0.012);
}
TEST(BudgetLadder, ATransformerInSegments) {
  EXPECT_GE(ladders({transformer(24, 32, 256, 128, 2), "dgx_a100", 1}, {0.95}), 10);
}

}  // namespace
}  // namespace cad::planner
