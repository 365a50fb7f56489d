// cli/repl_commands.cc -- the table, dispatch, and the commands that change the session.
#include "cli/repl_commands.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/suggest.h"
#include "base/text.h"
#include "cli/repl_graph.h"
#include "frontend/module_data.h"
#include "frontend/parse.h"

namespace cad::cli {
namespace {

// Applies `change` to a copy; the session takes it over when it is without errors.
template <class Change>
bool try_change(ReplContext& context, Change change) {
  Session next = context.session;
  Diagnostics diagnostics;
  const bool ok = change(next, diagnostics);
  context.report(next, diagnostics);
  if (ok) context.session = std::move(next);
  return ok;
}

// What a program holds, in a line: "gpt.cad: 8 dims, 2 lets, 3 layers, 1 model, 1 section".
std::string contents(const Session& session) {
  const frontend::Unit& main = session.module().main();
  std::vector<std::string> parts;
  const auto add = [&](size_t n, const char* what) {
    if (n > 0) parts.push_back(fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"));
  };
  add(main.dims.size(), "dim");
  add(main.lets.size(), "let");
  for (const frontend::DefKind kind :
       {frontend::DefKind::kFn, frontend::DefKind::kLayer, frontend::DefKind::kModel}) {
    const auto n = std::count_if(main.definitions.begin(), main.definitions.end(),
                                 [&](const auto& d) { return d.second->kind == kind; });
    add(static_cast<size_t>(n), frontend::def_keyword(kind));
  }
  const auto sections =
      std::count_if(main.ast.items.begin(), main.ast.items.end(),
                    [](const auto& item) { return item.kind == frontend::ItemKind::kSection; });
  add(static_cast<size_t>(sections), "section");
  return fmt::format("{}: {}\n", session.path(),
                     parts.empty() ? "nothing" : fmt::format("{}", fmt::join(parts, ", ")));
}

Diagnostic needs(const char* command, const char* what) {
  Diagnostic error =
      make_error(DiagId::E0503, fmt::format("`:{}` needs {}", command, what), kExitUsage);
  error.help(fmt::format("see `:help {}`", command));
  return error;
}

bool run_load(ReplContext& context, const std::string& path) {
  if (path.empty()) return context.fail(needs("load", "a file"));
  if (path == "-") {
    Diagnostic error =
        make_error(DiagId::E0503, "standard input holds the commands, not a program", kExitUsage);
    error.help("`colauto repl FILE` takes the name of a file");
    return context.fail(error);
  }
  if (!try_change(context, [&](Session& next, Diagnostics& diagnostics) {
        return next.load(path, {}, diagnostics);
      }))
    return false;
  context.print(contents(context.session));
  // What `:save` wrote behind the program; a line with an error is left out.
  bool ok = true;
  int number = 0;
  for (const std::string& input : context.session.saved_inputs()) {
    ReplContext again{context.session, context.common, --number, context.silent};
    const bool known = input_kind(input) == InputKind::kStatement || input.rfind(":set ", 0) == 0;
    if (known) ok = run_input(again, input) && ok;
  }
  return ok || !context.session.path().empty();
}

bool run_reload(ReplContext& context, const std::string&) {
  if (!try_change(context, [&](Session& next, Diagnostics& diagnostics) {
        return next.reload(diagnostics);
      }))
    return false;
  if (!context.session.path().empty()) context.print(contents(context.session));
  return true;
}

// "B=64 T=16" or "lr = 1e-3"; "B=" takes a setting back.
std::vector<frontend::Setting> read_settings(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" \t", at), text.size());
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  const bool several =
      words.size() > 1 && std::all_of(words.begin(), words.end(), [](const auto& w) {
        const size_t equals = w.find('=');
        return equals != std::string::npos && equals > 0;
      });
  if (!several) words = {text};
  std::vector<frontend::Setting> settings;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || trimmed(word.substr(0, equals)).empty()) return {};
    settings.push_back({trimmed(word.substr(0, equals)), trimmed(word.substr(equals + 1))});
  }
  return settings;
}

