// Every plan is one device: seven kinds of models by `auto` and by every named baseline, with and
// without recomputation, on lines, grids and a cube of devices that are threads. Ranks of MPI:
// mpi_test.cc; layouts that no planner would pick: random_layouts_test.cc.
#include <chrono>

#include <nlohmann/json.hpp>

#include "planner/placement_json.h"
#include "tests/equivalence/plans.h"

namespace cad::backend {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const TestModel& model_of(const std::string& name) {
  for (const TestModel& model : test_models()) {
    if (model.name == name) return model;
  }
  ADD_FAILURE() << "no model " << name;
  return test_models()[0];
}

// The same splits, loops in segments: as long as `longest` allows, single iterations else. nullopt:
// no loop has two iterations in a row that are alike.
std::optional<planner::Placement> in_segments(planner::Placement placement, bool longest) {
  bool any = false;
  for (auto& [node, runs] : placement.top.loops) {
    for (planner::RunPlacement& run : runs) {
      if (run.count < 2) continue;
      run.segment = longest ? run.count : 1;
      any = true;
    }
  }
  if (!any) return std::nullopt;
  return placement;
}

// What became of the combinations of plan, mesh and recomputation.
struct Tally {
  int ran = 0;
  int same = 0;                         // the placement of another one of this mesh
  int of_other_mesh = 0;                // the baseline is none of this number of axes
  int in_budget = 0, in_segments = 0;   // of those that ran
  std::vector<std::string> impossible;  // sizes do not allow it
  std::vector<std::string> no_budget;   // no plan half way to what `checkpoint: all` needs
};

class Matrix {
 public:
  explicit Matrix(const std::string& name) : model_(reference(model_of(name))) {}

  Tally run(const std::vector<std::vector<int>>& meshes) {
    const double start = now_s();
    for (const std::vector<int>& sizes : meshes) on_mesh(sizes);
    fmt::print(
        "{}: {} runs, {} twice the same, planned in {:.1f} s, compiled in {:.1f} s, ran {:.1f} s, "
        "in all {:.1f} s\n",
        model_->name, tally_.ran, tally_.same, plan_s_, compile_s_, run_s_, now_s() - start);
    return tally_;
  }

 private:
  void on_mesh(const std::vector<int>& sizes) {
    double start = now_s();
    const PlansOf plans(*model_, sizes);
    seen_.clear();
    plan_s_ += now_s() - start;
    for (const std::string& name : planner::baseline_names()) {
      if (!planner::baseline_fits_mesh(name, plans.mesh())) {
        tally_.of_other_mesh += 2;
        continue;
      }
      for (const bool again : {false, true}) {
        std::string why;
        start = now_s();
        const auto placement = plans.baseline(name, again, why);
        plan_s_ += now_s() - start;
        const std::string what = name + (again ? " + recompute" : "");
        if (!placement) {
          tally_.impossible.push_back(what + " on " + plans.mesh().str());
          EXPECT_NE(why, "") << what;
          continue;
        }
        place(what, *placement);
      }
    }
    start = now_s();
    const auto ample = plans.automatic(), all = plans.automatic(planner::Checkpointing::kAll);
    plan_s_ += now_s() - start;
    ASSERT_TRUE(ample && all) << plans.mesh().str();
    const int64_t most = place("auto", *ample), least = place("auto, checkpoint: all", *all);
    if (const auto segmented = in_segments(*ample, sizes.size() > 1 || sizes[0] % 2 == 0)) {
      const int before = tally_.ran;
      place("auto in segments", *segmented);
      tally_.in_segments += tally_.ran - before;
    }
    if (least >= most) {
      tally_.no_budget.push_back(plans.mesh().str() + ": recomputing saves nothing");
      return;
    }
    start = now_s();
    const auto small = within_budget(*model_, plans, least + (most - least) / 2);
    compile_s_ += now_s() - start;
    if (small == nullptr) {
      tally_.no_budget.push_back(plans.mesh().str() + ": no plan");
      return;
    }
    ++tally_.in_budget;
    run_it("auto within a budget on " + plans.mesh().str(), *small);
  }

