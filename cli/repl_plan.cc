// cli/repl_plan.cc -- `:plan` and `:why`: the session's train section planned for a machine, as
// `colauto plan` does, with the program's mesh and plan sections and the same defaults.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "cli/plan_request.h"
#include "cli/repl_commands.h"
#include "cli/repl_graph.h"
#include "planner/explain.h"
#include "planner/plan_text.h"

namespace cad::cli {
namespace {

// "8 dgx_a100", "8", "dgx_a100" or "", as the flags of `colauto plan`.
Result<CommonOptions> machine_of(const std::string& text) {
  CommonOptions machine;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    int64_t number = 0;
    const auto [last, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    const bool whole = last == word.data() + word.size();
    if (whole && (error != std::errc() || number < 1)) {
      return make_error(DiagId::E0503, fmt::format("`{}` is no number of devices", word),
                        kExitUsage);
    }
    if (whole ? machine.gpus.has_value() : !machine.cluster.empty()) {
      Diagnostic twice = make_error(
          DiagId::E0503,
          fmt::format("`{}`: there is one {} already", word, whole ? "number" : "cluster"),
          kExitUsage);
      return twice.help("write a number of devices and a cluster, as in `:plan 8 dgx_a100`");
    }
    if (whole)
      machine.gpus = number;
    else
      machine.cluster = word;
  }
  return machine;
}

Result<planner::Planning> plan_of(const Session& session, const CommonOptions& machine,
                                  std::shared_ptr<ir::Graph>& graph) {
  const frontend::Module& module = session.module();
  CAD_TRY(spec, frontend::lower_train(module));
  graph = graph_to_plan(spec);
  if (auto unbound = free_dim(*graph, spec.bindings)) return *unbound;
  CAD_TRY(question, plan_question(machine, module, spec, graph));
  planner::Planning planning = planner::plan_by_rules(question.request);
  if (auto none = no_plan(question, planning)) return *none;
  return planning;
}

}  // namespace

bool repl_plan(ReplContext& context, const std::string& argument) {
  const Result<CommonOptions> machine = machine_of(argument);
  if (!machine.ok()) return context.fail(machine.error());
  std::shared_ptr<ir::Graph> graph;
  const Result<planner::Planning> planning = plan_of(context.session, *machine, graph);
  if (!planning.ok()) return context.fail(planning.error());
  context.print(planner::plan_text(planning->plan, context.session.path()));
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
  const Result<CommonOptions> machine = machine_of(argument.substr(blank));
  if (!machine.ok()) return context.fail(machine.error());
  std::shared_ptr<ir::Graph> graph;
  const Result<planner::Planning> planning = plan_of(context.session, *machine, graph);
  if (!planning.ok()) return context.fail(planning.error());
  const Result<std::string> text = planner::explain(*planning, name);
  if (!text.ok()) return context.fail(text.error());
  context.print(*text);
  return true;
}

}  // namespace cad::cli
