// cli/repl_doc.cc -- `:doc NAME`: whatever the name is. Texts come from where they are kept: the
// table of builtins, the comment above a definition, the op registry, the tables of settings, the
// pages of errors. Several meanings of a name are all printed.
#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "base/embedded.h"
#include "base/suggest.h"
#include "cli/repl_commands.h"
#include "cli/repl_complete.h"
#include "cli/repl_graph.h"
#include "frontend/builtin_docs.h"
#include "frontend/module_data.h"
#include "frontend/section_tables.h"
#include "ir/op.h"

namespace cad::cli {
namespace {

std::string builtin_text(const std::string& name) {
  for (const frontend::BuiltinDoc& doc : frontend::builtin_docs()) {
    if (name == doc.name) return fmt::format("function {}\n  {}\n", doc.form, doc.gives);
  }
  return "";
}

// The comment lines right above a definition and its head, as written.
std::string definition_text(const Session& session, const std::string& name) {
  const frontend::Module& module = session.module();
  const frontend::Definition* d = frontend::find_definition(module, name);
  if (d == nullptr) return "";
  const frontend::Def& def = d->def();
  const Span head = module.sources->origin(def.header);
  const SourceFile& file = module.sources->file(head.file);
  std::vector<std::string> comment;
  for (int line = module.sources->line_column(head.file, head.begin).line - 1; line > 0; --line) {
    const std::string_view above = module.sources->line_text(head.file, line);
    if (above.substr(0, 1) != "#") break;
    comment.insert(comment.begin(),
                   std::string(above.substr(above.find_first_not_of("# ") == std::string_view::npos
                                                ? above.size()
                                                : above.find_first_not_of("# "))));
  }
  std::string text = fmt::format("{}\n", module.sources->text(head));
  for (const std::string& line : comment) text += fmt::format("  {}\n", line);
  return text + fmt::format("  defined in {}\n", file.path);
}

std::string dim_text(const Session& session, const std::string& name) {
  const frontend::Module& module = session.module();
  const auto dim = module.dims.find(name);
  if (dim == module.dims.end()) return "";
  const std::string size = frontend::reader_text(dim->second.size);
  const auto value = module.bindings.find(name);
  std::string text = fmt::format("dim {}", name);
  if (size != name) text += fmt::format(" = {}", size);
  if (value == module.bindings.end()) {
    text += fmt::format("\n  no size: `:set {}=4` gives one\n", name);
  } else {
    text += size == std::to_string(value->second) ? "\n" : fmt::format("\n  {}\n", value->second);
  }
  if (!dim->second.from.empty()) text += fmt::format("  from {}\n", dim->second.from);
  return text;
}

std::string op_text(const std::string& name) {
  static const ir::Op kOps[] = {
#define CAD_OP(enumerator, text, family) ir::Op::enumerator,
#include "ir/ops.def"
#undef CAD_OP
  };
  for (const ir::Op op : kOps) {
    if (name != ir::op_name(op)) continue;
    const ir::OpInfo& info = ir::op_info(op);
    return fmt::format("operation {} ({}{})\n  {}\n", name, ir::op_family(op),
                       info.grad != nullptr ? ", has a gradient" : "", info.summary);
  }
  return "";
}

std::string setting_text(const std::string& name) {
  std::string text;
  for (const frontend::SectionTable& table : frontend::section_tables()) {
    if (name == table.kind) {
      text += fmt::format("section {}\n  keys:", name);
      for (const frontend::Key& key : table.keys) text += fmt::format(" {}", key.name);
      for (const std::string& nested : table.nested) text += fmt::format(" {}{{..}}", nested);
      text += table.dims ? ", and dims\n" : "\n";
    }
    for (const frontend::Key& key : table.keys) {
      if (name != key.name) continue;
      text += fmt::format("setting {} of {}{}\n  {}\n  {}\n", name, table.kind,
                          key.required ? ", required" : "", frontend::wanted(key),
                          frontend::example(key));
    }
  }
  return text;
}

std::string error_text(std::string id) {
  std::transform(id.begin(), id.end(), id.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const auto page = embedded_file(fmt::format("docs/errors/{}.md", id));
  return page ? std::string(*page) : "";
}

}  // namespace

bool repl_doc(ReplContext& context, const std::string& argument) {
  if (argument.empty()) {
    Diagnostic error = make_error(DiagId::E0503, "`:doc` needs a name", kExitUsage);
    error.help("see `:help doc`");
    return context.fail(error);
  }
  if (argument[0] == ':') return repl_help(context, argument);
  const Session& session = context.session;
  std::vector<std::string> texts{definition_text(session, argument),
                                 dim_text(session, argument),
                                 builtin_text(argument),
                                 op_text(argument),
                                 setting_text(argument),
                                 error_text(argument)};
  if (const BoundValue* v = session.find(argument))
    texts.insert(texts.begin(), fmt::format("value {}\n  {}\n", v->name, value_text(*v, session)));
  std::string all;
  for (const std::string& text : texts) {
    if (!text.empty()) all += (all.empty() ? "" : "\n") + text;
  }
  if (!all.empty()) {
    context.print(all);
    return true;
  }
  Diagnostic error =
      make_error(DiagId::E0503, fmt::format("nothing is called `{}`", argument), kExitUsage);
  if (const auto near = suggest(argument, documented_names(session)))
    error.help(fmt::format("did you mean `{}`?", *near));
  return context.fail(error);
}

}  // namespace cad::cli
