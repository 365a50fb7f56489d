// cli/eval_command.cc -- `colauto eval`: the evaluations of a train section, once, with the
// parameters of a file or of the newest checkpoint.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "backend/evaluation.h"
#include "backend/run_log.h"
#include "backend/safetensors.h"
#include "cli/device_plan.h"
#include "cli/device_world.h"
#include "cli/training_common.h"

namespace cad::cli {
namespace {

// The training step that the parameters are of, as their files say; 0 for initial ones.
int64_t step_of(const std::vector<ir::InitFile>& files) {
  int64_t step = 0;
  for (const ir::InitFile& init : files) {
    std::string path = init.file;
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) path += "/model.safetensors";
    const auto file = backend::SafetensorsFile::open(path);
    if (!file.ok()) continue;  // reported where it is read
    const auto at = file->header().metadata.find("step");
    if (at != file->header().metadata.end())
      step = std::max<int64_t>(step, std::strtoll(at->second.c_str(), nullptr, 10));
  }
  return step;
}

void print_reports(const CommonOptions& common, const std::vector<backend::EvalReport>& reports,
                   int64_t step) {
  for (const backend::EvalReport& report : reports) {
    std::string text = common.json
                           ? fmt::format(R"({{"event":"eval","name":"{}","step":{},"rows":{})",
                                         report.name, step, report.rows)
                           : fmt::format("{}  rows {}", report.name, report.rows);
    for (const auto& [name, value] : report.values) {
      text += common.json ? fmt::format(R"(,"{}":{})", name, backend::json_number(value))
                          : fmt::format("  {} {:.6g}", name, value);
    }
    print(text + (common.json ? "}\n" : "\n"));
  }
}

int eval_in(const CommonOptions& common, const DeviceWorld& world) {
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
  if (files.empty() && spec->init.empty() && world.speaks)
    message(common, "note: no checkpoint found: evaluating initial parameters");
  if (!files.empty()) spec->init = files;
  backend::TrainerOptions options;
  options.evaluate_only = true;
  if (const Status status = share_machine(common, world, options); !status.ok())
    return fail(common, status.error());
  std::string note;
  auto planned = planned_run(common, program, *spec, options, world.devices, false, note);
  if (!planned.ok()) return fail(common, program.sources, planned.error());
  auto outcome = backend::evaluate(std::move(planned->trainer), world.world.get());
  if (!outcome.ok()) return fail(common, program.sources, outcome.error());
  if (world.speaks) {
    print_warnings(common, program.sources, outcome->warnings);
    print_reports(common, outcome->reports, step_of(files));
  }
  if (!outcome->finite.ok()) return fail(common, program.sources, outcome->finite.error());
  return kExitOk;
}

int run_eval(const CommonOptions& common) {
  auto world = make_world(common);
  if (!world.ok()) return fail(common, world.error());
  const int status = telling_others(*world, [&] { return eval_in(common, *world); });
  return status == kExitOk ? status : end_failed(*world, status);
}

}  // namespace

Action declare_eval(CLI::App& app, CommonOptions& common) {
  add_program_flags(app, common);
  add_json_flag(app, common);
  add_device_flags(app, common);
  app.add_option("--init", common.init, "the trained model: a file, or a folder of `save`")
      ->type_name("FILE")
      ->allow_extra_args(false);
  app.add_option("--seed", common.seed, "the seed, instead of the program's")
      ->type_name("N")
      ->check(at_least(0));
  return [&common] { return run_eval(common); };
}

}  // namespace cad::cli
