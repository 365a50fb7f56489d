// frontend/lower.cc -- a model as a forward graph: its arguments are data inputs, its results the
// outputs "result:0", .. in their declared order of dims. Train sections: lower_train.cc.
#include <algorithm>

#include "base/suggest.h"
#include "frontend/elaborator.h"
#include "frontend/size_limits.h"

namespace cad::frontend {

const Definition* chosen_model(const Module& module, Diagnostic& error) {
  const Definition* last = nullptr;
  std::vector<std::string> names;
  for (const Item& item : module.main().ast.items) {
    if (item.kind != ItemKind::kDef) continue;
    const Def& def = module.main().ast.def(item.def);
    if (def.kind != DefKind::kModel || def.name.empty()) continue;
    names.push_back(def.name.text);
    const Definition* d = module.main().definitions.at(def.name.text);
    if (module.options.model.empty() || module.options.model == def.name.text) last = d;
  }
  if (last == nullptr && !module.options.model.empty()) {
    if (const Definition* d = find_definition(module, module.options.model);
        d != nullptr && d->kind == DefKind::kModel)
      return d;
    error =
        make_error(DiagId::E0121, fmt::format("no model `{}` in the program", module.options.model),
                   kExitUsage);
    if (auto near = suggest(module.options.model, names))
      error.help(fmt::format("did you mean `{}`?", *near));
  } else if (last == nullptr) {
    error = make_error(DiagId::E0121, "the program has no model", kExitProgram);
    error.help("write `model Name(args) -> type { .. }`");
  }
  return last;
}

Result<ir::Graph> lower_model(const Module& module, bool training, ir::DType precision) {
  Diagnostic error = make_error(DiagId::E0121, "no model", kExitProgram);
  const Definition* model = chosen_model(module, error);
  if (model == nullptr) return error;
  LowerOptions options;
  options.training = training;
  options.compute = precision;
  Diagnostics diagnostics;
  Elaborator e(module, Elaborator::Mode::kLower, options, diagnostics);
  e.open_section();
  Result<ir::Graph> lowered = e.lower_model(*model);
  if (lowered.ok()) {
    if (auto fault = size_fault(*lowered, module.bindings)) return *fault;
  }
  return lowered;
}

Result<ir::Graph> Elaborator::lower_model(const Definition& model) {
  std::vector<ArgValue> args;
  const Unit* main = body->unit;
  for (const Parameter& p : model.signature.parameters) {
    if (p.type.kind != TypePattern::Kind::kTensor) continue;
    body->unit = model.unit;
    const DimList dims = *pattern_dims(p.type, {}, {}, model.unit);
    body->unit = main;
    ir::ValueId v = plain_input(p.name, p.type.dtype, dims, ir::InputKind::kData, p.span);
    if (!graph.batch_dim.valid() && !dims.empty()) graph.batch_dim = dims[0];
    if (p.type.plain) v = cast(v, options.compute);
    Name name;
    name.text = p.name;
    name.span = p.span;
    args.push_back({name, tensor_of(v, p.span), p.span});
  }
  EValue result = section_call(model, std::move(args), model.name_span());
  if (result.error()) {
    if (!diagnostics->all().empty()) return diagnostics->all()[0];
    return make_diagnostic(DiagId::E0121, model.name_span(),
                           fmt::format("model `{}` has errors", model.name));
  }
  const std::vector<EValue> values =
      result.kind == EValue::Kind::kMany ? *result.many : std::vector<EValue>{result};
  for (size_t i = 0; i < values.size(); ++i) {
    const DimList dims = *pattern_dims(model.signature.results[i], {}, {}, model.unit);
    ir::Builder top(graph, ir::RegionId{0});
    top.span = model.signature.results[i].span;
    ir::ValueId v = values[i].value;
    if (type(v).dims.size() == dims.size()) v = top.ordered(v, dims);
    graph.regions[0].results.push_back(v);
    graph.outputs.push_back({"result:" + std::to_string(i)});
  }
  return finish();
}

const ir::Bindings& bindings(const Module& module) {
  return module.bindings;
}

}  // namespace cad::frontend
