// planner/plan_timeline.h -- a plan laid out over time: what a device does when, and the memory
// that it holds. The forward pass in order, the backward pass in the opposite order, then the
// update; an op waits for its own conversions, while gathering parameters and reducing their
// gradients runs beside compute, and what of that does not fit behind it is waited for before the
// update. The micro-batches of a step are drawn as one. Drawn by planner/plan_svg.h.
#pragma once

#include <string>
#include <vector>

#include "planner/plan.h"

namespace cad::planner {

struct TimelineSlot {
  enum class Kind : uint8_t { kForward, kBackward, kRecompute, kOptimizer, kCollective };
  Kind kind = Kind::kForward;
  std::string row;   // "compute", or the axes of a collective joined by "+"
  std::string name;  // of the op and what it does, or of the collective and its value
  double start = 0, seconds = 0;
  int group = -1;  // of ops
};

struct MemoryPoint {
  double time = 0;
  double saved = 0;   // bytes kept for the backward pass
  double moment = 0;  // bytes that are gone again soon
};

struct Timeline {
  std::vector<TimelineSlot> slots;  // of one row in order, without overlap
  std::vector<MemoryPoint> memory;
  double seconds = 0;
};

// The whole step. Loops whose iterations would need more than `most_slots` slots are drawn as one
// slot a run and pass.
Timeline step_timeline(const Plan& plan, int most_slots = 600);
// One iteration of a loop's body, forward and then backward; the memory starts at 0.
Timeline body_timeline(const Plan& plan, int body);
// The op in whose backward pass most is alive for a moment, so that the peak falls there, as
// `path: op`; empty when no op has anything for a moment.
std::string peak_op(const Plan& plan);

}  // namespace cad::planner
