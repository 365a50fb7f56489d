// planner/plan_svg.h -- a plan as a picture: the memory of a device over the step against the
// budget, and the step's compute and communication beside each other. Plain SVG, no scripts.
#pragma once

#include <string>

#include "planner/plan.h"

namespace cad::planner {

std::string plan_svg(const Plan& plan);

}  // namespace cad::planner
