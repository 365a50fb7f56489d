// planner/mesh.cc -- sizes and names of meshes and layouts.
#include "planner/mesh.h"

#include <fmt/format.h>

#include "planner/layout.h"

namespace cad::planner {

int Mesh::devices() const {
  return size(static_cast<AxisSet>((1U << axes.size()) - 1));
}

int Mesh::size(AxisSet set) const {
  int product = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if ((set >> i & 1) != 0) product *= axes[i].size;
  }
  return product;
}

std::string Mesh::str() const {
  std::string text;
  for (const Axis& axis : axes) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", axis.name, axis.size);
  }
  return text;
}

}  // namespace cad::planner
