// cli/device_plan.cc -- see cli/device_plan.h.
#include "cli/device_plan.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "backend/jit.h"
#include "cli/plan_request.h"
#include "ir/passes.h"
#include "ir/split_rows.h"
#include "planner/placement.h"
#include "planner/placement_json.h"
#include "planner/planner.h"

namespace cad::cli {

namespace {

struct Made {
  ir::TrainSpec spec;
  std::shared_ptr<const backend::DevicePlan> devices;
  planner::Plan plan;
};

// Evaluations are split as the training step is, and read the parameters where that has them.
Made with_evaluations(const std::string& name, planner::Plan predicted, planner::Placement train,
                      const ir::Graph& graph, const ir::TrainSpec& spec) {
  auto plan = std::make_shared<backend::DevicePlan>();
  plan->name = name;
  plan->train = std::move(train);
  for (const ir::EvalSpec& eval : spec.evals) {
    const ir::Graph forward = ir::run_passes(eval.graph, ir::passes_before_autodiff());
    plan->evals.push_back(planner::placement_for(forward, spec.bindings, graph, plan->train));
  }
  return {spec, std::move(plan), std::move(predicted)};
}

// In how many parts a saved plan reads micro-batches of this program.
int64_t parts_of(const planner::Plan& plan, const ir::TrainSpec& spec) {
  const auto rows = static_cast<int64_t>(plan.rows / plan.micro_batches);
  const int64_t whole = ir::micro_batch_rows(spec);
  const bool parts = rows > 0 && rows < whole && whole % rows == 0;
  return parts && ir::against_split(spec).empty() ? whole / rows : 1;
}

// What the compiled program needs, without its code and data.
Result<backend::MemoryReport> memory_of(const std::shared_ptr<const backend::DevicePlan>& plan,
                                        const ir::TrainSpec& spec,
                                        const backend::TrainerOptions& of) {
  backend::TrainerOptions options;
  options.layout_only = true;
  options.plan = plan;
  options.threads = of.threads;
  options.evaluate_only = of.evaluate_only;
  options.jit = of.jit;
  CAD_TRY(trainer, backend::Trainer::create(spec, options));
  return trainer->memory();
}

// Same, of no more than `most` bytes if the plan's program can do with them: where what saves time
// takes it over that, `plan` becomes the lean one, if that needs less.
Result<backend::MemoryReport> memory_within(double most,
                                            std::shared_ptr<const backend::DevicePlan>& plan,
                                            const ir::TrainSpec& spec,
                                            const backend::TrainerOptions& options) {
  CAD_TRY(fast, memory_of(plan, spec, options));
  if (static_cast<double>(fast.total) <= most || plan->train.mesh.devices() == 1) return fast;
  auto lean = std::make_shared<backend::DevicePlan>(*plan);
  lean->lean = true;
  CAD_TRY(memory, memory_of(lean, spec, options));
  if (memory.total >= fast.total) return fast;
  plan = std::move(lean);
  return memory;
}

// Of `colauto plan --json`, for these devices: of the peak that it names, if the program can do
// with that, else within the budget.
Result<Made> saved_plan(const CommonOptions& common, const ir::TrainSpec& spec,
                        const PlanQuestion& question, const backend::TrainerOptions& options) {
  CAD_TRY(plan, read_saved_plan(common.plan));
  const int devices = question.request.meshes[0].devices();
  if (plan.devices != devices) {
    Diagnostic error =
        make_error(DiagId::E0902,
                   fmt::format("`{}` is a plan for {} device{}, the run has {}", common.plan,
                               plan.devices, plan.devices == 1 ? "" : "s", devices),
                   kExitNoInput);
    error.help(fmt::format("run it with `--devices {}`", plan.devices));
    return error;
  }
  const ir::TrainSpec parted = ir::split_rows(spec, parts_of(plan, spec));
  const auto graph = graph_to_plan(parted);
  CAD_TRY(placement, planner::saved_placement(plan, common.plan, *graph, spec.bindings,
                                              question.request.cluster));
  Made made = with_evaluations(common.plan, plan, std::move(placement), *graph, parted);
  const double peak = plan.predicted.peak_bytes, budget = question.request.budget;
  std::shared_ptr<const backend::DevicePlan> as_planned = made.devices;
  CAD_TRY(memory, memory_within(std::min(peak, budget), as_planned, made.spec, options));
  if (static_cast<double>(memory.total) <= std::min(peak, budget))
    made.devices = std::move(as_planned);
  else
    CAD_TRY_VOID(memory_within(budget, made.devices, made.spec, options));
  return made;
}

void set_memory(planner::Predicted& predicted, const backend::MemoryReport& memory) {
  const auto bytes = [](int64_t count) { return static_cast<double>(count); };
  predicted.peak_bytes = bytes(memory.total);
  predicted.params_bytes = bytes(memory.parameters);
  predicted.grads_bytes = bytes(memory.gradients);
  predicted.optimizer_bytes = bytes(memory.optimizer + memory.average);
  const double rest = predicted.peak_bytes - predicted.params_bytes - predicted.grads_bytes -
                      predicted.optimizer_bytes;
  predicted.activation_bytes = std::min(predicted.activation_bytes, rest);
  predicted.transient_bytes = rest - predicted.activation_bytes;
}

// The plan of a run on these devices.
Result<Made> device_plan(const CommonOptions& common, const LoadedProgram& program,
                         const ir::TrainSpec& spec, const backend::TrainerOptions& options,
                         int devices) {
  const bool saved = !is_plan_name(common.plan);
  CommonOptions flags = common;
  flags.devices = devices;
  flags.gpus.reset();
  if (saved) flags.plan = "auto";
  CAD_TRY(question, plan_question(flags, *program.module, spec, graph_to_plan(spec)));
  if (saved) return saved_plan(common, spec, question, options);
  question.request.alternatives = false;
  question.request.idle = false;  // who asks for devices gets them
  question.request.proof_s = 0;   // its time limit could give ranks different plans
  CAD_TRY(plan, fitting_plan(question, spec, options));
  return Made{std::move(plan.spec), plan.devices, plan.planning.plan};
}

// What was found for one number of parts.
struct Searched {
  std::optional<FittingPlan> best;
  planner::Planning failed;  // without `best`: what is planned where nothing fits
  bool free = false;         // `best` would be no other with more memory
};

// Budgets for the planner's model, so that what its plans compile to comes as near to the real
// budget as it can: the model's peak is off by some percent, to either side. They are of one
// ladder, the same for all real budgets: the highest rung next to the budget whose plan fits when
// it is compiled, then halves of what is between it and the next one. A larger budget never ends on
// a lower rung, so its plan is no slower than the planner's own gap between them.
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
    request_.proof_work = kProofWork;
    request_.baselines_within = budget_;
  }

