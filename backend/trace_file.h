// backend/trace_file.h -- executed steps as a Chrome / Perfetto trace (JSON, microseconds).
#pragma once

#include <string>
#include <vector>

#include "backend/cpu/executor.h"
#include "base/result.h"

namespace cad::backend {

Status write_trace(const std::string& path, const Program& program,
                   const std::vector<TraceEvent>& events);

}  // namespace cad::backend
