// planner/solver/neighbourhood.h -- large-neighbourhood search: all nodes but a few hundred keep
// their choice, the rest is a problem of its own, small enough for the bound, the dive and
// lp_solve. What it finds replaces the old choice if it costs less.
#pragma once

#include <functional>

#include "planner/solver/ascent.h"

namespace cad::planner::solver {

// The problem of the free nodes (flat numbers, ascending) when the others keep `choices`; its node
// c is free[c], its choices those of the flat problem that `allowed` (as Flat::unary) or `choices`
// has, its times are rows. Costs of what is fixed are left out.
Reduced extract(const Flat& flat, const std::vector<int>& choices, const std::vector<char>& allowed,
                const std::vector<int>& free);
// Cost of `choices` in the terms of extract().
double local_cost(const Flat& flat, const std::vector<int>& choices, const std::vector<int>& free);

// Sets of nodes, ascending, until their tables have `entries` numbers: breadth first in the graph
// from a node; in the program's order from a node; among those whose memory is in a row.
std::vector<int> region(const Flat& flat, int centre, int64_t entries);
std::vector<int> window(const Flat& flat, int first, int64_t entries);
std::vector<int> alive(const Flat& flat, int row, uint64_t seed, int64_t entries);

}  // namespace cad::planner::solver
