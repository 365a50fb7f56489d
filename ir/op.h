// ir/op.h -- what every op must supply: one OpInfo per row of ops.def, defined in its family file.
// The front end builds nodes through Builder (ir/builder.h), which runs the shape rule, so a
// program's shape errors and the verifier's come from one place.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/sharding.h"

namespace cad::ir {

// Why operands do not fit, in terms the front end can put in a diagnostic: `code` picks the id and
// the help, `dims` / `operand` the labels.
struct ShapeError {
  enum class Code {
    kNotSubset,     // neither operand's dims contain the other's
    kMissingDim,    // operand `operand` lacks dims
    kDuplicateDim,  // the result would hold `dims` twice
    kSizeMismatch,  // sizes differ: `detail` says which
    kDType,         // operand `operand` has a dtype the op does not take
    kRank,          // rank 0 wanted, or at least 1
    kOther
  } code = Code::kOther;
  int operand = -1;
  std::vector<DimId> dims;
  std::string detail;  // lower-case fact, backticks around names
};

// A size equation that must hold. `undecided` ones come back from the rule for the caller to keep:
// generic bodies check them at every call, all are checked again for final bindings.
struct Condition {
  Size left, right;
  std::string what;      // "stride windows of `Y`": completes "sizes must agree: .."
  bool at_most = false;  // left <= right is wanted instead of left == right (slices, pads, top-k)
};

struct ShapeResult {
  std::vector<Type> types;            // of the results
  std::vector<Condition> conditions;  // equations not decided by the symbols alone
  std::vector<ShapeError> errors;     // empty when fine
};

// Gradient rule: appends nodes to builder's region and returns, for each operand of the node, the
// value of its cotangent (invalid: none). `grads` has one entry per result (invalid: zero).
class Builder;
using GradRule = std::vector<ValueId> (*)(Builder& b, NodeId node, std::span<const ValueId> grads);

// Dense reference tensor, row-major in type order, computed in double (bool 0/1, i32 whole).
struct Tensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> extents;
  std::vector<double> data;
};
struct EvalContext;  // seed, step, row offset, bindings: ir/interpreter.h
using EvalRule = std::vector<Tensor> (*)(const Graph& g, const Node& node,
                                         std::span<const Tensor* const> operands,
                                         EvalContext& context);

// A sum of whole multiples of products of dims, 2*B*T*D*F + 3*B*T: how costs are written down.
// The dims are those of a graph, so an amount is a polynomial for the program's own sizes (size)
// and a number for any others, such as one device's share (at).
class Amount {
 public:
  struct Term {
    int64_t times;
    std::vector<DimId> dims;  // sorted; a dim may stand twice
  };
  Amount() = default;
  Amount(int64_t times, std::vector<DimId> dims) { add(times, std::move(dims)); }
  void add(int64_t times, std::vector<DimId> dims);
  Amount& operator+=(const Amount& more);
  [[nodiscard]] Amount repeated(DimId dim) const;  // once for each index of dim
  [[nodiscard]] Size size(const Graph& g) const;
  [[nodiscard]] double at(std::span<const double> extents) const;  // by DimId
  [[nodiscard]] const std::vector<Term>& terms() const { return terms_; }

 private:
  std::vector<Term> terms_;
};

// What one execution of a node costs. FLOPs: 2 a multiply-add; the weights of functions are in
// ir/op_costs.h. Bytes: every operand read once and every result written once, of the node alone; a
// view (rename, reshape, broadcast) moves nothing.
struct OpCost {
  Amount matmul;         // FLOPs in contractions
  Amount other;          // FLOPs elsewhere
  Amount read, written;  // bytes
  OpCost& operator+=(const OpCost& more);
  [[nodiscard]] OpCost repeated(DimId dim) const;
  [[nodiscard]] Amount flops() const;
  [[nodiscard]] Amount bytes() const;
};
using CostRule = OpCost (*)(const Graph& g, const Node& node);
using ShardingFn = ShardingRule (*)(const Graph& g, const Node& node);

struct OpInfo {
  const char* summary;  // for `colauto ops` and the manual: "sum over dims"
  ShapeResult (*shape)(const Graph& g, std::span<const ValueId> operands, const Attrs& attrs);
  GradRule grad;  // nullptr: no gradient flows (integers, comparisons, fused ops after raising)
  EvalRule eval;  // naive f64 loops; nullptr only for repeat (the interpreter's own)
  CostRule cost;  // of one execution; repeat's is its body's, once an iteration
  ShardingFn sharding;  // how devices may divide it; nullptr only for repeat (its body's nodes)
};

const OpInfo& op_info(Op op);
// repeat's shape rule: unlike all others it needs Node::loop and the body (see ir/graph.h).
ShapeResult repeat_shape(const Graph& g, std::span<const ValueId> operands, const Loop& loop);
const char* op_family(Op op);

}  // namespace cad::ir
