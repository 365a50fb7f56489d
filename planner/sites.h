// planner/sites.h -- a forward graph as the planner sees it: sites (one heavy op, or a group of
// light ones that runs under one split, as one fused kernel would), the parameters they use, and
// `repeat`s as loops with a carry. Independent of mesh and sizes of devices.
// Also what each site's backward pass needs, and the ways to have it: save, or compute again.
// Not here: strategies and costs on a mesh (planner/problem.h).
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "ir/cost.h"
#include "ir/graph.h"

namespace cad::planner {

// Of a site's results in the backward pass.
enum class Kept : uint8_t {
  kNo,     // not available there
  kSaved,  // kept from the forward pass
  kAgain,  // the site runs again, from its own operands, which must be available
};

// An operand of a site from outside: `places` are (index into nodes, operand index).
struct Use {
  ir::ValueId root;  // the value that stands for it (through renames; loop arguments resolved)
  ir::ValueId seen;  // as the first place sees it: same positions, other dim names
  std::vector<std::pair<int, int>> places;
  bool gradient = false;   // a gradient flows back through it
  int param = -1;          // index into Graph::inputs, of a parameter
  bool invariant = false;  // a parameter that all iterations of the innermost loop share
};

// One way to have in the backward pass what the site's gradient rules read.
struct Variant {
  Kept kept = Kept::kNo;
  std::vector<char> needs;         // by input: it must be available in the backward pass
  std::vector<char> needs_param;   // by parameter
  std::vector<ir::ValueId> saved;  // values inside the site that are kept
  std::vector<char> again;         // by node: runs again in the backward pass
};

struct Site {
  ir::RegionId region;
  std::vector<ir::NodeId> nodes;  // in execution order
  bool light = false;
  // Only adds parameters to what a product gives it alone: done where the product writes its
  // result.
  bool epilogue = false;
  std::vector<ir::ValueId> outputs;  // the main one first
  std::vector<Use> inputs, params;
  std::vector<Variant> variants;
  bool active = false;                     // a gradient flows through it
  std::vector<ir::BackwardCost> backward;  // by node
  std::string path;                        // "h.{}.block.mlp.linear: contract"
};

// A `repeat` with one carried activation at most.
struct LoopSite {
  ir::NodeId node;
  ir::RegionId region, body;
  ir::ValueId init;    // root, in `region`; invalid: nothing is carried
  ir::ValueId carry;   // body argument
  ir::ValueId next;    // root of the body's result
  ir::ValueId result;  // in `region`
};

struct SiteGraph {
  const ir::Graph* graph = nullptr;
  std::vector<Site> sites;  // in execution order within each region
  std::vector<LoopSite> loops;
  // order of a region's members: sites (index) and loops (-1 - index)
  std::unordered_map<int, std::vector<int>> order;
  std::vector<char> active;              // by value
  ir::ValueId loss;                      // root of the output `loss`, or of the first result
  std::vector<std::string> unsupported;  // why loops are planned in a restricted way, if they are
};

SiteGraph find_sites(const ir::Graph& graph);

// How the name of an op that users see is made: scope and op.
std::string site_path(const ir::Graph& graph, const std::vector<ir::NodeId>& nodes);

}  // namespace cad::planner
