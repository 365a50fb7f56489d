// ir/op.h -- what every op must supply: one OpInfo per row of ops.def, defined in its family file.
// The front end builds nodes through Builder (ir/builder.h), which runs the shape rule, so a
// program's shape errors and the verifier's come from one place.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

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

// What one execution of a node costs, as polynomials in the program's dims. FLOPs: 2 a
// multiply-add; the weights of functions are in ir/cost_rules.h. Bytes: every operand read once and
// every result written once, of the node alone; a view (rename, reshape, broadcast) moves nothing.
struct OpCost {
  Size matmul;         // FLOPs in contractions
  Size other;          // FLOPs elsewhere
  Size read, written;  // bytes
  [[nodiscard]] Size flops() const { return matmul + other; }
  [[nodiscard]] Size bytes() const { return read + written; }
  OpCost& operator+=(const OpCost& more);
};
OpCost operator*(const Size& times, const OpCost& cost);
using CostRule = OpCost (*)(const Graph& g, const Node& node);

struct OpInfo {
  const char* summary;  // for `colauto ops` and the manual: "sum over dims"
  ShapeResult (*shape)(const Graph& g, std::span<const ValueId> operands, const Attrs& attrs);
  GradRule grad;  // nullptr: no gradient flows (integers, comparisons, fused ops after raising)
  EvalRule eval;  // naive f64 loops; nullptr only for repeat (the interpreter's own)
  CostRule cost;  // of one execution; repeat's is its body's, once an iteration
};

const OpInfo& op_info(Op op);
// repeat's shape rule: unlike all others it needs Node::loop and the body (see ir/graph.h).
ShapeResult repeat_shape(const Graph& g, std::span<const ValueId> operands, const Loop& loop);
const char* op_family(Op op);

}  // namespace cad::ir
