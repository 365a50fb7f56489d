// ir/step_kinds.h -- what the ops of a region become when it is cut into steps: a routine of the
// library, a view of another value's storage, or loops that fuse. One table for the backend's
// partition (backend/partition_groups.h) and for its outline on symbolic sizes (ir/step_groups.h).
// Whether a view is one on given strides is the backend's business (backend/partition_views.cc).
#pragma once

#include <cstddef>

#include "ir/graph.h"

namespace cad::ir {

constexpr size_t kMaxGroupNodes = 160;  // nodes of one kernel
constexpr int kMaxFreeChain = 10;       // ops of a chain that every user evaluates for itself

// A step of its own, run by a routine or an inner program.
bool is_library_step(Op op);
// Library steps that want their operands one element after the other, not strided.
bool wants_dense_operands(Op op);
// Ops that move no data where strides can say the result. A cast to its own dtype is one.
bool is_view_op(const Graph& g, const Node& n);
// Ops that are not worth computing twice: transcendental, look-ups, random draws.
bool is_costly(Op op);
// Elementwise arithmetic that costs about nothing beside loading its operands.
bool is_light_arithmetic(Op op);

}  // namespace cad::ir
