// backend/trace_file.cc -- see backend/trace_file.h.
#include "backend/trace_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "backend/mapped_file.h"

namespace cad::backend {

Status write_trace(const std::string& path, const Program& program,
                   const std::vector<TraceEvent>& events) {
  CAD_TRY(file, FileWriter::create(path));
  std::string text =
      "{\"traceEvents\":[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":"
      "\"device 0\"}}";
  const int64_t start = events.empty() ? 0 : events.front().start_ns;
  const auto& steps = program.steps();
  for (const TraceEvent& event : events) {
    const StepInfo& step = steps[static_cast<size_t>(event.step)];
    const std::string name = nlohmann::json(step.name).dump(),
                      scope = nlohmann::json(step.scope).dump();
    text += fmt::format(
        ",\n{{\"name\":{},\"cat\":\"compute\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":{:.3f},"
        "\"dur\":{:.3f},\"args\":{{\"scope\":{},\"flops\":{:.0f},\"bytes\":{:.0f}}}}}",
        name, static_cast<double>(event.start_ns - start) / 1e3,
        static_cast<double>(event.end_ns - event.start_ns) / 1e3, scope, step.flops, step.bytes);
    if (text.size() < (1U << 20)) continue;
    CAD_TRY_VOID(file.write(text.data(), text.size()));
    text.clear();
  }
  text += "\n]}\n";
  CAD_TRY_VOID(file.write(text.data(), text.size()));
  return file.finish();
}

}  // namespace cad::backend
