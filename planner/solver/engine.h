// planner/solver/engine.h -- the loop around the stages, for one problem: climb, fix, reduce, dive,
// search neighbourhoods, and lp_solve when little is left. solve.cc turns its end into a Solution.
#pragma once

#include "planner/solver/ascent.h"
#include "planner/solver/mip.h"

namespace cad::planner::solver {

struct EngineResult {
  enum class End { kProven, kGap, kTime };
  End end = End::kTime;
  Best best;  // kProven without choices: infeasible
  double bound = -kForbidden;
  MipStats mip;
};

// `base` is reduced and feasible so far. Stops early when (cost - bound) <= gap * |cost|.
EngineResult run_engine(const Reduced& base, const Rules& rules, double gap);

}  // namespace cad::planner::solver
