// frontend/sections.cc -- see sections.h: reads all sections, then lowers every train section of a
// program without errors once, so that `check` finds what a run would.
#include "frontend/sections.h"

#include <set>

#include <fmt/format.h>

#include "frontend/elaborate.h"
#include "frontend/lower_train.h"
#include "frontend/section_checker.h"
#include "ir/passes.h"

namespace cad::frontend {

namespace {

// Only types and names, when the program has other errors.
void check_expressions(const Module& module, const TrainUse& train, Diagnostics& diagnostics) {
  LowerOptions options;
  options.check = true;
  Lowering low(module, options, diagnostics);
  for (const DataUse& use : train.data) {
    for (const DataDeclaration& name : use.names)
      low.add_data(name.name.text, name.dtype, name.dims);
  }
  low.expression(train.loss);
  for (const EvalUse& eval : train.evals) {
    for (const auto& [name, expr] : eval.metrics) low.expression(expr);
  }
}

// The schedule that an entry's `lr` calls must be checked before it is lowered.
void check_schedule(Module& module, const OptimizerUse& use, Diagnostics& diagnostics) {
  if (!use.lr.valid()) return;
  const Ast& ast = module.main().ast;
  const Expr& e = ast.expr(strip_parens(ast, use.lr));
  if (e.kind != ExprKind::kCall) return;
  const Definition* found =
      find_definition(module, std::string(module.sources->text(ast.expr(e.left).span)));
  if (found != nullptr) ensure_checked(module, const_cast<Definition&>(*found), diagnostics);
}

// With several micro-batches a step is one batch only where rows do not depend on each other.
void note_relations(Module& module, const TrainUse& train, const ir::Graph& forward) {
  std::set<std::string> said;  // a line of the program, or a layer of the library, once
  for (const ir::NodeId id : ir::row_relations(forward)) {
    const ir::Node& node = forward.node(id);
    const bool library = !node.span.valid() || module.sources->file(node.span.file).path[0] == '<';
    const std::string place =
        library ? node.scope.substr(node.scope.rfind('.') + 1)
                : fmt::format("{}:{}", node.span.file.index,
                              module.sources->line_column(node.span.file, node.span.begin).line);
    if (!said.insert(place).second) continue;
    module.notes.push_back(
        {library ? Span{} : node.span,
         fmt::format("`{}`{} relates rows of the batch: with `accumulate: {}` each of the {} "
                     "micro-batches of a step sees its own rows only",
                     ir::op_name(node.op),
                     node.scope.empty() ? "" : fmt::format(" in `{}`", node.scope),
                     train.accumulate, train.accumulate)});
  }
}

// What only a metric uses would keep its initial value for ever.
void check_metrics(const ir::Graph& forward, const ir::EvalSpec& eval, Span span,
                   Diagnostics& diagnostics) {
  std::set<std::string> in_loss;
  for (const ir::Input& input : forward.inputs) in_loss.insert(input.path);
  std::string names;
  Span first;
  for (const ir::Input& input : eval.graph.inputs) {
    if (input.kind != ir::InputKind::kParam || input.frozen || in_loss.count(input.path) != 0)
      continue;
    names += fmt::format("{}`{}`", names.empty() ? "" : ", ", input.path);
    if (!first.valid()) first = input.span;
  }
  if (names.empty()) return;
  Diagnostic d = make_diagnostic(DiagId::E0317, span,
                                 fmt::format("a metric uses {}, which the loss does not", names),
                                 "nothing trains it");
  if (first.valid()) d.label(first, "declared here");
  d.help("measure what the loss trains, or mark the parameter `@frozen`");
  diagnostics.add(std::move(d));
}

// `sound`: the definitions have no errors, so calls can be expanded.
void check_train(Module& module, const TrainUse& train, bool sound, Diagnostics& diagnostics) {
  const size_t before = diagnostics.errors();
  for (const OptimizerUse& use : train.optimizers) check_schedule(module, use, diagnostics);
  check_expressions(module, train, diagnostics);
  if (!sound || diagnostics.errors() != before) return;
  auto forward = lower_forward(module, train, diagnostics);
  if (forward) check_parameters(module, train, *forward, diagnostics);
  if (forward && train.accumulate > 1) note_relations(module, train, *forward);
  for (const OptimizerUse& use : train.optimizers) lower_optimizer(module, use, diagnostics);
  if (!forward) return;
  for (const EvalUse& eval : train.evals) {
    if (auto spec = lower_eval(module, train, eval, diagnostics))
      check_metrics(*forward, *spec, eval.span, diagnostics);
  }
}

}  // namespace

const SectionData* section_data(const Module& module) {
  return static_cast<const SectionData*>(module.section_data.get());
}

void check_sections(Module& module, Diagnostics& diagnostics) {
  auto data = std::make_shared<SectionData>();
  module.section_data = data;
  const bool sound = !diagnostics.has_errors();
  SectionChecker(module, *data, diagnostics).run();
  for (TrainUse& train : data->trains) {
    if (!train.valid) continue;
    const size_t before = diagnostics.errors();
    check_train(module, train, sound, diagnostics);
    train.valid = diagnostics.errors() == before;
  }
}

}  // namespace cad::frontend
