// tests/planner/plan_test.cc -- whole plans of small programs: meshes, budgets, baselines, JSON
// against its schema, what --why says.
#include <fstream>
#include <random>

#include <nlohmann/json.hpp>

#include "planner/baselines.h"
#include "planner/explain.h"
#include "planner/machines.h"
#include "planner/plan_json.h"
#include "planner/plan_svg.h"
#include "planner/plan_text.h"
#include "planner/planner.h"
#include "tests/planner/joint_testing.h"

namespace cad::planner {
namespace {

using nlohmann::json;

Planning plan_for(const Planned& p, const std::string& cluster, int devices, double budget,
                  const std::string& name = "auto") {
  PlanRequest request;
  request.graph = &p.graph;
  request.training = p.training;
  auto found = find_cluster({}, cluster, devices);
  EXPECT_TRUE(found.ok());
  request.cluster = *found;
  auto all = meshes(*found, devices);
  EXPECT_TRUE(all.ok());
  request.meshes = *all;
  request.budget = budget;
  request.name = name;
  request.proof_s = 0;  // nothing that the clock decides
  return make_plan(request);
}

std::string block_model(int layers, int batch, int width, int hidden) {
  return "dim B, D = " + std::to_string(width) + ", F = " + std::to_string(hidden) +
         ", L = " + std::to_string(layers) +
         "\nmodel Net(x: [B, D]) -> [B, D] {\n  repeat L as h {\n"
         "    x = x + Linear[F -> D](gelu(Linear[D -> F](LayerNorm[D](x))))\n  }\n  return x\n}\n"
         "train t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
         "  optimizer: adam(lr: 1e-3)\n  B: " +
         std::to_string(batch) + "\n  steps: 1\n}\n";
}

// The parts of JSON Schema that docs/schema/plan.json uses.
bool fits(const json& value, const json& schema, const json& root) {
  if (schema.contains("$ref"))
    return fits(value, root["$defs"][schema["$ref"].get<std::string>().substr(8)], root);
  if (schema.contains("const") && value != schema["const"]) return false;
  if (schema.contains("enum")) {
    bool any = false;
    for (const json& e : schema["enum"]) any = any || e == value;
    if (!any) return false;
  }
  if (schema.contains("type")) {
    const json types = schema["type"].is_array() ? schema["type"] : json::array({schema["type"]});
    bool any = false;
    for (const json& t : types) {
      any = any || (t == "object" && value.is_object()) || (t == "array" && value.is_array()) ||
            (t == "string" && value.is_string()) || (t == "number" && value.is_number()) ||
            (t == "integer" && value.is_number_integer()) ||
            (t == "boolean" && value.is_boolean()) || (t == "null" && value.is_null());
    }
    if (!any) return false;
  }
  if (schema.contains("minimum") && value.is_number() && value < schema["minimum"]) return false;
  for (const json& key : schema.value("required", json::array())) {
    if (!value.contains(key.get<std::string>())) return false;
  }
  if (value.is_object()) {
    for (const auto& [key, entry] : value.items()) {
      if (schema.contains("properties") && schema["properties"].contains(key)) {
        if (!fits(entry, schema["properties"][key], root)) return false;
      } else if (schema.value("additionalProperties", json(true)) == json(false)) {
        return false;
      }
    }
  }
  if (value.is_array() && schema.contains("items")) {
    for (const json& entry : value) {
      if (!fits(entry, schema["items"], root)) return false;
    }
  }
  return true;
}

TEST(Plan, JsonFitsItsSchemaAndReadsBack) {
  auto p = planned(block_model(6, 64, 256, 1024));
  const Planning planning = plan_for(*p, "dgx_a100", 8, 60e9);
  ASSERT_TRUE(planning.feasible);
  std::ifstream file(std::string(COLAUTO_SOURCE_DIR) + "/docs/schema/plan.json");
  const json schema = json::parse(file);
  const std::string text = plan_json(planning.plan);
  const json document = json::parse(text);
  EXPECT_TRUE(fits(document, schema, schema));
  json broken = document;
  broken["ops"][0].erase("strategy");
  EXPECT_FALSE(fits(broken, schema, schema));
  const auto read = read_plan("p.json", text);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(plan_json(*read), text);
  EXPECT_EQ(plan_difference(planning.plan, *read), "");
  EXPECT_FALSE(read_plan("p.json", "{}").ok());
  EXPECT_FALSE(read_plan("p.json", "[").ok());
  json other = document;
  other["schema"] = 2;
  EXPECT_FALSE(read_plan("p.json", other.dump()).ok());
}

TEST(Plan, OneDeviceHasNoCollectives) {
  auto p = planned(block_model(4, 8, 64, 128));
  const Planning planning = plan_for(*p, "dgx_a100", 1, 70e9);
  ASSERT_TRUE(planning.feasible);
  EXPECT_TRUE(planning.plan.collectives.empty());
  EXPECT_EQ(planning.plan.predicted.comm_s, 0);
}

TEST(Plan, TinyModelsUseOneDevice) {
  auto p = planned(block_model(2, 8, 8, 16));
  const Planning planning = plan_for(*p, "dgx_a100", 8, 70e9);
  ASSERT_TRUE(planning.feasible);
  EXPECT_EQ(planning.plan.devices, 1);
}

TEST(Plan, DeviceCountsThatArePrime) {
  for (const int n : {2, 3, 5, 6, 7}) {
    auto p = planned(block_model(2, 30, 64, 256));
    EXPECT_TRUE(plan_for(*p, "dgx_a100", n, 70e9).feasible) << n;
  }
}

TEST(Plan, SameOnEachRun) {
  auto p = planned(block_model(12, 128, 512, 2048));
  Planning a = plan_for(*p, "dgx_a100", 8, 1e9), b = plan_for(*p, "dgx_a100", 8, 1e9);
  a.plan.solver.wall_s = b.plan.solver.wall_s = 0;
  EXPECT_EQ(plan_json(a.plan), plan_json(b.plan));
}

TEST(Plan, WhyNamesRivals) {
  auto p = planned(block_model(4, 512, 1024, 4096));
  const Planning planning = plan_for(*p, "dgx_a100", 8, 70e9);
  ASSERT_TRUE(planning.feasible);
  const auto text = explain(planning, "linear");
  ASSERT_TRUE(text.ok());
  EXPECT_NE(text->find("next best"), std::string::npos) << *text;
  EXPECT_FALSE(explain(planning, "no such op").ok());
  EXPECT_NE(plan_svg(planning.plan).find("</svg>"), std::string::npos);
}

// Never slower than a baseline that fits; never faster with less; what an infeasible budget names
// works.
// Of a hundred instances a quarter each: together they take a while.
void quarter(int which) {
  std::mt19937 random(3);
  const auto pick = [&](std::initializer_list<int> values) {
    return *(values.begin() + random() % values.size());
  };
  int infeasible = 0, feasible = 0, loose = 0;
  for (int i = 0; i < 100; ++i) {
    const int hidden = pick({128, 1024, 4096}), width = pick({64, 256, 1024});
    const int batch = pick({16, 64, 512}), layers = pick({2, 3, 6, 24});
    auto p = planned(block_model(layers, batch, width, hidden));
    const std::string cluster =
        std::vector<std::string>{"dgx_a100", "pairs_a100", "p3_16xlarge"}[random() % 3];
    const int devices = pick({1, 2, 4, 8});
    const double part = 0.05 + 0.95 * static_cast<double>(random() % 1000) / 1000;
    if (i / 25 != which) continue;
    const Planning ample = plan_for(*p, cluster, devices, 1e15);
    ASSERT_TRUE(ample.feasible);
    EXPECT_LE(ample.plan.solver.gap, 0.01) << i;
    const double budget = ample.plan.predicted.peak_bytes * part;
    const Planning tight = plan_for(*p, cluster, devices, budget);
    for (const Planning* planning : {&ample, &tight}) {
      if (!planning->feasible) continue;
      for (const Alternative& a : planning->plan.alternatives) {
        if (a.feasible) {
          EXPECT_LE(planning->plan.predicted.step_s, a.step_s * (1 + 1e-6)) << i << " " << a.name;
        }
      }
    }
    if (tight.feasible) {
      ++feasible;
      EXPECT_LE(tight.plan.predicted.peak_bytes, budget);
      EXPECT_GE(tight.plan.predicted.step_s, ample.plan.predicted.step_s * (1 - 1e-6)) << i;
      EXPECT_LE(tight.plan.solver.gap, 0.05) << i;
      loose += tight.plan.solver.gap > 0.01 ? 1 : 0;
      // calls that know nothing of each other, of budgets that are close and less close
      double before = tight.plan.predicted.step_s;
      for (const double less : {0.99, 0.97, 0.85}) {
        const Planning tighter = plan_for(*p, cluster, devices, budget * less);
        if (!tighter.feasible) break;
        EXPECT_GE(tighter.plan.predicted.step_s, before * (1 - 1e-6)) << i << " " << less;
        before = tighter.plan.predicted.step_s;
      }
      continue;
    }
    ++infeasible;
    EXPECT_GT(tight.least_peak, budget);
    EXPECT_TRUE(plan_for(*p, cluster, devices, std::ceil(tight.least_peak)).feasible) << i;
  }
  EXPECT_GE(feasible, 5);
  EXPECT_GE(infeasible, 1);
  EXPECT_LE(loose, 1);  // 24 iterations where both lines of overlap and the budget bind
}

TEST(PlanProperties, RandomInstances1) {
  quarter(0);
}
TEST(PlanProperties, RandomInstances2) {
  quarter(1);
}
TEST(PlanProperties, RandomInstances3) {
  quarter(2);
}
TEST(PlanProperties, RandomInstances4) {
  quarter(3);
}

}  // namespace
}  // namespace cad::planner
