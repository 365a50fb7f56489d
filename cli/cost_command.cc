// cli/cost_command.cc -- `colauto cost`: what a program costs, as formulas and numbers, without
// running it. Tables: cost_table.cc; how things are counted: docs/costs.md.
#include <memory>

#include <fmt/format.h>

#include "base/suggest.h"
#include "cli/cost_table.h"
#include "cli/load_program.h"
#include "cli/sweep.h"
#include "frontend/layer_names.h"
#include "frontend/module_data.h"

namespace cad::cli {

namespace {

Result<ir::Profile> unnamed_profile(const frontend::Module& module, bool model) {
  if (!model) {
    auto spec = frontend::lower_train(module, frontend::TrainUsage::kCost);
    if (spec.ok()) return ir::profile(*spec);
    if (spec.error().id != DiagId::E0308) return std::move(spec.error());
  }
  auto graph = frontend::lower_model(module, true, ir::DType::kF32);
  if (!graph.ok()) return std::move(graph.error());
  return ir::profile(std::move(*graph), frontend::bindings(module));
}

}  // namespace

Result<ir::Profile> program_profile(const frontend::Module& module, bool model) {
  CAD_TRY(profile, unnamed_profile(module, model));
  const std::map<std::string, std::string> names = frontend::layer_names(module);
  for (ir::ProfiledLayer& layer : profile.layers) {
    const auto found = names.find(layer.scope);
    if (found != names.end()) layer.layer = found->second;
  }
  return profile;
}

namespace {

struct CostFlags {
  std::string by = "layer", layer;
  std::vector<std::string> sweeps;
};

Result<CostRows> rows_of(const std::string& by) {
  if (by == "op") return CostRows::kOp;
  if (by == "layer") return CostRows::kLayer;
  if (by == "param") return CostRows::kParam;
  Diagnostic error = make_error(
      DiagId::E0503, fmt::format("bad value of `--by`: `{}` is none of op, layer, param", by),
      kExitUsage);
  if (auto near = suggest(by, {"op", "layer", "param"}))
    error.help(fmt::format("did you mean `{}`?", *near));
  return error;
}

Result<std::vector<std::string>> scopes_of(const ir::Profile& profile, const std::string& layer) {
  std::vector<std::string> names;
  if (layer.empty()) return std::vector<std::string>{};
  std::vector<std::string> scopes = scopes_named(profile, layer, &names);
  if (!scopes.empty()) return scopes;
  Diagnostic error =
      make_error(DiagId::E0511, fmt::format("no layer `{}` in the program", layer), kExitUsage);
  if (auto near = suggest(layer, names)) {
    error.help(fmt::format("did you mean `{}`?", *near));
  } else if (!names.empty()) {
    error.note(fmt::format("it has `{}`", fmt::join(names, "`, `")));
  }
  return error;
}

// A dim that has a size of its own: not an alias, not an expression.
Status check_swept(const frontend::Module& module, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [dim, declared] : module.dims) {
    if (declared.size == ir::Size::symbol(dim)) names.push_back(dim);
  }
  if (std::find(names.begin(), names.end(), name) != names.end()) return Ok{};
  const auto found = module.dims.find(name);
  if (found != module.dims.end()) {
    Diagnostic error = make_error(DiagId::E0512,
                                  fmt::format("`{}` is `{}`, not a size of its own", name,
                                              frontend::reader_text(found->second.size)),
                                  kExitUsage);
    error.help(fmt::format("sweep `{}`", fmt::join(found->second.size.symbols(), "` or `")));
    return error;
  }
  Diagnostic error =
      make_error(DiagId::E0512, fmt::format("no dim `{}` to sweep", name), kExitUsage);
  if (auto near = suggest(name, names)) error.help(fmt::format("did you mean `{}`?", *near));
  return error;
}

constexpr double kMostBytes = 9.2e18;

std::string point_text(const std::vector<Sweep>& sweeps, const ir::Bindings& point) {
  std::string text;
  for (const Sweep& sweep : sweeps)
    text += fmt::format("{}`{} = {}`", text.empty() ? "" : ", ", sweep.dim, point.at(sweep.dim));
  return text;
}

// Every size of every point is a whole number, and what the program takes fits 64 bits.
Status check_points(const ir::Profile& profile, const std::vector<Sweep>& sweeps,
                    const std::vector<ir::Bindings>& points) {
  for (const ir::Bindings& point : points) {
    for (const ir::Dim& dim : profile.graph.dims) {
      const ir::Size::Evaluated size = dim.size.evaluate(point);
      if (size.ok() || size.error == ir::Size::EvalError::kFree) continue;
      Diagnostic error = make_error(
          DiagId::E0512,
          fmt::format("at {} the dim `{}` has no size", point_text(sweeps, point), dim.name),
          kExitUsage);
      error.note(fmt::format("`{} = {}` is {}", dim.name, dim.size.str(), size.detail));
      return error;
    }
    if (profile.peak(profile.extents(point)).bytes > kMostBytes) {
      return make_error(DiagId::E0512,
                        fmt::format("at {} the bytes are past 64 bits", point_text(sweeps, point)),
                        kExitUsage);
    }
  }
  return Ok{};
}

Result<std::vector<Sweep>> sweeps_of(const frontend::Module& module, const CostFlags& flags) {
  std::vector<Sweep> sweeps;
  for (const std::string& text : flags.sweeps) {
    CAD_TRY(sweep, parse_sweep(text));
    CAD_TRY_VOID(check_swept(module, sweep.dim));
    sweeps.push_back(std::move(sweep));
  }
  return sweeps;
}

// The result as text.
Result<std::string> cost_text(const frontend::Module& module, const CommonOptions& common,
                              const CostFlags& flags, Timings& timings) {
  CAD_TRY(rows, rows_of(flags.by));
  CAD_TRY(sweeps, sweeps_of(module, flags));
  timings.start("profile");
  CAD_TRY(profile, program_profile(module, !common.model.empty() && common.train.empty()));
  timings.start("print");
  CAD_TRY(scopes, scopes_of(profile, flags.layer));
  const ir::Bindings& bindings = frontend::bindings(module);
  if (sweeps.empty()) {
    if (!common.json) return cost_table(profile, bindings, rows, scopes);
    return cost_json(profile, bindings, scopes).dump(2) + "\n";
  }
  std::vector<std::string> dims;
  for (const Sweep& sweep : sweeps) dims.push_back(sweep.dim);
  CAD_TRY(points, sweep_points(sweeps, bindings));
  CAD_TRY_VOID(check_points(profile, sweeps, points));
  if (!common.json) return sweep_table(profile, dims, points);
  nlohmann::ordered_json document = cost_json(profile, bindings, scopes);
  document["sweep"] = sweep_json(profile, dims, points);
  return document.dump(2) + "\n";
}

int run_cost(const CommonOptions& common, const CostFlags& flags) {
  LoadedProgram program;
  if (const int status = load_program(common, program); status != kExitOk) return status;
  auto text = cost_text(*program.module, common, flags, program.timings);
  if (!text.ok()) return fail(common, program.sources, text.error());
  print(*text);
  program.timings.report(common);
  return kExitOk;
}

}  // namespace

Action declare_cost(CLI::App& app, CommonOptions& common) {
  add_program_flags(app, common);
  add_json_flag(app, common);
  auto own = std::make_shared<CostFlags>();
  CLI::Option* by =
      app.add_option("--by", own->by, "a row for each op, layer or param (default: layer)")
          ->type_name("ROWS");
  CLI::Option* layer = app.add_option("--layer", own->layer,
                                      "only this layer: Attention, h.*.attention or attention")
                           ->type_name("NAME");
  app.add_option("--sweep", own->sweeps,
                 "a table over sizes: T=1024:65536:x2, T=1024:8192:+1024 or T=512,1024; repeatable")
      ->type_name("NAME=SIZES")
      ->excludes(by)
      ->excludes(layer)
      ->allow_extra_args(false);
  return [own, &common] { return run_cost(common, *own); };
}

}  // namespace cad::cli
