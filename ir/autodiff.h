// ir/autodiff.h -- reverse mode as a pass. Appends the backward computation of `loss` (rank 0) to
// region 0 and adds outputs "grad:PATH" for every non-frozen parameter (or the given inputs).
// A `repeat` is differentiated as a reversed `repeat` that reads what the forward one collected
// (its saved values); values that are cheap to compute again from saved ones are recomputed in the
// backward body instead of being saved (ir/remat policy, see autodiff_loop.cc).
#pragma once

#include <vector>

#include "ir/graph.h"

namespace cad::ir {

struct DifferentiateOptions {
  std::vector<InputId> wrt;   // empty: every parameter that is not frozen
};
// `loss` must be an f32 value of rank 0 in region 0.
Graph differentiate(Graph graph, ValueId loss, const DifferentiateOptions& options = {});

}  // namespace cad::ir
