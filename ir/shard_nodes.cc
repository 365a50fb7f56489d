// ir/shard_nodes.cc -- see shard_nodes.h.
#include "ir/shard_nodes.h"

#include <utility>

#include "base/check.h"
#include "ir/shard.h"

namespace cad::ir {

namespace {

int64_t constant_size(const Graph& g, DimId dim) {
  const auto size = g.dim(dim).size.constant();
  CAD_CHECK(size.has_value(), "the size of `{}` is not a number", g.dim(dim).name);
  return *size;
}

ValueId number(Builder& b, int64_t n) {
  return b.constant(Scalar(static_cast<double>(n)), DType::kI32);
}

// Begin and end. Cut nested: a part ends where the one that it lies in does.
std::pair<ValueId, ValueId> range(Builder& b, DimId part) {
  const Dim dim = b.graph().dim(part);
  const int64_t whole = constant_size(b.graph(), dim.whole);
  const bool even = !is_uneven(b.graph(), part, {});
  ValueId begin = number(b, 0), end = number(b, whole);
  int64_t stretch = whole;
  for (size_t i = 0; i < dim.axes.size(); ++i) {
    const auto axis = static_cast<size_t>(static_cast<uint8_t>(dim.axes[i]));
    const int64_t count = b.graph().mesh[axis].size;
    stretch = (stretch + count - 1) / count;
    Attrs attrs;
    attrs.axes = 1U << axis;
    const ValueId ahead = b.mul(b.make(Op::kAxisIndex, {}, std::move(attrs)), number(b, stretch));
    begin = i == 0 ? ahead : b.add(begin, ahead);
    if (even) continue;
    begin = b.make(Op::kMin, {end, begin});
    end = b.make(Op::kMin, {end, b.add(begin, number(b, stretch))});
  }
  return {begin, even ? b.add(begin, number(b, stretch)) : end};
}

}  // namespace

ValueId shard_offset_node(Builder& b, DimId part) {
  return range(b, part).first;
}

ValueId own_extent_node(Builder& b, DimId part) {
  const auto [begin, end] = range(b, part);
  return b.sub(end, begin);
}

}  // namespace cad::ir
