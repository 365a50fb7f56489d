// tests/training/segments_test.cc -- loops whose iterations run again in segments, trained: losses
// and weights are those of one device whatever the length of the segments, dropout included, and
// the arena shrinks as the planner says. Lowered graphs alone: tests/spmd/segments_test.cc.
#include <cmath>

#include "planner/planner.h"
#include "tests/frontend/section_program.h"
#include "tests/planner/joint_testing.h"
#include "tests/training/logged_runs.h"
#include "tests/training/training_testing.h"

namespace cad::backend {
namespace {

using testing::TemporaryFolder;

// A transformer's block without attention, with dropout: large activations, small parameters.
std::string text_of(int batch, int width, int iterations) {
  return "dim B, D = " + std::to_string(width) + ", F = " + std::to_string(3 * width) +
         ", L = " + std::to_string(iterations) +
         "\nmodel Net(x: [B, D]) -> [B, D] {\n  repeat L as h {\n"
         "    x = x + (Linear[F -> D](gelu(Linear[D -> F](LayerNorm[D](x)))) |> dropout(0.2))\n"
         "  }\n  return x\n}\n"
         "train net {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n"
         "  loss: mse(Net(x), y)\n  optimizer: adamw(lr: 1e-2)\n  B: " +
         std::to_string(batch) + ", steps: 3, seed: 5\n}\n";
}

struct Prepared {
  explicit Prepared(const std::string& text, int devices)
      : spec(frontend::Program(text).lowered()),
        forward(ir::run_passes(spec.forward, ir::passes_before_autodiff())) {
    planner::PlanRequest request;
    request.graph = &forward;
    request.training = planner::training_of(spec, forward);
    request.alternatives = false;
    request.cluster = planner::equal_links(devices, 1e8, 1e-6, 1e9);
    request.meshes = {*planner::make_mesh(request.cluster, {{"x", devices}})};
    request.idle = false;
    request.budget = 1e12;
    planning = planner::make_plan(request);
  }
  // The longest run of equal iterations in segments of this length; 0: as the plan has it.
  [[nodiscard]] planner::BodyPlan segmented(int64_t length) const {
    planner::BodyPlan body = planning.body;
    planner::Run* longest = nullptr;
    for (planner::Run& run : body.loops[0]) {
      if (longest == nullptr || run.count > longest->count) longest = &run;
    }
    longest->segment = length;
    return body;
  }
  [[nodiscard]] int64_t iterations() const {
    int64_t most = 0;
    for (const planner::Run& run : planning.body.loops[0]) most = std::max(most, run.count);
    return most;
  }
  [[nodiscard]] std::shared_ptr<const DevicePlan> plan(int64_t length) const {
    auto made = std::make_shared<DevicePlan>();
    made->train = planner::placement_of(*planning.problem, segmented(length));
    return made;
  }

  ir::TrainSpec spec;
  ir::Graph forward;
  planner::Planning planning;
};

LoggedRun trained(const Prepared& p, const std::shared_ptr<const DevicePlan>& plan,
                  const std::string& log) {
  TrainLoopOptions options;
  options.log.file = log;
  return logged_run(p.spec, plan, std::move(options));
}

TEST(TrainedSegments, LossesAreThoseOfOneDevice) {
  for (const int devices : {1, 2}) {
    const Prepared p(text_of(6, 8, 12), devices);
    TemporaryFolder folder;
    const LoggedRun one = trained(p, nullptr, folder.file("one.jsonl"));
    const int64_t n = p.iterations();
    ASSERT_GE(n, 6);
    for (int64_t length = 1; length <= n; ++length) {
      if (n % length != 0) continue;
      const LoggedRun many = trained(p, p.plan(length), folder.file("many.jsonl"));
      ASSERT_EQ(many.losses.size(), one.losses.size());
      for (size_t i = 0; i < one.losses.size(); ++i) {
        EXPECT_NEAR(many.losses[i], one.losses[i], 1e-4 * std::abs(one.losses[i]))
            << length << " on " << devices << ", step " << i + 1;
        EXPECT_NEAR(many.norms[i], one.norms[i], 1e-4 * one.norms[i])
            << length << " on " << devices << ", norm of step " << i + 1;
      }
      for (const int64_t peak : many.end.peak_bytes) EXPECT_EQ(peak, many.end.predicted_peak_bytes);
    }
  }
}

// Nothing runs: programs are compiled for their arenas alone.
TEST(TrainedSegments, ArenasAreAsPredicted) {
  const Prepared p(text_of(512, 64, 24), 1);
  const int64_t n = p.iterations();
  ASSERT_GE(n, 22);
  double plain = 0, least = 1e18;
  for (int64_t length = 0; length <= n; ++length) {
    if (length > 0 && n % length != 0) continue;
    TrainerOptions options;
    options.threads = 1;
    options.plan = p.plan(length);
    auto trainer = Trainer::create(p.spec, options);
    ASSERT_TRUE(trainer.ok());
    const auto total = static_cast<double>((*trainer)->memory().total);
    const planner::Evaluation e = planner::evaluate(*p.planning.problem, p.segmented(length));
    EXPECT_LE(total, 1.1 * e.peak) << length;  // what is saved twice in the plan is one buffer
    EXPECT_GE(total, 0.6 * e.peak) << length;
    if (length == 0) plain = total;
    least = std::min(least, total);
  }
  EXPECT_LT(least, 0.6 * plain);
}

}  // namespace
}  // namespace cad::backend
