// planner/segment_bound.h -- a bound on all plans of a mesh, those whose loops run again in
// segments included: folds at a price of memory, divided among what every such plan obeys
// (planner/segments.h), the price and its parts being searched for the highest bound. Begins at the
// prices of a bound on plans without segments (planner/frontier.h). Not here: plans.
#pragma once

#include "planner/priced.h"
#include "planner/problem.h"

namespace cad::planner {

struct SegmentBoundStart {
  // Its price is not read; with `moments` these are priced too, and not with their least.
  PriceOptions options;
  double near = 0;   // seconds a byte: a price to begin with
  double floor = 0;  // bytes that every plan has for a moment, where `moments` are not priced
};

// Seconds that no plan within so many bytes is faster than. Ends with the first bound of at least
// `enough`, or after so many folds.
double segment_bound(const Problem& problem, const SegmentBoundStart& start, double budget,
                     double enough, int folds);

}  // namespace cad::planner
