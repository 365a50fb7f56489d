// tests/spmd/plan_execution_test.cc -- what the planner chooses, lowered, is the whole step: `auto`
// under several budgets and every named baseline, on meshes of one to three axes.
#include <nlohmann/json.hpp>

#include "planner/baselines.h"
#include "planner/json_fields.h"
#include "planner/placement_json.h"
#include "planner/planner.h"
#include "tests/planner/joint_testing.h"
#include "tests/spmd/spmd_testing.h"

namespace cad::backend {
namespace {

void compare_plans(const std::string& text, const Settings& settings,
                   const std::vector<std::vector<int>>& meshes) {
  const WholeModel m = whole_model(text, settings);
  planner::PlanRequest request;
  request.graph = &m.forward;
  request.training = planner::training_of(m.spec, m.forward);
  request.alternatives = false;
  request.proof_s = 0.2;  // any plan will do
  int plans = 0;
  for (const std::vector<int>& sizes : meshes) {
    int devices = 1;
    for (const int s : sizes) devices *= s;
    request.cluster = planner::equal_links(devices, 1e8, 1e-6, 1e9);
    std::vector<planner::Axis> axes;
    for (size_t i = 0; i < sizes.size(); ++i)
      axes.push_back({std::string(1, static_cast<char>('x' + i)), sizes[i]});
    auto mesh = planner::make_mesh(request.cluster, axes);
    ASSERT_TRUE(mesh.ok());
    request.meshes = {*mesh};
    std::vector<std::string> names = planner::baseline_names();
    names.emplace_back("auto");
    for (const std::string& name : names) {
      request.name = name;
      request.budget = 1e12;
      const planner::Planning ample = planner::make_plan(request);
      if (ample.problem == nullptr) continue;  // not one of this mesh
      std::vector<double> budgets{1e12};
      if (name == "auto") {
        const double least = ample.least_peak;
        request.budget = 1;
        const double floor = planner::make_plan(request).least_peak;
        budgets.push_back(floor + (least - floor) * 0.5);
        budgets.push_back(floor * 1.01);
      }
      for (const double budget : budgets) {
        request.budget = budget;
        const planner::Planning planning = planner::make_plan(request);
        if (planning.problem == nullptr || planning.body.choices.empty()) continue;
        const planner::Placement placement =
            planner::placement_of(*planning.problem, planning.body);
        EXPECT_EQ(planner::placement_fault(m.forward, m.spec.bindings, placement), "");
        std::string fault;
        planner::BodyPlacement again;
        planner::read_body({planner::body_json(placement.top), fault}, again);
        ASSERT_EQ(fault, "");
        EXPECT_EQ(lowered_difference(m, {placement.mesh, again}), "")
            << name << " on " << mesh->str() << " with " << budget;
        ++plans;
      }
    }
  }
  EXPECT_GT(plans, 0);
}

const std::vector<std::vector<int>> kMeshes = {{1}, {3}, {4}, {2, 2}};
const std::vector<std::vector<int>> kFewMeshes = {{3}, {2, 2}};

TEST(Plans, Gpt) {
  compare_plans(example_text("gpt.cad"),
                {{"B", "6"}, {"T", "8"}, {"V", "17"}, {"D", "12"}, {"H", "3"}, {"L", "4"}},
                kMeshes);
}

TEST(Plans, Llama) {
  compare_plans(
      example_text("llama.cad"),
      {{"B", "4"}, {"T", "6"}, {"V", "11"}, {"D", "8"}, {"G", "2"}, {"L", "3"}, {"F", "10"}},
      kFewMeshes);
}

TEST(Plans, Convnet) {
  compare_plans(example_text("convnet.cad"),
                {{"B", "3"}, {"Y", "4"}, {"X", "4"}, {"O", "4"}, {"O2", "6"}}, kFewMeshes);
}

TEST(Plans, Gru) {
  compare_plans(example_text("gru.cad"),
                {{"B", "4"}, {"T", "5"}, {"V", "7"}, {"D", "6"}, {"M", "4"}}, kFewMeshes);
}

TEST(Plans, Lora) {
  compare_plans(
      example_text("lora.cad"),
      {{"B", "4"}, {"T", "4"}, {"V", "9"}, {"D", "8"}, {"H", "2"}, {"L", "2"}, {"R", "2"}},
      kFewMeshes);
}

}  // namespace
}  // namespace cad::backend
