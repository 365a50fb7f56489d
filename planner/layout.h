// planner/layout.h -- how a tensor lies on a mesh: for each axis the dim that it splits,
// replicated, or partial (every device holds a summand). A dim may take several axes, in mesh
// order. Not here: what it costs to go from one layout to another (planner/conversion.h).
//
// Splits are ceil-sized and nested: 5 over (2, 2) is 3, 2 over the first axis, then 2, 1, 2, 0. So
// an inner axis can always be gathered or split alone. A stretch of fewer elements than an axis has
// devices is not split over it (layouts() leaves such layouts out); the last device may still get
// less than the others, or nothing (5 over 4: 2, 2, 1, 0).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "planner/mesh.h"

namespace cad::planner {

constexpr int8_t kReplicated = -1;
constexpr int8_t kPartial = -2;

struct Layout {
  // per mesh axis: position of the split dim in the tensor's type, kReplicated or kPartial
  std::array<int8_t, kMaxAxes> axis{kReplicated, kReplicated, kReplicated};
  // Row of kAxisOrders: in which order axes that share a dim split it, outermost first. 0, mesh
  // order, but for stops inside a conversion; the least row that says it.
  uint8_t order = 0;
  auto operator<=>(const Layout&) const = default;
};
constexpr std::array<std::array<int8_t, kMaxAxes>, 6> kAxisOrders{
    {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}};

// Sizes of a graph's dims, by DimId::index; -1 where the bindings leave one open.
using Extents = std::vector<int64_t>;
Extents dim_extents(const ir::Graph& g, const ir::Bindings& bindings);
// Of one tensor, in type order. CAD_CHECKs that all are known.
std::vector<int64_t> tensor_extents(const ir::Type& type, const Extents& extents);

// Of the gradient of a tensor that lies so: replicated and partial swap, splits stay. Axes of size
// 1 and axes that the mesh lacks stay replicated.
Layout dual(const Layout& layout, const Mesh& mesh);
// "[B:dp, T, D:tp]", "[B, T]+dp" (partial over dp), "[B:dp:tp]".
std::string str(const Layout& layout, const ir::Graph& graph, const ir::Type& type,
                const Mesh& mesh);

// The axes that split dim `position`, outermost first.
struct AxisList {
  std::array<int8_t, kMaxAxes> axes{};
  int count = 0;
};
AxisList axes_of(const Layout& layout, int position);
// The axes on which the layout has this entry (a position, kReplicated, kPartial).
AxisSet axes_with(const Layout& layout, const Mesh& mesh, int8_t entry);

// The stretch of a dim that a device has.
struct Range {
  int64_t offset = 0, extent = 0;
  bool operator==(const Range&) const = default;
};
// Split by axes of these sizes, outermost first, at these coordinates along them.
Range local_range(int64_t global, std::span<const int> sizes, std::span<const int> coordinates);
// The longest one: that of the first device.
int64_t local_extent(int64_t global, std::span<const int> sizes);

// What one device holds at most: extents, elements. `extents` are the whole tensor's.
int64_t local_extent(const Layout& layout, int position, int64_t global, const Mesh& mesh);
double local_elements(const Layout& layout, std::span<const int64_t> extents, const Mesh& mesh);
// A device's own part, per dim; `coordinates` along every mesh axis.
std::vector<Range> local_ranges(const Layout& layout, std::span<const int64_t> extents,
                                const Mesh& mesh, std::span<const int> coordinates);
// Coordinates of a device along the axes: the last axis joins neighbours.
std::vector<int> coordinates_of(const Mesh& mesh, int device);

// Whether every split stretch is at least as long as the axis that splits it.
bool splittable(const Layout& layout, std::span<const int64_t> extents, const Mesh& mesh);

// Every layout in mesh order of a tensor of these extents that is splittable, replicated first.
// Axes of size 1 stay replicated.
std::vector<Layout> layouts(std::span<const int64_t> extents, const Mesh& mesh,
                            bool may_be_partial);

}  // namespace cad::planner

template <>
struct std::hash<cad::planner::Layout> {
  size_t operator()(const cad::planner::Layout& layout) const noexcept {
    size_t h = layout.order;
    for (int8_t a : layout.axis) h = h * 131 + static_cast<uint8_t>(a);
    return h;
  }
};
