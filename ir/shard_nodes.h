// ir/shard_nodes.h -- numbers of a device's part of a dim (ir/shard.h) as values of the graph that
// all devices run: made of axis_index, appended by a builder. Sizes of the dims must be constants.
#pragma once

#include "ir/builder.h"

namespace cad::ir {

// i32[]: where the part begins in Dim::whole; how much of it is the device's own.
ValueId shard_offset_node(Builder& b, DimId part);
ValueId own_extent_node(Builder& b, DimId part);

}  // namespace cad::ir
