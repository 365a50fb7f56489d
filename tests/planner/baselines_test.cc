// tests/planner/baselines_test.cc -- the named baselines communicate as they were published: what
// each splits, between products and in them; and products' gradients are priced at their own
// shapes.
#include "planner/baselines.h"

#include <array>
#include <set>

#include <gtest/gtest.h>

#include "planner/plan.h"
#include "planner/planner.h"
#include "tests/planner/joint_testing.h"

namespace cad::planner {
namespace {

// Blocks of two products each.
std::string block_model() {
  return "dim B, T = 64, D = 256, F = 1024\n"
         "model Net(x: [B, T, D]) -> [B, T, D] {\n  repeat 4 as h {\n"
         "    x = x + Linear[F -> D](gelu(Linear[D -> F](LayerNorm[D](x))))\n  }\n  return x\n}\n"
         "train t {\n  data: synthetic(x: f32[B, T, D], y: f32[B, T, D])\n  loss: mse(Net(x), y)\n"
         "  optimizer: adam(lr: 1e-3)\n  B: 64\n  steps: 1\n}\n";
}

Cluster cluster() {
  return equal_links(8, 100e9, 1e-6);
}

struct Fixed {
  std::unique_ptr<Planned> program;
  Problem problem;
  Plan plan;
  Evaluation evaluation;
};

Fixed fixed(const std::string& name, const std::vector<int>& sizes) {
  Fixed f;
  f.program = planned(block_model());
  f.problem = make_problem(f.program->sites, mesh_of(cluster(), sizes), f.program->training,
                           cost_model(cluster().device));
  const BaselineResult result = baseline(f.problem, name, false);
  EXPECT_TRUE(result.plan.has_value()) << name << ": " << result.why;
  if (result.plan) f.plan = describe(f.problem, *result.plan);
  f.evaluation = result.evaluation;
  return f;
}

// Of the products, with what they sum over.
std::vector<std::pair<NamedLayout, std::string>> products(const Fixed& f) {
  std::vector<std::pair<NamedLayout, std::string>> all;
  for (const PlanOp& op : f.plan.ops) {
    if (op.op != "contract") continue;
    const ir::Node& n = f.program->graph.node(ir::NodeId{op.node});
    all.emplace_back(op.strategy, f.program->graph.dim(n.attrs.dims[0]).name);
  }
  EXPECT_EQ(all.size() % 2, 0U);
  EXPECT_FALSE(all.empty());
  return all;
}

TEST(Baselines, GridsNeverSplitTheSum) {
  const Fixed f = fixed("tp2d", {2, 4});
  for (const auto& [split, sum] : products(f)) {
    EXPECT_EQ(split[0], "B");
    EXPECT_NE(split[1], "");
    EXPECT_NE(split[1], "B");
    EXPECT_NE(split[1], sum);
  }
}

TEST(Baselines, CubesSplitRowsColumnsAndTheSum) {
  const Fixed f = fixed("tp3d", {2, 2, 2});
  for (const auto& [split, sum] : products(f)) {
    EXPECT_EQ(split[0], "B");
    EXPECT_TRUE((split[1] == sum) != (split[2] == sum)) << split[1] << " " << split[2];
    EXPECT_NE(split[1], "");
    EXPECT_NE(split[2], "");
  }
  EXPECT_NE(f.evaluation.seconds, fixed("tp2d", {2, 4}).evaluation.seconds);
}

TEST(Baselines, ASplitSequenceStaysSplitBetweenProducts) {
  const Fixed whole = fixed("megatron", {2, 4}), split = fixed("megatron-sp", {2, 4});
  for (const PlanOp& op : split.plan.ops) {
    if (op.op == "rsqrt") {
      EXPECT_EQ(op.strategy, (NamedLayout{"B", "T"})) << op.path;
    }
  }
  for (const PlanOp& op : whole.plan.ops) {
    if (op.op == "rsqrt") {
      EXPECT_EQ(op.strategy, (NamedLayout{"B", ""})) << op.path;
    }
  }
  EXPECT_LT(split.evaluation.bytes.saved, whole.evaluation.bytes.saved);
}

TEST(Baselines, MegatronZeroSplitsStatesOverTheBatchToo) {
  const Fixed whole = fixed("megatron-sp", {2, 4}), split = fixed("megatron-zero", {2, 4});
  EXPECT_NEAR(split.evaluation.bytes.parameters, whole.evaluation.bytes.parameters,
              0.01 * whole.evaluation.bytes.parameters);
  EXPECT_NEAR(split.evaluation.bytes.optimizer, whole.evaluation.bytes.optimizer / 2,
              0.01 * whole.evaluation.bytes.optimizer);
  EXPECT_NEAR(split.evaluation.bytes.gradients, whole.evaluation.bytes.gradients / 2,
              0.01 * whole.evaluation.bytes.gradients);
}

TEST(Baselines, GradientsOfProductsHaveTheirOwnShapes) {
  auto p = planned(
      "dim B, D = 96, E = 32\n"
      "model Net(x: [B, D]) -> [B, D] {\n"
      "  param W : [D, E] = normal(0.1)\n  param V : [E, D] = normal(0.1)\n"
      "  return x @[D] W @[E] V\n}\n"
      "train t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
      "  optimizer: sgd(lr: 1e-3)\n  B: 8\n  steps: 1\n}\n");
  std::multiset<std::array<double, 3>> shapes;
  CostModel model;
  model.seconds = [&](const Work& work) {
    if (work.matmul_flops > 0) {
      shapes.insert({work.m, work.n, work.k});
      EXPECT_EQ(work.matmul_flops, 2 * work.m * work.n * work.k);
    }
    return 0.0;
  };
  make_problem(p->sites, mesh_of(equal_links(1), {1}), p->training, model);
  // forward, then the weight's gradient; of the second product also its input's
  const std::multiset<std::array<double, 3>> wanted = {
      {8, 32, 96}, {96, 32, 8}, {8, 96, 32}, {32, 96, 8}, {8, 32, 96}};
  EXPECT_EQ(shapes, wanted);
}

}  // namespace
}  // namespace cad::planner
