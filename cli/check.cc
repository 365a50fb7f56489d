// cli/check.cc -- `colauto check`: every error of a program, its bindings with their dims
// (--types), and what the front end and the graph passes make of it (--emit).
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/render.h"
#include "cli/cost_table.h"
#include "cli/load_program.h"
#include "frontend/ast_print.h"
#include "frontend/module_data.h"
#include "frontend/parse.h"
#include "ir/passes.h"
#include "ir/text.h"

namespace cad::cli {
namespace {

struct CheckFlags {
  bool types = false;
};

std::string types_text(const frontend::Module& module, const Sources& sources) {
  std::string text;
  for (const auto& definition : module.definitions) {
    if (definition->unit->library) continue;
    text += fmt::format("{} {}\n", frontend::def_keyword(definition->kind), definition->name);
    for (const frontend::BindingInfo& binding : definition->bindings) {
      const int line = sources.line_column(binding.span.file, binding.span.begin).line;
      text += fmt::format("  {:>4}  {:<9} {:<14} {}{}\n", line, binding.kind, binding.name,
                          binding.type, binding.sizes.empty() ? "" : "   " + binding.sizes);
    }
  }
  return text;
}

nlohmann::json types_json(const frontend::Module& module, const Sources& sources) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& definition : module.definitions) {
    if (definition->unit->library) continue;
    for (const frontend::BindingInfo& binding : definition->bindings) {
      const LineColumn at = sources.line_column(binding.span.file, binding.span.begin);
      list.push_back({{"definition", definition->name},
                      {"name", binding.name},
                      {"kind", binding.kind},
                      {"type", binding.type},
                      {"sizes", binding.sizes},
                      {"line", at.line},
                      {"column", at.column}});
    }
  }
  return list;
}

std::string module_text(const frontend::Module& module) {
  std::string text;
  for (const std::string& name : module.dim_order) {
    const auto dim = module.dims.find(name);
    if (dim == module.dims.end()) continue;
    const auto bound = module.bindings.find(name);
    text += fmt::format("dim {} = {}", name, frontend::reader_text(dim->second.size));
    if (bound != module.bindings.end()) text += fmt::format("   # {}", bound->second);
    text += '\n';
  }
  for (const auto& definition : module.definitions) {
    if (definition->unit->library) continue;
    text += fmt::format("{} {}", frontend::def_keyword(definition->kind), definition->name);
    if (definition->owns) text += "   # owns parameters or states";
    text += '\n';
    for (const frontend::DefCondition& condition : definition->conditions) {
      text += fmt::format("  needs {}\n", condition.what);
    }
  }
  return text;
}

// The program's graph: of the train section's loss, else of the model.
Result<ir::Graph> forward_graph(const frontend::Module& module, bool training) {
  for (const frontend::Section& section : module.main().ast.sections) {
    if (section.kind.text != "train") continue;
    CAD_TRY(spec, frontend::lower_train(module));
    return std::move(spec.forward);
  }
  return frontend::lower_model(module, training, ir::DType::kF32);
}

int emit(const CommonOptions& common, LoadedProgram& program, const std::string& form) {
  const frontend::Module& module = *program.module;
  if (form == "ast") {
    print(frontend::print_ast(module.main().ast));
    return kExitOk;
  }
  if (form == "module") {
    print(module_text(module));
    return kExitOk;
  }
  if (form == "profile") {
    auto profile = program_profile(module);
    if (!profile.ok()) return fail(common, program.sources, profile.error());
    print(cost_table(*profile, frontend::bindings(module), CostRows::kLayer));
    return kExitOk;
  }
  program.timings.start("lower");
  Result<ir::Graph> graph = forward_graph(module, true);
  program.timings.stop();
  if (!graph.ok()) return fail(common, program.sources, graph.error());
  if (form == "grad") {
    program.timings.start("passes");
    print(ir::print(ir::training_graph(std::move(*graph))));
    program.timings.stop();
  } else {
    print(ir::print(*graph));
  }
  return kExitOk;
}

// --emit=ast alone prints the tree also of a program with other errors.
int emit_tree(const CommonOptions& common) {
  LoadedProgram program;
  if (const int status = load_source_file(common, program); status != kExitOk) return status;
  program.timings.start("parse");
  const frontend::Ast ast = frontend::parse(program.sources, program.file, program.diagnostics);
  program.timings.stop();
  print(frontend::print_ast(ast));
  const bool errors = print_diagnostics(common, program.sources, program.diagnostics);
  program.timings.report(common);
  return errors ? kExitProgram : kExitOk;
}

nlohmann::json notes_json(const frontend::Module& module, const Sources& sources) {
  nlohmann::json list = nlohmann::json::array();
  for (const frontend::Module::Note& note : module.notes) {
    nlohmann::json entry{
        {"text", note.text}, {"file", nullptr}, {"line", nullptr}, {"column", nullptr}};
    if (note.span.valid()) {
      const LineColumn at = sources.line_column(note.span.file, note.span.begin);
      entry["file"] = sources.file(note.span.file).path;
      entry["line"] = at.line;
      entry["column"] = at.column;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

// The diagnostics, and what is worth knowing of a program without errors.
nlohmann::json check_document(const LoadedProgram& program) {
  nlohmann::json document = render_json(program.diagnostics, program.sources);
  if (program.module) document["notes"] = notes_json(*program.module, program.sources);
  return document;
}

void print_notes(const CommonOptions& common, const LoadedProgram& program) {
  if (common.error_format == ErrorFormat::kJson) return;
  for (const frontend::Module::Note& note : program.module->notes) {
    std::string place;
    if (note.span.valid()) {
      const LineColumn at = program.sources.line_column(note.span.file, note.span.begin);
      place =
          fmt::format("{}:{}:{}: ", program.sources.file(note.span.file).path, at.line, at.column);
    }
    message(common, fmt::format("note: {}{}", place, note.text));
  }
}

int run_check(const CheckFlags& flags, CommonOptions& common) {
  if (common.emit.size() == 1 && common.emit[0] == "ast") return emit_tree(common);
  LoadedProgram program;
  CommonOptions loading = common;
  if (common.json) {  // the diagnostics are the result then
    loading.error_format = ErrorFormat::kJson;
    loading.quiet = true;
  }
  int status = load_program(loading, program, !common.json);
  if (common.json) {
    nlohmann::json document = check_document(program);
    if (flags.types && program.module)
      document["bindings"] = types_json(*program.module, program.sources);
    print(document.dump(2) + "\n");
  }
  if (status == kExitOk && !common.json) {
    print_notes(common, program);
    if (flags.types) print(types_text(*program.module, program.sources));
    for (const std::string& form : common.emit) {
      if (status == kExitOk) status = emit(common, program, form);
    }
    const bool document = common.error_format == ErrorFormat::kJson;
    if (document && program.diagnostics.all().empty())  // a reader of JSON gets JSON
      fmt::print(stderr, "{}\n", check_document(program).dump());
    if (!flags.types && common.emit.empty() && status == kExitOk && !common.quiet && !document) {
      print(fmt::format("{}: no errors\n", common.file));
    }
  }
  program.timings.report(common);
  return status;
}

}  // namespace

Action declare_check(CLI::App& app, CommonOptions& common) {
  add_program_flags(app, common);
  add_json_flag(app, common);
  add_emit_flag(app, common, {"ast", "module", "ir", "grad", "profile"});
  auto own = std::make_shared<CheckFlags>();
  app.add_flag("--types", own->types, "list every binding with its dims");
  return [own, &common] { return run_check(*own, common); };
}

}  // namespace cad::cli
