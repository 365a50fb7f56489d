// cli/repl_inspect.cc -- the commands that look at a session and leave it as it is: values, types,
// graphs, gradients, timings, `:show`, `:help` and `:save`. `:doc` is repl_doc.cc.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "base/suggest.h"
#include "base/text.h"
#include "cli/repl_commands.h"
#include "cli/repl_evaluate.h"
#include "cli/repl_graph.h"
#include "cli/repl_print.h"
#include "frontend/module_data.h"
#include "ir/text.h"

namespace cad::cli {

using frontend::SectionValue;

namespace {

// Parses the argument of a command; nullopt: reported.
std::optional<frontend::Typed> expression_of(ReplContext& context, const char* command,
                                             const std::string& text) {
  if (text.empty()) {
    Diagnostic error =
        make_error(DiagId::E0503, fmt::format("`:{}` needs an expression", command), kExitUsage);
    error.help(fmt::format("see `:help {}`", command));
    (void)context.fail(error);
    return std::nullopt;
  }
  Diagnostics diagnostics;
  auto typed = context.session.parse(context.number, text, diagnostics);
  context.report(context.session, diagnostics);
  return typed;
}

std::string constant_text(SectionValue::Kind kind, const ir::Scalar& number, bool flag,
                          const ir::Bindings& bindings) {
  if (kind == SectionValue::Kind::kBool) return flag ? "true" : "false";
  return number_text(number, bindings);
}

}  // namespace

bool repl_expression(ReplContext& context, const std::string& text) {
  const auto typed = expression_of(context, "type", text);
  if (!typed) return false;
  Diagnostics diagnostics;
  const std::vector<Answer> answers = evaluate(context.session, *typed, diagnostics);
  context.report(context.session, diagnostics);
  if (diagnostics.has_errors()) return false;
  const ir::Bindings& bindings = frontend::bindings(context.session.module());
  for (const Answer& answer : answers) {
    context.print(answer.kind == SectionValue::Kind::kTensor
                      ? tensor_text(answer.tensor)
                      : constant_text(answer.kind, answer.number, answer.flag, bindings) + "\n");
  }
  return true;
}

bool repl_type(ReplContext& context, const std::string& argument) {
  const auto typed = expression_of(context, "type", argument);
  if (!typed) return false;
  Diagnostics diagnostics;
  const std::vector<TypeOf> types = types_of(context.session, *typed, diagnostics);
  context.report(context.session, diagnostics);
  if (diagnostics.has_errors()) return false;
  const ir::Bindings& bindings = frontend::bindings(context.session.module());
  for (const TypeOf& type : types) {
    if (type.kind == SectionValue::Kind::kTensor) {
      context.print(type_text(type.dtype, type.dims, bindings) + "\n");
      continue;
    }
    const char* what = type.kind == SectionValue::Kind::kBool ? "constant bool"
                       : type.number.is_whole()               ? "constant, whole"
                                                              : "constant";
    context.print(
        fmt::format("{}: {}\n", what, constant_text(type.kind, type.number, type.flag, bindings)));
  }
  return true;
}

bool repl_ir(ReplContext& context, const std::string& argument) {
  const Session& session = context.session;
  if (const frontend::Definition* d = frontend::find_definition(session.module(), argument)) {
    Result<ir::Graph> graph = frontend::lower_definition(session.module(), *d);
    if (!graph.ok()) return context.fail(graph.error());
    context.print(ir::print(*graph));
    return true;
  }
  const auto typed = expression_of(context, "ir", argument);
  if (!typed) return false;
  Diagnostics diagnostics;
  const auto graph = graph_of(session, *typed, diagnostics);
  context.report(context.session, diagnostics);
  if (!graph) return false;
  context.print(ir::print(*graph));
  return true;
}

bool repl_grad(ReplContext& context, const std::string& argument) {
  const auto typed = expression_of(context, "grad", argument);
  if (!typed) return false;
  Result<GradientAnswer> answer = gradients(context.session, *typed);
  if (!answer.ok()) return context.fail(answer.error());
  if (!answer->values) {
    context.print(ir::print(answer->graph));
    return true;
  }
  context.print(fmt::format("value  {}\n", element_text(answer->gradients.value, ir::DType::kF32)));
  for (const NamedTensor& t : answer->gradients.of) {
    std::string text = tensor_text(t);
    context.print(fmt::format("by {}  {}", t.name, text));
  }
  return true;
}

bool repl_time(ReplContext& context, const std::string& argument) {
  const auto typed = expression_of(context, "time", argument);
  if (!typed) return false;
  const auto threads = static_cast<int>(context.common.threads_per_device.value_or(0));
  Result<Timed> timed = time_expression(context.session, *typed, threads);
  if (!timed.ok()) return context.fail(timed.error());
  const double s = timed->seconds;
  const std::string time = s < 1e-3 ? fmt::format("{:.1f} us", s * 1e6)
                           : s < 1  ? fmt::format("{:.2f} ms", s * 1e3)
                                    : fmt::format("{:.2f} s", s);
  context.print(fmt::format(
      "{} (median of {} runs on {} thread{})   {} FLOP, {:.2f} GFLOP/s   {} bytes, {:.2f} GB/s\n",
      time, timed->runs, timed->threads, timed->threads == 1 ? "" : "s", count_text(timed->flops),
      timed->flops / s * 1e-9, count_text(timed->bytes), timed->bytes / s * 1e-9));
  return true;
}

// -------------------------------------------------------------------------------- :show and :help

bool repl_show(ReplContext& context, const std::string&) {
  const Session& session = context.session;
  const frontend::Module& module = session.module();
  const frontend::Unit& main = module.main();
  std::string text;
  if (!session.path().empty()) text += fmt::format("program  {}\n", session.path());
  for (const std::string& name : module.dim_order) {
    const frontend::DimDecl& dim = module.dims.at(name);
    const auto value = module.bindings.find(name);
    const std::string size = frontend::reader_text(dim.size);
    std::string line =
        value == module.bindings.end() ? "no size" : fmt::format("{}", value->second);
    if (size != name && size != line) line = fmt::format("{} = {}", size, line);
    if (!dim.from.empty()) line += fmt::format("   from {}", dim.from);
    text += fmt::format("dim      {:<12} {}\n", name, line);
  }
  for (const auto& [name, let] : main.lets) {
    text += fmt::format("let      {:<12} {}\n", name,
                        let.is_bool ? (let.bool_value ? "true" : "false")
                                    : number_text(let.scalar, module.bindings));
  }
  for (const auto& [name, definition] : main.definitions) {
    const frontend::Def& def = definition->def();
    std::string head(
        module.sources->text(Span{def.header.file, def.name.span.begin, def.header.end}));
    std::replace(head.begin(), head.end(), '\n', ' ');
    text += fmt::format("{:<8} {}\n", frontend::def_keyword(definition->kind), head);
  }
  for (const BoundValue* v : session.values())
    text += fmt::format("value    {:<12} {}\n", v->name, value_text(*v, session));
  for (const frontend::Item& item : main.ast.items) {
    if (item.kind != frontend::ItemKind::kSection) continue;
    const frontend::Section& s = main.ast.section(item.section);
    text += fmt::format("section  {}{}{}\n", s.kind.text, s.name.empty() ? "" : " ", s.name.text);
  }
  for (const frontend::Setting& s : session.settings())
    text += fmt::format("set      {}={}\n", s.name, s.value);
  context.print(text.empty() ? "nothing is defined\n" : text);
  return true;
}

bool repl_help(ReplContext& context, const std::string& argument) {
  const auto usage = [](const ReplCommand& c) {
    return fmt::format(":{}{}{}", c.name, *c.argument == '\0' ? "" : " ", c.argument);
  };
  if (argument.empty()) {
    std::string text =
        "An expression is evaluated; `x = ..` binds a name; `dim`, `let`, `fn`, `layer`, `model`\n"
        "and sections define, in place of what had the name before. An input with an error\n"
        "changes nothing. Open brackets go on over lines.\n\n";
    for (const ReplCommand& c : repl_commands())
      text += fmt::format("  {:<24} {}\n", usage(c), c.summary);
    context.print(text);
    return true;
  }
  const std::string name = argument[0] == ':' ? argument.substr(1) : argument;
  const ReplCommand* command = find_repl_command(name);
  if (command == nullptr) {
    Diagnostic error =
        make_error(DiagId::E0501, fmt::format("unknown command `:{}`", name), kExitUsage);
    std::vector<std::string> names;
    for (const ReplCommand& c : repl_commands()) names.emplace_back(c.name);
    if (const auto near = suggest(name, names))
      error.help(fmt::format("did you mean `:{}`?", *near));
    error.help(fmt::format("for anything but a command: `:doc {}`", name));
    return context.fail(error);
  }
  context.print(fmt::format("{}\n  {}\n", usage(*command), command->summary));
  std::string_view more = command->more;
  while (!more.empty()) {
    const size_t end = std::min(more.find('\n'), more.size());
    context.print(fmt::format("  {}\n", more.substr(0, end)));
    more.remove_prefix(std::min(end + 1, more.size()));
  }
  return true;
}

// --------------------------------------------------------------------------------------- :save

namespace {

Diagnostic cannot_write(const std::string& path, int error) {
  return make_error(DiagId::E0602, fmt::format("cannot write `{}`: {}", path, std::strerror(error)),
                    kExitRunFailed);
}

// A new file beside it, then a rename: the old one stays whole whatever happens.
bool write_file(ReplContext& context, const std::string& path, bool over) {
  if (path.empty()) {
    Diagnostic error = make_error(DiagId::E0503, "`:save` needs a file", kExitUsage);
    error.help("see `:help save`");
    return context.fail(error);
  }
  if (!over && access(path.c_str(), F_OK) == 0) {
    Diagnostic error =
        make_error(DiagId::E0602, fmt::format("`{}` exists already", path), kExitRunFailed);
    error.help(fmt::format("to replace it: `:save! {}`", path));
    return context.fail(error);
  }
  const std::string text = context.session.text();
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return context.fail(cannot_write(path, errno));
  bool written = true;
  for (size_t at = 0; written && at < text.size();) {
    const ssize_t n = write(file, text.data() + at, text.size() - at);
    written = n > 0;
    at += written ? static_cast<size_t>(n) : 0;
  }
  written = written && fsync(file) == 0;
  int error = errno;
  close(file);
  if (written && rename(temporary.c_str(), path.c_str()) != 0) {
    error = errno;
    written = false;
  }
  if (!written) {
    unlink(temporary.c_str());
    return context.fail(cannot_write(path, error));
  }
  const auto lines = std::count(text.begin(), text.end(), '\n');
  context.print(fmt::format("{}: {} line{}\n", path, lines, lines == 1 ? "" : "s"));
  return true;
}

}  // namespace

bool repl_save(ReplContext& context, const std::string& argument) {
  return write_file(context, argument, false);
}

bool repl_save_over(ReplContext& context, const std::string& argument) {
  return write_file(context, argument, true);
}

}  // namespace cad::cli
