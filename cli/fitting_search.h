// cli/fitting_search.h -- the search for the fastest plan that fits as compiled. The planner's
// model is off by some percent, to either side: where the two differ it is asked again, for less or
// for more, until the program comes near the budget.
//
// Where memory is short and no row depends on others, micro-batches may also be read in parts
// (ir/split_rows.h): each number of parts is planned for itself, and the fastest plan counts.
// Baselines are not looked at here: cli/compiled_baselines.h.
#pragma once

#include <optional>

#include "cli/compiled_plan.h"
#include "cli/plan_request.h"

namespace cad::cli {

struct Searched {
  std::optional<FittingPlan> best;
  // Without `best`: of all that was tried, what needs least. Its least peak is the same for every
  // budget that is too small, and does when it is asked for.
  planner::Planning failed;
  bool free = false;  // `best` would be no other with more memory
};

// Bytes that a planning needs that did not fit; infinite where there is no plan.
double least_of(const planner::Planning& failed);

// Of a question about this host, for `auto`.
Result<Searched> search_fitting(const PlanQuestion& question, const ir::TrainSpec& spec,
                                const backend::TrainerOptions& options);

}  // namespace cad::cli
