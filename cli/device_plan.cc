// cli/device_plan.cc -- see cli/device_plan.h.
#include "cli/device_plan.h"

#include <fmt/format.h>

#include "cli/plan_request.h"
#include "ir/passes.h"
#include "planner/placement.h"
#include "planner/placement_json.h"
#include "planner/planner.h"

namespace cad::cli {

namespace {

using Made = std::shared_ptr<const backend::DevicePlan>;

// Evaluations are split as the training step is, and read the parameters where that has them.
Made with_evaluations(const std::string& name, planner::Placement train, const ir::Graph& graph,
                      const ir::TrainSpec& spec) {
  auto plan = std::make_shared<backend::DevicePlan>();
  plan->name = name;
  plan->train = std::move(train);
  for (const ir::EvalSpec& eval : spec.evals) {
    const ir::Graph forward = ir::run_passes(eval.graph, ir::passes_before_autodiff());
    plan->evals.push_back(planner::placement_for(forward, spec.bindings, graph, plan->train));
  }
  return plan;
}

// Of `colauto plan --json`, for these devices.
Result<Made> saved_plan(const CommonOptions& common, const ir::TrainSpec& spec,
                        const PlanQuestion& question) {
  CAD_TRY(plan, read_saved_plan(common.plan));
  const int devices = question.request.meshes[0].devices();
  if (plan.devices != devices) {
    Diagnostic error =
        make_error(DiagId::E0902,
                   fmt::format("`{}` is a plan for {} device{}, the run has {}", common.plan,
                               plan.devices, plan.devices == 1 ? "" : "s", devices),
                   kExitUsage);
    error.help(fmt::format("run it with `--devices {}`", plan.devices));
    return error;
  }
  CAD_TRY(placement, planner::saved_placement(plan, common.plan, *question.graph, spec.bindings,
                                              question.request.cluster));
  return with_evaluations(common.plan, std::move(placement), *question.graph, spec);
}

// `share` of the budget.
Result<Made> device_plan(const CommonOptions& common, const LoadedProgram& program,
                         const ir::TrainSpec& spec, int devices, double share) {
  const bool saved = !is_plan_name(common.plan);
  CommonOptions flags = common;
  flags.devices = devices;
  flags.gpus.reset();
  if (saved) flags.plan = "auto";
  CAD_TRY(question, plan_question(flags, *program.module, spec, graph_to_plan(spec)));
  if (saved) return saved_plan(common, spec, question);
  question.request.alternatives = false;
  question.request.idle = false;  // who asks for devices gets them
  question.request.proof_s = 0;   // its time limit could give ranks different plans
  question.request.budget *= share;
  const planner::Planning planning = planner::plan_by_rules(question.request);
  if (auto error = no_plan(question, planning)) return *error;
  return with_evaluations(question.request.name,
                          planner::placement_of(*planning.problem, planning.body), *question.graph,
                          spec);
}

}  // namespace

Result<std::unique_ptr<backend::Trainer>> planned_trainer(const CommonOptions& common,
                                                          const LoadedProgram& program,
                                                          const ir::TrainSpec& spec,
                                                          backend::TrainerOptions options,
                                                          int devices, std::string& note) {
  constexpr int kTries = 3;
  std::unique_ptr<backend::Trainer> first;  // what is used when none fits
  const auto fits = [&](const backend::Trainer& trainer) {
    return options.budget <= 0 || trainer.memory().total <= options.budget;
  };
  const bool whole = common.plan == "auto" || common.plan == "single";
  if (devices == 1 && whole && common.mesh.empty()) {
    CAD_TRY(plain, backend::Trainer::create(spec, options));
    if (fits(*plain)) return plain;
    first = std::move(plain);
  }
  double share = 1;
  for (int i = 0; i < kTries; ++i) {
    auto plan = device_plan(common, program, spec, devices, share);
    if (!plan.ok()) {
      if (first == nullptr) return std::move(plan.error());
      if (i == 0 && !plan.error().notes.empty()) note = plan.error().notes.front();
      break;
    }
    options.plan = *plan;
    CAD_TRY(trainer, backend::Trainer::create(spec, options));
    if (fits(*trainer)) return trainer;
    share *=
        0.98 * static_cast<double>(options.budget) / static_cast<double>(trainer->memory().total);
    if (first == nullptr) first = std::move(trainer);
  }
  return first;
}

}  // namespace cad::cli
