// planner/segments.h -- plans whose loops run some iterations again in segments: of a segment only
// the carry before it is kept, and it runs forward once more before its backward pass, keeping then
// what its iterations' choices say (Run::segment). So recomputation nests: segments of a loop, and
// inside of them ops that run again. The chain program with any nesting is planner/chain.h; runs of
// equal segments lose little against it (docs/checkpointing.md), and are loops of a program.
#pragma once

#include <array>
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

// How a price of memory may be divided where loops may have segments, so that seconds plus the
// price of what a plan has, less `room` bytes, is no more than the seconds of any plan that fits.
struct SegmentParts {
  bool possible = true;  // false: every plan holds more than the budget
  SegmentPrices prices;
  double room = 0;
};

// What every plan that fits obeys; a part of the price for each. Let D be the budget less what is
// held outside of the loop and w, the least for a moment. A segment k, whose carry has c(k) bytes
// and whose iterations save X(k), fits while it runs again if
//   c(1) + .. + c(k) + X(k) <= D + m,   m the largest carry, which X may count twice,
// so with C the sum of all carries the sum of c(k) X(k) is at most (D + m) C - C^2/2. At the end of
// the forward pass C + P + q <= D, P being saved without segments and q + w alive for a moment:
//   (0)    P + q + the mean over iterations of their carry, if they are in segments <= D
// and for all such C, and all D up to the most that a plan can have
//   (1..3) a (P + q) + b (c(1) X(1) + .. + c(n) X(n)) <= D
// where b is 1/(D + m), a = 1, up to 2/(D + 2 m), a = 0. In each iteration what it saves and has
// for a moment fits beside what is held outside of the loop, so
//   (4)    the mean over iterations of both <= D + w
using SegmentWeights = std::array<double, 5>;

// `where`: the variables' parts of the moments in (4), of one loop.
SegmentParts segment_parts(const Problem& problem, double budget, SegmentWeights weights,
                           const Moments* where);

}  // namespace cad::planner
