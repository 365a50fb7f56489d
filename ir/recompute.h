// ir/recompute.h -- what the backward pass computes again instead of reading it back: the choices
// of a SavePolicy and of the program's annotations, and the copies at the top level of a graph.
// In loops the copies are made with the backward body (ir/autodiff_save.cc, autodiff_loop.cc).
#pragma once

#include <unordered_set>

#include "ir/autodiff.h"
#include "ir/graph.h"

namespace cad::ir {

// One region's choices. `@checkpoint` on a value saves it and computes again what it is made of, up
// to values of its own kind, `@keep`, loops and whatever comes from outside of the region.
class SaveChoices {
 public:
  SaveChoices(const Graph& g, RegionId region, const SavePolicy& policy);
  // The policy's choice, else what the program fixes.
  [[nodiscard]] SavePolicy::Choice of(ValueId value) const;

 private:
  [[nodiscard]] SavePolicy::Choice chosen(ValueId value) const;
  const Graph& g_;
  const SavePolicy& policy_;
  std::unordered_set<int> below_checkpoints_;
};

// Region 0 holds `forward_nodes` nodes and then their backward pass. Every value that is chosen to
// be computed again gets a copy before the first backward node that reads it; inputs and loops are
// read as they are, views follow what they show. Copies carry a mark that keeps equal nodes from
// becoming one again.
void recompute_at_top(Graph& g, size_t forward_nodes, const SavePolicy& policy);

}  // namespace cad::ir
