// planner/fold_core.h -- what is left of a graph that does not fold (planner/fold.h), by the
// pairwise solver's bound, dives and reductions (planner/solver): choices, and a bound on all
// others. The work is counted in sweeps, not timed, so equal problems end alike.
#pragma once

#include <vector>

#include "planner/fold.h"

namespace cad::planner {

struct Core {
  bool feasible = false;
  std::vector<int> choices;  // by node; -1: of nodes that are gone
  double bound = 0;          // no choices cost less; infinite: none are allowed
};

// Of the nodes that are not `gone`, which no edge touches. `alike`: nodes whose choices, as many
// for each, must be the same ones.
Core solve_core(const FoldProblem& problem, const std::vector<char>& gone,
                const std::vector<int>& alike);

}  // namespace cad::planner
