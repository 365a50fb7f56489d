// planner/plan_text.h -- a plan for people: what it costs as bars, the split of every op in words,
// parameters' layouts, collectives, alternatives; and the differences of two plans. One block for a
// loop, however many iterations and runs of them it has, as long for one choice as for another.
// JSON is in planner/plan_json.h.
#pragma once

#include <string>

#include "planner/plan.h"

namespace cad::planner {

std::string plan_text(const Plan& plan, const std::string& program);
// Line by line what differs; empty when nothing that matters does.
std::string plan_difference(const Plan& a, const Plan& b);

std::string seconds_text(double seconds);                   // "12.3 ms"
std::string bytes_text(double bytes);                       // "3.20 GiB"
std::string micro_batches_text(double count, double rows);  // "4 micro-batches of 2 rows"
// "B over dp, H over tp"; "whole" when no axis is used; `axes` parallel to `layout`.
std::string layout_text(const NamedLayout& layout, const std::vector<Axis>& axes);

}  // namespace cad::planner
