// backend/spmd/local_dims.h -- the dims of a local graph: a whole graph's dims, with their sizes as
// numbers, and one device's parts of them (ir::Dim::whole). Parts are ceil-sized and nested as
// planner/layout.h says. Also the numbers that a device needs of its own part.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "planner/layout.h"

namespace cad::backend {

using AxisOrder = std::vector<int8_t>;  // mesh axes that split a dim, outermost first

class LocalDims {
 public:
  // Makes `local`'s dims and mesh; ids of `whole`'s dims stay valid.
  LocalDims(ir::Graph& local, const ir::Graph& whole, const planner::Extents& extents,
            const planner::Mesh& mesh);

  [[nodiscard]] const planner::Mesh& mesh() const { return mesh_; }
  [[nodiscard]] int64_t size(ir::DimId dim) const;  // of any dim of the local graph
  [[nodiscard]] int64_t axis_size(int axis) const {
    return mesh_.axes[static_cast<size_t>(axis)].size;
  }
  // The part of a whole dim; the dim itself without axes.
  ir::DimId part(ir::DimId whole, const AxisOrder& axes);
  ir::DimId part(const ir::Type& whole, const planner::Layout& layout, size_t position);
  // Of a tensor that lies so; partial axes leave the extents alone.
  ir::Type type(const ir::Type& whole, const planner::Layout& layout);
  // One index a device along these axes; and a dim of some size, for padding.
  ir::DimId group(uint32_t axes);
  ir::DimId padded(ir::DimId of, int64_t size);

  // Where this device's part begins and how long it is: i32[], appended by the builder.
  ir::ValueId offset(ir::Builder& b, ir::DimId whole, const AxisOrder& axes);
  ir::ValueId own_extent(ir::Builder& b, ir::DimId whole, const AxisOrder& axes);

 private:
  ir::DimId add(const std::string& name, int64_t size);

  ir::Graph& g_;
  planner::Mesh mesh_;
  std::map<std::pair<int, AxisOrder>, ir::DimId> parts_;
  std::map<uint32_t, ir::DimId> groups_;
  std::map<std::pair<int, int64_t>, ir::DimId> padded_;
};

uint32_t set_of(const AxisOrder& axes);  // bits, as Attrs::axes
AxisOrder axis_order(const planner::Layout& layout, size_t position);
ir::ValueId axis_index(ir::Builder& b, uint32_t axes);

}  // namespace cad::backend
