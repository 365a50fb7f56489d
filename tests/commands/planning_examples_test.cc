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

// Every example that has something to train, on eight devices; and the largest requests.
TEST_F(Commands, PlanningTakesLittleMemory) {
  namespace fs = std::filesystem;
  const fs::path examples = fs::path(COLAUTO_SOURCE_DIR) / "examples";
  std::vector<std::string> requests = {"gpt3-175b.cad --gpus 64",
                                       "gpt3-175b.cad --gpus 1024 --set B=1536 --set accumulate=1",
                                       "llama3-70b.cad --gpus 64", "gpt-1000-layers.cad --gpus 64"};
  for (const auto& entry : fs::recursive_directory_iterator(examples)) {
    const std::string file = entry.path().filename().string();
    if (entry.path().extension() == ".cad" && file != "model.cad")  // others import it
      requests.push_back(fs::relative(entry.path(), examples).string() + " --gpus 8");
  }
  EXPECT_GE(requests.size(), 16U);
  int plans = 0;
  for (const std::string& request : requests) {
    const std::string machine = contains(request, "colossal-auto") ? "pairs_a100" : "dgx_a100";
    const Output plan =
        run("plan --cluster " + machine + " '" + examples.string() + "'/" + request);
    // 3: more memory is needed
    EXPECT_TRUE(plan.status == 0 || (plan.status == 3 && contains(plan.err, "more")))
        << request << plan.err;
    plans += plan.status == 0 ? 1 : 0;
    EXPECT_LT(largest_child(), 1'000'000'000 / 1024) << request;
  }
  EXPECT_GE(plans, static_cast<int>(requests.size()) - 3);
  EXPECT_GT(largest_child(), 10 << 10);  // it was measured
}

}  // namespace
}  // namespace cad
