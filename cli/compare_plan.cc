// cli/compare_plan.cc -- see compare_plan.h.
#include "cli/compare_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "backend/program_impl.h"
#include "planner/plan_text.h"

namespace cad::cli {

namespace {

using backend::DeviceTimes;
using backend::StepInfo;
using planner::Plan;

constexpr double kShown = 0.005;  // of the step: rows below are summed up in the table

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

class Comparer {
 public:
  explicit Comparer(const std::vector<DeviceTimes>& measured) : measured_(measured) {
    for (const DeviceTimes& d : measured) {
      steps_ = std::max(steps_, d.steps);
      out_.measured_peaks.push_back(d.peak_bytes);
      out_.step.measured += median(d.totals) / static_cast<double>(measured.size());
    }
    out_.steps = steps_;
    out_.devices = static_cast<int>(measured.size());
  }

  void predicted(const Plan& plan) {
    out_.plan = plan.name;
    out_.devices = plan.devices;
    out_.step.predicted = plan.predicted.step_s;
    out_.compute.predicted = plan.predicted.compute_s + plan.predicted.recompute_s;
    out_.communication.predicted = plan.predicted.comm_s;
    out_.optimizer.predicted = plan.predicted.optimizer_s;
    out_.predicted_peak = plan.predicted.peak_bytes;
    predicted_ops(plan);
    for (const planner::PlanCollective& c : plan.collectives) {
      const std::string phase = c.phase == "recompute" ? "backward" : c.phase;
      ComparedCollectives& row = collective(c.kind, c.axis, phase);
      const double count = row.predicted_count + c.count;
      row.predicted_bytes =
          (row.predicted_bytes * row.predicted_count + c.bytes * c.count) / std::max(count, 1.0);
      row.predicted_count = count;
      row.seconds.predicted += c.seconds;
    }
  }

  void program(const backend::Program& program) {
    const std::vector<StepInfo>& steps = program.steps();
    for (size_t s = 0; s < steps.size(); ++s) {
      const StepInfo& step = steps[s];
      const double work = mean([&](const DeviceTimes& d) { return at(d, s).work; });
      if (step.kind == StepInfo::Kind::kCollective) {
        measured_collective(program, step, s);
      } else if (work > 0) {
        ComparedOps& row = ops(step.last_scope, kind_name(step.kind));
        (step.backward ? row.backward : row.forward).measured += work;
        out_.compute.measured += work;
      }
    }
  }

  void parts() {
    const auto sum = [&](double DeviceTimes::*part) {
      return mean([&](const DeviceTimes& d) { return d.*part; });
    };
    out_.optimizer.measured = sum(&DeviceTimes::updating) + sum(&DeviceTimes::norm);
    const double update = sum(&DeviceTimes::reducing) + sum(&DeviceTimes::moving);
    if (out_.devices > 1 && update > 0) {
      // conversions are programs of their own, timed as wholes
      ComparedCollectives& row = collective("conversions", "", "update");
      row.seconds.measured = row.stood = update;
    }
    out_.communication.measured += update;
    double stood = update;
    for (const ComparedCollectives& c : collectives_) {
      if (c.kind != "conversions") stood += c.stood;
    }
    out_.overlapped = std::max(0.0, out_.communication.measured - stood);
    const double total = mean([](const DeviceTimes& d) {
      return std::accumulate(d.totals.begin(), d.totals.end(), 0.0);
    });
    out_.other = total - out_.compute.measured - stood - out_.optimizer.measured;
  }

  PlanComparison finish() {
    std::stable_sort(ops_.begin(), ops_.end(), [](const ComparedOps& a, const ComparedOps& b) {
      const auto longest = [](const ComparedOps& o) {
        return std::max(o.forward.predicted + o.backward.predicted,
                        o.forward.measured + o.backward.measured);
      };
      return longest(a) > longest(b);
    });
    out_.ops = std::move(ops_);
    out_.collectives = std::move(collectives_);
    return std::move(out_);
  }

 private:
  // Over devices, a training step.
  template <class F>
  [[nodiscard]] double mean(F&& f) const {
    double sum = 0;
    for (const DeviceTimes& d : measured_) sum += f(d);
    return measured_.empty() || steps_ == 0
               ? 0
               : sum / static_cast<double>(measured_.size()) / static_cast<double>(steps_);
  }
  static backend::StepTime at(const DeviceTimes& d, size_t step) {
    return step < d.program.size() ? d.program[step] : backend::StepTime{};
  }
  static const char* kind_name(StepInfo::Kind kind) {
    return kind == StepInfo::Kind::kProduct     ? "product"
           : kind == StepInfo::Kind::kAttention ? "attention"
                                                : "other";
  }