  Result<Searched> run() {
    if (request_.name != "auto") {
      CAD_TRY_VOID(attempt(budget_));
      return std::move(out_);
    }
    const double start = std::ceil(std::log2(budget_) * kRungs);
    CAD_TRY(last, attempt(rung(start)));
    double low = start, high = start;
    Tried below = last, above = last;
    if (last.fits) {
      while (above.fits && !above.free && high < start + kMostClimbs) {
        low = high;
        below = above;
        CAD_TRY(next, attempt(rung(++high)));
        above = next;
      }
    } else {
      while (!below.fits && !below.least) {
        high = low;
        above = below;
        CAD_TRY(next, attempt(rung(--low)));
        below = next;
      }
    }
    for (int i = 0; i < kHalves && below.fits && !above.fits; ++i) {
      if (below.seconds <= above.seconds * (1 + kWorthIt)) break;
      const double middle = (low + high) / 2;
      CAD_TRY(next, attempt(rung(middle)));
      (next.fits ? low : high) = middle;
      (next.fits ? below : above) = next;
    }
    // The last try is the same whatever the budget is: what it needs, and is named then as the
    // least budget, does when it is asked for.
    if (!out_.best && budget_ > kHopeless) CAD_TRY_VOID(attempt(kHopeless));
    return std::move(out_);
  }

