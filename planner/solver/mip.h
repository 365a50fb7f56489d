// planner/solver/mip.h -- lp_solve for what the bound leaves: a small layer over the library, which
// knows its faults, and the program of a reduced problem.
#pragma once

#include "planner/solver/ascent.h"

namespace cad::planner::solver {

// min objective x subject to rows and bounds; some columns whole. No names are passed on, so none
// can clash.
struct Program {
  struct Row {
    std::vector<int> columns;
    std::vector<double> values;
    double least = -kForbidden, most = kForbidden;
  };
  struct Column {
    double cost = 0, least = 0, most = kForbidden;
    bool whole = false;
  };
  std::vector<Column> columns;
  std::vector<Row> rows;
};

enum class ProgramStatus { kOptimal, kFeasible, kInfeasible, kUnbounded, kTime, kFailed };

struct ProgramResult {
  ProgramStatus status = ProgramStatus::kFailed;
  double cost = kForbidden;
  std::vector<double> values;
};

// Within `time_s` seconds of wall clock. "Infeasible" is believed only when a second setting
// (another presolve, scaling and pivot rule) says so too; a solution is believed only when it
// satisfies the rows. `cutoff`: nothing at or above it is wanted; kInfeasible then means that
// nothing below exists. `work` bounds the calls of lp_solve's abort function, which unlike seconds
// are the same on every run.
ProgramResult solve_program(const Program& program, double time_s, double cutoff = kForbidden,
                            int64_t work = std::numeric_limits<int64_t>::max());

// The best of `reduced` below best.cost, as a program over the terms of `ascent` (on `reduced`):
// per pair a full local polytope. True: proven, i.e. best is optimal now.
struct MipStats {
  int64_t columns = 0, rows = 0;
};
struct MipLimits {
  int64_t columns = 2000;
  int64_t work = 1'000'000;
};
bool solve_mip(const Reduced& reduced, Ascent& ascent, const Rules& rules, const MipLimits& limits,
               Best& best, MipStats& stats);

}  // namespace cad::planner::solver
