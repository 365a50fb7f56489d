// planner/solver/dive.h -- a solution from the bound: fix the nodes whose min-marginals leave
// least doubt, propagate, climb a little, and so on until every node is fixed.
#pragma once

#include "planner/solver/ascent.h"

namespace cad::planner::solver {

struct DiveOptions {
  double fraction = 0.1;  // of the live nodes that are fixed in a round
  int iterations = 10;    // of the ascent between rounds
  double step = 0.01;     // the ascent's first step in a round
};

// Better choices go to `best`. `start` is the ascent on `reduced`. False: it ended without one
// because every completion is infeasible or too dear.
bool dive(const Reduced& reduced, const Ascent& start, const Rules& rules,
          const DiveOptions& options, Best& best);

}  // namespace cad::planner::solver