  // Runs it, unless an equal placement has run. Bytes that it needs on a device.
  int64_t place(const std::string& what, const planner::Placement& placement) {
    const auto [known, fresh] = seen_.emplace(planner::body_json(placement.top).dump(), 0);
    if (!fresh) {
      ++tally_.same;
      return known->second;
    }
    const std::string where = what + " on " + placement.mesh.str();
    EXPECT_EQ(planner::placement_fault(model_->forward, model_->spec.bindings, placement), "")
        << where;
    const double start = now_s();
    const auto trainer = compiled(*model_, what, placement);
    compile_s_ += now_s() - start;
    if (trainer == nullptr) return 0;
    known->second = trainer->memory().total;
    run_it(where, *trainer);
    return known->second;
  }

  void run_it(const std::string& where, const Trainer& trainer) {
    const double start = now_s();
    ThreadWorld world(trainer.mesh().devices(), 60);
    expect_equal(run_devices(trainer, world, where), *model_, model_->name + " by " + where);
    run_s_ += now_s() - start;
    ++tally_.ran;
  }

  std::unique_ptr<const Reference> model_;
  Tally tally_;
  std::map<std::string, int64_t> seen_;  // placements of this mesh, and the bytes they need
  double plan_s_ = 0, compile_s_ = 0, run_s_ = 0;
};

// `in_segments`: on at least so many meshes loops ran again in segments; on others no two
// iterations in a row are alike. `in_budget`: at least so many meshes have a plan half way between
// the memory that `auto` takes and that of recomputing all; on the others the planner's estimate of
// it is too high, or nothing is saved by it.
void check(const char* model, const std::vector<std::vector<int>>& meshes, int ran, int same,
           int in_segments, int in_budget) {
  const Tally tally = Matrix(model).run(meshes);
  EXPECT_EQ(tally.impossible, std::vector<std::string>{});
  // 10 baselines and `auto`, each with and without recomputation
  const int plain = tally.ran - tally.in_budget - tally.in_segments;
  EXPECT_EQ(plain + tally.same + tally.of_other_mesh, static_cast<int>(22 * meshes.size()));
  EXPECT_GE(plain, ran);
  EXPECT_GE(tally.in_segments, in_segments);
  EXPECT_LE(tally.same, same);
  EXPECT_GE(tally.in_budget, in_budget) << fmt::format("{}", fmt::join(tally.no_budget, "; "));
}

TEST(PlansAreOneDevice, GptOnLines) {
  check("gpt", line_meshes(), 60, 12, 4, 2);
}
TEST(PlansAreOneDevice, GptOnGrids) {
  check("gpt", grid_meshes(), 24, 0, 2, 1);
}
TEST(PlansAreOneDevice, LlamaOnLines) {
  check("llama", line_meshes(), 60, 12, 4, 2);
}
TEST(PlansAreOneDevice, LlamaOnGrids) {
  check("llama", grid_meshes(), 24, 0, 2, 1);
}
TEST(PlansAreOneDevice, ExpertsOnLines) {
  check("experts", line_meshes(), 60, 12, 4, 2);
}
TEST(PlansAreOneDevice, ExpertsOnGrids) {
  check("experts", grid_meshes(), 24, 0, 2, 0);
}
TEST(PlansAreOneDevice, ConvnetOnLines) {
  check("convnet", line_meshes(), 54, 18, 0, 0);
}
TEST(PlansAreOneDevice, ConvnetOnGrids) {
  check("convnet", grid_meshes(), 21, 3, 0, 0);
}
TEST(PlansAreOneDevice, TableOnLines) {
  check("table", line_meshes(), 55, 17, 0, 0);
}
TEST(PlansAreOneDevice, TableOnGrids) {
  check("table", grid_meshes(), 21, 3, 0, 0);
}
TEST(PlansAreOneDevice, LoopsMentionedTwiceOnLines) {
  check("twice", line_meshes(), 60, 20, 4, 0);
}
TEST(PlansAreOneDevice, LoopsMentionedTwiceOnGrids) {
  check("twice", grid_meshes(), 24, 0, 0, 0);
}
TEST(PlansAreOneDevice, StatesUpdatedTwiceOnLines) {
  check("norms", line_meshes(), 40, 60, 0, 0);
}
TEST(PlansAreOneDevice, StatesUpdatedTwiceOnGrids) {
  check("norms", grid_meshes(), 18, 40, 0, 0);
}

}  // namespace
}  // namespace cad::backend
