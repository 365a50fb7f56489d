// cli/plan_request.cc -- see plan_request.h.
#include "cli/plan_request.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/comm/mpi_world.h"
#include "base/suggest.h"
#include "cli/load_program.h"
#include "cli/training_common.h"
#include "frontend/section_data.h"
#include "ir/passes.h"
#include "planner/baselines.h"
#include "planner/machines.h"
#include "planner/plan_json.h"
#include "planner/plan_text.h"

namespace cad::cli {
namespace {

using planner::Axis;
using planner::Mesh;

constexpr double kDefaultBudget = 0.9;  // of a device's memory

// No more than `kMostDevices` + 1, so that no product overflows.
int64_t device_count(const std::vector<Axis>& axes) {
  int64_t n = 1;
  for (const Axis& axis : axes) n = std::min(n * axis.size, planner::kMostDevices + 1);
  return n;
}

Result<double> budget_of(const CommonOptions& common, const planner::Device& device,
                         const frontend::PlanSpec* plan) {
  if (!common.budget.empty()) {
    CAD_TRY(bytes, memory_budget(common));
    if (common.budget.back() == '%')
      return std::strtod(common.budget.c_str(), nullptr) / 100 * device.memory;
    return static_cast<double>(bytes);
  }
  if (plan != nullptr && plan->budget_bytes) return *plan->budget_bytes;
  return (plan != nullptr && plan->budget_fraction ? *plan->budget_fraction : kDefaultBudget) *
         device.memory;
}

planner::PlanRules rules_of(const frontend::PlanSpec* plan) {
  planner::PlanRules rules;
  if (plan == nullptr) return rules;
  for (const auto& [dim, axis] : plan->shard)
    rules.shard.push_back({dim, axis == "none" ? "" : axis});
  rules.checkpointing = plan->checkpoint == "none"  ? planner::Checkpointing::kNone
                        : plan->checkpoint == "all" ? planner::Checkpointing::kAll
                                                    : planner::Checkpointing::kAuto;
  return rules;
}

// A mesh axis that the program names, and where.
struct Named {
  std::string axis, where;
};
std::vector<Named> axes_named(const planner::PlanRules& rules, const ir::Graph& graph) {
  std::vector<Named> names;
  const auto add = [&](const std::string& axis, const std::string& where) {
    const bool known =
        std::any_of(names.begin(), names.end(), [&](const Named& n) { return n.axis == axis; });
    if (!axis.empty() && !known) names.push_back({axis, where});
  };
  for (const planner::ShardRule& rule : rules.shard)
    add(rule.axis, fmt::format("`shard {{ {}: {} }}`", rule.dim, rule.axis));
  for (const ir::Value& value : graph.values) {
    for (const ir::Pin& pin : value.pins)
      add(pin.axis,
          fmt::format("`@shard({}: {})` on `{}`", graph.dim(pin.dim).name, pin.axis, value.name));
  }
  return names;
}

// The axes of --mesh, else of the program's last `mesh`; empty: any.
Result<std::vector<Axis>> axes_of(const CommonOptions& common,
                                  const frontend::SectionData* sections) {
  std::vector<Axis> axes;
  if (!common.mesh.empty()) return planner::parse_axes(common.mesh);
  if (sections == nullptr || sections->machines.meshes.empty()) return axes;
  for (const auto& [name, size] : sections->machines.meshes.back().axes)
    axes.push_back({name, static_cast<int>(std::min(size, planner::kMostDevices + 1))});
  return axes;
}

std::string mesh_text(const std::vector<Axis>& axes) {
  std::string out;
  for (const Axis& axis : axes)
    out += fmt::format("{}{}={}", out.empty() ? "" : ",", axis.name, axis.size);
  return out;
}

// What speaks against these axes.
std::optional<Diagnostic> wrong_axes(const std::vector<Axis>& axes, int64_t devices,
                                     const std::vector<Named>& named) {
  if (device_count(axes) != devices) {
    Diagnostic error =
        make_error(DiagId::E0803,
                   fmt::format("the mesh `{}` has {} device{}, {} {} asked for", mesh_text(axes),
                               device_count(axes), device_count(axes) == 1 ? "" : "s", devices,
                               devices == 1 ? "is" : "are"),
                   kExitUsage);
    error.help("the sizes of the axes multiply to the number of devices");
    return error;
  }
  for (const Named& name : named) {
    std::vector<std::string> known;
    for (const Axis& axis : axes) known.push_back(axis.name);
    if (std::find(known.begin(), known.end(), name.axis) != known.end()) continue;
    Diagnostic error = make_error(
        DiagId::E0803, fmt::format("the mesh `{}` lacks the axis `{}`", mesh_text(axes), name.axis),
        kExitUsage);
    error.note(fmt::format("it is named by {}", name.where));
    if (const auto near = suggest(name.axis, known))
      error.help(fmt::format("did you mean `{}`?", *near));
    else
      error.help(
          fmt::format("add it, its size may be 1: `--mesh {},{}=1`", mesh_text(axes), name.axis));
    return error;
  }
  return std::nullopt;
}

Result<std::vector<Mesh>> meshes_of(const planner::Cluster& cluster, int64_t devices,
                                    const std::vector<Axis>& axes,
                                    const std::vector<Named>& named) {
  if (!axes.empty()) {
    CAD_TRY(mesh, planner::make_mesh(cluster, axes));
    return std::vector<Mesh>{mesh};
  }
  if (named.empty()) return planner::meshes(cluster, static_cast<int>(devices));
  std::vector<std::string> names;
  for (const Named& name : named) names.push_back(name.axis);
  if (names.size() > planner::kMaxAxes) {
    Diagnostic error =
        make_error(DiagId::E0803,
                   fmt::format("the program names {} mesh axes, at most {} are planned for: `{}`",
                               names.size(), planner::kMaxAxes, fmt::join(names, "`, `")),
                   kExitUsage);
    return error;
  }
  return planner::named_meshes(cluster, static_cast<int>(devices), names);
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

// A `repeat` of no iterations: there is nothing in it to split.
std::optional<Diagnostic> empty_loop(const ir::Graph& graph, const ir::Bindings& bindings) {
  for (const ir::Node& node : graph.nodes) {
    if (node.op != ir::Op::kRepeat) continue;
    const ir::Dim& dim = graph.dim(node.loop.dim);
    const auto count = dim.size.evaluate(bindings);
    if (!count.ok() || count.value >= 1) continue;
    Diagnostic error = make_error(
        DiagId::E0901,
        fmt::format("the `repeat` as `{}` runs 0 times: no plan is made for it", dim.name),
        kExitNoPlan);
    return error.help("give it a count of at least 1, or take it out");
  }
  return std::nullopt;
}

}  // namespace

planner::Host this_host() {
  const backend::HostFigures host = backend::least_host();
  return {host.cores, static_cast<double>(host.memory), host.lanes};
}

Result<planner::Cluster> chosen_cluster(const CommonOptions& common, const frontend::Module& module,
                                        int64_t devices) {
  CAD_TRY(machines, planner::program_machines(module));
  return planner::choose_cluster(machines, common.cluster, devices, this_host());
}

std::shared_ptr<ir::Graph> graph_to_plan(const ir::TrainSpec& spec) {
  return std::make_shared<ir::Graph>(ir::run_passes(spec.forward, ir::passes_before_autodiff()));
}

Result<PlanQuestion> plan_question(const CommonOptions& common, const frontend::Module& module,
                                   const ir::TrainSpec& spec, std::shared_ptr<ir::Graph> graph) {
  const frontend::SectionData* sections = frontend::section_data(module);
  const frontend::PlanSpec* plan = sections == nullptr || sections->machines.plans.empty()
                                       ? nullptr
                                       : &sections->machines.plans.back();
  if (auto error = empty_loop(*graph, spec.bindings)) return *error;
  PlanQuestion question;
  planner::PlanRequest& request = question.request;
  request.rules = rules_of(plan);
  const std::vector<Named> named = axes_named(request.rules, *graph);
  CAD_TRY(axes, axes_of(common, sections));
  const std::optional<int64_t> asked = common.gpus ? common.gpus : common.devices;
  const int64_t devices = asked ? *asked : device_count(axes);
  if (!axes.empty()) {
    if (auto error = wrong_axes(axes, devices, named)) return *error;
  }
  CAD_TRY(cluster, chosen_cluster(common, module, devices));
  request.cluster = cluster;
  CAD_TRY(budget, budget_of(common, cluster.device, plan));
  request.budget = budget;
  CAD_TRY(meshes, meshes_of(cluster, devices, axes, named));
  request.meshes = meshes;
  // some of the devices may be faster than all
  for (const int some :
       axes.empty() ? planner::fewer_devices(static_cast<int>(devices)) : std::vector<int>{}) {
    CAD_TRY(fewer, meshes_of(cluster, some, axes, named));
    request.fewer.insert(request.fewer.end(), fewer.begin(), fewer.end());
  }
  request.graph = graph.get();
  request.training = planner::training_of(spec, *graph);
  request.name = common.plan;
  request.segments = true;
  question.may_split = common.plan == "auto" && !common.micro_batches;
  if (graph->batch_dim.valid()) {
    const auto rows = graph->dim(graph->batch_dim).size.evaluate(spec.bindings);
    if (rows.ok())
      request.rows = static_cast<double>(rows.value) * static_cast<double>(spec.accumulate);
  }
  question.graph = std::move(graph);
  return question;
}

bool is_plan_name(const std::string& plan) {
  const std::vector<std::string>& names = planner::baseline_names();
  return plan == "auto" || std::find(names.begin(), names.end(), plan) != names.end();
}

Result<planner::Plan> read_saved_plan(const std::string& file) {
  if (file.find('.') == std::string::npos && file.find('/') == std::string::npos) {
    Diagnostic error =
        make_error(DiagId::E0903, fmt::format("no plan is called `{}`", file), kExitUsage);
    std::string names = "auto";
    for (const std::string& known : planner::baseline_names()) names += ", " + known;
    error.help(fmt::format("`--plan` takes {} or the name of a file", names));
    return error;
  }
  CAD_TRY(text, read_file(file, kMostPlanBytes));
  return planner::read_plan(file, text);
}

std::optional<Diagnostic> no_plan(const PlanQuestion& question, const planner::Planning& planning) {
  const planner::PlanRequest& request = question.request;
  if (planning.problem != nullptr && planning.feasible) return std::nullopt;
  if (planning.problem == nullptr) {
    Diagnostic error = make_error(
        DiagId::E0901,
        fmt::format("no mesh of {} device{} suits the plan `{}`", request.meshes[0].devices(),
                    request.meshes[0].devices() == 1 ? "" : "s", request.name),
        kExitNoPlan);
    if (!planning.impossible.empty())
      error.note(fmt::format("the annotations of `{}` cannot be honoured",
                             fmt::join(planning.impossible, "`, `")));
    error.help("leave `--plan` or `--mesh` out, or use another number of devices");
    return error;
  }
  Diagnostic error = make_error(
      DiagId::E0901, fmt::format("no plan fits {} a device", planner::bytes_text(request.budget)),
      kExitNoPlan);
  const double least = std::ceil(planning.least_peak);
  if (least > 0) {
    error.note(fmt::format("the least that was found needs {} a device ({:.0f} bytes), {} more",
                           planner::bytes_text(least), least,
                           planner::bytes_text(least - request.budget)));
    std::string parts;
    for (size_t i = 0; i < std::min<size_t>(3, planning.contributors.size()); ++i)
      parts += (parts.empty() ? "" : ", ") + planning.contributors[i];
    error.note("most of it: " + parts);
  }
  if (const std::string pins = pins_of(*question.graph); !pins.empty())
    error.note("fixed by the program: " + pins);
  for (const std::string& note : planning.plan.notes) error.note(note);
  if (least > 0)
    error.help(
        fmt::format("give it more memory (`--budget {0:.0f}B`, in a program `plan {{ budget: "
                    "{1:.0f} MiB }}`), more devices, or a smaller batch with more `accumulate`",
                    least, std::ceil(least / 0x1p20)));
  return error;
}

}  // namespace cad::cli
