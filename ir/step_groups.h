// ir/step_groups.h -- a graph's regions cut into steps in outline: which nodes one kernel computes
// together, and so which values are in memory at all. It follows the rules by which the backend
// fuses (backend/partition_groups.h) on symbolic sizes, without its loop nests: close to what is
// built, and known without bindings. Who lives how long: ir/live_memory.h.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace cad::ir {

struct StepGroup {
  std::vector<NodeId> nodes;  // in order; of a library step or a loop just one
  bool library = false;
  std::vector<ValueId> reads, writes;  // stored values
};

struct StepGroups {
  std::vector<std::vector<StepGroup>> regions;  // by region, in execution order
  // By value: the stored value that it is, or is a view of; invalid when a kernel keeps it to
  // itself. Inputs and region arguments are stored.
  std::vector<ValueId> base;
  [[nodiscard]] ValueId base_of(ValueId value) const {
    return base[static_cast<size_t>(value.index)];
  }
};

StepGroups step_groups(const Graph& g);

}  // namespace cad::ir
