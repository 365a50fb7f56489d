// backend/step_times.cc -- see step_times.h.
#include "backend/step_times.h"

namespace cad::backend {

namespace {

double seconds(int64_t ns) {
  return 1e-9 * static_cast<double>(ns);
}

}  // namespace

void DeviceTimes::add(const Program& of, const std::vector<TraceEvent>& events, size_t first,
                      const StepReport& report, double took) {
  program.resize(of.steps().size());
  int64_t last_end = 0;
  for (size_t i = first; i < events.size(); ++i) {
    const TraceEvent& e = events[i];
    StepTime& time = program[static_cast<size_t>(e.step)];
    switch (e.kind) {
      case TraceEvent::Kind::kStep:
        if (of.steps()[static_cast<size_t>(e.step)].kind != StepInfo::Kind::kLoop)
          time.work += seconds(e.end_ns - e.start_ns);
        break;
      case TraceEvent::Kind::kWait:
        time.stood += seconds(e.end_ns - e.start_ns);
        break;
      case TraceEvent::Kind::kCollective:
        // those that started together all tell the same stretch
        if (e.end_ns != last_end) time.moved += seconds(e.end_ns - e.start_ns);
        last_end = e.end_ns;
        break;
    }
  }
  const auto part = [&](StepReport::Mark from) {
    return seconds(report.marks[from + 1] - report.marks[from]);
  };
  passes += part(StepReport::kBegun);
  reducing += part(StepReport::kPassed);
  norm += part(StepReport::kReduced);
  updating += part(StepReport::kMeasured) - seconds(report.moved_ns);
  moving += seconds(report.moved_ns);
  totals.push_back(took);
  ++steps;
}

}  // namespace cad::backend
