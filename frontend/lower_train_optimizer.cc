// frontend/lower_train_optimizer.cc -- optimizer entries: the update of one parameter as a graph
// over one stand-in dim, the schedule as a graph of rank 0, and which entry takes which parameter.
#include <algorithm>

#include <fmt/format.h>

#include "base/path_pattern.h"
#include "base/suggest.h"
#include "frontend/elaborate.h"
#include "frontend/lower_train.h"
#include "frontend/section_checker.h"
#include "ir/builder.h"

namespace cad::frontend {

namespace {

constexpr size_t kMaxListed = 4;

// Relates elements of a parameter to each other, so it may not run on a part of one.
bool relates_elements(const ir::Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](const ir::Node& node) {
    return node.op == ir::Op::kContract || std::string(ir::op_family(node.op)) == "reduce";
  });
}

// A state that nothing reads is none (sgd without momentum): its input and output go.
void drop_unread_states(ir::Graph& g) {
  for (size_t i = g.inputs.size(); i-- > 0;) {
    if (g.inputs[i].kind != ir::InputKind::kState) continue;
    const ir::ValueId value = g.inputs[i].value;
    const auto reads = [&](const ir::Node& node) {
      return std::count(node.operands.begin(), node.operands.end(), value) != 0;
    };
    if (std::any_of(g.nodes.begin(), g.nodes.end(), reads)) continue;
    const std::string output = "state:" + g.inputs[i].path;
    for (size_t o = g.outputs.size(); o-- > 0;) {
      if (g.outputs[o].name != output) continue;
      g.outputs.erase(g.outputs.begin() + static_cast<std::ptrdiff_t>(o));
      g.regions[0].results.erase(g.regions[0].results.begin() + static_cast<std::ptrdiff_t>(o));
    }
    const ir::NodeId def = g.value(value).def;
    auto& top = g.regions[0].nodes;
    top.erase(std::remove(top.begin(), top.end(), def), top.end());
    g.inputs.erase(g.inputs.begin() + static_cast<std::ptrdiff_t>(i));
    for (ir::Node& node : g.nodes) {
      if (node.op == ir::Op::kInput && node.attrs.input.index > static_cast<int32_t>(i))
        --node.attrs.input.index;
    }
  }
}

std::optional<ir::Graph> lower_update(const Module& module, const OptimizerUse& use,
                                      std::optional<double> decay, Diagnostics& diagnostics) {
  Lowering low(module, {}, diagnostics);
  const ir::DimId n = low.graph().add_dim("n", ir::Size::symbol("n"));
  const ir::ValueId p = low.add_input("p", ir::DType::kF32, {n});
  const ir::ValueId g = low.add_input("g", ir::DType::kF32, {n});
  const ir::ValueId lr = low.add_input("lr", ir::DType::kF32, {});
  const ir::ValueId step = low.add_input("step", ir::DType::kI32, {});
  auto constants = use.constants;
  if (decay && use.definition->signature.find_parameter("decay") >= 4)
    constants.emplace_back("decay", *decay);
  auto results = low.call(*use.definition, {p, g, lr, step}, use.args, constants, use.span);
  if (!results || results->size() != 1) return std::nullopt;
  low.output("p", results->at(0));
  ir::Graph graph = low.take();
  drop_unread_states(graph);
  return graph;
}

// Constants of the library's schedules that have no meaning: a warmup of 0 steps would divide by 0.
bool sound_constants(const Module& module, const Definition& schedule, const Expr& call,
                     Diagnostics& diagnostics) {
  struct Range {
    const char* schedule;
    const char* constant;
    double least;
    const char* wanted;
    const char* help;
  };
  static const Range kRanges[] = {
      {"linear", "warmup", 0, "a number, at least 0", ""},
      {"cosine", "warmup", 0, "a number, at least 0", ""},
      {"inverse_sqrt", "warmup", 1, "a number, at least 1",
       "the rate is p * min(t / warmup, sqrt(warmup / t)): leave `warmup` out for p / sqrt(t)"},
      {"step", "every", 1, "a whole number, at least 1", ""}};
  if (!schedule.unit->library) return true;
  for (size_t i = 0; i < call.args.size(); ++i) {
    const Arg& arg = call.args[i];
    const auto& parameters = schedule.signature.parameters;
    const std::string name = !arg.name.empty()           ? arg.name.text
                             : i + 2 < parameters.size() ? parameters[i + 2].name
                                                         : "";
    for (const Range& range : kRanges) {
      if (schedule.name != range.schedule || name != range.constant) continue;
      Diagnostics silent;  // what is no constant is reported by the call
      const auto number = constant_expression(module, module.main(), arg.value, silent);
      const auto known = number ? number->evaluate(module.bindings) : std::nullopt;
      if (!known || *known >= range.least) continue;
      Diagnostic d = make_diagnostic(
          DiagId::E0304, module.main().ast.expr(arg.value).span,
          fmt::format("`{}` of `{}` wants {}, not {}", name, schedule.name, range.wanted, *known));
      if (*range.help != '\0') d.help(range.help);
      diagnostics.add(std::move(d));
      return false;
    }
  }
  return true;
}

