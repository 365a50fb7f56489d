// cli/fitting_search.cc -- see cli/fitting_search.h.
#include "cli/fitting_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "ir/split_rows.h"
#include "planner/plan_rules.h"

namespace cad::cli {

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Budgets for the planner's model, so that what its plans compile to comes as near to the real
// budget as it can. They are of one ladder, the same for all real budgets: the highest rung next to
// the budget whose plan fits when it is compiled, then halves of what is between it and the next
// one. A larger budget never ends on a lower rung, so its plan is no slower than the planner's own
// gap between them.
//
// Below the ladder is the plan that needs least, made for a budget that nothing fits. Where it does
// not fit either, the rungs are tried that are below what it needs, for their plans may compile to
// less than that: with these every plan has been compiled that any budget too small could find.
class FittingSearch {
 public:
  FittingSearch(const PlanQuestion& question, const ir::TrainSpec& spec,
                const backend::TrainerOptions& options)
      : question_(question),
        request_(question.request),
        spec_(spec),
        options_(options),
        budget_(question.request.budget) {
    request_.try_least = false;  // the memory that counts is that of the compiled program
    request_.alternatives = false;
    request_.proof_work = kProofWork;
  }

  Result<Searched> run() {
    const double start = rungs(budget_);
    CAD_TRY(last, attempt(start));
    double low = start, high = start;
    Tried below = last, above = last;
    if (last.fits) {
      while (above.fits && !above.free && high < start + kMostClimbs) {
        low = high;
        below = above;
        CAD_TRY(next, attempt(++high));
        above = next;
      }
    } else {
      while (!below.fits && !below.least) {
        high = low;
        above = below;
        CAD_TRY(next, attempt(--low));
        below = next;
      }
    }
    for (int i = 0; i < kHalves && below.fits && !above.fits; ++i) {
      if (below.seconds <= above.seconds * (1 + kWorthIt)) break;
      const double middle = (low + high) / 2;
      CAD_TRY(next, attempt(middle));
      (next.fits ? low : high) = middle;
      (next.fits ? below : above) = next;
    }
    if (!out_.best) CAD_TRY_VOID(try_all_below());
    return std::move(out_);
  }

 private:
  static constexpr double kRungs = 8;                // to half the budget
  static constexpr double kMostClimbs = 32;          // rungs
  static constexpr int kHalves = 5;                  // of the step between two rungs
  static constexpr double kWorthIt = 0.001;          // of a step, for looking further
  static constexpr double kHopeless = 1.0;           // bytes
  static constexpr int64_t kMostChoices = 1000;      // to be tried below what needs least
  static constexpr int64_t kProofWork = 10'000'000;  // a try: some tenths of a second

  struct Tried {
    bool fits = false;   // when it is compiled
    bool free = false;   // it would be no other with more memory
    bool least = false;  // it is the plan that needs least
    double seconds = 0, bytes = 0;
  };

  // The number of the rung that has so many bytes, or next to it more.
  static double rungs(double bytes) { return std::ceil(std::log2(bytes) * kRungs); }

  Result<Tried> attempt(double rung) {
    if (const auto known = tried_.find(rung); known != tried_.end()) return known->second;
    CAD_TRY(tried, attempt_bytes(std::exp2(rung / kRungs)));
    tried_.emplace(rung, tried);
    return tried;
  }

  // Where the model has no plan, the one that needs least.
  Result<Tried> attempt_bytes(double ask) {
    request_.budget = ask;
    FittingPlan found{spec_, question_.graph, planner::plan_by_rules(request_), nullptr};
    if (!found.planning.feasible) return attempt_least();
    return attempt_plan(std::move(found));
  }

  Result<Tried> attempt_least() {
    if (least_) return *least_;
    least_ = Tried{};
    least_->least = true;
    request_.budget = kHopeless;
    FittingPlan found{spec_, question_.graph, planner::plan_by_rules(request_), nullptr};
    if (least_of(found.planning) == kInfinite) {
      out_.failed = std::move(found.planning);
      return *least_;
    }
    least_model_ = found.planning.plan.predicted.peak_bytes;
    choices_ = found.planning.plan.solver.columns;
    found.planning.plan.solver.prove(0);
    CAD_TRY(tried, attempt_plan(std::move(found)));
    least_compiled_ = tried.bytes;
    least_ = tried;
    least_->least = true;
    least_->free = false;
    return *least_;
  }

  Result<Tried> attempt_plan(FittingPlan found) {
    planner::Planning& planning = found.planning;
    Tried tried;
    tried.seconds = planning.plan.predicted.step_s;
    CAD_TRY(devices, compile(planning, request_.name, budget_, *question_.graph, spec_, options_));
    found.devices = std::move(devices);
    tried.bytes = planning.least_peak;
    tried.fits = tried.bytes <= budget_;
    tried.free = planning.feasible && planning.price == 0;  // memory does not bind
    if (!tried.fits) {
      // what else was tried depends on the budget where not all is
      const bool only = !planning.feasible && choices_ > kMostChoices;
      if (only || least_of(planning) < least_of(out_.failed)) out_.failed = std::move(planning);
      return tried;
    }
    planning.feasible = true;
    if (!out_.best || tried.seconds < out_.best->planning.plan.predicted.step_s)
      out_.best = std::move(found);
    out_.free = out_.free || tried.free;
    return tried;
  }

