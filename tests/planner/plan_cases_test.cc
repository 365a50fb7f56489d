// tests/planner/plan_cases_test.cc -- cases that planners are known to get wrong: names that clash,
// a checkpointed block's collectives run twice, random ops under recomputation.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "planner/machines.h"
#include "planner/plan_text.h"
#include "planner/planner.h"
#include "tests/planner/joint_testing.h"

namespace cad::planner {
namespace {

PlanRequest request_for(const Planned& p, int devices, const std::vector<Axis>& axes = {}) {
  PlanRequest request;
  request.graph = &p.graph;
  request.training = p.training;
  request.cluster = *find_cluster({}, "dgx_a100", devices);
  request.meshes = axes.empty() ? *meshes(request.cluster, devices)
                                : std::vector<Mesh>{*make_mesh(request.cluster, axes)};
  request.budget = 70e9;
  request.proof_s = 0.1;
  return request;
}

// Two layers whose weights, dims and scopes have the given names.
std::string two_layers(const std::string& a, const std::string& b, const std::string& dim) {
  return "dim B, " + dim + " = 512, E = 1024\nlayer First(x: [B, " + dim +
         "]) -> [B, E] {\n  param " + a + " : [" + dim + ", E] = ones\n  return x @[" + dim + "] " +
         a + "\n}\nlayer Second(x: [B, E]) -> [B, " + dim + "] {\n  param " + b + " : [E, " + dim +
         "] = ones\n  return x @[E] " + b + "\n}\nmodel Net(x: [B, " + dim + "]) -> [B, " + dim +
         "] {\n  use " + b + "s = First\n  use " + a + "s = Second\n  return " + a + "s(relu(" + b +
         "s(x)))\n}\ntrain t {\n  data: synthetic(x: f32[B, " + dim + "], y: f32[B, " + dim +
         "])\n  loss: mse(Net(x), y)\n  optimizer: adam(lr: 1e-3)\n  B: 256\n  steps: 1\n}\n";
}

// Splits and layouts, without any names of the program.
std::string anonymous(const Plan& plan, const std::string& dim) {
  std::string out = fmt::format("{} {}\n", plan.predicted.step_s, plan.predicted.peak_bytes);
  const auto add = [&](const NamedLayout& layout) {
    for (const std::string& d : layout) out += (d == dim ? "D" : d) + ",";
    out += "\n";
  };
  for (const PlanOp& op : plan.ops) add(op.strategy);
  for (const PlanTensor& t : plan.tensors) add(t.layout);
  return out;
}

TEST(PlanCases, NamesDecideNothing) {
  const auto neutral = planned(two_layers("wa", "wb", "D"));
  const std::string expected = anonymous(make_plan(request_for(*neutral, 4)).plan, "D");
  const std::string a_long_name(200, 'w');
  for (const auto& [a, b] :
       std::vector<std::pair<std::string, std::string>>{{"w_1", "w_11"},
                                                        {"x1", "x11"},
                                                        {"obj", "end"},
                                                        {"min", "int"},
                                                        {"R1", "C1"},
                                                        {a_long_name, a_long_name + "w"},
                                                        {"a_b", "a__b"}}) {
    const auto p = planned(two_layers(a, b, "D"));
    EXPECT_EQ(anonymous(make_plan(request_for(*p, 4)).plan, "D"), expected) << a << " " << b;
  }
  const auto dims = planned(two_layers("wa", "wb", "x_1"));
  EXPECT_EQ(anonymous(make_plan(request_for(*dims, 4)).plan, "x_1"), expected);
}

// A parameter `b` of a layer `a` is `a.b`, beside one of the model called `a_b`.
TEST(PlanCases, PathsDecideNothing) {
  const auto plan_of = [](const std::string& layer, const std::string& inner,
                          const std::string& own) {
    const auto p = planned(
        "dim B, D = 512, E = 1024\nlayer First(x: [B, D]) -> [B, E] {\n  param " + inner +
        " : [D, E] = ones\n  return x @[D] " + inner + "\n}\nmodel Net(x: [B, D]) -> [B, D] {\n" +
        "  use " + layer + " = First\n  param " + own + " : [E, D] = ones\n  return relu(" + layer +
        "(x)) @[E] " + own +
        "\n}\ntrain t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
        "  optimizer: adam(lr: 1e-3)\n  B: 256\n  steps: 1\n}\n");
    return make_plan(request_for(*p, 4)).plan;
  };
  const Plan neutral = plan_of("first", "w", "v"), alike = plan_of("a", "b", "a_b");
  EXPECT_EQ(anonymous(alike, "D"), anonymous(neutral, "D"));
  std::map<std::string, int> named;
  for (const PlanTensor& t : alike.tensors) named[t.path] += t.role == "parameter" ? 1 : 0;
  EXPECT_EQ(named["a.b"], 1);
  EXPECT_EQ(named["a_b"], 1);
}

// Four blocks of two tensor-parallel layers, of which only what enters a block is kept: each
// reduces twice, and only the first is needed to run the block again.
TEST(PlanCases, ACheckpointedBlockDoesNotRepeatItsLastReduction) {
  const auto p = planned(
      "dim B, D = 1024, F = 4096\nlayer Mlp(x: [B, D]) -> [B, D] {\n"
      "  return Linear[F -> D](gelu(Linear[D -> F](x, bias: false)), bias: false)\n}\n"
      "model Net(x: [B, D]) -> [B, D] {\n  repeat 4 as h {\n    x = x + Mlp(x)\n"
      "    x = x + Mlp(x)\n  }\n  return x\n}\ntrain t {\n"
      "  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
      "  optimizer: adam(lr: 1e-3)\n  B: 2048\n  steps: 1\n}\n");
  PlanRequest request = request_for(*p, 2, {{"tp", 2}});
  request.rules.shard = {{"F", "tp"}, {"B", ""}, {"D", ""}};
  request.rules.checkpointing = Checkpointing::kAll;
  const Planning planning = make_plan(request);
  ASSERT_TRUE(planning.feasible);
  ASSERT_EQ(planning.plan.devices, 2);
  std::map<std::string, double> seconds, reductions;
  for (const PlanConversion& c : planning.plan.conversions) {
    if (c.parameter || c.body == 0) continue;
    for (const PlanStep& s : c.steps) {
      seconds[c.phase] += s.seconds * c.count;
      if (s.kind == "all-reduce" || s.kind == "reduce-scatter") reductions[c.phase] += c.count;
    }
  }
  EXPECT_EQ(reductions["forward"], 8);
  EXPECT_EQ(reductions["recompute"], 4);
  EXPECT_EQ(reductions["backward"], 8);
  EXPECT_NEAR(seconds["recompute"], seconds["forward"] / 2, 1e-6 * seconds["forward"]);
  std::map<std::string, double> listed;
  for (const PlanCollective& c : planning.plan.collectives) listed[c.phase] += c.seconds;
  EXPECT_GE(listed["forward"], seconds["forward"] * (1 - 1e-6));
  EXPECT_NEAR(listed["recompute"], seconds["recompute"], 1e-6 * seconds["forward"]);
}

// Dropout in the middle: its draw may run again (it is keyed, not stateful), so every budget down
// to the least has a plan, and less memory is never faster.
TEST(PlanCases, RandomOpsRunAgainUnderEveryBudget) {
  const auto p = planned(
      "dim B, D = 64\nmodel Net(x: [B, D]) -> [B, D] {\n  repeat 4 as h {\n"
      "    x = Linear[D -> D](dropout(relu(Linear[D -> D](x)), 0.5))\n  }\n  return x\n}\ntrain t "
      "{\n"
      "  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
      "  optimizer: sgd(lr: 1e-3)\n  B: 4096\n  steps: 1\n}\n");
  for (const std::vector<Axis>& axes : std::vector<std::vector<Axis>>{{{"a", 1}}, {{"a", 2}}}) {
    int devices = 1;
    for (const Axis& a : axes) devices *= a.size;
    PlanRequest request = request_for(*p, devices, axes);
    request.alternatives = false;
    request.proof_s = 0.02;
    const Planning ample = make_plan(request);
    ASSERT_TRUE(ample.feasible);
    request.budget = 1;
    const double least = make_plan(request).least_peak;
    double before = 0;
    for (int i = 0; i <= 2; ++i) {
      request.budget = std::ceil(least) + (ample.plan.predicted.peak_bytes - least) * (2 - i) / 2;
      const Planning planning = make_plan(request);
      ASSERT_TRUE(planning.feasible) << devices << " " << request.budget;
      EXPECT_LE(planning.plan.predicted.peak_bytes, request.budget);
      EXPECT_GE(planning.plan.predicted.step_s, before * (1 - 1e-6));
      before = planning.plan.predicted.step_s;
    }
  }
}

}  // namespace
}  // namespace cad::planner
