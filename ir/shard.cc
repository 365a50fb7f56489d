// ir/shard.cc -- see shard.h: the arithmetic of nested ceil-sized splits.
#include "ir/shard.h"

#include <algorithm>

#include "base/check.h"

namespace cad::ir {

namespace {

struct Stretch {
  int64_t begin = 0, end = 0;
};

int64_t whole_extent(const Graph& g, DimId dim, const Bindings& bindings) {
  const Dim& d = g.dim(dim);
  const DimId whole = d.whole.valid() ? d.whole : dim;
  const Size::Evaluated size = g.dim(whole).size.evaluate(bindings);
  CAD_CHECK(size.ok(), "dim `{}` = {} has no size: {}", g.dim(whole).name, g.dim(whole).size.str(),
            size.detail);
  return size.value;
}

int64_t ceil_div(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}

Stretch own_stretch(const Graph& g, DimId dim, std::span<const int> coordinates,
                    const Bindings& bindings) {
  const int64_t whole = whole_extent(g, dim, bindings);
  Stretch own{0, whole};
  if (!g.dim(dim).whole.valid()) return own;
  CAD_CHECK(coordinates.size() == g.mesh.size(), "{} coordinates on a mesh of {} axes",
            coordinates.size(), g.mesh.size());
  int64_t part = whole;
  for (const int8_t a : g.dim(dim).axes) {
    const auto axis = static_cast<size_t>(static_cast<uint8_t>(a));
    part = ceil_div(part, g.mesh[axis].size);
    own.begin = std::min(own.end, own.begin + part * coordinates[axis]);
    own.end = std::min(own.end, own.begin + part);
  }
  return own;
}

}  // namespace

int64_t mesh_size(const Graph& g, uint32_t axes) {
  int64_t size = 1;
  for (size_t a = 0; a < g.mesh.size(); ++a) {
    if ((axes >> a & 1) != 0) size *= g.mesh[a].size;
  }
  return size;
}

int64_t axis_index(const Graph& g, uint32_t axes, std::span<const int> coordinates) {
  CAD_CHECK(coordinates.size() == g.mesh.size(), "{} coordinates on a mesh of {} axes",
            coordinates.size(), g.mesh.size());
  int64_t index = 0;
  for (size_t a = 0; a < g.mesh.size(); ++a) {
    if ((axes >> a & 1) != 0) index = index * g.mesh[a].size + coordinates[a];
  }
  return index;
}

std::vector<int> coordinates_of(const Graph& g, int64_t device) {
  std::vector<int> coordinates(g.mesh.size());
  for (size_t a = g.mesh.size(); a-- > 0;) {
    coordinates[a] = static_cast<int>(device % g.mesh[a].size);
    device /= g.mesh[a].size;
  }
  return coordinates;
}

int64_t part_extent(const Graph& g, int64_t whole, std::span<const int8_t> axes) {
  for (const int8_t a : axes) whole = ceil_div(whole, g.mesh[static_cast<size_t>(a)].size);
  return whole;
}

int64_t shard_offset(const Graph& g, DimId dim, std::span<const int> coordinates,
                     const Bindings& bindings) {
  return own_stretch(g, dim, coordinates, bindings).begin;
}

int64_t own_extent(const Graph& g, DimId dim, std::span<const int> coordinates,
                   const Bindings& bindings) {
  const Stretch own = own_stretch(g, dim, coordinates, bindings);
  return own.end - own.begin;
}

bool is_uneven(const Graph& g, DimId dim, const Bindings& bindings) {
  const Dim& d = g.dim(dim);
  if (!d.whole.valid()) return false;
  int64_t part = whole_extent(g, dim, bindings);
  for (const int8_t a : d.axes) {
    const int64_t size = g.mesh[static_cast<size_t>(a)].size;
    if (part % size != 0) return true;
    part /= size;
  }
  return false;
}

}  // namespace cad::ir
