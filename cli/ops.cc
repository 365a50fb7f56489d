// cli/ops.cc -- `colauto ops`: the primitive operations, from the registry (ir/ops.def).
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/suggest.h"
#include "cli/command.h"
#include "ir/op.h"

namespace cad::cli {
namespace {

const std::vector<ir::Op>& all_ops() {
  static const std::vector<ir::Op> kOps{
#define CAD_OP(enumerator, text, family) ir::Op::enumerator,
#include "ir/ops.def"
#undef CAD_OP
  };
  return kOps;
}

int run_ops(const std::string& name, const CommonOptions& common) {
  nlohmann::json list = nlohmann::json::array();
  std::string text;
  std::vector<std::string> names;
  for (const ir::Op op : all_ops()) {
    names.emplace_back(ir::op_name(op));
    if (!name.empty() && name != names.back()) continue;
    const ir::OpInfo& info = ir::op_info(op);
    const bool gradient = info.grad != nullptr;
    text += fmt::format("{:<18} {:<10} {:<9} {}\n", names.back(), ir::op_family(op),
                        gradient ? "gradient" : "", info.summary);
    list.push_back({{"name", names.back()},
                    {"family", ir::op_family(op)},
                    {"gradient", gradient},
                    {"summary", info.summary}});
  }
  if (list.empty()) {
    Diagnostic error =
        make_error(DiagId::E0503, fmt::format("there is no operation `{}`", name), kExitUsage);
    if (const auto near = suggest(name, names))
      error.help(fmt::format("did you mean `{}`?", *near));
    error.help("`colauto ops` lists all");
    return fail(common, error);
  }
  print(common.json ? nlohmann::json{{"schema", 1}, {"ops", list}}.dump(2) + "\n" : text);
  return kExitOk;
}

}  // namespace

Action declare_ops(CLI::App& app, CommonOptions& common) {
  auto name = std::make_shared<std::string>();
  app.add_option("NAME", *name, "show only this operation");
  add_json_flag(app, common);
  return [name, &common] { return run_ops(*name, common); };
}

}  // namespace cad::cli
