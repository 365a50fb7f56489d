// backend/spmd/shared_parameters.h -- parameters and states that a model reads in several ways: a
// `repeat` that the loss mentions twice scans its parameters in two loops, whose runs of iterations
// need not be the same. Each is one tensor of all iterations, lies in one way, and every loop takes
// its part of it (lower_parameters.cc). All programs of a run must agree on them.
#pragma once

#include <map>
#include <set>
#include <string>

#include "planner/placement.h"

namespace cad::backend {

// By path.
using SharedParameters = std::map<std::string, planner::ParameterPlacement>;

// Whether a parameter read through this node is still one: a rename, a stop, a cast.
bool passes_parameter(const ir::Node& n);

// Paths of parameters and states that different loops scan, or that are read inside of a loop and
// outside of it.
std::set<std::string> read_in_several_ways(const ir::Graph& forward);

// Where they lie: of what the placement's bodies say of each, what takes least memory. Paths that
// `known` has, or that this graph does not read, are left alone.
void place_shared(const ir::Graph& forward, const ir::Bindings& bindings,
                  const planner::Placement& placement, const std::set<std::string>& paths,
                  SharedParameters& known);

}  // namespace cad::backend
