// cli/repl_plan.cc -- `:plan` and `:why`: the session's train section planned for a machine, as
// `colauto plan` does with the same defaults (0.9 of a device's memory, every mesh).
#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "backend/cpu/thread_pool.h"
#include "backend/run_memory.h"
#include "cli/repl_commands.h"
#include "cli/repl_graph.h"
#include "frontend/section_data.h"
#include "ir/passes.h"
#include "planner/explain.h"
#include "planner/machines.h"
#include "planner/plan_text.h"
#include "planner/planner.h"

namespace cad::cli {
namespace {

struct Machine {
  int64_t devices = 1;
  std::string cluster;  // empty: this one
};

// "8 dgx_a100", "8", "dgx_a100" or "".
Result<Machine> machine_of(const std::string& text) {
  Machine machine;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    int64_t number = 0;
    const auto [last, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error == std::errc() && last == word.data() + word.size()) {
      if (number < 1 || number > 1'000'000) {
        return make_error(DiagId::E0503, fmt::format("`{}` is no number of devices", word),
                          kExitUsage);
      }
      machine.devices = number;
    } else {
      machine.cluster = word;
    }
  }
  return machine;
}

struct Planned {
  std::shared_ptr<ir::Graph> graph;  // what the planning refers to
  planner::Planning planning;
};

Result<Planned> plan_of(const Session& session, const Machine& machine) {
  const frontend::Module& module = session.module();
  CAD_TRY(spec, frontend::lower_train(module));
  Planned planned;
  planned.graph =
      std::make_shared<ir::Graph>(ir::run_passes(spec.forward, ir::passes_before_autodiff()));
  const ir::Graph& graph = *planned.graph;
  if (auto unbound = free_dim(graph, spec.bindings)) return *unbound;
  CAD_TRY(machines, planner::program_machines(module));
  CAD_TRY(cluster,
          planner::choose_cluster(machines, machine.cluster, machine.devices,
                                  {backend::ThreadPool::available_cores(),
                                   static_cast<double>(backend::RunMemory::machine_bytes())}));
  CAD_TRY(meshes, planner::meshes(cluster, static_cast<int>(machine.devices)));
  planner::PlanRequest request;
  request.graph = &graph;
  request.training = planner::training_of(spec, graph);
  request.cluster = cluster;
  request.meshes = meshes;
  const frontend::SectionData* sections = frontend::section_data(module);
  double fraction = 0.9;
  if (sections != nullptr && !sections->machines.plans.empty()) {
    const frontend::PlanSpec& plan = sections->machines.plans.back();
    fraction = plan.budget_fraction.value_or(fraction);
    request.budget = plan.budget_bytes.value_or(0);
  }
  if (!(request.budget > 0)) request.budget = fraction * cluster.device.memory;
  if (graph.batch_dim.valid()) {
    const auto rows = graph.dim(graph.batch_dim).size.evaluate(spec.bindings);
    if (rows.ok()) request.rows = static_cast<double>(rows.value * spec.accumulate);
  }
  planned.planning = planner::make_plan(request);
  const planner::Planning& planning = planned.planning;
  if (planning.problem != nullptr && planning.feasible) return planned;
  Diagnostic error =
      make_error(DiagId::E0901,
                 planning.problem == nullptr
                     ? fmt::format("no mesh of {} devices suits the program", machine.devices)
                     : fmt::format("no plan fits {} a device", planner::bytes_text(request.budget)),
                 kExitNoPlan);
  if (planning.least_peak > 0)
    error.note(fmt::format("the least that was found needs {} a device",
                           planner::bytes_text(planning.least_peak)));
  error.help("more devices, as in `:plan 8`, or a smaller batch: `:set B=1`");
  return error;
}

}  // namespace

bool repl_plan(ReplContext& context, const std::string& argument) {
  Result<Machine> machine = machine_of(argument);
  if (!machine.ok()) return context.fail(machine.error());
  Result<Planned> planned = plan_of(context.session, *machine);
  if (!planned.ok()) return context.fail(planned.error());
  context.print(planner::plan_text(planned->planning.plan, context.session.path()));
  return true;
}

bool repl_why(ReplContext& context, const std::string& argument) {
  const size_t blank = std::min(argument.find(' '), argument.size());
  const std::string name = argument.substr(0, blank);
  if (name.empty()) {
    Diagnostic error = make_error(DiagId::E0503, "`:why` needs a name", kExitUsage);
    error.help("see `:help why`");
    return context.fail(error);
  }
  Result<Machine> machine = machine_of(argument.substr(blank));
  if (!machine.ok()) return context.fail(machine.error());
  Result<Planned> planned = plan_of(context.session, *machine);
  if (!planned.ok()) return context.fail(planned.error());
  Result<std::string> text = planner::explain(planned->planning, name);
  if (!text.ok()) return context.fail(text.error());
  context.print(*text);
  return true;
}

}  // namespace cad::cli
