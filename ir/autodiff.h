// ir/autodiff.h -- reverse mode as a pass. Appends the backward computation of `loss` (rank 0) to
// region 0 and adds outputs "grad:PATH" for every non-frozen parameter (or the given inputs).
// A `repeat` is differentiated as a reversed `repeat` that reads what the forward one collected
// (its saved values); values that are cheap to compute again from saved ones are recomputed in the
// backward body instead of being saved: see SavePolicy and autodiff_save.cc. At the top level all
// is kept, but for what the policy or an annotation has computed again (ir/recompute.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace cad::ir {

// Which values of a loop's body its backward body reads back. By default a minimum cut: the fewest
// bytes an iteration, with contractions, reductions, attention and collectives never done twice.
struct SavePolicy {
  enum class Choice : uint8_t { kAuto, kSave, kRecompute };
  // Asked once for every body value that the backward body may need; empty: kAuto for all.
  std::function<Choice(const Graph&, ValueId)> choose;
  Bindings bindings;  // sizes to weigh bytes with; a free symbol counts as 64
};

struct DifferentiateOptions {
  std::vector<InputId> wrt;  // empty: every parameter that is not frozen
  SavePolicy save;
  ValueId seed;  // cotangent of the loss, f32[] in region 0; invalid: 1
};
// `loss` must be an f32 value of rank 0 in region 0.
Graph differentiate(Graph graph, ValueId loss, const DifferentiateOptions& options = {});

// Values that depend on one of `sources` through ops that have a gradient (one flag a value).
std::vector<char> active_values(const Graph& g, const std::vector<ValueId>& sources);

// The value of region 0 behind an output's name; invalid when there is none.
ValueId output_value(const Graph& g, const std::string& name);

}  // namespace cad::ir
