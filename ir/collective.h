// ir/collective.h -- what the ops of family `comm` mean: each member's result from all members'
// operands. Ground truth for communicators and executors; the rules of these ops are in op_comm.cc.
// An all_to_all with attrs.groups instead of dims moves parts of dims: ir/move_parts.cc says how.
#pragma once

#include <span>
#include <vector>

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

// Whether an all_to_all moves parts of dims, whatever their axes and sizes.
inline bool moves_parts(const Node& node) {
  return node.op == Op::kAllToAll && !node.attrs.groups.empty();
}
// What a member has of a dim, in elements of the stretch that all members have together.
struct PartRange {
  int64_t begin = 0, end = 0;
  bool operator==(const PartRange&) const = default;
};
struct MovedPart {
  DimId from, to;                    // of the operand, of the result
  std::vector<PartRange> had, gets;  // by member, in the order of members
};
// Of an all_to_all that moves parts, by group. CAD_CHECKs that the whole dims have sizes.
std::vector<MovedPart> moved_parts(const Graph& g, const Node& node);

// Its rules, for op_comm.cc.
ShapeResult move_parts_shape(const Graph& g, const Type& x, const Attrs& attrs);
Tensor move_parts_result(const Graph& g, const Node& node, std::span<const Tensor* const> members,
                         int64_t own);

}  // namespace cad::ir
