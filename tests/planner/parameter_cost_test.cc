// tests/planner/parameter_cost_test.cc -- what parameters take whose uses are many: iterations that
// share a weight, loops and the top level that share one. They are there once a step, and so are
// their update, the sum of their gradients over micro-batches and over devices.
#include "planner/baselines.h"
#include "tests/planner/joint_testing.h"

namespace cad::planner {
namespace {

constexpr double kWidth = 16, kLoops = 4, kMicroBatches = 4, kState = 8, kBandwidth = 1e3;
// A weight of all iterations, one that is used after the loop too, one of each iteration.
constexpr double kElements = kWidth * kWidth * (1 + 1 + kLoops);

const char* const kShared = R"(
dim B, D = 16, L = 4
model Net(x: [B, D]) -> [B, D] {
  use all = Linear[D -> D]
  use both = Linear[D -> D]
  repeat L as h { x = x + Linear[D -> D](both(all(x, bias: false), bias: false), bias: false) }
  return both(x, bias: false)
}
train t {
  data: synthetic(x: f32[B, D], y: f32[B, D])
  loss: mse(Net(x), y)
  optimizer: adam(lr: 1e-3)
  B: 8
  steps: 1
}
)";

// Only memory costs, and only in updates and sums; or only collectives, a byte a second.
Evaluation evaluated(const Planned& p, int devices, const std::string& name, bool epilogues) {
  CostModel model;
  model.seconds = [](const Work&) { return 0.0; };
  model.memory_bandwidth = kBandwidth;
  model.epilogues = epilogues;
  Training training = p.training;
  training.micro_batches = kMicroBatches;
  const Problem problem =
      make_problem(p.sites, mesh_of(equal_links(devices), {devices}), training, model);
  const BaselineResult result = baseline(problem, name, false);
  EXPECT_TRUE(result.plan.has_value()) << name;
  return result.evaluation;
}

TEST(ParameterCost, SharedOnesAreThereOnce) {
  const auto p = planned(kShared);
  const Evaluation e = evaluated(*p, 1, "single", true);
  EXPECT_DOUBLE_EQ(e.bytes.parameters, 4 * kElements);
  EXPECT_DOUBLE_EQ(e.bytes.gradients, 4 * kElements);
  EXPECT_DOUBLE_EQ(e.bytes.optimizer, kState * kElements);
  // reads parameter, gradient and states, writes all but the gradient
  EXPECT_NEAR(e.optimizer, kElements * (12 + 2 * kState) / kBandwidth, 1e-6 * e.optimizer);
  EXPECT_EQ(e.compute, 0);
  EXPECT_EQ(e.parameters, 0);
}

// Where products cannot add to what is there, every micro-batch but the first reads the sum again.
TEST(ParameterCost, SumsOverMicroBatchesReadWhatIsThere) {
  const auto p = planned(kShared);
  const Evaluation e = evaluated(*p, 1, "single", false);
  const double summed = 4 * kElements * (kMicroBatches - 1) / kBandwidth;
  EXPECT_NEAR(e.compute, summed, 1e-6 * summed);
  EXPECT_EQ(evaluated(*p, 1, "single", true).compute, 0);
  // half of the gradients where they are stored in parts
  EXPECT_NEAR(evaluated(*p, 2, "zero2", false).compute, summed / 2, 1e-6 * summed);
}

// Whole gradients are summed over the devices once a step, after all micro-batches: what is sent is
// as much as an all-reduce sends, in one piece or in two.
TEST(ParameterCost, SumsOverDevicesAreMadeOnce) {
  const auto p = planned(kShared);
  for (const char* name : {"dp", "zero1"}) {
    const Evaluation e = evaluated(*p, 2, name, true);
    EXPECT_NEAR(e.parameters, 4 * kElements, 1e-6 * e.parameters) << name;
  }
}

}  // namespace
}  // namespace cad::planner
