// planner/placement_json.h -- a placement inside a plan's JSON (key "placement"), so that a saved
// plan can be run. It names nodes, values and inputs by number: the plan's digest says of which
// graph and sizes. What is read is checked against the graph (placement_fault) before anything is
// lowered.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "planner/cluster.h"
#include "planner/placement.h"

namespace cad::planner {

// Of the graph and all sizes of its dims: 16 hexadecimal digits.
std::string graph_digest(const ir::Graph& graph, const ir::Bindings& bindings);

nlohmann::ordered_json body_json(const BodyPlacement& body);
class JsonReader;
// Numbers are not checked against a graph.
void read_body(const JsonReader& from, BodyPlacement& body);

// What a saved plan says of this graph, on the same axes of this cluster. E0902: it is of another
// program or other sizes. `path` is for messages.
struct Plan;
Result<Placement> saved_placement(const Plan& plan, const std::string& path, const ir::Graph& graph,
                                  const ir::Bindings& bindings, const Cluster& cluster);

// Why it is none of this graph's; empty: it is.
std::string placement_fault(const ir::Graph& graph, const ir::Bindings& bindings,
                            const Placement& placement);

}  // namespace cad::planner
