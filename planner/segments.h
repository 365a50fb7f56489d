// planner/segments.h -- plans whose loops run some iterations again in segments: of a segment only
// the carry before it is kept, and it runs forward once more before its backward pass, keeping then
// what its iterations' choices say (Run::segment). So recomputation nests: segments of a loop, and
// inside of them ops that run again. The chain program with any nesting is planner/chain.h; runs of
// equal segments lose little against it (docs/checkpointing.md), and are loops of a program.
#pragma once

#include <optional>
#include <vector>

#include "planner/priced.h"

namespace cad::planner {

struct Segmented {
  BodyPlan plan;
  Evaluation evaluation;
};

// The fastest plan within the budget that is one of `bases` with iterations put into segments;
// without one, that of the least peak. `options`: a price near the one looked for.
std::optional<Segmented> with_segments(const Problem& problem, const PriceOptions& options,
                                       const std::vector<BodyPlan>& bases, double budget);

// Whether an iteration of some loop may be cheaper in segments (planner/priced.h) at this price:
// false where what it saves is, choice by choice, worth less than its forward pass.
bool segments_may_help(const Problem& problem, const PriceOptions& options);

}  // namespace cad::planner
