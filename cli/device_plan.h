// cli/device_plan.h -- the plan that a run carries out: the planner's choice for the devices, the
// machine and the budget of the command line, as the trainer takes it.
#pragma once

#include <memory>
#include <string>

#include "backend/trainer.h"
#include "cli/command.h"
#include "cli/compiled_plan.h"
#include "cli/load_program.h"
#include "cli/plan_request.h"
#include "ir/training.h"
#include "planner/plan.h"

namespace cad::cli {

struct PlannedRun {
  std::unique_ptr<backend::Trainer> trainer;
  // What was predicted of the plan that it carries out. Of one device that needs none: of `single`,
  // when `predict` asks for it and there is such a plan.
  std::optional<planner::Plan> plan;
};

// The fastest plan that fits as compiled, of a question about this host: of those that the search
// finds (cli/fitting_search.h) and the baselines (cli/compiled_baselines.h). E0901 when there is
// none, which names the least budget that has one.
// Of `options`, `threads` and `evaluate_only` count.
Result<FittingPlan> fitting_plan(PlanQuestion& question, const ir::TrainSpec& spec,
                                 const backend::TrainerOptions& options);

// The trainer of a run on so many devices, with its plan. One device needs none where memory
// suffices. E0901 when there is no plan, E0503, E0802 to E0804 as `colauto
// plan` gives them. When nothing fits on one device the trainer says so when it starts (E0703);
// `note` is then what the planner found to be the least.
Result<PlannedRun> planned_run(const CommonOptions& common, const LoadedProgram& program,
                               const ir::TrainSpec& spec, backend::TrainerOptions options,
                               int devices, bool predict, std::string& note);

}  // namespace cad::cli
