// cli/device_plan.cc -- see cli/device_plan.h.
#include "cli/device_plan.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "backend/jit.h"
#include "cli/compiled_baselines.h"
#include "cli/fitting_search.h"
#include "cli/plan_request.h"
#include "ir/split_rows.h"
#include "planner/placement_json.h"

namespace cad::cli {

namespace {

struct Made {
  ir::TrainSpec spec;
  std::shared_ptr<const backend::DevicePlan> devices;
  planner::Plan plan;
};

// In how many parts a saved plan reads micro-batches of this program.
int64_t parts_of(const planner::Plan& plan, const ir::TrainSpec& spec) {
  const auto rows = static_cast<int64_t>(plan.rows / plan.micro_batches);
  const int64_t whole = ir::micro_batch_rows(spec);
  const bool parts = rows > 0 && rows < whole && whole % rows == 0;
  return parts && ir::against_split(spec).empty() ? whole / rows : 1;
}

// Of `colauto plan --json`, for these devices: of the peak that it names, if the program can do
// with that, else within the budget.
Result<Made> saved_plan(const CommonOptions& common, const ir::TrainSpec& spec,
                        const PlanQuestion& question, const backend::TrainerOptions& options) {
  CAD_TRY(plan, read_saved_plan(common.plan));
  const int devices = question.request.meshes[0].devices();
  if (plan.devices != devices) {
    Diagnostic error =
        make_error(DiagId::E0902,
                   fmt::format("`{}` is a plan for {} device{}, the run has {}", common.plan,
                               plan.devices, plan.devices == 1 ? "" : "s", devices),
                   kExitNoInput);
    error.help(fmt::format("run it with `--devices {}`", plan.devices));
    return error;
  }
  const ir::TrainSpec parted = ir::split_rows(spec, parts_of(plan, spec));
  const auto graph = graph_to_plan(parted);
  CAD_TRY(placement, planner::saved_placement(plan, common.plan, *graph, spec.bindings,
                                              question.request.cluster));
  Made made{parted, devices_of(common.plan, std::move(placement), *graph, parted), plan};
  const double peak = plan.predicted.peak_bytes, budget = question.request.budget;
  std::shared_ptr<const backend::DevicePlan> as_planned = made.devices;
  CAD_TRY(memory, memory_within(std::min(peak, budget), as_planned, made.spec, options));
  if (static_cast<double>(memory.total) <= std::min(peak, budget))
    made.devices = std::move(as_planned);
  else
    CAD_TRY_VOID(memory_within(budget, made.devices, made.spec, options));
  return made;
}

// The plan of a run on these devices.
Result<Made> device_plan(const CommonOptions& common, const LoadedProgram& program,
                         const ir::TrainSpec& spec, const backend::TrainerOptions& options,
                         int devices) {
  const bool saved = !is_plan_name(common.plan);
  CommonOptions flags = common;
  flags.devices = devices;
  flags.gpus.reset();
  if (saved) flags.plan = "auto";
  CAD_TRY(question, plan_question(flags, *program.module, spec, graph_to_plan(spec)));
  if (saved) return saved_plan(common, spec, question, options);
  question.request.alternatives = false;
  question.request.idle = false;  // who asks for devices gets them
  question.request.proof_s = 0;   // its time limit could give ranks different plans
  CAD_TRY(plan, fitting_plan(question, spec, options));
  return Made{std::move(plan.spec), plan.devices, plan.planning.plan};
}

}  // namespace

Result<FittingPlan> fitting_plan(PlanQuestion& question, const ir::TrainSpec& spec,
                                 const backend::TrainerOptions& options) {
  const planner::PlanRequest& request = question.request;
  // evaluations are split as the step is, without what only updates need
  if (options.evaluate_only) {
    std::vector<double>& states = question.request.training.state_bytes;
    states.assign(states.size(), 0.0);
  }
  Searched found;
  if (request.name == "auto") {
    CAD_TRY(searched, search_fitting(question, spec, options));
    found = std::move(searched);
  }
  CAD_TRY_VOID(add_baselines(question, spec, options, found));
  if (found.best) return std::move(*found.best);
  found.failed.feasible = false;
  return *no_plan(question, found.failed);
}

Result<PlannedRun> planned_run(const CommonOptions& common, const LoadedProgram& program,
                               const ir::TrainSpec& spec, backend::TrainerOptions options,
                               int devices, bool predict, std::string& note) {
  options.jit = std::make_shared<backend::Jit>();
  PlannedRun first;  // what is used when none fits
  const auto fits = [&](const backend::Trainer& trainer) {
    return options.budget <= 0 || trainer.memory().total <= options.budget;
  };
  const bool whole = common.plan == "auto" || common.plan == "single";
  if (devices == 1 && whole && common.mesh.empty()) {
    // it asks no machine for a plan: a name that is wrong is told all the same
    if (!common.cluster.empty()) CAD_TRY_VOID(chosen_cluster(common, *program.module, 1));
    CAD_TRY(plain, backend::Trainer::create(spec, options));
    first.trainer = std::move(plain);
    if (predict) {
      CommonOptions flags = common;
      flags.plan = "single";
      flags.budget.clear();
      if (auto made = device_plan(flags, program, spec, options, 1); made.ok())
        first.plan = made->plan;
    }
    if (fits(*first.trainer)) return first;
  }
  auto made = device_plan(common, program, spec, options, devices);
  if (!made.ok()) {
    if (first.trainer == nullptr) return std::move(made.error());
    if (!made.error().notes.empty()) note = made.error().notes.front();
    return first;
  }
  options.plan = made->devices;
  CAD_TRY(trainer, backend::Trainer::create(std::move(made->spec), options));
  return PlannedRun{std::move(trainer), std::move(made->plan)};
}

}  // namespace cad::cli
