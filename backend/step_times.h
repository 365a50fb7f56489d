// backend/step_times.h -- what the steps of a training run took on one device, summed over its
// training steps: by step of the program, and by part of a step. Filled from trace events; what was
// predicted is set beside it by cli/compare_plan.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/executor.h"
#include "backend/trainer.h"

namespace cad::backend {

// Of one step of the program, by index of Program::steps(): seconds. A loop's own is 0, its body's
// steps have it.
struct StepTime {
  double work = 0;   // it ran on the device's threads
  double moved = 0;  // a collective: from when the communicator took it up until it was done
  double stood = 0;  // a collective: the device did nothing until it was done
};

struct DeviceTimes {
  int device = 0;
  int64_t steps = 0;              // training steps that were measured
  std::vector<StepTime> program;  // sums over them
  std::vector<double> totals;     // seconds of each of them
  double passes = 0;              // sums again: forward and backward passes,
  double reducing = 0;            // bringing gradients to the optimizer's layout,
  double norm = 0;                // the gradients' norm, agreed upon,
  double updating = 0;            // the optimizer,
  double moving = 0;              // parameters to its layout and back
  int64_t peak_bytes = 0;

  // A training step that took `seconds`, with the events that it left from `first` on.
  void add(const Program& of, const std::vector<TraceEvent>& events, size_t first,
           const StepReport& report, double seconds);
};

}  // namespace cad::backend
