// cli/device_plan.h -- the plan that a run carries out: the planner's choice for the devices, the
// machine and the budget of the command line, as the trainer takes it.
#pragma once

#include <memory>
#include <string>

#include "backend/trainer.h"
#include "cli/command.h"
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

// A plan that fits as compiled: its memory is that of the program it becomes, which has gaps that
// the planner's model does not know of. Where the two differ, the planner is asked again, for less
// or for more, until the program comes near the budget. Of a question about this host. E0901 when
// there is none.
//
// Where memory is short and no row depends on others, micro-batches may also be read in parts
// (ir/split_rows.h): each number of parts is planned for itself, and the fastest plan counts.
struct FittingPlan {
  ir::TrainSpec spec;                // the program's, or with its micro-batches in parts
  std::shared_ptr<ir::Graph> graph;  // that `planning` refers to
  planner::Planning planning;        // with the compiled program's memory in its plan
  std::shared_ptr<const backend::DevicePlan> devices;
};
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