 private:
  static constexpr double kRungs = 8;                // to half the budget
  static constexpr double kMostClimbs = 32;          // rungs
  static constexpr int kHalves = 5;                  // of the step between two rungs
  static constexpr double kWorthIt = 0.001;          // of a step, for looking further
  static constexpr double kHopeless = 1.0;           // bytes
  static constexpr int64_t kProofWork = 10'000'000;  // a try: some tenths of a second

  struct Tried {
    bool fits = false;   // when it is compiled
    bool free = false;   // it would be no other with more memory
    bool least = false;  // it is the plan that needs least
    double seconds = 0;
  };

  static double rung(double number) { return std::exp2(number / kRungs); }

  Result<Tried> attempt(double ask) {
    request_.budget = ask;
    FittingPlan found{spec_, question_.graph, planner::plan_by_rules(request_), nullptr};
    planner::Planning& planning = found.planning;
    Tried tried;
    if (planning.problem == nullptr || planning.body.choices.empty()) {
      tried.least = true;
      out_.failed = std::move(planning);
      return tried;
    }
    tried.least = !planning.feasible;  // by the model
    tried.seconds = planning.plan.predicted.step_s;
    found.devices =
        with_evaluations(request_.name, {}, planner::placement_of(*planning.problem, planning.body),
                         *question_.graph, spec_)
            .devices;
    CAD_TRY(memory, memory_within(budget_, found.devices, spec_, options_));
    set_memory(planning.plan.predicted, memory);
    planning.plan.budget = budget_;
    planning.least_peak = planning.plan.predicted.peak_bytes;
    tried.fits = planning.least_peak <= budget_;
    tried.free = tried.fits && planning.feasible && planning.price == 0;  // memory does not bind
    if (!tried.fits) {
      out_.failed = std::move(planning);
      return tried;
    }
    if (tried.least && request_.name == "auto") planning.plan.solver.prove(0);
    if (tried.least && request_.name != "auto") planning.plan.solver.status = "fixed";
    planning.feasible = true;
    if (!out_.best || tried.seconds < out_.best->planning.plan.predicted.step_s)
      out_.best = std::move(found);
    out_.free = out_.free || tried.free;
    return tried;
  }

  const PlanQuestion& question_;
  planner::PlanRequest request_;
  const ir::TrainSpec& spec_;
  const backend::TrainerOptions& options_;
  double budget_;
  Searched out_;
};

PlanQuestion in_parts(const PlanQuestion& whole, const ir::TrainSpec& spec, int64_t parts) {
  PlanQuestion question = whole;
  question.graph = graph_to_plan(spec);
  planner::PlanRequest& request = question.request;
  request.graph = question.graph.get();
  request.training.micro_batches *= static_cast<double>(parts);
  request.alternatives = false;  // they are those of whole micro-batches
  // What smaller tensors gain from caches is not counted: with more memory there would be fewer
  // parts, and less memory is not to look faster.
  if (request.cluster.device.cpu) request.cluster.device.cpu->cache /= static_cast<double>(parts);
  return question;
}

// Whether so many times the parts may fit where the plan `least` is what needs least: parameters
// and what belongs to them stay, the rest shrinks. With a margin, for `least` is no bound.
bool may_fit(const planner::Plan& least, int64_t times, double budget) {
  const planner::Predicted& p = least.predicted;
  const double held = p.params_bytes + p.grads_bytes + p.optimizer_bytes;
  return held + (p.peak_bytes - held) / (2.0 * static_cast<double>(times)) <= budget;
}

// What is proven holds for all numbers of parts that were looked at.
void join(planner::SolverReport& of, const planner::SolverReport& other) {
  of.prove(std::min(of.bound, other.bound));
  of.wall_s += other.wall_s;
}

