// ir/interpreter.h -- the ground truth: evaluates a graph with naive f64 loops over named indices.
// Values of dtype f32, bf16 and f16 are computed in double; with `round` they are rounded to their
// dtype after every op, else kept in double (gradient checks by central differences).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ir/op.h"

namespace cad::ir {

// Where a dim of a graph that stands for one device's part begins, and how long the whole dim is.
struct Shard {
  int64_t offset = 0;
  int64_t whole = -1;  // -1: the dim is whole
};

struct EvalContext {
  Bindings bindings;
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t row_offset = 0;  // first row of this micro-batch within the step
  int64_t step_rows = 0;   // rows of the whole step; 0: the batch dim's own size
  bool round = false;
  // By DimId::index; shorter or empty: the others are whole. Ops that count positions, draw, look
  // up or divide by a size go by these, so that a part gives its part of the whole's values (or its
  // summand: mean, look-ups; dims that are normalised over must be whole). Dim::whole says the same
  // of a dim, but only to ops that draw and to attention: all else counts within the part.
  std::vector<Shard> shards;
  // step_total: sums over micro-batches, in node order; empty: one micro-batch (identity)
  std::map<int32_t, double> totals;
  // One device of Graph::mesh: its coordinates, and what carries out a collective on its operand
  // (ir/collective.h says what the result is). Without: a graph of one device.
  std::vector<int> coordinates;
  std::function<Tensor(const Node& node, const Tensor& x)> collective;
  const std::vector<Tensor>* inputs = nullptr;  // set by interpret(): what `input` nodes read
};

// One tensor per row of g.inputs, in order -> one per region-0 result.
std::vector<Tensor> interpret(const Graph& g, const std::vector<Tensor>& inputs,
                              EvalContext& context);

// The nearest value of a dtype (ties to even; beyond the largest: infinity). i32 and bool:
// unchanged.
double round_to(double x, DType dtype);

// Extents of a type under the bindings.
std::vector<int64_t> extents_of(const Graph& g, const Type& type, const Bindings& bindings);

}  // namespace cad::ir