std::optional<ir::Graph> lower_schedule(const Module& module, ExprId expr,
                                        Diagnostics& diagnostics) {
  Lowering low(module, {}, diagnostics);
  const ir::ValueId t = low.add_input("t", ir::DType::kF32, {});
  const ir::ValueId steps = low.add_input("steps", ir::DType::kF32, {});
  const Ast& ast = module.main().ast;
  const Expr& e = ast.expr(strip_parens(ast, expr));
  const Definition* schedule = nullptr;
  if (e.kind == ExprKind::kCall) {
    const Expr& callee = ast.expr(e.left);
    const std::string name(module.sources->text(callee.span));
    schedule = find_definition(module, name);
    if (schedule != nullptr && !is_schedule(*schedule)) {
      diagnostics
          .add(
              make_diagnostic(DiagId::E0314, callee.span, fmt::format("`{}` is no schedule", name)))
          .label(schedule->name_span(), "declared here")
          .note("a schedule is `fn name(t: f32[], steps: f32[], constants ..) -> f32[]`");
      return std::nullopt;
    }
    if (schedule == nullptr) {
      std::vector<std::string> names = {"constant", "linear", "cosine", "inverse_sqrt", "step"};
      for (const auto& definition : module.definitions) {
        if (is_schedule(*definition)) names.push_back(definition->name);
      }
      const auto near = suggest(name, names);
      const bool arithmetic =
          name == "sqrt" || name == "exp" || name == "log" || name == "min" || name == "max";
      if (!arithmetic) {
        Diagnostic d = make_diagnostic(DiagId::E0313, callee.span,
                                       fmt::format("there is no schedule `{}`", name));
        if (near) d.help(fmt::format("did you mean `{}`?", *near));
        diagnostics.add(d);
        return std::nullopt;
      }
    }
  }
  ir::ValueId lr;
  if (schedule != nullptr) {
    if (!sound_constants(module, *schedule, e, diagnostics)) return std::nullopt;
    auto results = low.call(*schedule, {t, steps}, e.args, e.span);
    if (!results || results->size() != 1) return std::nullopt;
    lr = results->at(0);
  } else {
    auto number = constant_expression(module, module.main(), expr, diagnostics);
    if (!number) return std::nullopt;
    const auto known = number->evaluate(module.bindings);
    if (known && !(*known >= 0 && *known < 1e9)) {
      diagnostics.add(make_diagnostic(
          DiagId::E0304, e.span, fmt::format("`lr` wants a number, at least 0, not {}", *known)));
      return std::nullopt;
    }
    ir::Builder b(low.graph(), ir::RegionId{0});
    lr = b.constant(*number, ir::DType::kF32);
  }
  low.output("lr", lr);
  return low.take();
}

// Paths of a parameter's iterations: "h.{}.W" is h.0.W, h.1.W, ..; the template alone when a loop's
// size is not known.
std::vector<std::string> iteration_paths(const ir::Graph& g, const ir::Input& input,
                                         const ir::Bindings& bindings) {
  std::vector<std::string> paths = {input.path};
  const ir::Type& type = g.value(input.value).type;
  for (int i = 0; i < input.loop_dims; ++i) {
    const auto count = g.dim(type.dims[static_cast<size_t>(i)]).size.evaluate(bindings);
    if (!count.ok() || count.value > 100'000) return paths;
    std::vector<std::string> next;
    for (const std::string& path : paths) {
      const size_t at = path.find("{}");
      if (at == std::string::npos) continue;
      for (int64_t k = 0; k < count.value; ++k)
        next.push_back(path.substr(0, at) + std::to_string(k) + path.substr(at + 2));
    }
    paths = std::move(next);
  }
  return paths;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMaxListed; ++i)
    text += fmt::format("{}`{}`", i == 0 ? "" : ", ", names[i]);
  if (names.size() > kMaxListed) text += fmt::format(" and {} more", names.size() - kMaxListed);
  return text;
}

}  // namespace

