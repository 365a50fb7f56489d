// planner/layout.cc -- layouts: duals, names, and which part of a tensor each device has.
#include "planner/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace cad::planner {

Extents dim_extents(const ir::Graph& g, const ir::Bindings& bindings) {
  Extents extents;
  extents.reserve(g.dims.size());
  for (const ir::Dim& dim : g.dims) {
    const ir::Size::Evaluated size = dim.size.evaluate(bindings);
    extents.push_back(size.ok() ? size.value : -1);
  }
  return extents;
}

std::vector<int64_t> tensor_extents(const ir::Type& type, const Extents& extents) {
  std::vector<int64_t> result;
  result.reserve(type.rank());
  for (ir::DimId d : type.dims) {
    result.push_back(extents[static_cast<size_t>(d.index)]);
    CAD_CHECK(result.back() >= 0, "dim {} of a tensor to be laid out has no size", d.index);
  }
  return result;
}

Layout dual(const Layout& layout, const Mesh& mesh) {
  Layout result = layout;
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    if (mesh.axes[i].size == 1) continue;
    int8_t& entry = result.axis[i];
    if (entry == kReplicated) {
      entry = kPartial;
    } else if (entry == kPartial) {
      entry = kReplicated;
    }
  }
  return result;
}

AxisList axes_of(const Layout& layout, int position) {
  AxisList list;
  for (int8_t axis : kAxisOrders[layout.order]) {
    const auto at = static_cast<size_t>(axis);
    if (layout.axis[at] == position) list.axes[static_cast<size_t>(list.count++)] = axis;
  }
  return list;
}

AxisSet axes_with(const Layout& layout, const Mesh& mesh, int8_t entry) {
  AxisSet set = 0;
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    if (layout.axis[i] == entry) set = static_cast<AxisSet>(set | 1U << i);
  }
  return set;
}

std::string str(const Layout& layout, const ir::Graph& graph, const ir::Type& type,
                const Mesh& mesh) {
  std::string dims;
  for (size_t i = 0; i < type.rank(); ++i) {
    if (i > 0) dims += ", ";
    dims += graph.dim(type.dims[i]).name;
    const AxisList list = axes_of(layout, static_cast<int>(i));
    for (int k = 0; k < list.count; ++k) {
      dims += ':' + mesh.axes[static_cast<size_t>(list.axes[static_cast<size_t>(k)])].name;
    }
  }
  std::string text = '[' + dims + ']';
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    if (layout.axis[i] == kPartial) text += '+' + mesh.axes[i].name;
  }
  return text;
}

// Every stretch is ceil-sized, those of the last one too: devices differ only in where the tensor
// ends.
Range local_range(int64_t global, std::span<const int> sizes, std::span<const int> coordinates) {
  int64_t begin = 0, end = global, stretch = global;
  for (size_t i = 0; i < sizes.size(); ++i) {
    stretch = (stretch + sizes[i] - 1) / sizes[i];
    begin = std::min(end, begin + stretch * coordinates[i]);
    end = std::min(end, begin + stretch);
  }
  return {begin, end - begin};
}

int64_t local_extent(int64_t global, std::span<const int> sizes) {
  for (int size : sizes) global = (global + size - 1) / size;
  return global;
}

int64_t local_extent(const Layout& layout, int position, int64_t global, const Mesh& mesh) {
  const AxisList list = axes_of(layout, position);
  for (int k = 0; k < list.count; ++k) {
    const int size = mesh.axes[static_cast<size_t>(list.axes[static_cast<size_t>(k)])].size;
    global = (global + size - 1) / size;
  }
  return global;
}

double local_elements(const Layout& layout, std::span<const int64_t> extents, const Mesh& mesh) {
  double product = 1;
  for (size_t i = 0; i < extents.size(); ++i) {
    product *= static_cast<double>(local_extent(layout, static_cast<int>(i), extents[i], mesh));
  }
  return product;
}

std::vector<Range> local_ranges(const Layout& layout, std::span<const int64_t> extents,
                                const Mesh& mesh, std::span<const int> coordinates) {
  std::vector<Range> ranges;
  for (size_t i = 0; i < extents.size(); ++i) {
    const AxisList list = axes_of(layout, static_cast<int>(i));
    std::array<int, kMaxAxes> sizes{}, at{};
    for (size_t k = 0; k < static_cast<size_t>(list.count); ++k) {
      const auto axis = static_cast<size_t>(list.axes[k]);
      sizes[k] = mesh.axes[axis].size;
      at[k] = coordinates[axis];
    }
    const auto count = static_cast<size_t>(list.count);
    ranges.push_back(local_range(extents[i], {sizes.data(), count}, {at.data(), count}));
  }
  return ranges;
}

std::vector<int> coordinates_of(const Mesh& mesh, int device) {
  std::vector<int> result(mesh.axes.size());
  for (size_t i = mesh.axes.size(); i-- > 0;) {
    result[i] = device % mesh.axes[i].size;
    device /= mesh.axes[i].size;
  }
  return result;
}

bool splittable(const Layout& layout, std::span<const int64_t> extents, const Mesh& mesh) {
  for (size_t i = 0; i < extents.size(); ++i) {
    const AxisList list = axes_of(layout, static_cast<int>(i));
    int64_t stretch = extents[i];
    for (int k = 0; k < list.count; ++k) {
      const int size = mesh.axes[static_cast<size_t>(list.axes[static_cast<size_t>(k)])].size;
      if (stretch < size) return false;
      stretch = (stretch + size - 1) / size;
    }
  }
  return true;
}

std::vector<Layout> layouts(std::span<const int64_t> extents, const Mesh& mesh,
                            bool may_be_partial) {
  std::vector<Layout> result;
  const auto rank = static_cast<int8_t>(extents.size());
  Layout layout;
  const auto extend = [&](const auto& self, size_t axis) -> void {
    if (axis == mesh.axes.size()) {
      if (splittable(layout, extents, mesh)) result.push_back(layout);
      return;
    }
    layout.axis[axis] = kReplicated;
    self(self, axis + 1);
    if (mesh.axes[axis].size > 1) {
      for (int8_t position = 0; position < rank; ++position) {
        layout.axis[axis] = position;
        self(self, axis + 1);
      }
      if (may_be_partial) {
        layout.axis[axis] = kPartial;
        self(self, axis + 1);
      }
    }
    layout.axis[axis] = kReplicated;
  };
  extend(extend, 0);
  return result;
}

}  // namespace cad::planner
