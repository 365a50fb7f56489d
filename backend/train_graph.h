// backend/train_graph.h -- the graphs that a run compiles: of one micro-batch of training (forward,
// gradients of the trained parameters, all passes run) and of its evaluations; whole for one
// device, or lowered to what each of several devices does (backend/spmd/lower.h).
#pragma once

#include <functional>

#include "backend/parameters.h"
#include "backend/spmd/lower.h"
#include "ir/passes.h"
#include "ir/training.h"
#include "planner/placement.h"

namespace cad::backend {

// How a run is spread over devices. Placements are of graphs after passes_before_autodiff().
struct DevicePlan {
  std::string name;  // of the plan, for messages: "dp"
  planner::Placement train;
  std::vector<planner::Placement> evals;  // one an evaluation; missing: placement_for(train)
  // Memory before time: sums stay in their loops (spmd/late_sums.cc), small collectives go together
  // only where the arena does not grow for it. For budgets that the program exceeds otherwise.
  bool lean = false;
};

struct LoweredRun {
  planner::Mesh mesh;
  LocalGraph train;
  std::vector<LocalGraph> evals;
};

// A graph ready to compile. `inputs`: what its data are parts of; empty with one device.
struct RunGraph {
  ir::Graph graph;
  std::vector<LocalInput> inputs;
};

// For one device.
RunGraph train_step_graph(const ir::TrainSpec& spec, const Parameters& parameters,
                          ir::PassLog* log);

// For several: what each of them holds and reads, before the gradient is taken ..
LoweredRun lower_run(const ir::TrainSpec& spec, const DevicePlan& plan, ir::PassLog* log);
// .. and after. `parameters`: as devices hold them.
RunGraph local_step_graph(const ir::TrainSpec& spec, LocalGraph local, const Parameters& parameters,
                          ir::PassLog* log);
RunGraph local_evaluation_graph(LocalGraph local, ir::PassLog* log);

}  // namespace cad::backend