std::optional<ir::OptimizerEntry> lower_optimizer(const Module& module, const OptimizerUse& use,
                                                  Diagnostics& diagnostics) {
  ir::OptimizerEntry entry;
  entry.name = use.name;
  entry.frozen = use.frozen;
  entry.of = use.of;
  entry.span = use.span;
  entry.decay_all = use.decay_all;
  if (use.frozen) return entry;
  for (const auto& [name, value] : use.constants) entry.constants[name] = value;
  if (use.decay) entry.constants["decay"] = *use.decay;
  auto schedule = lower_schedule(module, use.lr, diagnostics);
  if (!schedule) return std::nullopt;
  entry.schedule = std::move(*schedule);
  if (use.built_in) {
    entry.special = use.name;
    entry.elementwise = false;
    return entry;
  }
  auto decayed = lower_update(module, use, use.decay, diagnostics);
  if (!decayed) return std::nullopt;
  auto plain = lower_update(module, use, 0.0, diagnostics);
  if (!plain) return std::nullopt;
  entry.elementwise = !relates_elements(*decayed);
  entry.decayed = std::move(*decayed);
  entry.plain = std::move(*plain);
  return entry;
}

bool check_parameters(const Module& module, const TrainUse& train, const ir::Graph& forward,
                      Diagnostics& diagnostics) {
  const Span loss = module.main().ast.expr(train.loss).span;
  std::vector<int64_t> taken(train.optimizers.size(), 0);
  std::vector<std::string> orphans, all;
  bool trained = false, any = false;
  for (const ir::Input& input : forward.inputs) {
    if (input.kind != ir::InputKind::kParam) continue;
    any = true;
    if (input.frozen) continue;
    for (const std::string& path : iteration_paths(forward, input, module.bindings)) {
      all.push_back(path);
      size_t entry = 0;
      for (; entry < train.optimizers.size(); ++entry) {
        const auto& of = train.optimizers[entry].of;
        if (of.empty() || std::any_of(of.begin(), of.end(),
                                      [&](const std::string& p) { return path_matches(p, path); }))
          break;
      }
      if (entry == train.optimizers.size()) {
        orphans.push_back(path);
        continue;
      }
      ++taken[entry];
      trained = trained || !train.optimizers[entry].frozen;
    }
  }
  if (all.empty()) {
    diagnostics.add(make_diagnostic(DiagId::E0318, loss, "no parameter to train"))
        .note(any ? "all parameters that the loss depends on are frozen"
                  : "the loss depends on no `param`");
    return false;
  }
  bool fine = true;
  for (size_t i = 0; i < taken.size(); ++i) {
    if (taken[i] != 0) continue;
    Diagnostic d =
        make_diagnostic(DiagId::E0316, train.optimizers[i].span,
                        fmt::format("`{}` takes no parameter", train.optimizers[i].name));
    d.note(fmt::format("the parameters are {}", listed(all)));
    d.help(train.optimizers[i].of.empty()
               ? "an earlier entry takes all: give that one an `of`"
               : "patterns are matched against whole paths, `*` is any run of characters");
    diagnostics.add(d);
    fine = false;
  }
  if (fine && !orphans.empty()) {
    diagnostics
        .add(make_diagnostic(DiagId::E0317,
                             train.optimizers.empty() ? loss : train.optimizers[0].span,
                             fmt::format("no optimizer entry takes {}", listed(orphans))))
        .help("end the list with an entry without `of`, or with `frozen()`");
    fine = false;
  }
  if (fine && !trained) {
    diagnostics
        .add(make_diagnostic(DiagId::E0318, train.optimizers[0].span, "no parameter to train"))
        .note("every parameter is frozen");
    fine = false;
  }
  return fine;
}

}  // namespace cad::frontend
