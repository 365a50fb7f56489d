// planner/exact.h -- small joint problems solved to the end: loops unrolled, written as the
// pairwise problem with memory over time of planner/solver, which proves its answer (with lp_solve
// for what does not fold). Used where prices leave a gap: short loops and graphs without loops. Not
// here: the search that comes before (planner/frontier.h).
#pragma once

#include <optional>

#include "planner/problem.h"
#include "planner/solver/solver.h"

namespace cad::planner {

struct Exact {
  solver::SolveStatus status = solver::SolveStatus::kTimeLimitNoPlan;
  std::optional<BodyPlan> plan;
  double bound = 0;  // seconds, with the parameters' collectives as far as overlap leaves them
  int64_t columns = 0, rows = 0;
};

// nullopt when it would be too large: nested loops, or more than `most_choices` choices in all.
std::optional<Exact> solve_exactly(const Problem& problem, double budget, double time_s,
                                   size_t most_choices);

}  // namespace cad::planner
