// tests/planner/report_figures_test.cc -- figures that users of other planners could not get right
// or derive again: bytes of model states by how they are stored, norms beside split weights, plans
// that follow links and latencies, deep models, losses over a split vocabulary.
#include <chrono>
#include <map>

#include <fmt/format.h>

#include <gtest/gtest.h>

#include "planner/baselines.h"
#include "planner/exact.h"
#include "planner/planner.h"
#include "tests/planner/joint_testing.h"

namespace cad::planner {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

std::string program(const std::string& dims, const std::string& body, int batch) {
  return "dim B, " + dims + "\nmodel Net(x: [B, D]) -> [B, D] {\n" + body +
         "}\ntrain t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
         "  optimizer: adam(lr: 1e-3)\n  B: " +
         std::to_string(batch) + "\n  steps: 1\n}\n";
}

Plan baseline_plan(const Planned& p, const std::vector<int>& sizes, const std::string& name,
                   double state_bytes = 8, bool mixed = false) {
  int devices = 1;
  for (const int size : sizes) devices *= size;
  Training training = p.training;
  training.mixed = mixed;
  training.state_bytes.assign(training.state_bytes.size(), state_bytes);
  const Problem problem =
      make_problem(p.sites, mesh_of(equal_links(devices), sizes), training, communication_only());
  const BaselineResult result = baseline(problem, name, false);
  EXPECT_TRUE(result.plan.has_value()) << name;
  return result.plan ? describe(problem, *result.plan) : Plan();
}

// A million parameters: 4 bytes each, as much for their gradients, 8 for Adam's two moments. Where
// products are of 16 bits, what is computed with is a copy of 2 bytes, and the 4 bytes lie with the
// optimizer's states.
TEST(ReportFigures, BytesOfModelStates) {
  const auto p = planned(program("D = 1000", "  return Linear[D -> D](x, bias: false)\n", 4));
  struct Row {
    const char* name;
    int devices;
    double state, parameters, mixed, gradients, optimizer;
  };
  for (const Row& row :
       {Row{"single", 1, 8, 4e6, 6e6, 4e6, 8e6}, Row{"single", 1, 0, 4e6, 6e6, 4e6, 0},
        Row{"dp", 4, 8, 4e6, 6e6, 4e6, 8e6}, Row{"zero1", 4, 8, 4e6, 3e6, 4e6, 2e6},
        Row{"zero2", 4, 8, 4e6, 3e6, 1e6, 2e6}, Row{"zero3", 4, 8, 1e6, 1.5e6, 1e6, 2e6},
        Row{"zero3", 2, 8, 2e6, 3e6, 2e6, 4e6}}) {
    for (const bool mixed : {false, true}) {
      const Predicted got = baseline_plan(*p, {row.devices}, row.name, row.state, mixed).predicted;
      EXPECT_EQ(got.params_bytes, mixed ? row.mixed : row.parameters) << row.name << mixed;
      EXPECT_EQ(got.grads_bytes, row.gradients) << row.name << mixed;
      EXPECT_EQ(got.optimizer_bytes, row.optimizer) << row.name << mixed;
      EXPECT_EQ(got.peak_bytes, got.params_bytes + got.grads_bytes + got.optimizer_bytes +
                                    got.activation_bytes + got.transient_bytes);
      // a gathered copy is there for a moment: of 16 bits when that is what is computed with
      if (row.name == std::string("zero3")) {
        EXPECT_GE(got.transient_bytes, mixed ? 2e6 : 4e6);
      }
    }
  }
}

// A norm's parameters, gradients and states are divided by what their layouts say and by nothing
// else, beside products that four devices share: two norms of width 512 are 8,192 bytes where they
// lie whole.
TEST(ReportFigures, NormsAreDividedAsTheyLie) {
  const auto p =
      planned(program("D = 512, F = 2048",
                      "  h = x + Linear[F -> D](gelu(Linear[D -> F](LayerNorm[D](x))))\n"
                      "  return h + Linear[F -> D](gelu(Linear[D -> F](LayerNorm[D](h))))\n",
                      16));
  const std::map<std::string, double> element = {
      {"parameter", 4}, {"gradient", 4}, {"optimizer", 8}};
  for (const std::string name : {"dp", "megatron", "megatron-sp"}) {
    std::map<std::string, double> norms, products, count;  // by role
    std::map<std::string, std::map<std::string, double>> each;
    for (const PlanTensor& t : baseline_plan(*p, {2, 4}, name).tensors) {
      if (element.count(t.role) == 0) continue;
      double parts = 1;
      for (size_t a = 0; a < t.layout.size(); ++a)
        if (!t.layout[a].empty()) parts *= a == 0 ? 2 : 4;
      if (t.path.find("norm") != std::string::npos) {
        ++count[t.role];
        norms[t.role] += t.bytes;
        EXPECT_EQ(t.bytes, 512 * element.at(t.role) / parts) << name << " " << t.path;
        each[t.path][t.role] = t.bytes;
      }
      if (t.dims.size() == 2) products[t.role] += t.bytes;
    }
    for (const auto& [role, bytes] : element) {
      EXPECT_EQ(count[role], 4) << name << " " << role;
      if (name == "dp") {
        EXPECT_EQ(norms[role], 2 * 2 * 512 * bytes) << role;
      }
      // of a product's gradient, too, a quarter: once
      EXPECT_EQ(products[role], 4 * 512 * 2048 * bytes / (name == "dp" ? 1 : 4))
          << name << " " << role;
    }
    // nothing of these plans is divided further than the parameter itself
    for (auto& [path, bytes] : each) {
      EXPECT_EQ(bytes["gradient"], bytes["parameter"]) << name << " " << path;
      EXPECT_EQ(bytes["optimizer"], 2 * bytes["parameter"]) << name << " " << path;
    }
  }
}

// Two nodes of so many devices with these links.
Problem on_links(const Planned& p, const Link& inner, const Link& outer,
                 const PlanRules& rules = {}, int per_node = 2) {
  Cluster c = equal_links(per_node);
  c.nodes = 2;
  c.intra = inner;
  c.inter = outer;
  return make_problem(p.sites, mesh_of(c, {2, per_node}), p.training, communication_only(), rules);
}

// When the links are swapped the plan follows: each one is slower on the other machine.
TEST(ReportFigures, PlansFollowTheLinks) {
  const auto p = planned(dense_layers(3, 128, 64, false));
  const Problem inside = on_links(*p, {100, 0}, {1, 0}, {}, 4);
  const Problem outside = on_links(*p, {1, 0}, {100, 0}, {}, 4);
  const Found first = Search(inside).run(kInfinite), second = Search(outside).run(kInfinite);
  ASSERT_TRUE(first.feasible && second.feasible);
  EXPECT_GT(evaluate(outside, first.plan).seconds, second.evaluation.seconds * 1.1);
  EXPECT_GT(evaluate(inside, second.plan).seconds, first.evaluation.seconds * 1.1);
}

// A wide batch: it is split over the dear axis, and the plan is no worse than the one that splits
// the weights over the cheap one.
TEST(ReportFigures, TheBatchOnTheDearAxis) {
  const auto p = planned(dense_layers(6, 256, 32));
  PlanRules weights;
  weights.shard = {{"B", "x"}, {"D", "y"}};
  double before = kInfinite;
  for (const PlanRules& rules : {weights, PlanRules()}) {
    const Problem problem = on_links(*p, {10, 0}, {1, 0}, rules);
    const Found found = Search(problem).run(kInfinite);
    ASSERT_TRUE(found.feasible);
    for (const PlanOp& op : describe(problem, found.plan).ops) {
      if (op.op == "contract") {
        EXPECT_EQ(op.strategy[0], "B") << op.path;
      }
    }
    EXPECT_LE(found.evaluation.seconds, before * (1 + 1e-6));
    before = found.evaluation.seconds;
  }
}

// Six layers of two widths in turn, so that dims have names: D to E, E to D, ..
std::string in_turn(int batch, int width) {
  std::string body;
  for (int i = 0; i < 6; ++i) {
    const std::string linear = i % 2 == 0 ? "Linear[D -> E](x)" : "Linear[E -> D](x)";
    body += "  x = " + (i < 5 ? "relu(" + linear + ")" : linear) + "\n";
  }
  return program(fmt::format("D = {0}, E = {0}", width), body + "  return x\n", batch);
}

// For each product, and each weight of one, what an axis splits.
std::map<std::string, int> splits(const Plan& plan, size_t axis, bool weights) {
  std::map<std::string, int> count;
  for (const PlanOp& op : plan.ops) {
    if (!weights && op.op == "contract") ++count[op.strategy[axis]];
  }
  for (const PlanTensor& t : plan.tensors) {
    if (weights && t.role == "parameter" && t.dims.size() == 2) ++count[t.layout[axis]];
  }
  return count;
}

// Where the batch is split weights end whole: stored in parts they would be gathered twice, but for
// the first layer's, which its backward pass does not read. Where columns and rows are split in
// turn, all end split.
TEST(ReportFigures, WeightsEndWholeOrSplit) {
  const auto plan_of = [](int batch, int width) {
    const auto p = planned(in_turn(batch, width));
    const Problem problem =
        make_problem(p->sites, mesh_of(equal_links(4), {4}), p->training, communication_only());
    const Found found = Search(problem).run(kInfinite);
    EXPECT_TRUE(found.feasible);
    return describe(problem, found.plan);
  };
  const Plan wide_batch = plan_of(256, 32), wide_layers = plan_of(32, 256);
  EXPECT_EQ(splits(wide_batch, 0, false)["B"], 6);
  EXPECT_GE(splits(wide_batch, 0, true)[""], 5);
  EXPECT_EQ(splits(wide_layers, 0, false)["B"], 0);
  EXPECT_EQ(splits(wide_layers, 0, true)[""], 0);
}

// A batch half as large again as the layers are wide: mostly it belongs on the dear axis, whichever
// that is, and weights in turn on the one that is ten times cheaper. Six layers so would send
// gradients of half of the weights and of half or all of a bias over the dear axis, five sums of
// half a batch's activations over the other; a mixture may do better.
TEST(ReportFigures, WeightsOnTheCheapAxis) {
  constexpr double kBatch = 192, kWidth = 128;
  const auto p = planned(in_turn(192, 128));
  const double gradients = 6 * kWidth * kWidth * 4 / 2 + 3 * kWidth * 4 / 2 + 3 * kWidth * 4;
  const double activations = 5 * kBatch / 2 * kWidth * 4;
  for (const bool inner : {true, false}) {
    const Link cheap{10, 0}, dear{1, 0};
    const Problem problem = on_links(*p, inner ? cheap : dear, inner ? dear : cheap);
    const Found found = Search(problem).run(kInfinite);
    ASSERT_TRUE(found.feasible);
    const Plan plan = describe(problem, found.plan);
    const size_t on = inner ? 1 : 0;
    EXPECT_GE(splits(plan, 1 - on, false)["B"], 4) << inner;
    EXPECT_EQ(splits(plan, on, false)["B"], 0) << inner;
    EXPECT_EQ(splits(plan, on, true)[""], 0) << inner;
    EXPECT_LE(found.evaluation.seconds, gradients + activations / 10 + 64) << inner;
  }
}

// The batch of two cannot be split four ways: the same optimum from a solver that knows nothing of
// folding, and less than any one axis at a time gives.
TEST(ReportFigures, AxesAreDecidedTogether) {
  const auto p = planned(dense_layers(4, 2, 1024));
  const Problem problem =
      make_problem(p->sites, mesh_of(equal_links(4), {2, 2}), p->training, communication_only());
  Search search(problem);
  const Found found = search.run(kInfinite);
  ASSERT_TRUE(found.feasible);
  const auto exact = solve_exactly(problem, 1e15, 30, 100'000);
  ASSERT_TRUE(exact.has_value());
  ASSERT_TRUE(exact->plan.has_value());
  EXPECT_EQ(exact->status, solver::SolveStatus::kOptimal);
  const double proven = evaluate(problem, *exact->plan).seconds;
  EXPECT_NEAR(found.evaluation.seconds, proven, 1e-5 * proven);
  EXPECT_NEAR(exact->bound, proven, 1e-5 * proven);
  // a row for each half: gradients of 16 MB of weights are summed, where two rows are 8 KB
  for (const char* axis : {"x", "y"}) {
    PlanRules rows;
    rows.shard = {{"B", axis}};
    const Problem split = make_problem(p->sites, mesh_of(equal_links(4), {2, 2}), p->training,
                                       communication_only(), rows);
    const Found other = Search(split).run(kInfinite);
    ASSERT_TRUE(other.feasible);
    int with_rows = 0;
    for (const PlanOp& op : describe(split, other.plan).ops)
      with_rows += op.op == "contract" && (op.strategy[0] == "B" || op.strategy[1] == "B");
    EXPECT_EQ(with_rows, 4) << axis;
    EXPECT_GT(other.evaluation.seconds, 100 * proven) << axis;
  }
}

Planning plan_on(const Planned& p, const Cluster& cluster, const std::vector<Mesh>& all) {
  PlanRequest request;
  request.graph = &p.graph;
  request.training = p.training;
  request.cluster = cluster;
  request.meshes = all;
  request.budget = cluster.device.memory;
  request.proof_s = 0;
  return make_plan(request);
}

// Small layers: what a message costs before its first byte decides. One device is a candidate.
TEST(ReportFigures, LatencyDecidesForSmallModels) {
  const auto p = planned(dense_layers(3, 64, 16, false));
  for (const double latency : {100e-6, 0.0}) {
    const Cluster cluster = equal_links(4, 10e9, latency);
    const Planning planning = plan_on(*p, cluster, *meshes(cluster, 4));
    ASSERT_TRUE(planning.feasible);
    int compared = 0;
    for (const Alternative& a : planning.plan.alternatives) {
      if (a.name != "dp" && a.name != "single") continue;
      ++compared;
      EXPECT_LE(planning.plan.predicted.step_s, a.step_s * (1 + 1e-6)) << a.name << latency;
    }
    EXPECT_EQ(compared, 2);
    double messages = 0;
    for (const PlanCollective& c : planning.plan.collectives) messages += c.count;
    if (latency > 0) {
      EXPECT_TRUE(planning.plan.devices == 1 || messages <= 2) << messages;
    }
  }
}

// Blocks of a transformer, or such without attention.
std::string blocks(int layers, bool loop, bool attention) {
  std::string body;
  const std::string block =
      std::string(attention ? "    x = x + Attention[T -> S, D, H, K](LayerNorm[D](x))\n" : "") +
      "    x = x + Linear[F -> D](gelu(Linear[D -> F](LayerNorm[D](x))))\n";
  if (loop)
    body = "  repeat " + std::to_string(layers) + " as h {\n" + block + "  }\n";
  else
    for (int i = 0; i < layers; ++i) body += block;
  std::string text =
      program("D = 512, F = 2048, T = 64, S = T, H = 8, K = D / H", body + "  return x\n", 256);
  if (attention) {
    for (size_t at = 0; (at = text.find("[B, D]", at)) != std::string::npos;)
      text.replace(at, 6, "[B, T, D]");
  }
  return text;
}

// Blocks that are alike are decided once: the time to plan does not grow with them, and what that
// loses against every block for itself is little.
TEST(ReportFigures, DeepModels) {
  const Cluster cluster = equal_links(8, 100e9, 5e-6, 1e14);
  const std::vector<Mesh> mesh = {mesh_of(cluster, {2, 4})};
  for (const bool attention : {false, true}) {
    std::map<int, double> wall, step;
    for (const int layers : {2, 12, 48, 96}) {
      const auto p = planned(blocks(layers, true, attention));
      const auto start = std::chrono::steady_clock::now();
      const Planning planning = plan_on(*p, cluster, mesh);
      wall[layers] =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      ASSERT_TRUE(planning.feasible);
      step[layers] = planning.plan.predicted.step_s;
      EXPECT_EQ(plan_on(*p, cluster, mesh).plan.predicted.step_s, step[layers]);
    }
    EXPECT_LE(wall[96], 4 * wall[12] + 0.3) << attention;
    EXPECT_NEAR(step[96] / step[48], 2, 0.1) << attention;
    const auto flat = planned(blocks(12, false, attention));
    const Planning apart = plan_on(*flat, cluster, mesh);
    ASSERT_TRUE(apart.feasible);
    EXPECT_LE(step[12], apart.plan.predicted.step_s * 1.02) << attention;
  }
}

// The logits of 512 tokens over 50,257 words are 103 MB; no device has room for them.
TEST(ReportFigures, LogitsAreNeverWholeWhereTheyDoNotFit) {
  const double logits = 512.0 * 50257 * 4;
  const auto p = planned(
      "dim B, D = 64, V = 50257\nmodel Net(x: [B, D]) -> [B, V] {\n"
      "  return Linear[D -> V](x, bias: false)\n}\n"
      "train t {\n  data: synthetic(x: f32[B, D], y: i32[B])\n"
      "  loss: cross_entropy[V](Net(x), y)\n  optimizer: sgd(lr: 1e-3)\n  B: 512\n  steps: 1\n}\n");
  Cluster cluster = equal_links(4, 10e9, 5e-6, 1e13);
  // two shares of them: logits and their gradient
  cluster.device.memory = 0.9 * logits;
  const Planning planning = plan_on(*p, cluster, *meshes(cluster, 4));
  ASSERT_TRUE(planning.feasible);
  EXPECT_LE(planning.plan.predicted.peak_bytes, cluster.device.memory);
  for (const PlanCollective& c : planning.plan.collectives)
    EXPECT_LT(c.bytes, logits / 2) << c.kind << " " << c.axis << " " << c.phase;
  // the same where only the vocabulary may be split
  const Mesh mesh = mesh_of(cluster, {4});
  PlanRequest request;
  request.graph = &p->graph;
  request.training = p->training;
  request.cluster = cluster;
  request.meshes = {mesh};
  request.budget = cluster.device.memory;
  request.proof_s = 0;
  request.rules.shard = {{"V", "x"}, {"B", ""}, {"D", ""}};
  const Planning split = make_plan(request);
  ASSERT_TRUE(split.feasible);
  for (const PlanOp& op : split.plan.ops) {
    if (op.op == "contract") {
      EXPECT_EQ(op.strategy[0], "V");
    }
  }
  for (const PlanCollective& c : split.plan.collectives)
    EXPECT_LT(c.bytes, logits / 2) << c.kind << " " << c.axis << " " << c.phase;
}

}  // namespace
}  // namespace cad::planner
