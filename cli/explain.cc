// cli/explain.cc -- `colauto explain E0203`: the long form of a diagnostic, from docs/errors/.
#include <fmt/format.h>

#include <algorithm>

#include "base/embedded.h"
#include "base/suggest.h"
#include "cli/command.h"

namespace cad::cli {
namespace {

struct Row {
  const char* id;
  const char* title;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows{
#define CAD_DIAGNOSTIC(id, level, title) {#id, title},
#include "base/diagnostics.def"
#undef CAD_DIAGNOSTIC
  };
  return kRows;
}

int run_explain(std::string id, const CommonOptions& common) {
  if (id.empty()) {
    std::string text;
    for (const Row& row : rows()) text += fmt::format("{}  {}\n", row.id, row.title);
    print(text);
    return kExitOk;
  }
  std::transform(id.begin(), id.end(), id.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  // `203` is E0203; so is `E203`.
  const size_t digits = std::min(id.find_first_of("0123456789"), id.size());
  const bool number =
      digits < id.size() && id.find_first_not_of("0123456789", digits) == std::string::npos;
  if (number && digits <= 1 && id.size() - digits < 4)
    id = (digits == 1 ? id.substr(0, 1) : "E") + std::string(4 - (id.size() - digits), '0') +
         id.substr(digits);
  else if (number && digits == 0)
    id = "E" + id;
  const auto row =
      std::find_if(rows().begin(), rows().end(), [&](const Row& r) { return id == r.id; });
  if (row == rows().end()) {
    Diagnostic error =
        make_error(DiagId::E0503, fmt::format("there is no error `{}`", id), kExitUsage);
    std::vector<std::string> ids;
    for (const Row& each : rows()) ids.emplace_back(each.id);
    if (const auto near = suggest(id, ids)) error.help(fmt::format("did you mean `{}`?", *near));
    error.help("`colauto explain` lists all");
    return fail(common, error);
  }
  std::string text = fmt::format("{}: {}\n", row->id, row->title);
  if (const auto page = embedded_file(fmt::format("docs/errors/{}.md", row->id))) {
    // The page's own heading repeats the title.
    std::string_view body = *page;
    if (body.substr(0, 1) == "#") body.remove_prefix(std::min(body.find('\n') + 1, body.size()));
    text += fmt::format("{}{}", body.substr(0, 1) == "\n" ? "" : "\n", body);
    if (text.back() != '\n') text += '\n';
  }
  print(text);
  return kExitOk;
}

}  // namespace

Action declare_explain(CLI::App& app, CommonOptions& common) {
  auto id = std::make_shared<std::string>();
  app.add_option("ID", *id, "an error id, as E0203");
  return [id, &common] { return run_explain(*id, common); };
}

}  // namespace cad::cli
