// tests/planner/long_loops_test.cc -- loops of hundreds of narrow iterations, on machines of which
// links decide: their best plans mix iterations in several states of the carry, where both lines of
// overlap and memory bind at once. Less memory never predicts a faster step, and bounds hold up.
#include <cmath>

#include <fmt/format.h>

#include <gtest/gtest.h>

#include "planner/machines.h"
#include "planner/planner.h"
#include "tests/planner/joint_testing.h"

namespace cad::planner {
namespace {

std::string narrow(int layers) {
  return fmt::format(
      "dim B, D = 64, F = 256\nmodel Net(x: [B, D]) -> [B, D] {{\n"
      "  repeat {} as h {{ x = x + Linear[F -> D](gelu(Linear[D -> F](x))) }}\n  return x\n}}\n"
      "train t {{\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
      "  optimizer: adam(lr: 1e-3)\n  B: 64\n  steps: 1\n}}\n",
      layers);
}

// Budgets in falling order; plans are within `gap` of what is proven.
void descend(PlanRequest& request, const std::vector<double>& budgets, double gap) {
  double before = 0, slowest = 0;
  for (const double budget : budgets) {
    request.budget = std::floor(budget);
    const Planning planning = make_plan(request);
    ASSERT_TRUE(planning.feasible) << budget;
    const double step = planning.plan.predicted.step_s;
    EXPECT_LE(planning.plan.predicted.peak_bytes, budget);
    EXPECT_GE(step, before * (1 - 1e-6)) << budget << " bytes are faster than more";
    EXPECT_LE(planning.plan.solver.gap, gap) << budget;
    before = std::max(before, step);
    slowest = std::max(slowest, step);
  }
  EXPECT_GT(slowest, 0);
}

PlanRequest request_for(const Planned& program, int devices) {
  PlanRequest request;
  request.graph = &program.graph;
  request.training = program.training;
  request.cluster = *find_cluster({}, "dgx_a100", devices);
  request.segments = true;
  request.alternatives = false;
  request.proof_s = 0;
  return request;
}

TEST(LongLoops, MixStatesOfTheCarryUnderTightBudgets) {
  const auto program = planned(narrow(120));
  PlanRequest request = request_for(*program, 12);
  request.meshes = {*make_mesh(request.cluster, {{"a", 3}, {"b", 4}})};
  std::vector<double> budgets = {26202017, 22590671, 10762202, 9278880};
  for (int i = 0; i < 8; ++i) budgets.push_back(9.1e6 * std::pow(7.2 / 9.1, i / 7.0));
  descend(request, budgets, 0.01);
}

TEST(LongLoops, MixStatesWhereMemoryIsAmple) {
  const auto program = planned(narrow(500));
  PlanRequest request = request_for(*program, 12);
  request.meshes = {*make_mesh(request.cluster, {{"a", 3}, {"b", 4}})};
  descend(request, {102238493, 87710743, 36e6, 34e6, 32e6, 30e6}, 0.015);
}

// A bound of fewer devices that came from another mesh's line is a bound with segments, too.
TEST(LongLoops, BoundsOfDroppedMeshesHoldWithSegments) {
  const auto program = planned(narrow(500));
  PlanRequest request = request_for(*program, 8);
  request.meshes = *meshes(request.cluster, 8);
  for (const int some : fewer_devices(8)) {
    const std::vector<Mesh> fewer = *meshes(request.cluster, some);
    request.fewer.insert(request.fewer.end(), fewer.begin(), fewer.end());
  }
  descend(request, {119172510, 102238493}, 0.002);
}

}  // namespace
}  // namespace cad::planner
