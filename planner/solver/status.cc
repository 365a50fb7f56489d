// planner/solver/status.cc -- the words for a status.
#include "planner/solver/solver.h"

namespace cad::planner::solver {

const char* status_text(SolveStatus status) {
  switch (status) {
    case SolveStatus::kOptimal:
      return "optimal";
    case SolveStatus::kWithinGap:
      return "within the gap";
    case SolveStatus::kTimeLimit:
      return "time limit, with a solution";
    case SolveStatus::kTimeLimitSimple:
      return "time limit, with a simple solution";
    case SolveStatus::kTimeLimitNoPlan:
      return "time limit, without a solution";
    case SolveStatus::kInfeasible:
      return "infeasible";
  }
  return "";
}

}  // namespace cad::planner::solver
