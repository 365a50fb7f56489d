// tests/commands/planning_examples_test.cc -- the models for planning are in order, and have as
// many parameters as the published ones.
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "tests/commands/command_testing.h"

namespace cad {
namespace {

struct Published {
  const char* file;
  int64_t parameters;
};

// GPT-2 with L layers of width D: V D + T D + L (12 D^2 + 13 D) + 2 D, and V D for an untied head.
// LLaMA: 2 V D + L (2 D^2 (1 + G / H) + 3 D F + 2 D) + D.
constexpr Published kModels[] = {
    {"gpt3-175b.cad", 174604259328},
    {"llama3-8b.cad", 8030261248},
    {"llama3-70b.cad", 70553706496},
    {"gpt-1000-layers.cad", 12649786368},
    {"colossal-auto/gpt2-2048.cad", 409387008},
    {"colossal-auto/gpt2-4096.cad", 1221427200},
    {"colossal-auto/gpt2-8192.cad", 4053467136},
    {"colossal-auto/gpt2-16384.cad", 14549385216},
};

TEST_F(Commands, PlanningExamples) {
  for (const Published& model : kModels) {
    const std::string path = std::string(COLAUTO_SOURCE_DIR) + "/examples/" + model.file;
    EXPECT_EQ(run("check " + path).status, 0) << model.file;
    EXPECT_EQ(run("fmt --check " + path).status, 0) << model.file;
    const Output params = run("params --json " + path);
    ASSERT_EQ(params.status, 0) << model.file << params.err;
    EXPECT_EQ(nlohmann::json::parse(params.out)["params"], model.parameters) << model.file;
  }
}

// The largest of this process's children so far, KiB.
int64_t largest_child() {
  rusage usage{};
  EXPECT_EQ(getrusage(RUSAGE_CHILDREN, &usage), 0);
  return usage.ru_maxrss;
}

TEST_F(Commands, PlanningTakesLittleMemory) {
  const std::string examples = std::string(COLAUTO_SOURCE_DIR) + "/examples/";
  for (const char* request :
       {"gpt3-175b.cad --gpus 64", "gpt3-175b.cad --gpus 1024 --set B=1536 --set accumulate=1",
        "llama3-70b.cad --gpus 64", "gpt-1000-layers.cad --gpus 64"}) {
    const Output plan = run("plan --cluster dgx_a100 " + examples + request);
    EXPECT_EQ(plan.status, 0) << request << plan.err;
    EXPECT_LT(largest_child(), 1 << 20) << request;
  }
  EXPECT_GT(largest_child(), 10 << 10);  // it was measured
}

}  // namespace
}  // namespace cad