  // From where a budget would begin that is below what that plan needs, down to where the model has
  // none: which are tried does not depend on the budget. Large problems, where each takes long, are
  // left at what that plan needs.
  Status try_all_below() {
    CAD_TRY_VOID(attempt_least());
    if (out_.best || least_model_ <= 0 || choices_ > kMostChoices) return Ok{};
    for (double rung = rungs(least_compiled_);; --rung) {
      CAD_TRY(tried, attempt(rung));
      if (tried.least && rung < rungs(least_model_)) return Ok{};
    }
  }

  const PlanQuestion& question_;
  planner::PlanRequest request_;
  const ir::TrainSpec& spec_;
  const backend::TrainerOptions& options_;
  double budget_;
  std::map<double, Tried> tried_;  // by rung
  std::optional<Tried> least_;
  int64_t choices_ = 0;                          // of the problems that were searched for it
  double least_model_ = 0, least_compiled_ = 0;  // bytes that its plan needs
  Searched out_;
};

PlanQuestion in_parts(const PlanQuestion& whole, const ir::TrainSpec& spec, int64_t parts) {
  PlanQuestion question = whole;
  question.graph = graph_to_plan(spec);
  planner::PlanRequest& request = question.request;
  request.graph = question.graph.get();
  request.training.micro_batches *= static_cast<double>(parts);
  // What smaller tensors gain from caches is not counted: with more memory there would be fewer
  // parts, and less memory is not to look faster.
  if (request.cluster.device.cpu) request.cluster.device.cpu->cache /= static_cast<double>(parts);
  return question;
}

// What so many parts may need where the plan `least` needs least for whole micro-batches:
// parameters and what belongs to them stay, the rest shrinks. With a margin, for it is no bound.
double may_need(const planner::Plan& least, int64_t parts) {
  const planner::Predicted& p = least.predicted;
  const double held = p.params_bytes + p.grads_bytes + p.optimizer_bytes;
  return held + (p.peak_bytes - held) / (2.0 * static_cast<double>(parts));
}

// What is proven holds for all numbers of parts that were looked at.
void join(planner::SolverReport& of, const planner::SolverReport& other) {
  of.prove(std::min(of.bound, other.bound));
  of.wall_s += other.wall_s;
}

// Makes `found` the best of what it is, for whole micro-batches, and of numbers of parts.
class PartsSearch {
 public:
  PartsSearch(const PlanQuestion& question, const ir::TrainSpec& spec,
              const backend::TrainerOptions& options, Searched& found)
      : question_(question), spec_(spec), options_(options), found_(found), whole_(found.failed) {}

  // Up to the first number for which memory is no limit, more would only be slower. Where nothing
  // fits whole, those that may fit and the last; where that does not either, all that may need
  // less, so that the least that is named does not depend on the budget.
  Status run() {
    const std::vector<int64_t> numbers = ir::possible_parts(ir::micro_batch_rows(spec_));
    std::vector<int64_t> left;
    for (const int64_t parts : numbers) {
      const bool may_fit = may_need(whole_.plan, parts) <= question_.request.budget;
      if (!found_.best && parts != numbers.back() && !may_fit) {
        left.push_back(parts);
        continue;
      }
      CAD_TRY(free, attempt(parts));
      if (free) break;
    }
    const double least = std::min(least_of(whole_), least_of_last_);
    for (const int64_t parts : left) {
      if (!found_.best && may_need(whole_.plan, parts) < least) CAD_TRY_VOID(attempt(parts));
    }
    return Ok{};
  }

 private:
  // Whether memory is no limit.
  Result<bool> attempt(int64_t parts) {
    const ir::TrainSpec parted = ir::split_rows(spec_, parts);
    CAD_TRY(next, FittingSearch(in_parts(question_, parted, parts), parted, options_).run());
    if (!next.best) {
      least_of_last_ = least_of(next.failed);
      if (least_of(next.failed) < least_of(found_.failed)) found_.failed = std::move(next.failed);
      return false;
    }
    planner::Plan& plan = next.best->planning.plan;
    plan.alternatives =
        found_.best ? found_.best->planning.plan.alternatives : whole_.plan.alternatives;
    if (found_.best) {
      if (plan.predicted.step_s >= found_.best->planning.plan.predicted.step_s)
        std::swap(*found_.best, *next.best);
      join(next.best->planning.plan.solver, found_.best->planning.plan.solver);
    }
    found_.best = std::move(next.best);
    return next.free;
  }

  const PlanQuestion& question_;
  const ir::TrainSpec& spec_;
  const backend::TrainerOptions& options_;
  Searched& found_;
  const planner::Planning whole_;  // where nothing fits whole, what needs least
  double least_of_last_ = kInfinite;
};

}  // namespace

double least_of(const planner::Planning& planning) {
  return planning.problem == nullptr || planning.body.choices.empty() ? kInfinite
                                                                      : planning.least_peak;
}

Result<Searched> search_fitting(const PlanQuestion& question, const ir::TrainSpec& spec,
                                const backend::TrainerOptions& options) {
  CAD_TRY(found, FittingSearch(question, spec, options).run());
  if (!question.may_split || found.free || !ir::against_split(spec).empty()) return found;
  CAD_TRY_VOID(PartsSearch(question, spec, options, found).run());
  return found;
}

}  // namespace cad::cli
