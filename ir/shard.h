// ir/shard.h -- what one device of Graph::mesh has of a dim that is split over it (Dim::whole,
// Dim::axes): where its stretch begins and how much of it is its own. Splits are ceil-sized and
// nested, so a part is as long as the first device's and the last devices own less, or nothing:
// 5 over (2, 2) are parts of 2, of which 2, 1, 2, 0 are owned. planner/layout.h says the same of
// layouts; a test compares the two. Not here: what keeps the rest of a part out of results
// (ir/mask_tails.cc).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace cad::ir {

inline constexpr size_t kMaxMeshAxes = 32;  // bits of Attrs::axes

// Devices along the axes of a set, all together; members of a collective over it.
int64_t mesh_size(const Graph& g, uint32_t axes);
// The number of a device along them: row-major, the first axis slowest.
int64_t axis_index(const Graph& g, uint32_t axes, std::span<const int> coordinates);
// Of a device in the whole mesh, row-major: the last axis joins neighbours.
std::vector<int> coordinates_of(const Graph& g, int64_t device);

// The extent of every device's part when these axes split `whole`, outermost first.
int64_t part_extent(const Graph& g, int64_t whole, std::span<const int8_t> axes);

// First element and count of what the device at `coordinates` (one an axis of the mesh) owns of the
// dim. An ordinary dim: 0 and all of it. CAD_CHECKs that sizes are bound and coordinates complete.
int64_t shard_offset(const Graph& g, DimId dim, std::span<const int> coordinates,
                     const Bindings& bindings);
int64_t own_extent(const Graph& g, DimId dim, std::span<const int> coordinates,
                   const Bindings& bindings);

// Whether some device owns less than all of its part of the dim.
bool is_uneven(const Graph& g, DimId dim, const Bindings& bindings);

}  // namespace cad::ir
