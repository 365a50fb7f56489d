// cli/device_plan.cc -- see cli/device_plan.h.
#include "cli/device_plan.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/suggest.h"
#include "cli/plan_request.h"
#include "planner/baselines.h"
#include "planner/placement.h"
#include "planner/planner.h"

namespace cad::cli {

namespace {

using Made = std::shared_ptr<const backend::DevicePlan>;

// `share` of the budget.
Result<Made> device_plan(const CommonOptions& common, const LoadedProgram& program,
                         const ir::TrainSpec& spec, int devices, double share) {
  std::vector<std::string> names = planner::baseline_names();
  names.emplace_back("auto");
  if (std::find(names.begin(), names.end(), common.plan) == names.end()) {
    Diagnostic error = make_error(
        DiagId::E0503, fmt::format("`--plan {}`: no such plan", common.plan), kExitUsage);
    if (const auto near = suggest(common.plan, names))
      error.help(fmt::format("did you mean `{}`?", *near));
    else
      error.help(fmt::format("there are `{}`", fmt::join(names, "`, `")));
    return error;
  }
  CommonOptions flags = common;
  flags.devices = devices;
  flags.gpus.reset();
  CAD_TRY(question, plan_question(flags, *program.module, spec, graph_to_plan(spec)));
  question.request.alternatives = false;
  question.request.budget *= share;
  const planner::Planning planning = planner::make_plan(question.request);
  if (auto error = no_plan(question, planning)) return *error;
  auto plan = std::make_shared<backend::DevicePlan>();
  plan->name = question.request.name;
  plan->train = planner::placement_of(*planning.problem, planning.body);
  return Made(std::move(plan));
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
