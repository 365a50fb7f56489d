// Transient memory by liveness (ir/live_memory.h) against the arena that the scheduler lays out for
// the same graph: of every model on one device, and of what each of several devices runs by several
// plans. The two choose places by the same rules, one by symbols, one by addresses.
#include "ir/live_memory.h"

#include "ir/step_groups.h"
#include "tests/equivalence/plans.h"

namespace cad::backend {
namespace {

double live_peak(const ir::Graph& g, const ir::Bindings& bindings) {
  const ir::LiveMemory memory =
      ir::live_memory(g, ir::step_groups(g), std::vector<char>(g.nodes.size(), 1));
  std::vector<double> extents;
  for (const ir::Dim& dim : g.dims) extents.push_back(dim.size.evaluate_real(bindings).value_or(0));
  double peak = 0;
  for (const ir::MemoryPoint& point : memory.points)
    peak = std::max(peak, memory.bytes(point).at(extents));
  return peak;
}

struct Worst {
  double low = 1, high = 1;  // live peak / arena
  std::string at_low, at_high;
  int programs = 0;
  void add(const std::string& what, double live, double arena) {
    if (arena == 0) return;
    ++programs;
    const double ratio = live / arena;
    if (ratio < low) std::tie(low, at_low) = std::pair(ratio, what);
    if (ratio > high) std::tie(high, at_high) = std::pair(ratio, what);
  }
};

void look_at(const TestModel& model, Worst& one, Worst& several) {
  TestModel wide = model;  // so that memory is not mostly the alignment of small tensors
  const size_t at = wide.text.find("B: 6,");
  ASSERT_NE(at, std::string::npos);
  wide.text.replace(at, 5, "B: 960,");
  const auto r = reference(wide, false);
  for (const std::vector<int>& sizes : {std::vector<int>{1}, {4}, {2, 2}}) {
    const PlansOf plans(*r, sizes);
    for (const char* name : {"single", "dp", "zero3", "megatron", "auto"}) {
      for (const bool again : {false, true}) {
        std::string why;
        std::optional<planner::Placement> placement;
        if (std::string(name) == "auto") {
          placement =
              plans.automatic(again ? planner::Checkpointing::kAll : planner::Checkpointing::kAuto);
        } else if (planner::baseline_fits_mesh(name, plans.mesh())) {
          placement = plans.baseline(name, again, why);
        }
        if (!placement) continue;
        auto plan = std::make_shared<DevicePlan>();
        plan->train = *placement;
        TrainerOptions options;
        options.threads = 1;
        options.layout_only = true;
        options.plan = plan;
        options.jit = r->jit;
        const auto trainer = Trainer::create(r->spec, options);
        ASSERT_TRUE(trainer.ok()) << trainer.error().message;
        const Program& program = (*trainer)->train_program();
        Worst& worst = plans.mesh().devices() == 1 ? one : several;
        worst.add(fmt::format("{} by {}{} on {}", model.name, name, again ? " again" : "",
                              plans.mesh().str()),
                  live_peak(program.impl().graph, program.impl().bindings),
                  static_cast<double>(program.transient_bytes()));
      }
    }
  }
}

// What is left: rows that the scheduler makes where an output lies and liveness counts apart (the
// images of `convnet`, the second use of a loop in `twice` by all-reduces that others overtake);
// scratch of routines, which liveness does not know (`norms`, `table`); heads that do not divide,
// in a layer without a loop (`gpt`, which is off by more than 1 % under one plan only).
struct Bounds {
  const char* model;
  double one_low, one_high, low, high;  // on one device, on several
};
constexpr Bounds kBounds[] = {
    {"gpt", 0.99, 1.01, 0.95, 1.01},     {"llama", 0.99, 1.01, 0.99, 1.01},
    {"experts", 0.99, 1.01, 0.99, 1.01}, {"convnet", 0.97, 1.06, 0.97, 1.08},
    {"table", 0.90, 1.01, 0.79, 1.01},   {"twice", 0.99, 1.01, 0.97, 1.10},
    {"norms", 0.93, 1.01, 0.97, 1.01},
};

TEST(LiveMemory, IsTheArenaOfEveryPlan) {
  std::set<std::string> looked_at;
  for (const Bounds& bounds : kBounds) {
    for (const TestModel& model : test_models()) {
      if (model.name != bounds.model) continue;
      EXPECT_TRUE(looked_at.insert(model.name).second) << model.name;
      Worst one, several;
      look_at(model, one, several);
      for (const auto& [worst, low, high] : {std::tuple(&one, bounds.one_low, bounds.one_high),
                                             std::tuple(&several, bounds.low, bounds.high)}) {
        fmt::print("{}: {} programs, live / arena from {:.3f} ({}) to {:.3f} ({})\n", model.name,
                   worst->programs, worst->low, worst->at_low, worst->high, worst->at_high);
        EXPECT_GE(worst->programs, 8) << model.name;
        EXPECT_GT(worst->low, low) << worst->at_low;
        EXPECT_LT(worst->high, high) << worst->at_high;
      }
    }
  }
  for (const TestModel& model : test_models())
    EXPECT_EQ(looked_at.count(model.name), 1U) << model.name;
  EXPECT_EQ(looked_at.size(), std::size(kBounds)) << "bounds of a model that is none";
}

}  // namespace
}  // namespace cad::backend
