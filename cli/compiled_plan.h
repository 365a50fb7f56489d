// cli/compiled_plan.h -- a plan and what it needs when it is compiled: the memory of its program,
// which has gaps that the planner's model does not know of. Without the program's code and data.
// Which plans are compiled: cli/fitting_search.h, cli/compiled_baselines.h.
#pragma once

#include <memory>
#include <string>

#include "backend/trainer.h"
#include "ir/training.h"
#include "planner/planner.h"

namespace cad::cli {

struct FittingPlan {
  ir::TrainSpec spec;                // the program's, or with its micro-batches in parts
  std::shared_ptr<ir::Graph> graph;  // that `planning` refers to
  planner::Planning planning;        // with the compiled program's memory in its plan
  std::shared_ptr<const backend::DevicePlan> devices;
};

// Evaluations are split as the training step is, and read the parameters where that has them.
std::shared_ptr<const backend::DevicePlan> devices_of(const std::string& name,
                                                      planner::Placement train,
                                                      const ir::Graph& graph,
                                                      const ir::TrainSpec& spec);

// What the compiled program needs, of no more than `most` bytes if it can do with them: where what
// saves time takes it over that, `plan` becomes the lean one, if that needs less.
Result<backend::MemoryReport> memory_within(double most,
                                            std::shared_ptr<const backend::DevicePlan>& plan,
                                            const ir::TrainSpec& spec,
                                            const backend::TrainerOptions& options);

// Compiles a planning of this graph for a budget: in its plan stand then the budget and the bytes
// that the program needs, which are its least peak.
Result<std::shared_ptr<const backend::DevicePlan>> compile(planner::Planning& planning,
                                                           const std::string& name, double budget,
                                                           const ir::Graph& graph,
                                                           const ir::TrainSpec& spec,
                                                           const backend::TrainerOptions& options);

}  // namespace cad::cli
