// planner/solver/reduce_steps.h -- the single exact reductions of reduce.cc. Each says whether it
// changed anything (or false for infeasible where noted); each keeps at least one optimum.
#pragma once

#include "planner/solver/reduce.h"

namespace cad::planner::solver {

// Drops the choices whose unary is kForbidden and those without an allowed partner on some pair.
// False: a node has no choice left.
bool drop_unsupported(Reduced& r);
// Nodes with one choice go into their neighbours' unaries and the constant memory.
void fix_single(Reduced& r);
// Chooses the time points that count; lives that touch none are dropped, the least use of a life
// becomes constant. False: the least use alone exceeds the budget.
bool keep_times(Reduced& r);
// Tables that are a sum of a row part and a column part go into the unaries.
bool split_tables(Reduced& r);
// Nodes without memory of degree 0, 1, 2 are minimised out.
bool fold_free(Reduced& r);
// A choice goes if another is never worse, whatever the neighbours choose, and uses no more memory.
bool drop_dominated(Reduced& r);

// Removes the choices of node i whose unary is kForbidden from all its tables; false: none is left.
bool compact(Reduced& r, int i);
// The live pairs of node i (dead ones are dropped from the list).
const std::vector<int>& live_pairs(Reduced& r, int i);

}  // namespace cad::planner::solver
