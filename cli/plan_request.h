// cli/plan_request.h -- what the planner is asked: machine, meshes, budget and rules from the
// flags, then from the program's `mesh`, `cluster` and `plan` sections. For `plan` and the REPL's
// `:plan` and `:why`. The search itself: planner/planner.h.
#pragma once

#include <memory>

#include "cli/command.h"
#include "frontend/module.h"
#include "ir/training.h"
#include "planner/machines.h"
#include "planner/planner.h"

namespace cad::cli {

struct PlanQuestion {
  std::shared_ptr<ir::Graph> graph;  // what the request refers to
  planner::PlanRequest request;
  bool may_split = false;  // micro-batches may be read in parts: no flag says how many
};

// This machine, for clusters that are not probed.
planner::Host this_host();

// --cluster, of the program's sections and the known ones. E0802 too many devices, E0804 no such
// machine.
Result<planner::Cluster> chosen_cluster(const CommonOptions& common, const frontend::Module& module,
                                        int64_t devices);

// The forward graph that is planned.
std::shared_ptr<ir::Graph> graph_to_plan(const ir::TrainSpec& spec);

// Of --devices, --gpus, --cluster, --mesh, --budget, --plan and the sections of the program; all
// dims of the graph are bound. Without `--mesh` and `mesh` the axes are those that annotations and
// `plan` name, in every size, or else every factorisation of the device count. E0503 a bad budget,
// E0802 too many devices, E0803 a mesh that does not suit, E0804 no such machine.
Result<PlanQuestion> plan_question(const CommonOptions& common, const frontend::Module& module,
                                   const ir::TrainSpec& spec, std::shared_ptr<ir::Graph> graph);

// Whether --plan names a baseline or `auto`; else it is a saved plan, read here. E0903 when it is
// neither a name nor looks like a file, E0902 when the file is no plan.
bool is_plan_name(const std::string& plan);
Result<planner::Plan> read_saved_plan(const std::string& file);

// E0901, when there is no plan or none that fits: by how much, what takes most, what would help.
std::optional<Diagnostic> no_plan(const PlanQuestion& question, const planner::Planning& planning);

}  // namespace cad::cli