  ComparedOps& ops(const std::string& path, const std::string& kind) {
    for (ComparedOps& row : ops_) {
      if (row.path == path && row.kind == kind) return row;
    }
    ops_.push_back({path, kind, {}, {}});
    return ops_.back();
  }
  ComparedCollectives& collective(const std::string& kind, const std::string& axis,
                                  const std::string& phase) {
    for (ComparedCollectives& row : collectives_) {
      if (row.kind == kind && row.axis == axis && row.phase == phase) return row;
    }
    ComparedCollectives row;
    row.kind = kind;
    row.axis = axis;
    row.phase = phase;
    collectives_.push_back(row);
    return collectives_.back();
  }

  void predicted_ops(const Plan& plan) {
    std::vector<double> times;  // by body
    for (const planner::PlanBody& body : plan.bodies)
      times.push_back(body.parent < 0 ? 1
                                      : times[static_cast<size_t>(body.parent)] *
                                            static_cast<double>(body.count));
    std::map<int, std::string> kinds;  // by group
    for (const planner::PlanOp& op : plan.ops) {
      std::string& kind = kinds.emplace(op.group, "other").first->second;
      if (op.op == "contract") kind = "product";
      if (op.op == "attention") kind = "attention";
    }
    for (const planner::PlanOp& op : plan.ops) {
      if (op.forward_s + op.backward_s + op.recompute_s <= 0) continue;
      // an op outside of all layers stands under its own name in a plan
      ComparedOps& row = ops(op.path == op.op ? "" : op.path, kinds[op.group]);
      const double n = times[static_cast<size_t>(op.body)];
      row.forward.predicted += n * op.forward_s;
      row.backward.predicted += n * (op.backward_s + op.recompute_s);
    }
  }

  void measured_collective(const backend::Program& program, const StepInfo& step, size_t s) {
    std::string kind = step.name, axes;
    std::replace(kind.begin(), kind.end(), '_', '-');
    double n = 1;
    const std::vector<ir::MeshAxis>& mesh = program.impl().graph.mesh;
    for (size_t a = 0; a < mesh.size(); ++a) {
      if ((step.axes >> a & 1U) == 0) continue;
      axes += (axes.empty() ? "" : "+") + mesh[a].name;
      n *= static_cast<double>(mesh[a].size);
    }
    if (n <= 1) return;
    ComparedCollectives& row = collective(kind, axes, step.backward ? "backward" : "forward");
    // operand and result: one of them is n times the other where a collective gathers or scatters
    const bool parts = kind == "all-gather" || kind == "reduce-scatter";
    const double bytes = parts ? step.bytes * n / (n + 1) : step.bytes / 2;
    const double count = row.measured_count + step.times;
    row.measured_bytes = (row.measured_bytes * row.measured_count + bytes * step.times) / count;
    row.measured_count = count;
    const double moved = mean([&](const DeviceTimes& d) { return at(d, s).moved; });
    row.seconds.measured += moved;
    row.stood += mean([&](const DeviceTimes& d) { return at(d, s).stood; });
    out_.communication.measured += moved;
  }

