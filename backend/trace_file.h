// backend/trace_file.h -- executed steps as a Chrome / Perfetto trace (JSON, microseconds): a
// process for each device, with its steps and waits, what its communicator did beside them, the
// parts of a training step, and the bytes of its arena that were in use. Beside it, as a process of
// its own, what was predicted for the device, drawn anew where each training step began.
#pragma once

#include <string>
#include <vector>

#include "backend/cpu/executor.h"
#include "backend/trainer.h"
#include "base/result.h"
#include "planner/plan_timeline.h"

namespace cad::backend {

// All of one clock: devices of one process.
struct DeviceTrace {
  int device = 0;
  std::vector<TraceEvent> events;
  std::vector<std::array<int64_t, StepReport::kMarks>> marks;  // of StepReport, by training step
};

// `predicted`: of one step, the same on all devices; nullptr: only what was measured.
Status write_trace(const std::string& path, const Program& program,
                   const std::vector<DeviceTrace>& devices,
                   const planner::Timeline* predicted = nullptr);
Status write_trace(const std::string& path, const Program& program,
                   const std::vector<TraceEvent>& events);  // of device 0

}  // namespace cad::backend
