// tests/planner/joint_test.cc -- the joint planner on stacks of dense layers with known answers,
// and loops against the same layers written out.
#include "planner/baselines.h"
#include "tests/planner/joint_testing.h"

namespace cad::planner {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

Found best(const std::string& text, const Mesh& mesh, const CostModel& model,
           double budget = kInfinite) {
  auto p = planned(text);
  const Problem problem = make_problem(p->sites, mesh, p->training, model);
  Search search(problem);
  Found found = search.run(budget);
  return found;
}

double best_bytes(const std::string& text, const std::vector<int>& sizes) {
  int n = 1;
  for (const int s : sizes) n *= s;
  const Found found = best(text, mesh_of(equal_links(n), sizes), communication_only());
  EXPECT_TRUE(found.feasible);
  EXPECT_NEAR(found.bound, found.evaluation.seconds, 1e-4 * found.evaluation.seconds);
  return found.evaluation.seconds;
}

// Seconds at one byte a second; an all-reduce of V bytes over n devices takes 2 V (n - 1) / n.
double all_reduce(double bytes, int n) {
  return 2 * bytes * (n - 1) / n;
}

// The loss, its count and the like are a few scalars.
constexpr double kScalars = 48;

// An axis of one device changes nothing.
const std::vector<std::vector<int>> kFours = {{4}, {4, 1}, {1, 4}};

TEST(DenseLayers, LargeBatchIsDataParallel) {
  for (const std::vector<int>& sizes : kFours)
    EXPECT_NEAR(best_bytes(dense_layers(6, 256, 32), sizes), all_reduce(25344, 4), kScalars);
}

TEST(DenseLayers, WideLayersAlternate) {
  for (const std::vector<int>& sizes : kFours)
    EXPECT_NEAR(best_bytes(dense_layers(6, 32, 256), sizes), 5 * all_reduce(32768, 4), kScalars);
}

// Bytes that are all-reduced a step; a reduce-scatter and an all-gather are one.
double bytes_reduced(const Plan& plan) {
  double bytes = 0;
  for (const PlanCollective& c : plan.collectives) {
    EXPECT_NE(c.kind, "all-to-all");
    bytes += c.bytes * c.count * (c.kind == "all-reduce" ? 1 : 0.5);
  }
  return bytes;
}

// Six layers with biases: 25,344 bytes of narrow ones, 1,579,008 of wide ones, where data
// parallelism moves almost ten times what five all-reduces of activations do.
TEST(DenseLayers, BytesThatAreReduced) {
  struct Case {
    int batch, width;
    double best, gradients;
  };
  for (const Case& c : {Case{256, 32, 25344, 25344}, Case{32, 256, 5 * 32768, 1579008}}) {
    const auto p = planned(dense_layers(6, c.batch, c.width));
    const Problem problem =
        make_problem(p->sites, mesh_of(equal_links(4), {4}), p->training, communication_only());
    const BaselineResult dp = baseline(problem, "dp", false);
    ASSERT_TRUE(dp.plan.has_value());
    EXPECT_EQ(dp.evaluation.bytes.gradients, c.gradients);
    EXPECT_NEAR(dp.evaluation.seconds, all_reduce(c.gradients, 4), kScalars);
    EXPECT_NEAR(bytes_reduced(describe(problem, *dp.plan)), c.gradients, kScalars);
    const Found found = Search(problem).run(kInfinite);
    ASSERT_TRUE(found.feasible);
    EXPECT_NEAR(bytes_reduced(describe(problem, found.plan)), c.best, kScalars);
  }
}

TEST(DenseLayers, TwoDimensionalSplitsWin) {
  // biases' gradients come on top of the activations: 6 x 1,024 B over an axis of 2
  const std::string layers = dense_layers(6, 32, 256);
  const double best_2d = best_bytes(layers, {2, 2});
  EXPECT_NEAR(best_2d, 163840 + 1536, kScalars);
  EXPECT_NEAR(best_bytes(layers, {4}), 245760, kScalars);
}

TEST(DenseLayers, TwoAndTwelve) {
  EXPECT_NEAR(best_bytes(dense_layers(2, 1024, 128, false, false), {4}), 2 * all_reduce(65536, 4),
              kScalars);
  EXPECT_NEAR(best_bytes(dense_layers(2, 128, 1024, false, false), {4}), all_reduce(524288, 4),
              kScalars);
  EXPECT_NEAR(best_bytes(dense_layers(12, 1024, 128, false, false), {4}), 12 * all_reduce(65536, 4),
              kScalars);
  EXPECT_NEAR(best_bytes(dense_layers(12, 128, 1024, false, false), {4}),
              11 * all_reduce(524288, 4), kScalars);
}

// The batch cannot be split four ways: no axis may be decided alone.
TEST(DenseLayers, BothAxesAreUsed) {
  auto p = planned(dense_layers(4, 2, 1024));
  const Problem problem =
      make_problem(p->sites, mesh_of(equal_links(4), {2, 2}), p->training, communication_only());
  Search search(problem);
  const Found found = search.run(kInfinite);
  ASSERT_TRUE(found.feasible);
  const Plan plan = describe(problem, found.plan);
  for (const PlanOp& op : plan.ops) {
    if (op.op != "contract") continue;
    EXPECT_NE(op.strategy[0], "") << op.path;
    EXPECT_NE(op.strategy[1], "") << op.path;
    EXPECT_FALSE(op.strategy[0] == "B" && op.strategy[1] == "B") << op.path;
  }
}

std::string looped(int iterations, int batch, int width) {
  return "dim B, D = " + std::to_string(width) + ", L = " + std::to_string(iterations) +
         "\nmodel Net(x: [B, D]) -> [B, D] {\n  repeat L as h {\n"
         "    x = relu(Linear[D -> D](x, bias: false))\n  }\n  return x\n}\n"
         "train t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
         "  optimizer: adam(lr: 1e-3)\n  B: " +
         std::to_string(batch) + "\n  steps: 1\n}\n";
}

std::string written_out(int iterations, int batch, int width) {
  std::string text = "dim B, D = " + std::to_string(width) + "\nmodel Net(x: [B, D]) -> [B, D] {\n";
  for (int i = 0; i < iterations; ++i) text += "  x = relu(Linear[D -> D](x, bias: false))\n";
  return text +
         "  return x\n}\ntrain t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n"
         "  loss: mse(Net(x), y)\n  optimizer: adam(lr: 1e-3)\n  B: " +
         std::to_string(batch) + "\n  steps: 1\n}\n";
}

TEST(Loops, PowersEqualTheLayersWrittenOut) {
  for (const std::vector<int>& sizes : {std::vector<int>{4}, {2, 2}}) {
    for (const int n : {2, 3, 7}) {
      // the first layer of the written-out stack needs no gradient of its input: in a loop it does
      const double loop = best_bytes(looped(n, 64, 64), sizes);
      const double flat = best_bytes(written_out(n, 64, 64), sizes);
      EXPECT_GE(loop, flat - kScalars) << n;
      EXPECT_LE(loop, flat + all_reduce(64 * 64 * 4, 4) + kScalars) << n;
    }
  }
}

TEST(Loops, PlansDoNotGrow) {
  auto p = planned(looped(1000, 64, 64));
  const Problem problem =
      make_problem(p->sites, mesh_of(equal_links(4), {2, 2}), p->training, communication_only());
  Search search(problem);
  const Found found = search.run(kInfinite);
  ASSERT_TRUE(found.feasible);
  EXPECT_LE(found.plan.loops[0].size(), 5u);
  int64_t iterations = 0;
  for (const planner::Run& run : found.plan.loops[0])
    iterations += run.count * static_cast<int64_t>(run.pattern.size());
  EXPECT_EQ(iterations, 1000);
}

}  // namespace
}  // namespace cad::planner
