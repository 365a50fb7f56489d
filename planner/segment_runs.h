// planner/segment_runs.h -- how the iterations of one loop are best put into runs of segments
// (Run::segment): which kind of iteration, how many segments, how long, and how many iterations
// stay as they are. Arithmetic over what a few kinds of iterations come to; knows no plans. The
// kinds come from planner/segments.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace cad::planner {

// What a plan comes to when all iterations in question are of one kind; of several kinds it is
// their mean.
struct SegmentKind {
  std::array<double, 2> plain{};  // seconds on the two lines of overlap, without segments
  std::array<double, 2> again{};  // the same, all of them in segments
  double base = 0;                // bytes held of all but what these iterations keep
  double saved = 0;               // bytes that one iteration saves
  double moment = 0;              // bytes for a moment, without segments
  double inside = 0;  // bytes while a segment runs again, beyond what its iterations save
};

struct SegmentRun {
  int kind = 0;
  int64_t segments = 0, length = 0;  // iterations of each segment
};
struct PlainRun {
  int kind = 0;
  int64_t count = 0;
};

struct LoopKinds {
  int64_t iterations = 0;
  double carry = 0;  // bytes kept for a segment until its backward pass
  std::vector<SegmentKind> kinds;
  // Each holds all iterations: those that stay without segments are the last ones of one of these.
  std::vector<std::vector<PlainRun>> plain;
};

struct SegmentRuns {
  std::vector<SegmentRun> segments;  // in forward order
  std::vector<PlainRun> plain;       // after them
  double seconds = 0, peak = 0;
};

// The fastest that was found within so many bytes; nullopt: none. `runs`: at most so many runs of
// segments (and a short one more for each), up to three; with one the search is quick and coarse.
std::optional<SegmentRuns> best_segment_runs(const LoopKinds& loop, double budget, int runs = 3);

// Seconds and peak of these; infinite seconds where the counts do not add up to the loop's.
SegmentRuns measured(const LoopKinds& loop, SegmentRuns runs);

}  // namespace cad::planner
