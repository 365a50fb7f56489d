// ir/collective.h -- what the ops of family `comm` mean: each member's result from all members'
// operands. Ground truth for communicators and executors; the rules of these ops are in op_comm.cc.
#pragma once

#include <span>

#include "ir/op.h"

namespace cad::ir {

inline bool is_collective(Op op) {
  return op == Op::kAllReduce || op == Op::kAllGather || op == Op::kReduceScatter ||
         op == Op::kAllToAll;
}

// The result at member `own` of the collective `node`, `members` being the operands in the order of
// members, all of the same extents. Sums run over the members in order, in double.
Tensor collective_result(const Graph& g, const Node& node, std::span<const Tensor* const> members,
                         int64_t own);

}  // namespace cad::ir
