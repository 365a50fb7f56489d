// tests/planner/plan_rules_test.cc -- `plan { shard {..}, checkpoint: .. }`: wishes are followed
// where an op can, never against an annotation or the budget, and notes say what became of them.
#include <algorithm>

#include "planner/machines.h"
#include "planner/planner.h"
#include "tests/planner/joint_testing.h"

namespace cad::planner {
namespace {

std::string model(const std::string& before = "", const std::string& loop = "repeat 4 as h") {
  return "dim B, D = 512, F = 2048\nlayer Mlp(x: [B, D]) -> [B, D] {\n  param up : [D, F] = ones\n"
         "  param down : [F, D] = ones\n" +
         before + "  return gelu(x @[D] up) @[F] down\n}\nmodel Net(x: [B, D]) -> [B, D] {\n  " +
         loop +
         " { x = x + Mlp(x) }\n  return x\n}\ntrain t {\n"
         "  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
         "  optimizer: adam(lr: 1e-3)\n  B: 65536\n  steps: 1\n}\n";
}

PlanRequest request_of(const Planned& p, PlanRules rules, const std::vector<Axis>& axes = {}) {
  PlanRequest request;
  request.graph = &p.graph;
  request.training = p.training;
  request.cluster = *find_cluster({}, "dgx_a100", 4);
  request.meshes = axes.empty() ? *meshes(request.cluster, 4)
                                : std::vector<Mesh>{*make_mesh(request.cluster, axes)};
  request.budget = 70e9;
  request.rules = std::move(rules);
  request.proof_s = 0.1;
  return request;
}

// How often the ops that are split by `dim` use exactly `axis`.
int splits(const Plan& plan, const std::string& dim, const std::string& axis) {
  int n = 0;
  for (const PlanOp& op : plan.ops) {
    for (size_t a = 0; a < plan.axes.size(); ++a)
      n += op.strategy[a] == dim && plan.axes[a].name == axis;
  }
  return n;
}

bool noted(const Plan& plan, const std::string& part) {
  return std::any_of(plan.notes.begin(), plan.notes.end(),
                     [&](const std::string& n) { return n.find(part) != std::string::npos; });
}

std::string all_notes(const Plan& plan) {
  std::string out;
  for (const std::string& n : plan.notes) out += n + "\n";
  return out;
}

TEST(PlanRules, AWishDecidesWhereAnOpCanFollow) {
  const auto p = planned(model());
  const std::vector<Axis> axes = {{"a", 2}, {"b", 2}};
  for (const std::string& axis : {std::string("a"), std::string("b")}) {
    const std::string other = axis == "a" ? "b" : "a";
    const Planning planning =
        plan_by_rules(request_of(*p, {{{"F", axis}, {"B", other}}, Checkpointing::kAuto}, axes));
    ASSERT_TRUE(planning.feasible);
    const Plan& plan = planning.plan;
    ASSERT_EQ(plan.devices, 4);
    EXPECT_GT(splits(plan, "F", axis), 0);
    EXPECT_EQ(splits(plan, "F", other), 0);
    EXPECT_GT(splits(plan, "B", other), 0);
    EXPECT_EQ(splits(plan, "B", axis), 0);
    for (const PlanTensor& t : plan.tensors) {
      if (t.role != "parameter") continue;
      const size_t at = axis == "a" ? 0 : 1;
      EXPECT_EQ(t.layout[at], "F") << t.path;
    }
    EXPECT_TRUE(std::any_of(plan.alternatives.begin(), plan.alternatives.end(),
                            [](const auto& a) { return a.name == "without `plan` rules"; }));
  }
}

TEST(PlanRules, NoneForbidsASplit) {
  const auto p = planned(model());
  const std::vector<Axis> axes = {{"a", 4}};
  const Plan free = plan_by_rules(request_of(*p, {}, axes)).plan;
  ASSERT_EQ(free.devices, 4);
  for (const char* dim : {"B", "F", "D"}) {
    const Planning planning =
        plan_by_rules(request_of(*p, {{{dim, ""}}, Checkpointing::kAuto}, axes));
    ASSERT_TRUE(planning.feasible);
    EXPECT_EQ(splits(planning.plan, dim, "a"), 0) << dim;
    EXPECT_GE(planning.plan.predicted.step_s, free.predicted.step_s * (1 - 1e-6)) << dim;
    EXPECT_FALSE(noted(planning.plan, "is followed by")) << all_notes(planning.plan);
  }
}

TEST(PlanRules, WhatMatchesNothingIsSaid) {
  const auto p = planned("dim Q = 3\n" + model());
  const Plan plan = plan_by_rules(request_of(*p, {{{"Q", "x"}}, Checkpointing::kAuto})).plan;
  EXPECT_TRUE(noted(plan,
                    "`shard { Q: x }` matches nothing: no op or parameter of the step has "
                    "`Q`"))
      << all_notes(plan);
}

TEST(PlanRules, TwoWishesForOneAxisLeaveAChoice) {
  const auto p = planned(model());
  const Plan plan =
      plan_by_rules(request_of(*p, {{{"B", "a"}, {"F", "a"}}, Checkpointing::kAuto}, {{"a", 4}}))
          .plan;
  EXPECT_TRUE(noted(plan,
                    "`B` and `F` are both wished on the axis `a`: an op that has both "
                    "follows one of the two"))
      << all_notes(plan);
  EXPECT_TRUE(noted(plan, "ops and parameters that have")) << all_notes(plan);
}

TEST(PlanRules, AnnotationsAreStronger) {
  std::string text = model();
  text.replace(text.find("param up : [D, F] = ones"), 24,
               "param up : [D, F] = ones @shard(F: none)");
  const auto q = planned(text);
  const Planning planning =
      plan_by_rules(request_of(*q, {{{"F", "a"}}, Checkpointing::kAuto}, {{"a", 4}}));
  ASSERT_TRUE(planning.feasible);
  for (const PlanTensor& t : planning.plan.tensors) {
    if (t.role == "parameter" && t.path.find("up") != std::string::npos) {
      EXPECT_NE(t.layout[0], "F");
    }
  }
  EXPECT_TRUE(noted(planning.plan, "`shard { F: a }` gives way to `@shard(F: none)` on"))
      << all_notes(planning.plan);
}

TEST(PlanRules, WishesYieldToTheBudget) {
  const auto p = planned(model());
  // whole everywhere: far more memory than split
  PlanRequest request =
      request_of(*p, {{{"B", ""}, {"D", ""}, {"F", ""}}, Checkpointing::kAuto}, {{"a", 4}});
  request.budget = 0.8 * plan_by_rules(request).plan.predicted.peak_bytes;
  PlanRequest open = request;
  open.rules = {};
  while (make_plan(open).feasible) request.budget = open.budget *= 0.8;
  request.budget = open.budget /= 0.8;
  const Planning planning = plan_by_rules(request);
  ASSERT_TRUE(planning.feasible);
  EXPECT_LE(planning.plan.predicted.peak_bytes, request.budget);
  EXPECT_TRUE(noted(planning.plan, "no plan that follows `shard` fits"))
      << all_notes(planning.plan);
}

TEST(PlanRules, CheckpointNoneRunsNothingAgainAndAllKeepsNothing) {
  const auto p = planned(model());
  PlanRequest request = request_of(*p, {{}, Checkpointing::kNone}, {{"a", 4}});
  const Planning none = plan_by_rules(request);
  ASSERT_TRUE(none.feasible);
  for (const PlanOp& op : none.plan.ops) {
    if (op.op == "contract") {
      EXPECT_NE(op.saved, "recomputed") << op.path;
    }
  }
  EXPECT_LT(none.plan.predicted.recompute_s, 0.02 * none.plan.predicted.compute_s);
  request.rules.checkpointing = Checkpointing::kAll;
  const Planning all = plan_by_rules(request);
  ASSERT_TRUE(all.feasible);
  for (const PlanOp& op : all.plan.ops) {
    if (op.body > 0) {
      EXPECT_NE(op.saved, "saved") << op.path << op.op;
      EXPECT_EQ(op.saved_bytes, 0) << op.path << op.op;
    }
  }
  EXPECT_LT(all.plan.predicted.activation_bytes, none.plan.predicted.activation_bytes);
  EXPECT_GT(all.plan.predicted.recompute_s, none.plan.predicted.recompute_s);
  // the free plan is never slower than either
  request.rules = {};
  const Planning open = plan_by_rules(request);
  EXPECT_LE(open.plan.predicted.step_s, none.plan.predicted.step_s * (1 + 1e-6));
  EXPECT_LE(open.plan.predicted.step_s, all.plan.predicted.step_s * (1 + 1e-6));
}

TEST(PlanRules, CheckpointIsNoWish) {
  const auto p = planned(model());
  PlanRequest request = request_of(*p, {{}, Checkpointing::kNone}, {{"a", 4}});
  request.training.bindings[p->graph.dim(p->graph.batch_dim).name] = 1 << 16;
  request.budget = 1e15;
  const double ample = plan_by_rules(request).plan.predicted.peak_bytes;
  PlanRequest open = request;
  open.rules = {};
  open.budget = 1;
  const double least = make_plan(open).least_peak;
  ASSERT_LT(least, 0.7 * ample);
  request.budget = 1.02 * least;
  const Planning planning = plan_by_rules(request);
  EXPECT_FALSE(planning.feasible);
  EXPECT_TRUE(noted(planning.plan, "`checkpoint: none` rules out the plans that fit"))
      << all_notes(planning.plan);
  EXPECT_GT(planning.least_peak, request.budget);
}

TEST(PlanRules, ABaselineKnowsNone) {
  const auto p = planned(model());
  PlanRequest request = request_of(*p, {{{"F", "a"}}, Checkpointing::kAuto}, {{"a", 4}});
  request.name = "dp";
  const Planning planning = plan_by_rules(request);
  ASSERT_TRUE(planning.feasible);
  EXPECT_EQ(splits(planning.plan, "F", "a"), 0);
  EXPECT_TRUE(noted(planning.plan, "do not apply to `--plan dp`"));
}

}  // namespace
}  // namespace cad::planner
