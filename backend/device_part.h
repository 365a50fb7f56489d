// backend/device_part.h -- what of a program depends on the device that runs it: who is in its
// groups, its numbers along the mesh's axes, where its parts of tensors begin. Everything else of a
// Program is the same on all devices of Graph::mesh, so one serves all devices of a process.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/comm/collective.h"
#include "ir/graph.h"

namespace cad::backend {

struct ProgramImpl;

// A collective of a program. Its members differ along `axes` only; those in `call` are the first
// device's.
struct CollectivePlan {
  CollectiveCall call;
  uint32_t axes = 0;
  ir::NodeId node;
  [[nodiscard]] int64_t bytes() const;  // that a device puts in
};

// The geometry of a node of family `comm`: operand and result are dense.
CollectivePlan plan_collective(const ir::Graph& g, ir::NodeId id, const ir::Bindings& bindings);

// The devices that differ from the one at `coordinates` along `axes` only, ascending, itself
// included.
std::vector<int> group_of(const ir::Graph& g, uint32_t axes, std::span<const int> coordinates);

struct DevicePart {
  std::vector<CollectiveCall> calls;  // by collective of the program
  std::vector<int32_t> axis_indices;  // by ProgramImpl::axis_indices
  std::vector<int64_t> ints;          // of the kernel calls with integers of the device
  std::vector<int64_t> ints_of;       // by kernel call: where they begin in `ints`; -1: as planned
};
// `coordinates`: one an axis of Graph::mesh.
DevicePart device_part(const ProgramImpl& program, std::span<const int> coordinates);

}  // namespace cad::backend
