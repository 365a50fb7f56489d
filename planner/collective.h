// planner/collective.h -- seconds of a collective over a group of devices: the cheapest of ring,
// recursive halving/doubling and hierarchical, from latency and bandwidth of every level that the
// group crosses. Sources of the formulas: Thakur, Rabenseifner, Gropp 2005; docs/planner.md.
#pragma once

#include "planner/mesh.h"

namespace cad::planner {

enum class Collective : uint8_t {
  kAllReduce,      // bytes: of the full (reduced) tensor of one group
  kAllGather,      // bytes: of the full (gathered) tensor
  kReduceScatter,  // bytes: of the full (to be reduced) tensor
  kAllToAll,       // bytes: what one device holds
  kPermute,        // bytes: what one device holds; every device sends to one other
};
const char* collective_name(Collective kind);  // "all-reduce"

// Over the axes in `set` at once, as one group. 0 exactly for groups of one.
double collective_seconds(const Mesh& mesh, AxisSet set, Collective kind, double bytes);

}  // namespace cad::planner
