// ir/rewrite.h -- what every graph-to-graph pass needs: rebuilding regions node by node, counting
// uses, cloning nodes into another region, and compacting the arenas at the end of a pass.
// Not a pattern language: passes match by reading Node and Value directly.
#pragma once

#include <functional>
#include <vector>

#include "ir/builder.h"

namespace cad::ir {

// Rebuilds the node lists of all regions in place. A node that the visitor replaces is dropped from
// its region; later operands and region results are mapped. Replaced nodes stay in the arena until
// `compact`.
class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph) {}
  // Called for every node in order with its operands mapped already; the builder appends before
  // it. Returns true when the visitor called `replace` for all its used results.
  using Visit = std::function<bool(Builder&, NodeId)>;
  void run(const Visit& visit);
  void replace(ValueId old, ValueId now);
  [[nodiscard]] ValueId map(ValueId value) const;

 private:
  void run_region(RegionId region, const Visit& visit);
  Graph& graph_;
  std::vector<ValueId> map_;
};

// What the program fixes about `from` holds for `to` too (pins of dims that it has).
void copy_pins(Graph& g, ValueId from, ValueId to);

// Uses of every value: operands of nodes in regions, and region results.
std::vector<int32_t> count_uses(const Graph& g);

// A copy of `node` (bodies too) at the end of `into`, operands through `map`; returns its results.
std::vector<ValueId> clone_node(Graph& g, NodeId node, RegionId into,
                                const std::function<ValueId(ValueId)>& map);

// A repeat with results of the right types at the end of `region`. The loop's counts are set and
// its body is complete (args and results); the body's owner is set here.
NodeId append_repeat(Graph& g, RegionId region, const Loop& loop, std::vector<ValueId> operands);

// Drops nodes, values and regions that region 0 does not reach; renumbers in textual order.
Graph compact(const Graph& g);

// Without the inputs that `keep` refuses, and their nodes; nothing may read these.
Graph drop_inputs(Graph g, const std::function<bool(const Input&)>& keep);

// The node that defines a value when it is of this op, else nullptr.
const Node* defined_by(const Graph& g, ValueId value, Op op);

// The numeric constant a value holds everywhere: kConst under broadcasts. nullptr: none known.
const Scalar* constant_of(const Graph& g, ValueId value);

// `value` with exactly this type: cast, broadcast, transposed where it differs (no node otherwise).
ValueId conform(Builder& b, ValueId value, const Type& type);

}  // namespace cad::ir
