// planner/layout.h -- how a tensor lies on a mesh: for each axis the dim that it splits,
// replicated, or partial (every device holds a summand). A dim may take several axes, in mesh
// order. Splits are ceil-sized, the tail short or empty. Not here: what it costs to go from one
// layout to another (planner/conversion.h).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "ir/graph.h"
#include "planner/mesh.h"

namespace cad::planner {

constexpr int8_t kReplicated = -1;
constexpr int8_t kPartial = -2;

struct Layout {
  // per mesh axis: position of the split dim in the tensor's type, kReplicated or kPartial
  std::array<int8_t, kMaxAxes> axis{kReplicated, kReplicated, kReplicated};
  auto operator<=>(const Layout&) const = default;
};

// Of the gradient of a tensor that lies so: replicated and partial swap, splits stay.
Layout dual(const Layout& layout, const Mesh& mesh);
// "[B:dp, T, D:tp]", "[B, T]+dp" (partial over dp).
std::string str(const Layout& layout, const ir::Graph& graph, const ir::Type& type,
                const Mesh& mesh);

}  // namespace cad::planner

template <>
struct std::hash<cad::planner::Layout> {
  size_t operator()(const cad::planner::Layout& layout) const noexcept {
    size_t h = 0;
    for (int8_t a : layout.axis) h = h * 131 + static_cast<uint8_t>(a);
    return h;
  }
};
