// cli/compiled_baselines.cc -- see cli/compiled_baselines.h.
#include "cli/compiled_baselines.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "planner/plan_rules.h"

namespace cad::cli {

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kModelOff = 1.5;  // no program needs so many times less than the model says

class CompiledBaselines {
 public:
  CompiledBaselines(const PlanQuestion& question, const ir::TrainSpec& spec,
                    const backend::TrainerOptions& options)
      : question_(question), spec_(spec), options_(options), budget_(question.request.budget) {
    for (planner::Planning& planning : planner::baseline_plans_by_rules(question.request)) {
      const double peak = planning.plan.predicted.peak_bytes;
      plans_.push_back({std::move(planning), nullptr, peak});
    }
  }

  [[nodiscard]] bool empty() const { return plans_.empty(); }

  // The fastest that fits, if it is faster than that.
  Result<std::optional<FittingPlan>> faster_than(double seconds) {
    for (Baseline& b : plans_) {
      if (b.seconds() >= seconds) break;
      if (b.tried_from() > budget_) continue;
      CAD_TRY_VOID(compiled(b));
      if (b.needs() <= budget_) {
        planner::Planning planning = b.planning;
        planning.plan.alternatives.clear();
        return std::optional<FittingPlan>({spec_, question_.graph, std::move(planning), b.devices});
      }
    }
    return std::optional<FittingPlan>();
  }

  // The one that needs least, if it is less than that. The same for every budget: which are tried
  // does not depend on it.
  Result<std::optional<planner::Planning>> below(double least) {
    std::vector<size_t> order(plans_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return plans_[a].model_peak < plans_[b].model_peak;
    });
    std::optional<planner::Planning> best;
    for (const size_t i : order) {
      Baseline& b = plans_[i];
      if (b.tried_from() >= least) break;
      CAD_TRY_VOID(compiled(b));
      if (b.needs() >= least) continue;
      least = b.needs();
      best = b.planning;
      best->least_peak = least;
    }
    return best;
  }

  // Compiles those that are faster than that and fit by the model.
  Status judge_faster_than(double seconds) {
    for (Baseline& b : plans_) {
      if (b.seconds() < seconds && b.model_peak <= budget_) CAD_TRY_VOID(compiled(b));
    }
    return Ok{};
  }

  [[nodiscard]] std::vector<planner::Alternative> rows() const {
    std::vector<planner::Alternative> rows;
    for (const Baseline& b : plans_) {
      planner::Alternative row = b.planning.plan.alternatives.at(0);
      row.step_s = b.seconds();
      row.peak_bytes = b.planning.plan.predicted.peak_bytes;
      row.feasible = row.peak_bytes <= budget_;
      rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  struct Baseline {
    planner::Planning planning;  // with the program's memory once it is compiled
    std::shared_ptr<const backend::DevicePlan> devices;  // null until then
    double model_peak = 0;
    [[nodiscard]] double seconds() const { return planning.plan.predicted.step_s; }
    // Bytes: budgets from which on it is worth compiling, and at which it is a plan.
    [[nodiscard]] double tried_from() const { return std::ceil(model_peak / kModelOff); }
    [[nodiscard]] double needs() const {
      return std::max(planning.plan.predicted.peak_bytes, tried_from());
    }
  };

  Status compiled(Baseline& b) {
    if (b.devices != nullptr) return Ok{};
    CAD_TRY(devices, compile(b.planning, question_.request.name, budget_, *question_.graph, spec_,
                             options_));
    b.devices = std::move(devices);
    return Ok{};
  }

  const PlanQuestion& question_;
  const ir::TrainSpec& spec_;
  const backend::TrainerOptions& options_;
  double budget_;
  std::vector<Baseline> plans_;  // the fastest first
};

// What is proven of all plans holds against this one too.
void take(FittingPlan faster, Searched& found) {
  if (found.best) {
    planner::SolverReport& own = faster.planning.plan.solver;
    const double seconds = own.objective;
    own = found.best->planning.plan.solver;
    own.objective = seconds;
    own.prove(std::min(own.bound, seconds));
  }
  found.best = std::move(faster);
}

}  // namespace

Status add_baselines(const PlanQuestion& question, const ir::TrainSpec& spec,
                     const backend::TrainerOptions& options, Searched& found) {
  const planner::PlanRequest& request = question.request;
  const bool named = request.name != "auto", candidates = named || request.rules.empty();
  if (!candidates && !(request.alternatives && found.best)) return Ok{};
  CompiledBaselines baselines(question, spec, options);
  if (named && baselines.empty()) {  // it says why
    found.failed = planner::plan_by_rules(request);
    return Ok{};
  }
  const double seconds = found.best ? found.best->planning.plan.predicted.step_s : kInfinite;
  if (candidates) {
    CAD_TRY(faster, baselines.faster_than(seconds));
    if (faster) take(std::move(*faster), found);
  } else {
    CAD_TRY_VOID(baselines.judge_faster_than(seconds));
  }
  if (!found.best) {
    CAD_TRY(least, baselines.below(least_of(found.failed)));
    if (least) found.failed = std::move(*least);
    return Ok{};
  }
  if (!request.alternatives) return Ok{};
  std::vector<planner::Alternative>& rows = found.best->planning.plan.alternatives;
  for (planner::Alternative& row : baselines.rows()) rows.push_back(std::move(row));
  rows = planner::best_rows(rows);
  return Ok{};
}

}  // namespace cad::cli
