// planner/refine.h -- what a search's best plan leaves of the budget, used up: single changes that
// save time and still fit, the most time a byte first. Not here: mixes of bodies
// (planner/blend.h), the search itself (planner/frontier.h).
#pragma once

#include "planner/problem.h"

namespace cad::planner {

// `plan` after such changes: in what is kept, and in how parameters are stored. The same plan where
// it does not fit the budget (bytes a device).
BodyPlan refined(const Problem& problem, BodyPlan plan, double budget);

}  // namespace cad::planner