// Makes `found` the best of what it is, for whole micro-batches, and of all numbers of parts: up to
// the first for which memory is no limit, more would only be slower.
Status search_parts(const PlanQuestion& question, const ir::TrainSpec& spec,
                    const backend::TrainerOptions& options, Searched& found) {
  if (!ir::against_split(spec).empty()) return Ok{};
  const std::vector<int64_t> numbers = ir::possible_parts(ir::micro_batch_rows(spec));
  int64_t failed_parts = 1;
  for (const int64_t parts : numbers) {
    const bool last = parts == numbers.back();
    if (!found.best && !last &&
        !may_fit(found.failed.plan, parts / failed_parts, question.request.budget))
      continue;
    const ir::TrainSpec parted = ir::split_rows(spec, parts);
    CAD_TRY(next, FittingSearch(in_parts(question, parted, parts), parted, options).run());
    if (!next.best) {
      if (next.failed.problem == nullptr || next.failed.least_peak >= found.failed.least_peak)
        continue;
      found.failed = std::move(next.failed);
      failed_parts = parts;
      continue;
    }
    planner::Plan& plan = next.best->planning.plan;
    plan.alternatives =
        found.best ? found.best->planning.plan.alternatives : found.failed.plan.alternatives;
    const bool faster =
        !found.best || plan.predicted.step_s < found.best->planning.plan.predicted.step_s;
    if (found.best) {
      if (!faster) std::swap(*found.best, *next.best);
      join(next.best->planning.plan.solver, found.best->planning.plan.solver);
    }
    found.best = std::move(next.best);
    if (next.free) break;
  }
  return Ok{};
}

}  // namespace

Result<FittingPlan> fitting_plan(PlanQuestion& question, const ir::TrainSpec& spec,
                                 const backend::TrainerOptions& options) {
  // evaluations are split as the step is, without what only updates need
  if (options.evaluate_only) {
    std::vector<double>& states = question.request.training.state_bytes;
    states.assign(states.size(), 0.0);
  }
  CAD_TRY(found, FittingSearch(question, spec, options).run());
  if (question.may_split && !found.free) CAD_TRY_VOID(search_parts(question, spec, options, found));
  if (found.best) return std::move(*found.best);
  found.failed.feasible = false;
  return *no_plan(question, found.failed);
}

Result<PlannedRun> planned_run(const CommonOptions& common, const LoadedProgram& program,
                               const ir::TrainSpec& spec, backend::TrainerOptions options,
                               int devices, bool predict, std::string& note) {
  options.jit = std::make_shared<backend::Jit>();
  PlannedRun first;  // what is used when none fits
  const auto fits = [&](const backend::Trainer& trainer) {
    return options.budget <= 0 || trainer.memory().total <= options.budget;
  };
  const bool whole = common.plan == "auto" || common.plan == "single";
  if (devices == 1 && whole && common.mesh.empty()) {
    // it asks no machine for a plan: a name that is wrong is told all the same
    if (!common.cluster.empty()) CAD_TRY_VOID(chosen_cluster(common, *program.module, 1));
    CAD_TRY(plain, backend::Trainer::create(spec, options));
    first.trainer = std::move(plain);
    if (predict) {
      CommonOptions flags = common;
      flags.plan = "single";
      flags.budget.clear();
      if (auto made = device_plan(flags, program, spec, options, 1); made.ok())
        first.plan = made->plan;
    }
    if (fits(*first.trainer)) return first;
  }
  auto made = device_plan(common, program, spec, options, devices);
  if (!made.ok()) {
    if (first.trainer == nullptr) return std::move(made.error());
    if (!made.error().notes.empty()) note = made.error().notes.front();
    return first;
  }
  options.plan = made->devices;
  CAD_TRY(trainer, backend::Trainer::create(std::move(made->spec), options));
  return PlannedRun{std::move(trainer), std::move(made->plan)};
}

}  // namespace cad::cli
