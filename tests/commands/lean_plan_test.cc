// A plan whose program takes memory to save time (sums after their loops, small collectives
// together) and fits without: it is carried out without, and what is measured is what was said.
// Budgets in general: planning_examples_test.cc, segments_test.cc.
#include "tests/commands/run_devices.h"

namespace cad {
namespace {

// 200 layers of 1 KiB: all their gradients are small.
const char* const kThin = R"(dim B, D = 16
model Net(x: [B, D]) -> [B, D] {
  repeat 200 { x = x + 0.1 * tanh(Linear[D -> D](x)) }
  return x
}
train net {
  data: synthetic(x: f32[B, D], y: f32[B, D])
  loss: mse(Net(x), y)
  optimizer: sgd(lr: 1e-2)
  B: 8, steps: 2
}
)";

class LeanPlan : public RunDevices {
 protected:
  void SetUp() override {
    RunDevices::SetUp();
    write("thin.cad", kThin);
  }
  int64_t peak(const std::string& flags) const {
    const Output out = run("run thin.cad --devices 2 --dry-run --json " + flags);
    EXPECT_EQ(out.status, 0) << flags << ": " << out.err;
    return out.status == 0 ? json::parse(out.out)["predicted_peak_bytes"].get<int64_t>() : 0;
  }
  // Losses of a run that needs, on every device, what it said.
  std::vector<double> measured(const std::string& flags, int64_t predicted) const {
    const Output out = run("run thin.cad --devices 2 --quiet --overwrite --log log.jsonl " + flags);
    EXPECT_EQ(out.status, 0) << flags << ": " << out.err;
    const std::vector<json> end = events("log.jsonl", "end");
    EXPECT_EQ(end.size(), 1U);
    for (const json& event : end) {
      expect_peaks(event, 2, flags);
      EXPECT_EQ(event["predicted_peak_bytes"], predicted) << flags;
    }
    const std::vector<double> steps = losses("log.jsonl");
    std::filesystem::remove(folder_ / "log.jsonl");
    return steps;
  }
};

std::string budget(int64_t bytes) {
  return " --budget " + std::to_string(bytes) + "B";
}

TEST_F(LeanPlan, FitsWhereTheFastOneDoesNot) {
  const std::string plan = "--plan dp";
  const int64_t ample = peak(plan), tight = ample * 3 / 4;
  const int64_t least = peak(plan + budget(tight));
  EXPECT_LE(least, tight);
  EXPECT_GT(least, 0);
  // the same sums in the same order
  EXPECT_EQ(measured(plan + budget(tight), least), measured(plan, ample));
}

TEST_F(LeanPlan, IsRunAsItWasSaved) {
  const int64_t ample = peak("--plan dp"), tight = ample * 3 / 4;
  for (const std::string& more : {std::string(), budget(tight)}) {
    const Output plan = run("plan thin.cad --devices 2 --plan dp --json " + more);
    ASSERT_EQ(plan.status, 0) << plan.err;
    write("plan.json", plan.out);
    const auto said = json::parse(plan.out)["predicted"]["peak_bytes"].get<int64_t>();
    EXPECT_EQ(peak("--plan plan.json"), said);
    measured("--plan plan.json", said);
    if (!more.empty()) {
      EXPECT_LE(said, tight);
    }
    // within a budget that it was not made for
    EXPECT_LE(peak("--plan plan.json" + budget(tight)), tight);
  }
}

// What is named as the least budget does, and is no more than the lean program needs.
TEST_F(LeanPlan, IsWhatTheLeastBudgetIs) {
  const Output none = run("run thin.cad --devices 2 --plan dp --quiet --budget 1KiB");
  EXPECT_EQ(none.status, 3);
  const size_t at = none.err.find("a device (");
  ASSERT_NE(at, std::string::npos) << none.err;
  const int64_t least = std::atoll(none.err.c_str() + at + 10);
  const int64_t peak_there = peak("--plan dp" + budget(least));
  EXPECT_LE(peak_there, least);
  EXPECT_GT(peak_there, 0);
  EXPECT_LT(least, peak("--plan dp") * 3 / 4);
}

}  // namespace
}  // namespace cad
