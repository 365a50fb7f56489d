// frontend/lower_train.cc -- see lower_train.h: forward and evaluation graphs, and the TrainSpec as
// a whole. Optimizers: lower_train_optimizer.cc; means and ids: lower_train_means.cc.
#include "frontend/lower_train.h"
#include "frontend/size_limits.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "frontend/elaborate.h"
#include "ir/builder.h"

namespace cad::frontend {

namespace {

void add_data(Lowering& low, const std::vector<DataUse>& uses) {
  for (const DataUse& use : uses) {
    for (const DataDeclaration& name : use.names)
      low.add_data(name.name.text, name.dtype, name.dims);
  }
}

std::string type_text(const ir::Graph& g, const ir::Type& type) {
  std::vector<std::string> dims;
  for (ir::DimId dim : type.dims) dims.push_back(g.dim(dim).name);
  return fmt::format("{}[{}]", type.dtype == ir::DType::kF32 ? "" : ir::dtype_name(type.dtype),
                     fmt::join(dims, ", "));
}

// The value of an expression that must be one number; E0322 otherwise.
std::optional<ir::ValueId> scalar_value(Lowering& low, const Module& module, ExprId expr,
                                        const std::string& what, Diagnostics& diagnostics) {
  auto value = low.tensor(expr);
  if (!value) return std::nullopt;
  ir::Graph& g = low.graph();
  const ir::Type type = g.value(*value).type;
  const Span span = module.main().ast.expr(expr).span;
  if (type.dims.empty() && type.dtype == ir::DType::kF32) return value;
  if (type.dims.empty() && ir::is_float(type.dtype)) {
    ir::Builder b(g, ir::RegionId{0});
    return b.cast(*value, ir::DType::kF32);
  }
  Diagnostic d = make_diagnostic(DiagId::E0322, span,
                                 fmt::format("{} is one number, not {}", what, type_text(g, type)));
  if (type.dims.empty()) {
    d.help("cast it: `f32(..)`");
  } else {
    d.help("take a mean over all dims: `mean(..)`");
  }
  diagnostics.add(d);
  return std::nullopt;
}

bool free_dims(const Module& module, const ir::Graph& g, const TrainUse& train,
               Diagnostics& diagnostics) {
  std::set<std::string> reported;
  for (const ir::Dim& dim : g.dims) {
    for (const std::string& symbol : dim.size.symbols()) {
      if (module.bindings.count(symbol) != 0 || !reported.insert(symbol).second) continue;
      Diagnostic d = make_diagnostic(DiagId::E0323, train.span,
                                     fmt::format("the dim `{}` has no size", symbol));
      if (auto decl = module.dims.find(symbol); decl != module.dims.end())
        d.label(decl->second.span, "declared without a size");
      d.help(
          fmt::format("bind it in the section, `{}: 64`, or with `--set {}=64`", symbol, symbol));
      diagnostics.add(d);
    }
  }
  return !reported.empty();
}

}  // namespace

ir::DataSpec data_spec(const Module& module, const std::vector<DataUse>& uses) {
  ir::DataSpec spec;
  for (const DataUse& use : uses) {
    ir::DataSource source;
    source.kind = use.kind;
    source.files = use.files;
    source.wide_tokens = use.wide_tokens;
    source.span = use.span;
    for (const DataDeclaration& declared : use.names) {
      ir::DataName name;
      name.name = declared.name.text;
      name.dtype = declared.dtype;
      for (const Name& dim : declared.dims) {
        name.dims.push_back(dim.text);
        name.sizes.push_back(module.dims.at(dim.text).size);
      }
      source.names.push_back(std::move(name));
    }
    spec.push_back(std::move(source));
  }
  return spec;
}

std::optional<ir::Graph> lower_forward(const Module& module, const TrainUse& train,
                                       Diagnostics& diagnostics) {
  LowerOptions options;
  options.dropout = train.dropout;
  options.compute = train.precision;
  Lowering low(module, options, diagnostics);
  add_data(low, train.data);
  auto loss = scalar_value(low, module, train.loss, "a loss", diagnostics);
  if (!loss) return std::nullopt;
  low.output("loss", *loss);
  return low.take();
}

std::optional<ir::EvalSpec> lower_eval(const Module& module, const TrainUse& train,
                                       const EvalUse& use, Diagnostics& diagnostics) {
  LowerOptions options;
  options.training = false;
  options.compute = train.precision;
  Lowering low(module, options, diagnostics);
  add_data(low, use.data);
  ir::EvalSpec eval;
  eval.name = use.name;
  eval.every = use.every;
  eval.batches = use.batches;
  eval.span = use.span;
  std::vector<std::pair<std::string, ir::ValueId>> values;
  auto loss = scalar_value(low, module, train.loss, "a loss", diagnostics);
  if (!loss) return std::nullopt;
  values.emplace_back("loss", *loss);
  for (const auto& [name, expr] : use.metrics) {
    auto value =
        scalar_value(low, module, expr, fmt::format("the metric `{}`", name.text), diagnostics);
    if (!value) return std::nullopt;
    values.emplace_back(name.text, *value);
  }
  const ir::ValueId mask = low.add_input("row_mask", ir::DType::kBool, {low.graph().batch_dim});
  for (const auto& [name, value] : values) {
    output_means(low.graph(), value, mask, name);
    eval.metrics.push_back(name);
  }
  eval.graph = low.take();
  eval.data = data_spec(module, use.data);
  return eval;
}

Result<ir::TrainSpec> lower_train(const Module& module, TrainUsage usage) {
  Diagnostics diagnostics;
  const bool run = usage == TrainUsage::kRun;
  const SectionData* data = section_data(module);
  if (data == nullptr || data->chosen < 0) {
    Diagnostic d = make_error(DiagId::E0308, "the program has no train section", kExitProgram);
    d.help("add one: `train { data: .., loss: .., optimizer: .., steps: 100 }`");
    return d;
  }
  const TrainUse& train = data->trains[static_cast<size_t>(data->chosen)];
  ir::TrainSpec spec;
  auto forward = lower_forward(module, train, diagnostics);
  if (forward && ((run && free_dims(module, *forward, train, diagnostics)) ||
                  !check_parameters(module, train, *forward, diagnostics))) {
    forward.reset();
  }
  if (!forward) return diagnostics.all().at(0);
  spec.forward = std::move(*forward);
  for (const OptimizerUse& use : train.optimizers) {
    auto entry = lower_optimizer(module, use, diagnostics);
    if (!entry) return diagnostics.all().at(0);
    spec.optimizers.push_back(std::move(*entry));
  }
  for (const EvalUse& use : train.evals) {
    if (!run) break;
    auto eval = lower_eval(module, train, use, diagnostics);
    if (!eval || free_dims(module, eval->graph, train, diagnostics)) return diagnostics.all().at(0);
    spec.evals.push_back(std::move(*eval));
  }
  spec.name = train.name;
  spec.program_path = module.sources->file(module.main().ast.file).path;
  spec.data = data_spec(module, train.data);
  find_id_limits(spec.forward, spec.data);
  for (ir::EvalSpec& eval : spec.evals) {
    find_id_limits(eval.graph, spec.data);
    find_id_limits(eval.graph, eval.data);
    find_id_limits(spec.forward, eval.data);
  }
  spec.save = train.save;
  spec.init = train.init;
  spec.bindings = module.bindings;
  spec.accumulate = train.accumulate;
  spec.precision = train.precision;
  spec.clip = train.clip;
  spec.ema = train.ema;
  spec.steps = train.steps;
  spec.epochs = train.epochs;
  spec.seed = train.seed;
  spec.shuffled = train.shuffled;
  spec.dropout = train.dropout;
  if (auto fault = size_fault(spec.forward, spec.bindings)) return *fault;
  if (auto fault = data_size_fault(spec.data, spec.bindings)) return *fault;
  for (const ir::EvalSpec& eval : spec.evals) {
    if (auto fault = size_fault(eval.graph, spec.bindings)) return *fault;
    if (auto fault = data_size_fault(eval.data, spec.bindings)) return *fault;
  }
  return spec;
}

}  // namespace cad::frontend
