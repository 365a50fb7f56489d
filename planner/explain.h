// planner/explain.h -- why a plan does what it does with one op, layer or parameter: its cost
// split, the next best choices with everything else free to follow, and what would have to change
// for the best of them to win.
#pragma once

#include <string>

#include "base/result.h"
#include "planner/planner.h"

namespace cad::planner {

// `name`: a path of an op or parameter, or a part of one that is unique enough ("mlp", "Wq"). E0904
// when there is none.
Result<std::string> explain(const Planning& planning, const std::string& name);

}  // namespace cad::planner
