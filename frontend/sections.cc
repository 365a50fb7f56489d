// frontend/sections.cc -- see sections.h: reads all sections, then lowers every train section of a
// program without errors once, so that `check` finds what a run would.
#include "frontend/sections.h"

#include "frontend/elaborate.h"
#include "frontend/lower_train.h"
#include "frontend/section_checker.h"

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

// `sound`: the definitions have no errors, so calls can be expanded.
void check_train(Module& module, const TrainUse& train, bool sound, Diagnostics& diagnostics) {
  const size_t before = diagnostics.errors();
  for (const OptimizerUse& use : train.optimizers) check_schedule(module, use, diagnostics);
  check_expressions(module, train, diagnostics);
  if (!sound || diagnostics.errors() != before) return;
  auto forward = lower_forward(module, train, diagnostics);
  if (forward) check_parameters(module, train, *forward, diagnostics);
  for (const OptimizerUse& use : train.optimizers) lower_optimizer(module, use, diagnostics);
  if (!forward) return;
  for (const EvalUse& eval : train.evals) lower_eval(module, train, eval, diagnostics);
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
