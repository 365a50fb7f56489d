// ir/type.h -- dtypes, typed ids, dims and tensor types. A type is a dtype and an ordered list of
// dims; order is storage order (row-major) and never meaning. Dims are entries of Graph::dims.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ir/size.h"

namespace cad::ir {

enum class DType : uint8_t { kF32, kBF16, kF16, kI32, kBool };

const char* dtype_name(DType dtype);  // "f32" "bf16" "f16" "i32" "bool"
int dtype_bytes(DType dtype);         // 4 2 2 4 1
inline bool is_float(DType d) {
  return d == DType::kF32 || d == DType::kBF16 || d == DType::kF16;
}

// Typed int32 ids into the arenas of one Graph.
template <class Tag>
struct Id {
  int32_t index = -1;
  [[nodiscard]] bool valid() const { return index >= 0; }
  auto operator<=>(const Id&) const = default;
};
using DimId = Id<struct DimTag>;
using ValueId = Id<struct ValueTag>;
using NodeId = Id<struct NodeTag>;
using RegionId = Id<struct RegionTag>;
using InputId = Id<struct InputTag>;

// One named dim. Names are unique within a graph (`D`, a second one bound to D is `D.1`).
struct Dim {
  std::string name;
  Size size;
  bool pack = false;  // `..` of a generic definition being checked; never in a lowered graph
  // Of a graph that every device of a mesh runs: this is one device's stretch of `whole`, which
  // these axes of Graph::mesh split, outermost first, into ceil-sized parts of parts. `size` is
  // that of the first device; the last ones may own less of it (ir/shard.h), and what lies beyond
  // is arbitrary. Invalid and empty: an ordinary dim.
  DimId whole = {};
  std::vector<int8_t> axes = {};
};

struct Type {
  DType dtype = DType::kF32;
  std::vector<DimId> dims;
  [[nodiscard]] size_t rank() const { return dims.size(); }
  [[nodiscard]] bool has(DimId dim) const;
  [[nodiscard]] int position(DimId dim) const;  // -1 if absent
  bool operator==(const Type&) const = default;
};

}  // namespace cad::ir

template <class Tag>
struct std::hash<cad::ir::Id<Tag>> {
  size_t operator()(const cad::ir::Id<Tag>& id) const noexcept {
    return std::hash<int32_t>()(id.index);
  }
};
