// cli/plan_command.cc -- `colauto plan FILE`: how to train the program fastest on a machine within
// its memory, without running anything. What is asked is put together in cli/plan_request.h; the
// search is in planner/planner.h, the table in planner/plan_text.h, JSON in planner/plan_json.h.
#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "backend/devices.h"
#include "cli/device_plan.h"
#include "cli/plan_request.h"
#include "cli/training_common.h"
#include "planner/explain.h"
#include "planner/machines.h"
#include "planner/plan_json.h"
#include "planner/plan_svg.h"
#include "planner/plan_text.h"

namespace cad::cli {
namespace {

struct PlanOptions {
  std::string diff, svg, why;
};

int show(const CommonOptions& common, const PlanOptions& options, const planner::Plan& plan) {
  if (!options.svg.empty()) {
    errno = 0;
    std::ofstream out(options.svg, std::ios::binary);
    if (out) out << planner::plan_svg(plan);
    if (!out.flush()) {
      const char* why = errno != 0 ? std::strerror(errno) : "the file took nothing";
      return fail(common,
                  make_error(DiagId::E0602, fmt::format("cannot write `{}`: {}", options.svg, why),
                             kExitRunFailed));
    }
  }
  if (!options.diff.empty()) {
    Result<std::string> text = read_file(options.diff, kMostPlanBytes);
    if (!text.ok()) return fail(common, text.error());
    Result<planner::Plan> other = planner::read_plan(options.diff, *text);
    if (!other.ok()) return fail(common, other.error());
    const std::string difference = planner::plan_difference(*other, plan);
    print(difference.empty() ? "the plans are the same\n" : difference);
    return kExitOk;
  }
  print(common.json ? planner::plan_json(plan) : planner::plan_text(plan, common.file));
  return kExitOk;
}

int run_plan(const PlanOptions& options, const CommonOptions& common) {
  if (!is_plan_name(common.plan)) {
    Result<planner::Plan> plan = read_saved_plan(common.plan);
    if (!plan.ok()) return fail(common, plan.error());
    if (!options.why.empty()) {
      Diagnostic error = make_error(
          DiagId::E0503, "`--why` is not for a saved plan: it does not hold what else was possible",
          kExitUsage);
      return fail(common, error.help("leave `--plan` out, or name a plan: `--plan zero3`"));
    }
    return show(common, options, *plan);
  }
  LoadedProgram program;
  if (const int status = load_program(common, program); status != kExitOk) return status;
  program.timings.start("lower");
  Result<ir::TrainSpec> spec = train_spec(common, program);
  if (!spec.ok()) return fail(common, program.sources, spec.error());
  const auto graph = graph_to_plan(*spec);
  if (const auto unbound = unbound_dim(*graph, spec->bindings))
    return fail(common, program.sources, *unbound);
  Result<PlanQuestion> question = plan_question(common, *program.module, *spec, graph);
  if (!question.ok()) return fail(common, program.sources, question.error());
  program.timings.start("plan");
  planner::Planning planning;
  std::shared_ptr<ir::Graph> planned = graph;  // that `planning` refers to
  if (question->request.cluster.device.cpu) {
    const auto devices = static_cast<int>(
        std::min<int64_t>(question->request.meshes[0].devices(), planner::kMostDevices));
    const auto threads = static_cast<int>(common.threads_per_device.value_or(0));
    backend::TrainerOptions trainer;
    trainer.threads = backend::threads_of_device(devices, threads);
    Result<FittingPlan> plan = fitting_plan(*question, *spec, trainer);
    if (!plan.ok()) return fail(common, plan.error());
    planning = std::move(plan->planning);
    planned = std::move(plan->graph);
  } else {
    planning = planner::plan_by_rules(question->request);
    if (const auto none = no_plan(*question, planning)) return fail(common, *none);
  }
  program.timings.stop();
  program.timings.report(common);
  if (!options.why.empty()) {
    Result<std::string> text = planner::explain(planning, options.why);
    if (!text.ok()) return fail(common, text.error());
    print(*text);
    return kExitOk;
  }
  return show(common, options, planning.plan);
}

}  // namespace

Action declare_plan(CLI::App& app, CommonOptions& common) {
  add_program_flags(app, common);
  add_json_flag(app, common);
  add_device_flags(app, common);
  auto own = std::make_shared<PlanOptions>();
  CLI::Option* json = app.get_option("--json");
  CLI::Option* diff = app.add_option("--diff", own->diff, "list what differs from this saved plan")
                          ->type_name("FILE")
                          ->excludes(json);
  app.add_option("--svg", own->svg, "draw memory and time over a step")->type_name("FILE");
  app.add_option("--why", own->why, "why an op, layer or parameter is split as it is")
      ->type_name("NAME")
      ->excludes(json)
      ->excludes(diff);
  return [own, &common] { return run_plan(*own, common); };
}

}  // namespace cad::cli
