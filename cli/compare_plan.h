// cli/compare_plan.h -- `colauto run --compare-plan`: what a plan predicted beside what its run
// measured, by op (or the ops that run as one kernel), by collective, of the whole step and of the
// peak. Seconds and bytes of one training step on one device; measured ones are means over the
// devices of this process and over the steps. Measuring: backend/step_times.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/step_times.h"
#include "planner/plan.h"

namespace cad::cli {

struct Seconds {
  double predicted = 0, measured = 0;
};

// All ops of one place of the program and one kind: where kernels fuse ops of two places, either
// side counts them where its last op stands.
struct ComparedOps {
  std::string path;
  std::string kind;           // "product", "attention", "other"
  Seconds forward, backward;  // running again counts as backward
};

struct ComparedCollectives {
  std::string kind, axis, phase;  // "all-reduce", "dp+tp", "forward" "backward" or "update"
  double predicted_count = 0, measured_count = 0;
  double predicted_bytes = 0, measured_bytes = 0;  // of the full tensor of one, on average
  Seconds seconds;   // measured: from when the communicator took it up until it was done
  double stood = 0;  // of it, the device did nothing else
};

struct PlanComparison {
  std::string plan;  // "auto"; empty: nothing was predicted
  int devices = 1;
  int64_t steps = 0;  // that were measured
  Seconds step, compute, communication, optimizer;
  double overlapped = 0;  // of communication, measured: the device worked meanwhile
  double other = 0;       // measured, in none of these: loading data, the norm's agreement
  double predicted_peak = 0, arena = 0;  // bytes: as planned, of the program that ran
  std::vector<int64_t> measured_peaks;   // by device
  std::vector<ComparedOps> ops;          // the longest first
  std::vector<ComparedCollectives> collectives;
};

PlanComparison compare_plan(const std::optional<planner::Plan>& plan,
                            const backend::Program& program, const backend::MemoryReport& memory,
                            const std::vector<backend::DeviceTimes>& measured);
std::string comparison_text(const PlanComparison& comparison);
std::string comparison_json(const PlanComparison& comparison);  // one line, with its end

}  // namespace cad::cli
