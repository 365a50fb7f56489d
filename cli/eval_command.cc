// cli/eval_command.cc -- `colauto eval`: the evaluations of a train section, once, with the
// parameters of a file or of the newest checkpoint.
#include <fmt/format.h>

#include "backend/run_log.h"
#include "cli/training_common.h"

namespace cad::cli {
namespace {

int run_eval(const CommonOptions& common) {
  if (auto error = check_one_device(common)) return fail(common, *error);
  LoadedProgram program;
  if (const int status = load_program(common, program); status != kExitOk) return status;
  auto spec = train_spec(common, program);
  if (!spec.ok()) return fail(common, program.sources, spec.error());
  if (spec->evals.empty()) {
    Diagnostic error = make_error(DiagId::E0704, "the train section has no `eval`", kExitProgram);
    error.help("add one: `eval { data: text(\"val.txt\") }`");
    return fail(common, program.sources, error);
  }
  const std::vector<ir::InitFile> files =
      trained_files(common, save_folder(common, *spec), spec->ema.has_value());
  if (files.empty() && spec->init.empty())
    message(common, "note: no checkpoint found: evaluating initial parameters");
  if (!files.empty()) spec->init = files;
  backend::TrainerOptions options;
  options.threads = static_cast<int>(common.threads_per_device.value_or(0));
  options.evaluate_only = true;
  auto trainer = backend::Trainer::create(std::move(*spec), options);
  if (!trainer.ok()) return fail(common, program.sources, trainer.error());
  std::vector<Diagnostic> warnings;
  if (Status status = (*trainer)->start(warnings); !status.ok())
    return fail(common, program.sources, status.error());
  print_warnings(common, program.sources, warnings);
  for (const backend::EvalReport& report : (*trainer)->evaluate_all()) {
    std::string text = common.json
                           ? fmt::format(R"({{"event":"eval","name":"{}","step":0,"rows":{})",
                                         report.name, report.rows)
                           : fmt::format("{}  rows {}", report.name, report.rows);
    for (const auto& [name, value] : report.values) {
      text += common.json ? fmt::format(R"(,"{}":{})", name, backend::json_number(value))
                          : fmt::format("  {} {:.6g}", name, value);
    }
    print(text + (common.json ? "}\n" : "\n"));
  }
  return kExitOk;
}

}  // namespace

Action declare_eval(CLI::App& app, CommonOptions& common) {
  add_program_flags(app, common);
  add_json_flag(app, common);
  add_device_flags(app, common);
  app.add_option("--init", common.init, "the trained model: a file, or a folder of `save`")
      ->type_name("FILE")
      ->allow_extra_args(false);
  app.add_option("--seed", common.seed, "the seed, instead of the program's")->type_name("N");
  return [&common] { return run_eval(common); };
}

}  // namespace cad::cli