bool run_set(ReplContext& context, const std::string& argument) {
  if (argument.empty()) {
    std::string text;
    for (const frontend::Setting& s : context.session.settings())
      text += fmt::format("{}={}\n", s.name, s.value);
    context.print(text.empty() ? "nothing is set\n" : text);
    return true;
  }
  const std::vector<frontend::Setting> settings = read_settings(argument);
  if (settings.empty()) return context.fail(needs("set", "NAME=VALUE, as in `:set B=64`"));
  return try_change(context, [&](Session& next, Diagnostics& diagnostics) {
    return next.set(settings, diagnostics);
  });
}

bool run_quit(ReplContext&, const std::string&) {
  return true;  // the loop ends itself
}

// ------------------------------------------------------------------------------------- typed lines

// "layer Block", "B = 4": what a definition made.
void show_defined(ReplContext& context, const std::string& text) {
  const frontend::Module& module = context.session.module();
  Sources sources;
  Diagnostics ignored;
  const FileId file = sources.add("", text);
  const frontend::Ast ast = frontend::parse(sources, file, ignored);
  for (const frontend::Item& item : ast.items) {
    switch (item.kind) {
      case frontend::ItemKind::kDim:
        for (const frontend::DimBind& bind : item.binds) {
          const auto at = module.bindings.find(bind.name.text);
          context.print(at == module.bindings.end()
                            ? fmt::format("{} has no size yet\n", bind.name.text)
                            : fmt::format("{} = {}\n", bind.name.text, at->second));
        }
        break;
      case frontend::ItemKind::kLet: {
        const frontend::LetDecl& let = module.main().lets.at(item.name.text);
        context.print(fmt::format("{} = {}\n", let.name,
                                  let.is_bool ? (let.bool_value ? "true" : "false")
                                              : number_text(let.scalar, module.bindings)));
        break;
      }
      case frontend::ItemKind::kDef: {
        const frontend::Def& def = ast.def(item.def);
        context.print(fmt::format("{} {}\n", frontend::def_keyword(def.kind), def.name.text));
        break;
      }
      case frontend::ItemKind::kSection: {
        const frontend::Section& s = ast.section(item.section);
        context.print(
            fmt::format("section {}{}{}\n", s.kind.text, s.name.empty() ? "" : " ", s.name.text));
        break;
      }
      default:
        break;
    }
  }
}

bool define(ReplContext& context, const std::string& text) {
  if (!try_change(context, [&](Session& next, Diagnostics& diagnostics) {
        return next.define(context.number, text, diagnostics);
      }))
    return false;
  if (!context.silent) show_defined(context, text);
  return true;
}

bool bind(ReplContext& context, const std::string& text) {
  if (!try_change(context, [&](Session& next, Diagnostics& diagnostics) {
        return next.bind(context.number, text, diagnostics);
      }))
    return false;
  const Session& session = context.session;
  if (session.program().values.empty()) return true;
  for (const BoundValue& v : session.program().values.back())
    context.print(fmt::format("{} : {}\n", v.name, value_text(v, session)));
  return true;
}

bool unknown(ReplContext& context, const std::string& name) {
  Diagnostic error =
      make_error(DiagId::E0501, fmt::format("unknown command `:{}`", name), kExitUsage);
  std::vector<std::string> names;
  for (const ReplCommand& command : repl_commands()) names.emplace_back(command.name);
  if (const auto near = suggest(name, names)) error.help(fmt::format("did you mean `:{}`?", *near));
  error.help("`:help` lists the commands");
  return context.fail(error);
}

}  // namespace

