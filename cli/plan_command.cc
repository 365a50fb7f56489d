// cli/plan_command.cc -- `colauto plan FILE`: how to train the program fastest on a machine within
// its memory, without running anything. The search is in planner/planner.h, the table in
// planner/plan_text.h, JSON in planner/plan_json.h.
#include <cmath>
#include <fstream>

#include <fmt/format.h>

#include "backend/cpu/thread_pool.h"
#include "backend/run_memory.h"
#include "cli/training_common.h"
#include "frontend/section_data.h"
#include "ir/passes.h"
#include "planner/baselines.h"
#include "planner/explain.h"
#include "planner/machines.h"
#include "planner/plan_json.h"
#include "planner/plan_svg.h"
#include "planner/plan_text.h"
#include "planner/planner.h"

namespace cad::cli {
namespace {

using planner::Axis;
using planner::Mesh;

struct PlanOptions {
  std::string diff, svg, why;
  bool alternatives = true;
};

// "dp=2,tp=4". E0803.
Result<std::vector<Axis>> parse_mesh(const std::string& text) {
  std::vector<Axis> axes;
  size_t at = 0;
  while (at <= text.size()) {
    const size_t end = std::min(text.find(',', at), text.size());
    std::string part = text.substr(at, end - at);
    while (!part.empty() && part.front() == ' ') part.erase(0, 1);
    const size_t equals = part.find('=');
    char* rest = nullptr;
    const long size =
        equals == std::string::npos ? 0 : std::strtol(part.c_str() + equals + 1, &rest, 10);
    if (size < 1 || size > (1 << 20) || equals == 0 || rest == nullptr || *rest != 0) {
      Diagnostic error =
          make_error(DiagId::E0803, fmt::format("`--mesh {}` is no mesh", text), kExitUsage);
      error.help("write axes with their sizes: `--mesh dp=2,tp=4`");
      return error;
    }
    axes.push_back({part.substr(0, equals), static_cast<int>(size)});
    at = end + 1;
  }
  return axes;
}

int64_t product(const std::vector<Axis>& axes) {
  int64_t n = 1;
  for (const Axis& axis : axes) n *= axis.size;
  return n;
}

struct Target {
  planner::Cluster cluster;
  std::vector<Mesh> meshes;
  double budget = 0;
};

Result<double> budget_of(const CommonOptions& common, const planner::Device& device,
                         const frontend::PlanSpec* plan) {
  if (!common.budget.empty()) {
    CAD_TRY(bytes, memory_budget(common));
    if (common.budget.back() == '%')
      return std::strtod(common.budget.c_str(), nullptr) / 100 * device.memory;
    return static_cast<double>(bytes);
  }
  if (plan != nullptr && plan->budget_bytes) return *plan->budget_bytes;
  return (plan != nullptr && plan->budget_fraction ? *plan->budget_fraction : 0.9) * device.memory;
}

// Machine, meshes and budget from flags, then from the program's sections.
Result<Target> target_of(const CommonOptions& common, const frontend::Module& module,
                         const ir::Graph& graph) {
  const frontend::SectionData* sections = frontend::section_data(module);
  std::vector<Axis> axes;
  if (!common.mesh.empty()) {
    CAD_TRY(parsed, parse_mesh(common.mesh));
    axes = parsed;
  } else if (sections != nullptr && !sections->machines.meshes.empty()) {
    for (const auto& [name, size] : sections->machines.meshes.back().axes)
      axes.push_back({name, static_cast<int>(size)});
  }
  const std::optional<int64_t> asked = common.gpus ? common.gpus : common.devices;
  const int64_t devices = asked ? *asked : axes.empty() ? 1 : product(axes);
  if (!axes.empty() && product(axes) != devices) {
    Diagnostic error = make_error(
        DiagId::E0803, fmt::format("a mesh of {} devices for {} devices", product(axes), devices),
        kExitUsage);
    error.help("the axes' sizes multiply to the number of devices");
    return error;
  }
  Target target;
  CAD_TRY(machines, planner::program_machines(module));
  CAD_TRY(cluster,
          planner::choose_cluster(machines, common.cluster, devices,
                                  {backend::ThreadPool::available_cores(),
                                   static_cast<double>(backend::RunMemory::machine_bytes())}));
  target.cluster = cluster;
  const frontend::PlanSpec* plan = sections == nullptr || sections->machines.plans.empty()
                                       ? nullptr
                                       : &sections->machines.plans.back();
  CAD_TRY(budget, budget_of(common, cluster.device, plan));
  target.budget = budget;
  if (!axes.empty()) {
    CAD_TRY(mesh, planner::make_mesh(cluster, axes));
    target.meshes.push_back(mesh);
    return target;
  }
  std::vector<std::string> names;
  if (plan != nullptr) {
    for (const auto& [dim, axis] : plan->shard) {
      if (std::find(names.begin(), names.end(), axis) == names.end()) names.push_back(axis);
    }
  }
  for (const ir::Value& value : graph.values) {
    for (const ir::Pin& pin : value.pins) {
      if (!pin.axis.empty() && std::find(names.begin(), names.end(), pin.axis) == names.end())
        names.push_back(pin.axis);
    }
  }
  CAD_TRY(meshes, names.empty() ? planner::meshes(cluster, static_cast<int>(devices))
                                : planner::named_meshes(cluster, static_cast<int>(devices), names));
  target.meshes = meshes;
  return target;
}

// "`@shard(D: none)` on `Wq`, ..": what a plan may not change.
std::string pins_of(const ir::Graph& graph) {
  std::string out;
  for (const ir::Value& value : graph.values) {
    for (const ir::Pin& pin : value.pins)
      out += fmt::format("{}`@shard({}: {})` on `{}`", out.empty() ? "" : ", ",
                         graph.dim(pin.dim).name, pin.axis.empty() ? "none" : pin.axis, value.name);
  }
  return out;
}

int infeasible(const CommonOptions& common, const ir::Graph& graph,
               const planner::Planning& planning, double budget) {
  const double least = std::ceil(planning.least_peak);
  Diagnostic error =
      make_error(DiagId::E0901,
                 fmt::format("no plan fits {} a device", planner::bytes_text(budget)), kExitNoPlan);
  if (least > 0) {
    error.note(fmt::format("the least that was found needs {} a device ({:.0f} bytes), {} more",
                           planner::bytes_text(least), least, planner::bytes_text(least - budget)));
    std::string parts;
    for (size_t i = 0; i < std::min<size_t>(3, planning.contributors.size()); ++i)
      parts += (parts.empty() ? "" : ", ") + planning.contributors[i];
    error.note("most of it: " + parts);
    if (const std::string pins = pins_of(graph); !pins.empty())
      error.note("fixed by the program: " + pins);
    error.help(
        fmt::format("give it `--budget {:.0f}B`, more devices (`--gpus`), or a smaller batch "
                    "with more `accumulate`",
                    least));
  }
  return fail(common, error);
}

Result<std::string> plan_file(const std::string& name) {
  if (name.find('.') == std::string::npos && name.find('/') == std::string::npos) {
    Diagnostic error =
        make_error(DiagId::E0903, fmt::format("no plan is called `{}`", name), kExitUsage);
    std::string names = "auto";
    for (const std::string& known : planner::baseline_names()) names += ", " + known;
    error.help(fmt::format("`--plan` takes {} or the name of a file", names));
    return error;
  }
  return read_file(name);
}

bool is_named(const std::string& name) {
  const std::vector<std::string>& names = planner::baseline_names();
  return name == "auto" || std::find(names.begin(), names.end(), name) != names.end();
}

int show(const CommonOptions& common, const PlanOptions& options, const planner::Plan& plan) {
  if (!options.svg.empty()) {
    std::ofstream out(options.svg, std::ios::binary);
    out << planner::plan_svg(plan);
    if (!out.flush()) {
      return fail(common,
                  make_error(DiagId::E0602, fmt::format("`{}` cannot be written", options.svg),
                             kExitRunFailed));
    }
  }
  if (!options.diff.empty()) {
    Result<std::string> text = read_file(options.diff);
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
  if (!is_named(common.plan)) {
    Result<std::string> text = plan_file(common.plan);
    if (!text.ok()) return fail(common, text.error());
    Result<planner::Plan> plan = planner::read_plan(common.plan, *text);
    if (!plan.ok()) return fail(common, plan.error());
    return show(common, options, *plan);
  }
  LoadedProgram program;
  if (const int status = load_program(common, program); status != kExitOk) return status;
  program.timings.start("lower");
  Result<ir::TrainSpec> spec = train_spec(common, program);
  if (!spec.ok()) return fail(common, program.sources, spec.error());
  const ir::Graph graph = ir::run_passes(spec->forward, ir::passes_before_autodiff());
  if (const auto unbound = unbound_dim(graph, spec->bindings))
    return fail(common, program.sources, *unbound);
  Result<Target> target = target_of(common, *program.module, graph);
  if (!target.ok()) return fail(common, program.sources, target.error());
  program.timings.start("plan");
  planner::PlanRequest request;
  request.graph = &graph;
  request.training = planner::training_of(*spec, graph);
  request.cluster = target->cluster;
  request.meshes = target->meshes;
  request.budget = target->budget;
  request.name = common.plan;
  if (graph.batch_dim.valid()) {
    const auto rows = graph.dim(graph.batch_dim).size.evaluate(spec->bindings);
    if (rows.ok()) request.rows = static_cast<double>(rows.value * spec->accumulate);
  }
  const planner::Planning planning = planner::make_plan(request);
  program.timings.stop();
  program.timings.report(common);
  if (planning.problem == nullptr) {
    Diagnostic error = make_error(DiagId::E0901,
                                  fmt::format("no mesh of {} devices suits the plan `{}`",
                                              target->meshes[0].devices(), common.plan),
                                  kExitNoPlan);
    if (!planning.impossible.empty())
      error.note(fmt::format("the annotations of `{}` cannot be honoured",
                             fmt::join(planning.impossible, "`, `")));
    error.help("leave `--plan` or `--mesh` out, or use another number of devices");
    return fail(common, error);
  }
  if (!planning.feasible) return infeasible(common, graph, planning, target->budget);
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
  app.add_option("--diff", own->diff, "list what differs from this saved plan")->type_name("FILE");
  app.add_option("--svg", own->svg, "draw memory and time over a step")->type_name("FILE");
  app.add_option("--why", own->why, "why an op, layer or parameter is split as it is")
      ->type_name("NAME");
  return [own, &common] { return run_plan(*own, common); };
}

}  // namespace cad::cli
