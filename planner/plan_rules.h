// planner/plan_rules.h -- what a program's `plan` section asks of a plan: `shard { B: dp }`, wishes
// that every op and parameter follows where it can, and `checkpoint:`, which restricts what is kept
// for the backward pass. Annotations of the program (ir::Pin, ir::Saving) are stronger than either.
// Not here: budgets and meshes (cli/plan_request.h), the search (planner/planner.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cad::planner {

struct PlanRequest;
struct Planning;

// How much of the forward pass may run again in the backward pass.
enum class Checkpointing : uint8_t {
  kAuto,
  kNone,  // no op, but for what a fused backward kernel computes from its operands on the way
  kAll    // everything: of a `repeat`, only what enters an iteration is kept
};

struct ShardRule {
  std::string dim;   // by name
  std::string axis;  // of the mesh; empty: the dim is not split
};

struct PlanRules {
  std::vector<ShardRule> shard;
  Checkpointing checkpointing = Checkpointing::kAuto;
  [[nodiscard]] bool empty() const {
    return shard.empty() && checkpointing == Checkpointing::kAuto;
  }
};

// make_plan() under the request's rules. Of a problem's options those remain that follow as many
// `shard` rules as any option of that op does, so rules that contradict each other there leave a
// choice. When no such plan fits, the plan is made without `shard`, and a note says so; with
// `checkpoint` there may be none. Notes also name rules that match nothing, that are not followed
// everywhere, and what they cost against a plan without rules, which is listed as an alternative.
Planning plan_by_rules(const PlanRequest& request);

// baseline_plans(), which know no rules: where the request names one of them, a note says so.
std::vector<Planning> baseline_plans_by_rules(const PlanRequest& request);

}  // namespace cad::planner
