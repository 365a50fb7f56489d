// ir/autodiff_internal.h -- the state of one differentiation, shared by autodiff.cc (region sweep)
// and autodiff_loop.cc (repeat), and the planning of saved values (autodiff_save.cc).
#pragma once

#include <unordered_set>
#include <vector>

#include "ir/autodiff.h"
#include "ir/builder.h"

namespace cad::ir {

class Differentiator {
 public:
  Differentiator(Graph& graph, const std::vector<ValueId>& wanted, const SavePolicy& policy)
      : g_(graph), policy_(policy), active_(active_values(graph, wanted)) {}

  // Adds `cotangent` to that of `value`; does nothing for values that lead to no wanted input.
  void accumulate(Builder& b, ValueId value, ValueId cotangent);
  // Appends the backward of the region's first `forward_nodes` nodes to it, last node first.
  void sweep(RegionId region, size_t forward_nodes);
  [[nodiscard]] ValueId cotangent(ValueId value) const;
  [[nodiscard]] bool active(ValueId value) const {
    const auto index = static_cast<size_t>(value.index);
    return index < active_.size() && active_[index] != 0;
  }

 private:
  struct LoopWork;
  void differentiate_loop(Builder& outer, NodeId id);
  std::vector<char> carries_with_cotangents(const Node& node) const;
  void open_body(LoopWork& work);
  bool close_body(LoopWork& work);
  void plan_body(LoopWork& work);
  void split_body(LoopWork& work);
  ValueId emit(LoopWork& work, ValueId value);
  void read_again(LoopWork& work, ValueId arg);
  void append_backward(Builder& outer, LoopWork& work);

  Graph& g_;
  const SavePolicy& policy_;
  std::vector<char> active_;
  std::vector<ValueId> cotangents_;  // by value
};

// Values of the body (args included) to collect, so that all of `needed` can be had in the backward
// body. Scanned operands, invariants and the number are read again for free.
std::unordered_set<ValueId> plan_saves(const Graph& g, const Loop& loop,
                                       const std::vector<ValueId>& needed,
                                       const SavePolicy& policy);

}  // namespace cad::ir
