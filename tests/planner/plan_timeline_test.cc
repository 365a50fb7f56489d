// tests/planner/plan_timeline_test.cc -- a plan's timeline, its listings and its predictions say
// the same: seconds and bytes of the parts add up to the totals, nothing overlaps, and the picture
// shows every op by name.
#include <set>

#include "planner/machines.h"
#include "planner/plan_svg.h"
#include "planner/plan_timeline.h"
#include "planner/planner.h"
#include "tests/planner/joint_testing.h"

namespace cad::planner {
namespace {

std::string blocks(int layers, int batch, int width, const std::string& tail = "") {
  return "dim B, D = " + std::to_string(width) + ", F = " + std::to_string(4 * width) +
         ", L = " + std::to_string(layers) +
         "\nmodel Net(x: [B, D]) -> [B, D] {\n  use shared = Linear[D -> D]\n  repeat L as h {\n"
         "    x = x + Linear[F -> D](gelu(Linear[D -> F](LayerNorm[D](shared(x)))))\n  }\n" +
         tail +
         "  return softmax[D](x)\n}\n"
         "train t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
         "  optimizer: adam(lr: 1e-3)\n  B: " +
         std::to_string(batch) + "\n  steps: 1\n}\n";
}

struct Case {
  const char* name;
  std::string program;
  const char* cluster;
  int devices;
  double budget;  // part of the peak of an ample plan
  double micro_batches;
};

std::vector<Case> cases() {
  return {
      {"ample", blocks(6, 64, 256), "dgx_a100", 8, 1.1, 1},
      {"tight", blocks(6, 512, 256), "dgx_a100", 8, 0.5, 1},
      {"one device", blocks(6, 512, 256), "dgx_a100", 1, 0.7, 1},
      {"micro-batches", blocks(4, 512, 1024), "pairs_a100", 4, 0.8, 4},
      {"many iterations", blocks(500, 512, 1024), "dgx_a100", 8, 0.4, 2},
      {"two loops", blocks(3, 512, 1024, "  repeat 5 as g { x = relu(Linear[D -> D](x)) }\n"),
       "pairs_a100", 8, 0.6, 1},
      {"no loop", dense_layers(4, 128, 512), "dgx_a100", 4, 0.9, 1},
  };
}

Planning planning_of(const Case& c, const Planned& p) {
  PlanRequest request;
  request.graph = &p.graph;
  request.training = p.training;
  request.training.micro_batches = c.micro_batches;
  request.cluster = *find_cluster({}, c.cluster, c.devices);
  request.meshes = *meshes(request.cluster, c.devices);
  request.alternatives = false;
  request.proof_s = 0.1;
  request.budget = 1e15;
  request.budget = c.budget * make_plan(request).plan.predicted.peak_bytes;
  return make_plan(request);
}

// Each is planned once for all tests.
const std::vector<std::pair<std::string, Plan>>& plans() {
  static const auto* const kPlans = [] {
    auto* out = new std::vector<std::pair<std::string, Plan>>;
    for (const Case& c : cases()) {
      const auto p = planned(c.program);
      out->emplace_back(c.name, planning_of(c, *p).plan);
    }
    return out;
  }();
  return *kPlans;
}

TEST(Timeline, EndsWithTheStepAndHoldsWhatIsPredicted) {
  for (const auto& [name, plan] : plans()) {
    ASSERT_FALSE(plan.ops.empty()) << name;
    for (const int most : {0, 100'000}) {
      const Timeline t = step_timeline(plan, most);
      EXPECT_NEAR(t.seconds, plan.predicted.step_s, 1e-5 * plan.predicted.step_s) << name;
      double saved = 0, moment = 0;
      for (const MemoryPoint& m : t.memory) {
        EXPECT_GE(m.saved, -1e-3 * plan.predicted.activation_bytes - 1) << name;
        saved = std::max(saved, m.saved);
        moment = std::max(moment, m.moment);
      }
      EXPECT_NEAR(t.memory.back().saved, 0, 1e-5 * saved + 1) << name;
      EXPECT_NEAR(saved, plan.predicted.activation_bytes, 1e-5 * saved + 1) << name;
      EXPECT_NEAR(moment, plan.predicted.transient_bytes, 1e-5 * moment + 1) << name;
      std::map<std::string, double> busy, last;
      for (const TimelineSlot& s : t.slots) {
        EXPECT_GE(s.start, last[s.row] - 1e-9 * t.seconds) << name << " " << s.row;
        EXPECT_LE(s.start + s.seconds, t.seconds * (1 + 1e-9)) << name;
        last[s.row] = s.start + s.seconds;
        busy[s.row] += s.seconds;
      }
      const Predicted& q = plan.predicted;
      if (most > 0) {
        EXPECT_LE(busy["compute"], q.compute_s + q.recompute_s + q.optimizer_s + 1e-5 * q.step_s);
        EXPECT_GE(busy["compute"], (q.compute_s + q.optimizer_s) * (1 - 1e-5)) << name;
      }
    }
  }
}

// What is named as the op of the peak runs backward when most is held for a moment, step laid out.
TEST(Timeline, ThePeakIsAtAnOpThatHoldsMostForAMoment) {
  size_t named = 0;
  for (const auto& [name, plan] : plans()) {
    const Timeline t = step_timeline(plan, 100'000);
    double most = 0;
    for (const MemoryPoint& m : t.memory) most = std::max(most, m.moment);
    const std::string op = peak_op(plan);
    EXPECT_EQ(op.empty(), most == 0) << name;
    if (most == 0) continue;
    ++named;
    bool holds_most = false;
    for (const TimelineSlot& s : t.slots) {
      if (s.kind != TimelineSlot::Kind::kBackward || s.name != op) continue;
      for (const MemoryPoint& m : t.memory)
        holds_most = holds_most || (m.moment >= most * (1 - 1e-9) &&
                                    std::abs(m.time - s.start - s.seconds) <= 1e-9 * t.seconds);
    }
    EXPECT_TRUE(holds_most) << name << ": " << op;
  }
  EXPECT_GE(named, 2U);
}

// What is listed as collectives is what the prediction sums up.
TEST(Timeline, CollectivesAddUpToThePrediction) {
  for (const auto& [name, plan] : plans()) {
    double all = 0, again = 0;
    for (const PlanCollective& x : plan.collectives)
      (x.phase == "recompute" ? again : all) += x.seconds;
    EXPECT_NEAR(all, plan.predicted.comm_s, 1e-5 * plan.predicted.comm_s + 1e-12) << name;
    EXPECT_LE(again, plan.predicted.recompute_s * (1 + 1e-5) + 1e-12) << name;
    double bytes = 0;
    for (const PlanTensor& t : plan.tensors) {
      if (t.role == "parameter" && t.body == 0) bytes += t.bytes;
    }
    EXPECT_LE(bytes, plan.predicted.params_bytes * (1 + 1e-5) + 1) << name;
  }
}

TEST(Timeline, ThePictureNamesEveryOp) {
  for (const auto& [name, plan] : plans()) {
    const std::string svg = plan_svg(plan);
    EXPECT_EQ(svg.rfind("<svg ", 0), 0U);
    EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
    EXPECT_LT(svg.size(), 1'000'000U) << name;
    // elements are closed, and no text opens one
    const auto count = [&](const std::string& part) {
      size_t n = 0;
      for (size_t at = svg.find(part); at != std::string::npos; at = svg.find(part, at + 1)) ++n;
      return n;
    };
    EXPECT_EQ(count("<text "), count("</text>"));
    EXPECT_EQ(count("<title>"), count("</title>"));
    EXPECT_EQ(count("<rect "), count("</rect>") + 1);  // the ground
    for (const char* part :
         {"memory of a device over the step", "peak ", "parameters ", ">compute<", "time: "})
      EXPECT_NE(svg.find(part), std::string::npos) << name << ": " << part;
    std::set<std::string> bodies;
    for (const PlanBody& b : plan.bodies) {
      if (b.parent >= 0) bodies.insert(b.path);
    }
    EXPECT_EQ(count("one iteration of "), bodies.size()) << name;
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      const bool last = i + 1 == plan.ops.size() || plan.ops[i + 1].group != plan.ops[i].group;
      if (!last || plan.ops[i].forward_s <= 0) continue;
      EXPECT_NE(svg.find(plan.ops[i].op), std::string::npos) << name << plan.ops[i].op;
    }
    for (const PlanCollective& x : plan.collectives)
      EXPECT_NE(svg.find(">" + x.axis), std::string::npos) << name << " " << x.axis;
  }
}

TEST(Timeline, TextInAPictureIsEscaped) {
  Plan plan;
  plan.axes = {{"x", 1}};
  plan.bodies.emplace_back();
  plan.budget = 10;
  PlanOp op;
  op.path = "a<b>&\"c\"";
  op.op = "add";
  op.group = 0;
  op.strategy = {""};
  op.forward_s = op.backward_s = 1;
  plan.ops.push_back(op);
  const std::string svg = plan_svg(plan);
  EXPECT_NE(svg.find("a&lt;b&gt;&amp;&quot;c&quot;: add"), std::string::npos) << svg;
  EXPECT_EQ(svg.find("a<b>"), std::string::npos);
}

}  // namespace
}  // namespace cad::planner
