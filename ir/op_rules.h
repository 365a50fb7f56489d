// ir/op_rules.h -- what the family files op_<family>.cc share: the infos they define, helpers of
// shape rules (errors, size equations), and named indexing for reference semantics. Only they and
// the interpreter include it.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/interpreter.h"
#include "ir/op.h"
#include "ir/op_costs.h"
#include "ir/op_shardings.h"

namespace cad::ir {

// kAddInfo, kSubInfo, ..: one a row of ops.def, defined in its family's file.
#define CAD_OP(enumerator, text, family) extern const OpInfo enumerator##Info;
#include "ir/ops.def"
#undef CAD_OP

using Values = std::span<const ValueId>;
using Operands = std::span<const Tensor* const>;
using Dims = std::vector<DimId>;

// --- dims as sets in order ---------------------------------------------------------------------
bool contains(const Dims& dims, DimId dim);
bool contains_all(const Dims& dims, const Dims& others);
Dims without(const Dims& dims, const Dims& gone);
Dims joined(const Dims& first, const Dims& then);  // `then`'s new ones appended
Dims replaced(const Dims& dims, DimId from, const Dims& to);
std::optional<DimId> duplicate(const Dims& dims);
bool same_set(const Dims& a, const Dims& b);
std::string names(const Graph& g, const Dims& dims);  // "`B`, `T`"

// --- shape rules ---------------------------------------------------------------------------------
ShapeResult failed(ShapeError::Code code, int operand, Dims dims, std::string detail);
ShapeResult typed(DType dtype, Dims dims);  // one result, fine
inline ShapeResult typed(Type type) {
  return typed(type.dtype, std::move(type.dims));
}

enum class Accepts { kFloat, kNumber, kI32, kBool, kAny };
// The operand count, each operand's dtype (parallel to `accepts`), and that ids are in range.
std::optional<ShapeResult> wrong_operands(const Graph& g, Values operands,
                                          std::initializer_list<Accepts> accepts);
std::optional<ShapeResult> wrong_dtype(const Graph& g, Values operands, int operand,
                                       Accepts accepts);
// The dims, if any, that operand `operand` lacks; that a list has twice.
std::optional<ShapeResult> missing(const Graph& g, Values operands, int operand,
                                   const Dims& wanted);
std::optional<ShapeResult> repeated(const Graph& g, const Dims& dims);
// Whether the dims that attributes name exist in the graph at all (parsed text may name any).
std::optional<ShapeResult> unknown(const Graph& g, const Dims& dims);

// left == right, or left <= right: nothing when that is certain, an error when it cannot be, else a
// condition for the caller to keep.
void require_equal(ShapeResult& result, const Size& left, const Size& right, Dims dims,
                   const std::string& what);
void require_at_most(ShapeResult& result, const Size& left, const Size& right, Dims dims,
                     const std::string& what);

// --- reference semantics -------------------------------------------------------------------------
using Index = std::vector<int64_t>;

// The named indices that a rule iterates over, row-major.
struct Axes {
  Dims dims;
  std::vector<int64_t> extents;
  [[nodiscard]] int position(DimId dim) const;
};
Axes axes_of(const Graph& g, Dims dims, const Bindings& bindings);
int64_t extent_of(const Graph& g, DimId dim, const Bindings& bindings);

template <class F>
void walk(const Axes& axes, F&& body) {
  Index index(axes.dims.size(), 0);
  for (int64_t e : axes.extents) {
    if (e <= 0) return;
  }
  while (true) {
    body(static_cast<const Index&>(index));
    size_t at = index.size();
    while (at > 0 && ++index[at - 1] == axes.extents[at - 1]) index[--at] = 0;
    if (at == 0) return;
  }
}

// A tensor addressed by an index over `axes`: dims of the tensor that the axes lack, or that are in
// `free`, start at 0 and are moved along with stride(dim).
template <class T>
class Named {
 public:
  Named(const Axes& axes, const Dims& dims, T& tensor, const Dims& free = {})
      : dims_(dims),
        data_(tensor.data.data()),
        strides_(dims.size()),
        by_axis_(axes.dims.size(), 0) {
    int64_t stride = 1;
    for (size_t i = dims.size(); i-- > 0;) {
      strides_[i] = stride;
      stride *= tensor.extents[i];
      const int axis = axes.position(dims[i]);
      if (axis >= 0 && !contains(free, dims[i])) by_axis_[static_cast<size_t>(axis)] = strides_[i];
    }
  }
  auto& operator()(const Index& index, int64_t further = 0) const {
    return data_[offset(index) + further];
  }
  [[nodiscard]] int64_t offset(const Index& index) const {
    int64_t sum = 0;
    for (size_t i = 0; i < index.size(); ++i) sum += index[i] * by_axis_[i];
    return sum;
  }
  [[nodiscard]] int64_t stride(DimId dim) const {
    for (size_t i = 0; i < dims_.size(); ++i) {
      if (dims_[i] == dim) return strides_[i];
    }
    return 0;
  }

 private:
  Dims dims_;
  decltype(std::declval<T&>().data.data()) data_;
  std::vector<int64_t> strides_, by_axis_;
};

Tensor filled(const Graph& g, const Type& type, const Bindings& bindings, double value);
inline const Type& operand_type(const Graph& g, const Node& n, size_t i) {
  return g.type(n.operands[i]);
}
inline const Type& result_type(const Graph& g, const Node& n, size_t i = 0) {
  return g.type(n.results[i]);
}
double evaluated(const Scalar& scalar, const Bindings& bindings);
// Offset 0 and the dim's own extent where the context has no shard of it.
Shard shard_of(const Graph& g, DimId dim, const EvalContext& context);
// The same, and of a device's part of a dim where the part begins in the whole: for ops whose
// values depend on the place in the whole tensor (draws, causal masks) wherever it is computed.
Shard place_in_whole(const Graph& g, DimId dim, const EvalContext& context);
// Whether a dim counts rows of the batch: the batch dim or a part of it.
bool counts_rows(const Graph& g, DimId dim);

}  // namespace cad::ir
