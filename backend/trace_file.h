// backend/trace_file.h -- executed steps as a Chrome / Perfetto trace (JSON, microseconds): a
// process for each device, with its steps and waits, what its communicator did beside them, and the
// bytes of its arena that were in use.
#pragma once

#include <string>
#include <vector>

#include "backend/cpu/executor.h"
#include "base/result.h"

namespace cad::backend {

// All of one clock: devices of one process.
struct DeviceTrace {
  int device = 0;
  std::vector<TraceEvent> events;
};

Status write_trace(const std::string& path, const Program& program,
                   const std::vector<DeviceTrace>& devices);
Status write_trace(const std::string& path, const Program& program,
                   const std::vector<TraceEvent>& events);  // of device 0

}  // namespace cad::backend
