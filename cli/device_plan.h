// cli/device_plan.h -- the plan that a run carries out: the planner's choice for the devices, the
// machine and the budget of the command line, as the trainer takes it.
#pragma once

#include <memory>
#include <string>

#include "backend/trainer.h"
#include "cli/command.h"
#include "cli/load_program.h"
#include "ir/training.h"

namespace cad::cli {

// The trainer of a run on so many devices, with its plan. One device needs none where memory
// suffices. Where a plan's arena turns out above `--budget` (it has gaps that the planner does not
// know of) one for less is tried. E0901 when there is no plan, E0503, E0802 to E0804 as `colauto
// plan` gives them. When nothing fits on one device the trainer says so when it starts (E0703);
// `note` is then what the planner found to be the least.
Result<std::unique_ptr<backend::Trainer>> planned_trainer(const CommonOptions& common,
                                                          const LoadedProgram& program,
                                                          const ir::TrainSpec& spec,
                                                          backend::TrainerOptions options,
                                                          int devices, std::string& note);

}  // namespace cad::cli
