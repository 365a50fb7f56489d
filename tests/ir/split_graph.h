// tests/ir/split_graph.h -- from a graph of whole tensors to what every device of a mesh runs when
// dims are split everywhere alike: types and attributes name the parts, sizes are bound. No
// collective is added: a sum over a split dim is a summand then, and what needs the other devices
// is the caller's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/interpreter.h"
#include "ir/op_rules.h"
#include "ir/shard.h"

namespace cad::ir {

using Splits = std::map<std::string, std::vector<int8_t>>;  // dim -> axes, outermost first

inline std::vector<MeshAxis> mesh_axes(const std::vector<int64_t>& sizes) {
  static const char* const kNames[] = {"a", "b", "c"};
  std::vector<MeshAxis> axes;
  for (size_t i = 0; i < sizes.size(); ++i) axes.push_back({kNames[i], sizes[i]});
  return axes;
}

// The part of `dim` by these axes of g.mesh.
inline DimId add_part(Graph& g, DimId dim, const std::vector<int8_t>& axes,
                      const Bindings& bindings) {
  const DimId part = g.add_dim(g.dim(dim).name, part_extent(g, extent_of(g, dim, bindings), axes));
  g.dims.back().whole = dim;
  g.dims.back().axes = axes;
  return part;
}

inline Graph split_graph(Graph g, const std::vector<int64_t>& mesh, const Splits& splits,
                         const Bindings& bindings) {
  g.mesh = mesh_axes(mesh);
  for (size_t d = 0; d < g.dims.size(); ++d)
    g.dims[d].size = extent_of(g, DimId{static_cast<int32_t>(d)}, bindings);
  std::map<DimId, DimId> parts;
  for (const auto& [name, axes] : splits) {
    const DimId dim = g.find_dim(name);
    CAD_CHECK(dim.valid(), "no dim `{}`", name);
    const DimId part = add_part(g, dim, axes, bindings);
    parts.emplace(dim, part);
  }
  const auto one = [&](DimId& dim) {
    if (const auto found = parts.find(dim); found != parts.end()) dim = found->second;
  };
  const auto all = [&](Dims& dims) {
    for (DimId& dim : dims) one(dim);
  };
  for (Value& value : g.values) all(value.type.dims);
  for (Node& node : g.nodes) {
    Attrs& a = node.attrs;
    all(a.dims);
    all(a.probs);
    for (DimGroup& group : a.groups) {
      all(group.from);
      all(group.to);
    }
    one(a.dim);
    one(a.to);
    one(a.window);
    one(node.loop.dim);
  }
  return g;
}

}  // namespace cad::ir
