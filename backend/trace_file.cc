// backend/trace_file.cc -- see backend/trace_file.h.
#include "backend/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "backend/mapped_file.h"

namespace cad::backend {

namespace {

// Tracks of a device.
constexpr int kSteps = 0, kCommunicator = 1, kParts = 2;
// Process numbers of what was predicted for a device: this plus the device's.
constexpr int kPredicted = 100'000;

// Bytes of the arena in use, by step of Program::steps().
std::vector<int64_t> bytes_in_use(const Program& program) {
  std::vector<int64_t> change(program.steps().size() + 1);
  for (const TransientBuffer& b : program.buffers()) {
    change[static_cast<size_t>(b.first)] += b.bytes;
    change[std::min(static_cast<size_t>(b.last) + 1, change.size() - 1)] -= b.bytes;
  }
  int64_t now = 0;
  for (int64_t& c : change) c = now += c;
  return change;
}

class Writer {
 public:
  Writer(FileWriter& file, const Program& program, int64_t zero)
      : file_(file), program_(program), bytes_(bytes_in_use(program)), zero_(zero) {}

  Status device(const DeviceTrace& trace) {
    name("process_name", trace.device, kSteps, fmt::format("device {}", trace.device));
    name("thread_name", trace.device, kSteps, "steps");
    bool communicates = false;
    int64_t shown = -1;
    for (const TraceEvent& e : trace.events) {
      communicates |= e.kind == TraceEvent::Kind::kCollective;
      event(trace.device, e);
      const int64_t bytes = bytes_[static_cast<size_t>(e.step)];
      if (e.kind == TraceEvent::Kind::kStep && bytes != shown) {
        line(
            fmt::format(R"({{"name":"arena","ph":"C","pid":{},"ts":{:.3f},"args":{{"bytes":{}}}}})",
                        trace.device, micro(e.start_ns - zero_), bytes));
        shown = bytes;
      }
      if (text_.size() >= (1U << 20)) CAD_TRY_VOID(flush());
    }
    if (communicates) name("thread_name", trace.device, kCommunicator, "communicator");
    parts(trace);
    return flush();
  }

  Status predicted(const DeviceTrace& trace, const planner::Timeline& step) {
    const int process = kPredicted + trace.device;
    name("process_name", process, kSteps, fmt::format("device {}, predicted", trace.device));
    std::vector<std::string> rows{"compute"};  // by track
    for (const planner::TimelineSlot& s : step.slots) {
      if (std::find(rows.begin(), rows.end(), s.row) == rows.end()) rows.push_back(s.row);
    }
    for (size_t r = 0; r < rows.size(); ++r)
      name("thread_name", process, static_cast<int>(r), rows[r]);
    for (const auto& marks : trace.marks) {
      const double begin = micro(marks[StepReport::kBegun] - zero_);
      for (const planner::TimelineSlot& s : step.slots) {
        const bool moves = s.kind == planner::TimelineSlot::Kind::kCollective;
        const auto track = std::find(rows.begin(), rows.end(), s.row) - rows.begin();
        slice(s.name, moves ? "communication" : "compute", process, static_cast<int>(track),
              begin + 1e6 * s.start, 1e6 * s.seconds);
      }
      for (const planner::MemoryPoint& m : step.memory)
        line(fmt::format(
            R"({{"name":"activations","ph":"C","pid":{},"ts":{:.3f},"args":{{"bytes":{:.0f}}}}})",
            process, begin + 1e6 * m.time, m.saved + m.moment));
      if (text_.size() >= (1U << 20)) CAD_TRY_VOID(flush());
    }
    return flush();
  }
  Status end() {
    text_ += first_ ? "{\"traceEvents\":[]}\n" : "\n]}\n";
    return flush();
  }

 private:
  static double micro(int64_t ns) { return static_cast<double>(ns) / 1e3; }
  void line(const std::string& json) {
    text_ += (first_ ? "{\"traceEvents\":[\n" : ",\n") + json;
    first_ = false;
  }
  void name(const char* what, int device, int track, const std::string& text) {
    line(fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})", what,
                     device, track, text));
  }
  void slice(const std::string& what, const char* category, int process, int track, double start,
             double duration) {
    line(fmt::format(
        R"({{"name":{},"cat":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f}}})",
        nlohmann::json(what).dump(), category, process, track, start, duration));
  }
  void parts(const DeviceTrace& trace) {
    if (trace.marks.empty()) return;
    name("thread_name", trace.device, kParts, "parts of a step");
    static constexpr const char* kNames[] = {"forward and backward", "gradients to the optimizer",
                                             "norm", "update"};
    for (const auto& marks : trace.marks) {
      for (size_t i = 0; i + 1 < marks.size(); ++i)
        slice(kNames[i], "part", trace.device, kParts, micro(marks[i] - zero_),
              micro(marks[i + 1] - marks[i]));
    }
  }
  void event(int device, const TraceEvent& e) {
    const StepInfo& step = program_.steps()[static_cast<size_t>(e.step)];
    const bool waits = e.kind == TraceEvent::Kind::kWait,
               moves = e.kind == TraceEvent::Kind::kCollective;
    line(fmt::format(
        R"({{"name":{},"cat":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
        R"("args":{{"scope":{},"flops":{:.0f},"bytes":{:.0f}}}}})",
        nlohmann::json((waits ? "wait for " : "") + step.name).dump(),
        waits   ? "wait"
        : moves ? "communication"
                : "compute",
        device, moves ? kCommunicator : kSteps, micro(e.start_ns - zero_),
        micro(e.end_ns - e.start_ns), nlohmann::json(step.scope).dump(), step.flops, step.bytes));
  }
  Status flush() {
    CAD_TRY_VOID(file_.write(text_.data(), text_.size()));
    text_.clear();
    return Ok{};
  }

  FileWriter& file_;
  const Program& program_;
  std::vector<int64_t> bytes_;
  int64_t zero_;
  std::string text_;
  bool first_ = true;
};

}  // namespace

Status write_trace(const std::string& path, const Program& program,
                   const std::vector<DeviceTrace>& devices, const planner::Timeline* predicted) {
  CAD_TRY(file, FileWriter::create(path));
  int64_t zero = std::numeric_limits<int64_t>::max();
  for (const DeviceTrace& d : devices) {
    for (const TraceEvent& e : d.events) zero = std::min(zero, e.start_ns);
    if (!d.marks.empty()) zero = std::min(zero, d.marks.front()[StepReport::kBegun]);
  }
  Writer writer(file, program, zero);
  for (const DeviceTrace& d : devices) {
    CAD_TRY_VOID(writer.device(d));
    if (predicted != nullptr) CAD_TRY_VOID(writer.predicted(d, *predicted));
  }
  CAD_TRY_VOID(writer.end());
  return file.finish();
}

Status write_trace(const std::string& path, const Program& program,
                   const std::vector<TraceEvent>& events) {
  return write_trace(path, program, std::vector<DeviceTrace>{{0, events, {}}});
}

}  // namespace cad::backend
