// planner/placement.h -- what lowering to one device's program needs to know of a plan: the split
// of every op, where parameters lie, which copies are shared, what is saved. Ids are those of the
// forward graph after passes_before_autodiff(). Any placement whose strategies exist is lowered
// rightly: where layouts of two ops differ the lowering converts (backend/spmd/lower.h).
#pragma once

#include <map>
#include <vector>

#include "planner/problem.h"

namespace cad::planner {

// Layouts of one iteration of a parameter, of its gradient between micro-batches, and of its
// optimizer state. A partial gradient is summed up once a step, on the way to the optimizer.
struct ParameterPlacement {
  Layout storage, gradient, optimizer;
};

struct RunPlacement;
// Of one execution of a region.
struct BodyPlacement {
  std::map<int, Assignment> ops;                   // by NodeId; one that is not here runs whole
  std::map<int, Layout> copies;                    // by ValueId: the copy that its users share
  std::map<int, ParameterPlacement> parameters;    // by InputId; not here: replicated
  std::map<int, ir::Saving> saving;                // by ValueId: kKeep, kRecompute
  std::map<int, ir::Saving> copy_saving;           // by ValueId, of the shared copy
  std::map<int, std::vector<RunPlacement>> loops;  // by NodeId of a repeat
};
// A stretch of a loop's iterations: `count` times the pattern, one body an iteration. `segment`: as
// Run::segment, a divisor of the count or 0.
struct RunPlacement {
  int64_t count = 1;
  std::vector<BodyPlacement> pattern;
  int64_t segment = 0;
};

struct Placement {
  Mesh mesh;
  BodyPlacement top;
};

Placement placement_of(const Problem& problem, const BodyPlan& plan);
// Everything whole on every device.
Placement replicated_placement(const Mesh& mesh);
// The placement of one graph for another of the same model (an evaluation): parameters lie, and
// loops are cut into runs, as there; ops of the same scope, kind and place among these are split
// alike where their sizes allow it, others are not named. Nothing is saved, and no loop has
// segments.
Placement placement_for(const ir::Graph& other, const ir::Bindings& bindings,
                        const ir::Graph& graph, const Placement& placement);

}  // namespace cad::planner
