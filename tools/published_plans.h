// tools/published_plans.h -- a published run as the planner itself prices it: the model as a .cad
// program, lowered, its plan one of the named baselines (planner/baselines.h) on the run's mesh.
// Beside tools/transformer_estimate.h, which prices the same run by formula.
#pragma once

#include <optional>
#include <string>

#include "planner/cluster.h"
#include "planner/compute_cost.h"
#include "tools/transformer_estimate.h"

namespace cad::tools {

std::string program_text(const TransformerRun& run);
// The baseline that a run's plan is, "megatron-sp".
std::string baseline_name(const TransformerRun& run);

struct PlannedStep {
  double seconds = 0, peak_bytes = 0;
};
// nullopt and `why`: the planner has no such plan.
std::optional<PlannedStep> planned_step(const TransformerRun& run, const planner::Cluster& cluster,
                                        std::string& why);

}  // namespace cad::tools
