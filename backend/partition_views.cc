// backend/partition_views.cc -- the strides of the results of views, where strides can say them.
// See backend/partition_groups.h.
#include <algorithm>

#include "backend/partition_groups.h"
#include "base/check.h"
#include "ir/step_kinds.h"

namespace cad::backend::fuse {

using ir::DimId;
using ir::Op;

NodeClass classify(const ir::Node& n) {
  if (n.op == Op::kInput || n.op == Op::kAxisIndex) return NodeClass::kNone;
  return ir::is_library_step(n.op) ? NodeClass::kLibrary : NodeClass::kFusible;
}

Layout dense_layout(const RegionContext& c, ir::ValueId v) {
  const ir::Type& type = c.graph->type(v);
  Layout layout{v, 0, std::vector<int64_t>(type.rank(), 0)};
  int64_t stride = 1;
  for (size_t d = type.rank(); d-- > 0;) {
    layout.strides[d] = stride;
    stride *= c.extent(type.dims[d]);
  }
  return layout;
}

bool is_dense(const RegionContext& c, ir::ValueId v, const Layout& layout) {
  const ir::Type& type = c.graph->type(v);
  int64_t stride = 1;
  for (size_t d = type.rank(); d-- > 0;) {
    const int64_t extent = c.extent(type.dims[d]);
    if (extent != 1 && layout.strides[d] != stride) return false;
    stride *= extent;
  }
  return true;
}

namespace {

// Strides of a reshape's result, one group at a time.
std::optional<Layout> reshaped(const RegionContext& c, const ir::Node& n, const Layout& operand) {
  const ir::Type& from = c.graph->type(n.operands[0]);
  const ir::Type& to = c.graph->type(n.results[0]);
  std::map<DimId, int64_t> strides;
  for (size_t d = 0; d < from.rank(); ++d) strides[from.dims[d]] = operand.strides[d];
  std::map<DimId, int64_t> result = strides;
  for (const ir::DimGroup& group : n.attrs.groups) {
    if (group.from.empty()) {
      result[group.to[0]] = 1;
      continue;
    }
    if (group.to.empty()) continue;
    // the old dims must lie in one another; unit dims do not matter
    int64_t unit = 0, reach = 0;
    bool first = true;
    for (auto d = group.from.rbegin(); d != group.from.rend(); ++d) {
      if (c.extent(*d) == 1) continue;
      if (first)
        unit = strides.at(*d);
      else if (strides.at(*d) != reach)
        return std::nullopt;
      first = false;
      reach = strides.at(*d) * c.extent(*d);
    }
    if (first) unit = 1;
    for (auto d = group.to.rbegin(); d != group.to.rend(); ++d) {
      result[*d] = unit;
      unit *= c.extent(*d);
    }
  }
  Layout layout{operand.base, operand.offset, {}};
  for (DimId d : to.dims) layout.strides.push_back(result.at(d));
  return layout;
}

}  // namespace

std::optional<Layout> view_layout(const RegionContext& c, const ir::Node& n,
                                  const Layout& operand) {
  const ir::Type& from = c.graph->type(n.operands[0]);
  const ir::Type& to = c.graph->type(n.results[0]);
  Layout layout{operand.base, operand.offset, {}};
  auto stride = [&](DimId d) {
    const int position = from.position(d);
    return position < 0 ? int64_t{0} : operand.strides[static_cast<size_t>(position)];
  };
  switch (n.op) {
    case Op::kReshape:
      return reshaped(c, n, operand);
    case Op::kRename: {
      for (DimId d : to.dims) {
        DimId source = d;
        for (const ir::DimGroup& group : n.attrs.groups)
          if (group.to[0] == d) source = group.from[0];
        layout.strides.push_back(stride(source));
      }
      return layout;
    }
    case Op::kSlice: {
      auto start = n.attrs.start.evaluate(*c.bindings);
      CAD_CHECK(start.ok(), "a slice's start is not bound");
      layout.offset += start.value * stride(n.attrs.dim);
      for (DimId d : to.dims) layout.strides.push_back(stride(d == n.attrs.to ? n.attrs.dim : d));
      return layout;
    }
    case Op::kFlip: {
      if (c.extent(n.attrs.dim) > 0)
        layout.offset += (c.extent(n.attrs.dim) - 1) * stride(n.attrs.dim);
      for (DimId d : to.dims) layout.strides.push_back(d == n.attrs.dim ? -stride(d) : stride(d));
      return layout;
    }
    default:
      for (DimId d : to.dims) layout.strides.push_back(stride(d));
      return layout;
  }
}

}  // namespace cad::backend::fuse
