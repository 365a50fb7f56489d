// planner/moments.h -- memory that is alive for a moment, variable by variable, and prices of it. A
// plan's peak is what it holds and the most of these moments, so any mean of them is no more than
// that: a price of memory may be divided among them (parts of 1), which gives bounds that know them
// (planner/frontier.h). Not here: the peak itself (evaluate() in planner/problem.h).
#pragma once

#include <vector>

#include "planner/problem.h"

namespace cad::planner {

// By region and variable.
using Moments = std::vector<std::vector<double>>;

// Of a plan, in bytes: with what runs again in the same iteration; the mean over all iterations of
// the region. Exits of loops have none.
Moments mean_moments(const Problem& problem, const BodyPlan& plan);

// Bytes that every plan has for a moment in this region.
double least_moment(const RegionProblem& region);

}  // namespace cad::planner
