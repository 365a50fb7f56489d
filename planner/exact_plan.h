// planner/exact_plan.h -- the plan that a label of a proof stands for (planner/exact_proof.h), read
// off what it was put together from.
#pragma once

#include "planner/exact_labels.h"
#include "planner/problem.h"

namespace cad::planner {

// `from`: of a label of the top level.
BodyPlan plan_of_label(const Problem& problem, const Derivations& derivations, int32_t from);

}  // namespace cad::planner
