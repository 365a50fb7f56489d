// backend/spmd/local_dims.cc -- see local_dims.h.
#include "backend/spmd/local_dims.h"

#include "base/check.h"
#include "ir/shard.h"
#include "ir/shard_nodes.h"

namespace cad::backend {

using ir::DimId;
using ir::Op;
using ir::ValueId;

AxisOrder axis_order(const planner::Layout& layout, size_t position) {
  const planner::AxisList list = planner::axes_of(layout, static_cast<int>(position));
  return {list.axes.begin(), list.axes.begin() + list.count};
}

uint32_t set_of(const AxisOrder& axes) {
  uint32_t set = 0;
  for (const int8_t axis : axes) set |= 1U << axis;
  return set;
}

ValueId axis_index(ir::Builder& b, uint32_t axes) {
  ir::Attrs attrs;
  attrs.axes = axes;
  return b.make(Op::kAxisIndex, {}, std::move(attrs));
}

LocalDims::LocalDims(ir::Graph& local, const ir::Graph& whole, const planner::Extents& extents,
                     const planner::Mesh& mesh)
    : g_(local), mesh_(mesh) {
  g_.dims = whole.dims;
  for (size_t d = 0; d < g_.dims.size(); ++d) {
    if (extents[d] >= 0) g_.dims[d].size = ir::Size(extents[d]);
  }
  for (const planner::Axis& axis : mesh.axes) g_.mesh.push_back({axis.name, axis.size});
}

int64_t LocalDims::size(DimId dim) const {
  const auto size = g_.dim(dim).size.constant();
  CAD_CHECK(size.has_value(), "dim `{}` has no size", g_.dim(dim).name);
  return *size;
}

DimId LocalDims::add(const std::string& name, int64_t size) {
  return g_.add_dim(name, ir::Size(size));
}

DimId LocalDims::part(DimId whole, const AxisOrder& axes) {
  if (axes.empty()) return whole;
  const auto known = parts_.find({whole.index, axes});
  if (known != parts_.end()) return known->second;
  std::string name = g_.dim(whole).name;
  for (const int8_t axis : axes) name += '/' + mesh_.axes[static_cast<size_t>(axis)].name;
  const DimId made = add(name, ir::part_extent(g_, size(whole), axes));
  ir::Dim& dim = g_.dims[static_cast<size_t>(made.index)];
  dim.whole = whole;
  dim.axes = axes;
  parts_.emplace(std::make_pair(whole.index, axes), made);
  return made;
}

DimId LocalDims::part(const ir::Type& whole, const planner::Layout& layout, size_t position) {
  return part(whole.dims[position], axis_order(layout, position));
}

ir::Type LocalDims::type(const ir::Type& whole, const planner::Layout& layout) {
  ir::Type type;
  type.dtype = whole.dtype;
  for (size_t p = 0; p < whole.rank(); ++p) type.dims.push_back(part(whole, layout, p));
  return type;
}

DimId LocalDims::group(uint32_t axes) {
  const auto known = groups_.find(axes);
  if (known != groups_.end()) return known->second;
  std::string name = "each";
  for (size_t a = 0; a < mesh_.axes.size(); ++a) {
    if ((axes >> a & 1) != 0) name += '/' + mesh_.axes[a].name;
  }
  return groups_[axes] = add(name, ir::mesh_size(g_, axes));
}

DimId LocalDims::padded(DimId of, int64_t size) {
  const auto known = padded_.find({of.index, size});
  if (known != padded_.end()) return known->second;
  return padded_[{of.index, size}] = add(g_.dim(of).name + "+", size);
}

ValueId LocalDims::offset(ir::Builder& b, DimId whole, const AxisOrder& axes) {
  return ir::shard_offset_node(b, part(whole, axes));
}

ValueId LocalDims::own_extent(ir::Builder& b, DimId whole, const AxisOrder& axes) {
  return ir::own_extent_node(b, part(whole, axes));
}

}  // namespace cad::backend
