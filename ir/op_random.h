// ir/op_random.h -- the stream of random words that one random node (or attention's dropout) reads,
// for reference semantics. The definition of the words is in ir/random.h.
#pragma once

#include <array>

#include "ir/op_rules.h"

namespace cad::ir {

class RandomStream {
 public:
  // `numbers`: the loop numbers, outermost first. `dims`: those of the tensor drawn, in order.
  RandomStream(const Graph& g, const std::string& site, Operands numbers, const Dims& dims,
               const EvalContext& context);
  // The words of the element at `index` over dims: the batch dim counts the rows of the whole step.
  [[nodiscard]] std::array<uint32_t, 4> words(const Index& index) const;

 private:
  uint64_t key_ = 0, step_ = 0;
  std::vector<int64_t> extents_, shifts_;
};

// What dropout multiplies an element by: 0, or 1 / (1 - p).
double dropout_factor(uint32_t word, double p);

}  // namespace cad::ir