  const std::vector<DeviceTimes>& measured_;
  int64_t steps_ = 0;
  PlanComparison out_;
  std::vector<ComparedOps> ops_;
  std::vector<ComparedCollectives> collectives_;
};

// "1.23 ms", and how far off the prediction is: "+12 %".
std::string difference(const Seconds& s) {
  if (s.measured <= 0 || s.predicted <= 0) return "";
  return fmt::format("{:+.0f} %", 100 * (s.predicted / s.measured - 1));
}

std::string line(const std::string& name, const Seconds& s) {
  const auto text = [](double seconds) {
    return seconds > 0 ? planner::seconds_text(seconds) : std::string("-");
  };
  return fmt::format("  {:<44} {:>10} {:>10} {:>8}\n", name, text(s.predicted), text(s.measured),
                     difference(s));
}

nlohmann::ordered_json pair_json(const Seconds& s) {
  return {{"predicted_s", s.predicted}, {"measured_s", s.measured}};
}

}  // namespace

PlanComparison compare_plan(const std::optional<Plan>& plan, const backend::Program& program,
                            const backend::MemoryReport& memory,
                            const std::vector<DeviceTimes>& measured) {
  Comparer comparer(measured);
  if (plan) comparer.predicted(*plan);
  comparer.program(program);
  comparer.parts();
  PlanComparison out = comparer.finish();
  out.arena = static_cast<double>(memory.total);
  return out;
}

std::string comparison_text(const PlanComparison& c) {
  std::string out =
      fmt::format("{} on {} device{}, {} step{} measured\n",
                  c.plan.empty() ? "no plan" : fmt::format("plan `{}`", c.plan), c.devices,
                  c.devices == 1 ? "" : "s", c.steps, c.steps == 1 ? "" : "s");
  out += fmt::format("  {:<44} {:>10} {:>10} {:>8}\n", "", "predicted", "measured", "off by");
  out += line("step", c.step);
  out += line("compute", c.compute);
  if (c.devices > 1) {
    out += line("communication", c.communication);
    out += line("  of it beside compute", {0, c.overlapped});
  }
  out += line("optimizer, with the gradients' norm", c.optimizer);
  out += line("else", {0, c.other});
  const double peak = c.measured_peaks.empty()
                          ? 0
                          : static_cast<double>(*std::max_element(c.measured_peaks.begin(),
                                                                  c.measured_peaks.end()));
  out += fmt::format("  {:<44} {:>10} {:>10} {:>8}\n", "peak, as compiled",
                     planner::bytes_text(c.arena), planner::bytes_text(peak),
                     peak > 0 ? fmt::format("{:+.0f} %", 100 * (c.arena / peak - 1)) : "");
  if (c.predicted_peak > 0 && peak > 0 && c.predicted_peak != c.arena)
    out +=
        fmt::format("  {:<44} {:>10} {:>10} {:>+6.0f} %\n", "peak, as planned",
                    planner::bytes_text(c.predicted_peak), "", 100 * (c.predicted_peak / peak - 1));
  out += "\nops, forward and backward\n";
  Seconds rest;
  for (const ComparedOps& op : c.ops) {
    const Seconds both{op.forward.predicted + op.backward.predicted,
                       op.forward.measured + op.backward.measured};
    if (std::max(both.predicted, both.measured) < kShown * c.step.measured) {
      rest.predicted += both.predicted;
      rest.measured += both.measured;
      continue;
    }
    const std::string name =
        fmt::format("{} {}", op.kind, op.path.empty() ? "(top level)" : op.path);
    out += line(name, op.forward);
    out += line(std::string(op.kind.size() + 1, ' ') + "backward", op.backward);
  }
  if (rest.predicted + rest.measured > 0) out += line("all others", rest);
  if (!c.collectives.empty()) out += "\ncollectives, with waiting for other devices\n";
  for (const ComparedCollectives& row : c.collectives) {
    std::string name = row.kind;
    if (!row.axis.empty()) name += " over " + row.axis;
    name += ", " + row.phase;
    out += line(name, row.seconds);
    if (row.kind == "conversions") continue;
    out += fmt::format(
        "  {:<44} {:>10} {:>10}\n", "  times, each of",
        fmt::format("{:.0f} x {}", row.predicted_count, planner::bytes_text(row.predicted_bytes)),
        fmt::format("{:.0f} x {}", row.measured_count, planner::bytes_text(row.measured_bytes)));
  }
  return out;
}

std::string comparison_json(const PlanComparison& c) {
  using Json = nlohmann::ordered_json;
  Json ops = Json::array(), collectives = Json::array();
  for (const ComparedOps& op : c.ops) {
    ops.push_back({{"path", op.path},
                   {"kind", op.kind},
                   {"forward", pair_json(op.forward)},
                   {"backward", pair_json(op.backward)}});
  }
  for (const ComparedCollectives& row : c.collectives) {
    collectives.push_back({{"kind", row.kind},
                           {"axis", row.axis},
                           {"phase", row.phase},
                           {"predicted_count", row.predicted_count},
                           {"measured_count", row.measured_count},
                           {"predicted_bytes", row.predicted_bytes},
                           {"measured_bytes", row.measured_bytes},
                           {"predicted_s", row.seconds.predicted},
                           {"measured_s", row.seconds.measured},
                           {"stood_s", row.stood}});
  }
  const Json json = {{"event", "comparison"},
                     {"schema", 1},
                     {"plan", c.plan.empty() ? Json(nullptr) : Json(c.plan)},
                     {"devices", c.devices},
                     {"steps", c.steps},
                     {"step", pair_json(c.step)},
                     {"compute", pair_json(c.compute)},
                     {"communication", pair_json(c.communication)},
                     {"overlapped_s", c.overlapped},
                     {"optimizer", pair_json(c.optimizer)},
                     {"other_s", c.other},
                     {"peak",
                      {{"model_bytes", c.predicted_peak},
                       {"predicted_bytes", c.arena},
                       {"measured_bytes", c.measured_peaks}}},
                     {"ops", ops},
                     {"collectives", collectives}};
  return json.dump() + "\n";
}

}  // namespace cad::cli
