// planner/plan_json.h -- a plan as JSON: docs/schema/plan.json says what each key means; the keys
// are a promise. Reading checks the version and the keys that a plan cannot do without.
#pragma once

#include <string>

#include "base/result.h"
#include "planner/plan.h"

namespace cad::planner {

std::string plan_json(const Plan& plan);
// E0902: not JSON, not a plan, another version. `path` is for messages.
Result<Plan> read_plan(const std::string& path, const std::string& text);

}  // namespace cad::planner
