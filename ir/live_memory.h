// ir/live_memory.h -- transient memory of a training graph by liveness: at every step the stored
// values that are alive, aliases once, a loop's body once. The arena of the backend places the same
// values (backend/schedule.h); this knows no addresses, so it is a lower bound of it, and a
// polynomial. Also what the forward pass leaves behind for the backward pass.
//
// Not in it: inputs and outputs of the graph (parameters, data, gradients, states), which have
// places of their own, and the scratch of routines.
#pragma once

#include <string>
#include <vector>

#include "ir/op.h"
#include "ir/step_groups.h"

namespace cad::ir {

// Bytes alive while one step runs: the sum of times * product of LiveMemory::products[index].
struct MemoryPoint {
  NodeId at;              // the step's last node (inside a loop: of the body)
  bool backward = false;  // at or after the first step that computes a gradient
  std::vector<std::pair<int32_t, int64_t>> terms;
};

// A value that the forward pass computes and the backward pass reads; a loop's, for all iterations.
struct SavedValue {
  ValueId value;      // what the loop collects, or the value itself
  std::string scope;  // of the node that makes it
  Amount bytes;
};

struct LiveMemory {
  std::vector<std::vector<DimId>> products;
  std::vector<MemoryPoint> course;  // every step in order, those of a loop's body once
  std::vector<MemoryPoint> points;  // those of them that can be the peak: none is below another
  std::vector<SavedValue> saved;
  [[nodiscard]] Amount bytes(const MemoryPoint& point) const;
};

// `forward`: by node of region 0, whether it belongs to the forward pass.
LiveMemory live_memory(const Graph& g, const StepGroups& groups, const std::vector<char>& forward);

}  // namespace cad::ir
