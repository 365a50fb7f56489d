// tests/planner/plan_reports_test.cc -- what users of other planners ran into, as programs with a
// right answer: activations that count, pins beside budgets, conversions that are planned and
// listed, uneven loads.
#include <map>

#include <fmt/format.h>

#include <gtest/gtest.h>

#include "planner/baselines.h"
#include "planner/plan_text.h"
#include "planner/planner.h"
#include "tests/planner/joint_testing.h"

namespace cad::planner {
namespace {

Planning plan_on(const Planned& p, const std::vector<int>& sizes, double budget) {
  PlanRequest request;
  request.graph = &p.graph;
  request.training = p.training;
  int devices = 1;
  for (const int size : sizes) devices *= size;
  request.cluster = equal_links(devices, 10e9, 1e-6);
  request.meshes = {mesh_of(request.cluster, sizes)};
  request.budget = budget;
  request.proof_s = 0.2;
  return make_plan(request);
}

const PlanOp& op_named(const Plan& plan, const std::string& op) {
  const auto at =
      std::find_if(plan.ops.begin(), plan.ops.end(), [&](const PlanOp& o) { return o.op == op; });
  EXPECT_NE(at, plan.ops.end()) << op;
  return *at;
}

// A look-up costs next to nothing; its result is 512 x 128 x 64 numbers of 4 bytes.
std::string look_up(const std::string& pin) {
  return "dim B, T = 128, V = 1000, D = 64\n"
         "model Net(t: i32[B, T]) -> [B, T, D] {\n"
         "  param wte : [V, D] = normal(0.02)\n"
         "  x = wte[V = t]" +
         pin +
         "\n  return Linear[D -> D](gelu(Linear[D -> D](x)))\n}\n"
         "train t {\n  data: synthetic(t: i32[B, T], y: f32[B, T, D])\n"
         "  loss: mse(Net(t), y)\n  optimizer: adam(lr: 1e-3)\n  B: 512\n  steps: 1\n}\n";
}

TEST(PlanReports, LookUpsStayWithTheBatch) {
  constexpr double kAmple = 1e15, kReplicated = 512.0 * 128 * 64 * 4;
  auto free = planned(look_up(""));
  const Planning ample = plan_on(*free, {4}, kAmple);
  ASSERT_TRUE(ample.feasible);
  const std::string along = op_named(ample.plan, "gather").strategy[0];
  EXPECT_TRUE(along == "B" || along == "T") << along;
  // just above what the plan over the batch needs
  const double budget = 1.01 * ample.plan.predicted.peak_bytes;
  const Planning tight = plan_on(*free, {4}, budget);
  ASSERT_TRUE(tight.feasible);
  const std::string kept = op_named(tight.plan, "gather").strategy[0];
  EXPECT_TRUE(kept == "B" || kept == "T") << kept;
  EXPECT_LE(tight.plan.predicted.peak_bytes, budget);

  auto whole = planned(look_up(" @shard(B: none) @shard(T: none) @shard(D: none)"));
  const Planning pinned = plan_on(*whole, {4}, kAmple);
  ASSERT_TRUE(pinned.feasible);
  EXPECT_EQ(op_named(pinned.plan, "gather").strategy[0], "");
  EXPECT_GT(pinned.plan.predicted.step_s, ample.plan.predicted.step_s);
  EXPECT_GE(pinned.plan.predicted.peak_bytes, kReplicated);
  const Planning squeezed = plan_on(*whole, {4}, budget);
  EXPECT_TRUE(!squeezed.feasible ||
              squeezed.plan.predicted.step_s > tight.plan.predicted.step_s * (1 + 1e-6));
}

// Four frozen weights of 4 MB, of which some must lie whole on each of four devices.
std::string pinned_weights(int pins) {
  std::string text =
      "dim B, D = 1000, E = 1000, F = 1000, G = 1000, H = 1000\n"
      "model Net(x: [B, D]) -> [B, H] {\n";
  const std::string dims = "DEFGH";
  for (size_t i = 0; i < 4; ++i) {
    const char a = dims[i], b = dims[i + 1];
    text += fmt::format("  param W{} : [{}, {}] = normal(0.1) @frozen", i, a, b);
    if (static_cast<int>(i) < pins) text += fmt::format(" @shard({}: none, {}: none)", a, b);
    text += "\n";
  }
  return text +
         "  param g : [D] = ones\n"
         "  return (x * g) @[D] W0 @[E] W1 @[F] W2 @[G] W3\n}\n"
         "train t {\n  data: synthetic(x: f32[B, D], y: f32[B, H])\n  loss: mse(Net(x), y)\n"
         "  optimizer: sgd(lr: 1e-3)\n  B: 4\n  steps: 1\n}\n";
}

TEST(PlanReports, PinsCountInTheBudget) {
  constexpr double kBudget = 8e6;
  auto one = planned(pinned_weights(1));
  const Planning fits = plan_on(*one, {4}, kBudget);
  ASSERT_TRUE(fits.feasible);
  // the gain's 4,000 bytes beside them
  EXPECT_NEAR(fits.plan.predicted.params_bytes, 7e6, 4000);
  EXPECT_LE(fits.plan.predicted.peak_bytes, kBudget);

  auto two = planned(pinned_weights(2));
  const Planning none = plan_on(*two, {4}, kBudget);
  EXPECT_FALSE(none.feasible);
  EXPECT_GE(none.least_peak, 10e6);
  EXPECT_LE(none.least_peak, 10.5e6);
  EXPECT_NEAR(none.plan.predicted.params_bytes, 10e6, 4000);
  EXPECT_TRUE(plan_on(*two, {4}, std::ceil(none.least_peak)).feasible);
}

// The extents that a device has of a tensor laid out so, each axis at a time, outermost first.
std::vector<int64_t> local_shape(const Problem& p, const std::vector<int64_t>& whole,
                                 const Layout& layout) {
  std::vector<int64_t> shape = whole;
  for (size_t a = 0; a < p.mesh.axes.size(); ++a) {
    if (layout.axis[a] < 0) continue;
    int64_t& extent = shape[static_cast<size_t>(layout.axis[a])];
    extent = (extent + p.mesh.axes[a].size - 1) / p.mesh.axes[a].size;
  }
  return shape;
}

// Along a path every step starts where the one before it ended, and its shapes on a device follow:
// gathering multiplies, scattering and slicing divide.
void check_path(const Problem& p, const ConversionTable& table, const Layout& from,
                const Layout& to) {
  Layout at = from;
  double elements = 1;
  for (const int64_t e : local_shape(p, table.extents(), at)) elements *= static_cast<double>(e);
  for (const Step& step : table.path(from, to)) {
    EXPECT_EQ(step.from, at);
    at = step.to;
    const double n = p.mesh.size(step.axes);
    if (step.kind == Step::Kind::kAllGather || step.kind == Step::Kind::kPad) elements *= n;
    if (step.kind == Step::Kind::kReduceScatter || step.kind == Step::Kind::kSlice) elements /= n;
    double now = 1;
    for (const int64_t e : local_shape(p, table.extents(), at)) now *= static_cast<double>(e);
    EXPECT_EQ(now, elements) << step_name(step.kind);
  }
  EXPECT_EQ(at, to);
}

// Both operands of a sum pinned to different axes.
TEST(PlanReports, EveryPlannedConversionIsListedOnce) {
  auto p = planned(
      "dim B, D = 4096, E = 256\n"
      "model Net(x: [B, D]) -> [B, E] {\n"
      "  param U, W : [D, E] = normal(0.1)\n"
      "  a = x @[D] U @shard(B: y)\n"
      "  b = x @[D] W @shard(B: x)\n"
      "  return relu(a + b)\n}\n"
      "train t {\n  data: synthetic(x: f32[B, D], y: f32[B, E])\n  loss: mse(Net(x), y)\n"
      "  optimizer: sgd(lr: 1e-3)\n  B: 4096\n  steps: 1\n}\n");
  const Planning planning = plan_on(*p, {2, 2}, 1e15);
  ASSERT_TRUE(planning.feasible);
  ASSERT_EQ(planning.plan.devices, 4);
  const Problem& problem = *planning.problem;
  const RegionProblem& top = problem.regions[0];
  std::map<std::string, int> wanted, listed;
  int moved = 0;
  for (const Pair& pair : top.pairs) {
    const auto choice = [&](int v) {
      return static_cast<size_t>(planning.body.choices[static_cast<size_t>(v)]);
    };
    const Layout& from = pair.table->layouts()[static_cast<size_t>(
        pair.row[static_cast<size_t>(pair.class_a[choice(pair.a)])].first)];
    const Layout& to = pair.table->layouts()[static_cast<size_t>(
        pair.column[static_cast<size_t>(pair.class_b[choice(pair.b)])].first)];
    check_path(problem, *pair.table, from, to);
    if (from == to || pair.kind == Pair::Kind::kParam) continue;
    ++moved;
    ++wanted[top.variables[static_cast<size_t>(pair.a)].name + " -> " +
             top.variables[static_cast<size_t>(pair.b)].name];
  }
  for (const PlanConversion& c : planning.plan.conversions) {
    if (c.phase != "forward" || c.parameter) continue;
    if (c.value == c.to) continue;  // inside a group of ops
    EXPECT_EQ(c.count, 1);
    ++listed[c.value + " -> " + c.to];
  }
  EXPECT_EQ(listed, wanted);
  // wherever the sum is taken, an operand has come from elsewhere
  EXPECT_GE(moved, 1);
}

// Ten rows on four devices are 3, 3, 3 and 1: what is reported is the fullest device.
TEST(PlanReports, MemoryIsOfTheFullestDevice) {
  const auto predicted = [](int batch) {
    auto p = planned(dense_layers(3, batch, 64));
    const Problem problem =
        make_problem(p->sites, mesh_of(equal_links(4), {4}), p->training, communication_only());
    const BaselineResult dp = baseline(problem, "dp", false);
    EXPECT_TRUE(dp.plan.has_value());
    return describe(problem, *dp.plan).predicted;
  };
  const Predicted ten = predicted(10), twelve = predicted(12), eight = predicted(8);
  EXPECT_EQ(ten.activation_bytes, twelve.activation_bytes);
  EXPECT_EQ(ten.peak_bytes, twelve.peak_bytes);
  EXPECT_EQ(ten.activation_bytes * 2, eight.activation_bytes * 3);
  Plan plan;
  plan.predicted = ten;
  plan.budget = 1e9;
  EXPECT_NE(plan_text(plan, "net.cad").find(bytes_text(ten.peak_bytes) + " of 953.67 MiB a device"),
            std::string::npos);
}

}  // namespace
}  // namespace cad::planner