const std::vector<ReplCommand>& repl_commands() {
  static const std::vector<ReplCommand> kCommands = {
      {"help", "[NAME]", "list the commands, or explain one", "", Argument::kCommand, false,
       repl_help},
      {"load", "FILE", "load a program; what was typed and set is dropped",
       "Lines that `:save` wrote for settings and bindings are typed again.", Argument::kFile, true,
       run_load},
      {"reload", "", "read the program's file again and keep what was typed", "", Argument::kNone,
       true, run_reload},
      {"set", "NAME=VALUE ..", "set a dim, a let or a setting, as `--set` does",
       "`:set B=` takes it back; `:set` alone lists what is set.", Argument::kSetting, true,
       run_set},
      {"show", "", "list what is defined, with sizes", "", Argument::kNone, false, repl_show},
      {"type", "EXPR", "the dtype and dims of an expression, without its value", "",
       Argument::kExpression, false, repl_type},
      {"ir", "NAME|EXPR", "the graph of a definition or an expression",
       "A definition's dim parameters stand for themselves; N stands for its `..`.",
       Argument::kExpression, false, repl_ir},
      {"grad", "EXPR", "gradients of a number by the tensors it is made of",
       "Those are parameters, and names bound here to something made from no other tensor.\n"
       "When a dim has no size, the gradient's graph.",
       Argument::kExpression, false, repl_grad},
      {"cost", "[LAYER]", "what the program or one layer costs, as formulas and numbers",
       "LAYER is a layer's name, a path (`h.*.attention`) or the last part of one.",
       Argument::kName, false, repl_cost},
      {"mem", "", "memory of a training step, and where its peak is", "", Argument::kNone, false,
       repl_mem},
      {"plan", "[N] [CLUSTER]", "how to train fastest on N devices within their memory",
       "CLUSTER is one of the program's or of `colauto devices`; default: this machine.",
       Argument::kText, false, repl_plan},
      {"why", "NAME [N] [CLUSTER]", "why an op, layer or parameter is split as it is", "",
       Argument::kText, false, repl_why},
      {"doc", "NAME", "what a function, layer, op, setting, error or command is", "",
       Argument::kName, false, repl_doc},
      {"time", "EXPR", "compile an expression, run it, and print the median time",
       "Tensors bound here are computed before; only the expression is timed.",
       Argument::kExpression, false, repl_time},
      {"save", "FILE", "write the session as a program that loads again",
       "An existing file is kept; `:save! FILE` replaces it.", Argument::kFile, false, repl_save},
      {"save!", "FILE", "the same over an existing file", "", Argument::kFile, false,
       repl_save_over},
      {"quit", "", "leave, as Ctrl-D does", "", Argument::kNone, false, run_quit},
  };
  return kCommands;
}

const ReplCommand* find_repl_command(const std::string& name) {
  for (const ReplCommand& command : repl_commands()) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

std::pair<std::string, std::string> split_command(const std::string& text) {
  const std::string all = trimmed(text);
  const size_t end = std::min(all.find_first_of(" \t\r\n("), all.size());
  return {all.substr(1, end - 1), trimmed(all.substr(end))};
}

void ReplContext::print(std::string_view text) const {
  if (!silent) cli::print(text);
}

void ReplContext::report(const Session& where, const Diagnostics& diagnostics) const {
  if (silent) return;
  std::fflush(stdout);
  print_diagnostics(common, where.program().sources, diagnostics);
}

bool ReplContext::fail(const Diagnostic& diagnostic) const {
  Diagnostics one;
  one.add(diagnostic);
  report(session, one);
  return false;
}

bool input_changes(const std::string& text) {
  switch (input_kind(text)) {
    case InputKind::kItem:
    case InputKind::kStatement:
      return true;
    case InputKind::kCommand: {
      const ReplCommand* command = find_repl_command(split_command(text).first);
      return command != nullptr && command->changes;
    }
    default:
      return false;
  }
}

bool run_input(ReplContext& context, const std::string& text) {
  switch (input_kind(text)) {
    case InputKind::kNothing:
      return true;
    case InputKind::kItem:
      return define(context, text);
    case InputKind::kStatement:
      return bind(context, text);
    case InputKind::kExpression:
      return repl_expression(context, text);
    case InputKind::kCommand:
      break;
  }
  const auto [name, argument] = split_command(text);
  const ReplCommand* command = find_repl_command(name);
  if (command == nullptr) return unknown(context, name);
  if (command->takes == Argument::kNone && !argument.empty()) {
    return context.fail(make_error(DiagId::E0502,
                                   fmt::format("`:{}` takes nothing, this is `{}`", name, argument),
                                   kExitUsage));
  }
  return command->run(context, argument);
}

}  // namespace cad::cli
