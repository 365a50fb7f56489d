// planner/rules_followed.h -- how many of a program's `shard` rules a split or a layout follows.
// Internal to the builders of a problem and to planner/plan_rules.cc.
#pragma once

#include "planner/problem.h"

namespace cad::planner {

// What an op or a tensor is to a rule.
enum class Followed : uint8_t { kApart, kNo, kYes };  // kApart: it has no such dim

// A rule is followed by an op whose dim of that name is split by its axis and by no other (an axis
// of one device, or that the mesh lacks: by none).
Followed follows(const ShardRule& rule, const VariableInfo& site, const SiteOption& option,
                 const ir::Graph& graph, const Mesh& mesh);
// By a stored parameter also when other axes split the dim further.
Followed follows(const ShardRule& rule, const ir::Type& type, const Layout& layout,
                 const ir::Graph& graph, const Mesh& mesh);

int rules_followed(const PlanRules& rules, const VariableInfo& site, const SiteOption& option,
                   const ir::Graph& graph, const Mesh& mesh);
int rules_followed(const PlanRules& rules, const ir::Type& type, const Layout& layout,
                   const ir::Graph& graph, const Mesh& mesh);

}  // namespace cad::planner
