// ir/cost.h -- what a node costs: forward from the registry's cost rules, backward by applying its
// gradient rule to a copy of the node and adding up the nodes that the rule appends, so there is no
// second table. Also which forward values the gradients read: what has to be saved or computed
// again. Whole programs: ir/profile.h. Seconds: planner/.
#pragma once

#include <memory>
#include <vector>

#include "ir/op.h"

namespace cad::ir {

// Of one execution: in a repeat's body, of one iteration.
OpCost op_cost(const Graph& g, NodeId node);

// The gradient of one operand.
struct GradientCost {
  bool exists = false;  // false for integers, constants and where no gradient flows
  OpCost cost;          // of every node it needs; nodes shared with other gradients included
  // Operands and results of the node whose values it reads, in that order; constants are left out.
  std::vector<ValueId> reads;
};

struct BackwardCost {
  OpCost total;                         // of all gradients together, shared nodes once
  std::vector<GradientCost> gradients;  // parallel to the node's operands
  std::vector<ValueId> reads;           // of all gradients together
};

// Nothing for a `repeat`: ask for the nodes of its body.
BackwardCost backward_cost(const Graph& g, NodeId node);

// The same for many nodes of one graph: the scratch copy is made once.
class BackwardCosts {
 public:
  explicit BackwardCosts(const Graph& g);
  ~BackwardCosts();
  [[nodiscard]] BackwardCost of(NodeId node);

 private:
  const Graph& g_;
  std::unique_ptr<Graph> scratch_;  // the dims of g, and one node at a time
};

}  // namespace cad::ir
