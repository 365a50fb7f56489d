// cli/run_command.cc -- `colauto run`: trains a program. The run itself is backend/train_loop.h.
#include <memory>

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "backend/comm/mpi_world.h"
#include "backend/devices.h"
#include "backend/jit.h"
#include "backend/partition.h"
#include "backend/train_loop.h"
#include "cli/compare_plan.h"
#include "cli/cost_table.h"
#include "cli/device_plan.h"
#include "cli/device_world.h"
#include "cli/training_common.h"
#include "ir/text.h"

namespace cad::cli {
namespace {

struct RunOptions {
  bool debug_nan = false;
  bool compare_plan = false;
};

bool wants(const CommonOptions& common, const char* form) {
  for (const std::string& emit : common.emit) {
    if (emit == form) return true;
  }
  return false;
}

// All but the program, which needs a plan.
void emit_forms(const CommonOptions& common, const ir::TrainSpec& spec) {
  if (wants(common, "ir")) print(ir::print(spec.forward));
  if (wants(common, "grad")) print(ir::print(ir::training_graph(spec.forward)));
  if (wants(common, "profile"))
    print(cost_table(ir::profile(spec), spec.bindings, CostRows::kLayer));
  if (wants(common, "kernels")) {
    print(backend::print_kernels(
        backend::partition(ir::training_graph(spec.forward), spec.bindings)));
  }
}

// The plan in words: its name, where one was made, the devices, how micro-batches are read.
std::string plan_line(const backend::Trainer& trainer) {
  const backend::DevicePlan* plan = trainer.options().plan.get();
  const int64_t parts = trainer.spec().parts;
  std::string text = plan == nullptr ? "" : plan->name + ": ";
  text += trainer.devices() == 1
              ? "one device"
              : fmt::format("{} devices, mesh {}", trainer.devices(), trainer.mesh().str());
  if (parts > 1) return text + fmt::format(", each micro-batch in {} parts", parts);
  return plan == nullptr ? text + ", nothing is split" : text;
}

void print_dry_run(const CommonOptions& common, const backend::Trainer& trainer,
                   const std::optional<planner::Plan>& plan, const std::string& folder) {
  const ir::TrainSpec& spec = trainer.spec();
  const backend::DataSet& data = trainer.data();
  const backend::MemoryReport memory = trainer.memory();
  const int64_t per_step = trainer.rows_per_step();
  const int64_t rows = data.endless() ? 0 : data.rows();
  if (common.json) {
    nlohmann::ordered_json json = {
        {"schema", 1},
        {"train", spec.name},
        {"devices", trainer.devices()},
        {"params", trainer.parameters().count()},
        {"seed", spec.seed},
        {"steps", trainer.total_steps()},
        {"rows_per_step", per_step},
        {"micro_batches", spec.accumulate},
        {"tokens_per_step", per_step * data.tokens_per_row()},
        {"rows", data.endless() ? nlohmann::ordered_json() : nlohmann::ordered_json(rows)},
        {"steps_per_epoch",
         data.endless() ? nlohmann::ordered_json() : nlohmann::ordered_json(rows / per_step)},
        {"predicted_step_s",
         plan ? nlohmann::ordered_json(plan->predicted.step_s) : nlohmann::ordered_json()},
        {"predicted_peak_bytes", memory.total},
        {"parameter_bytes", memory.parameters + memory.average},
        {"optimizer_bytes", memory.optimizer},
        {"gradient_bytes", memory.gradients},
        {"step_bytes", memory.region}};
    print(json.dump(2) + "\n");
    return;
  }
  std::string text = fmt::format("train       {}\n", spec.name.empty() ? "(unnamed)" : spec.name);
  text += fmt::format("plan        {}\n", plan_line(trainer));
  text += fmt::format("parameters  {} in {} tensors\n", trainer.parameters().count(),
                      trainer.parameters().all().size());
  text += fmt::format("data        {}\n", data.describe());
  text += fmt::format("step        {} rows{}", per_step,
                      backend::micro_batches_text(spec.accumulate, data.batch()));
  if (data.tokens_per_row() > 1)
    text += fmt::format(", {} tokens", per_step * data.tokens_per_row());
  text += "\n";
  if (!data.endless()) {
    text += fmt::format("epoch       {} {}, {} steps\n", rows,
                        data.tokens_per_row() > 1 ? "windows" : "rows", rows / per_step);
  }
  text += fmt::format("steps       {}\n", trainer.total_steps());
  text += fmt::format("memory      {}: parameters {}, optimizer {}, gradients {}, step {}\n",
                      backend::bytes_text(memory.total),
                      backend::bytes_text(memory.parameters + memory.average),
                      backend::bytes_text(memory.optimizer), backend::bytes_text(memory.gradients),
                      backend::bytes_text(memory.region));
  text += fmt::format("save        {}\n", folder.empty() ? "nowhere" : folder);
  print(text);
}

void print_pass_times(const CommonOptions& common, const ir::PassLog& passes) {
  if (!common.timings) return;
  for (const auto& entry : passes.entries) {
    fmt::print(stderr, "  {:<24} {:9.3f} ms {:7} nodes\n", entry.name, entry.seconds * 1e3,
               entry.nodes);
  }
}

// All but what the trainer is made with.
void set_train_options(const RunOptions& own, const CommonOptions& common,
                       const std::optional<planner::Plan>& plan,
                       backend::TrainLoopOptions& options) {
  options.log.file = common.log;
  options.log.json = common.json;
  options.log.quiet = common.quiet;
  options.log.terminal = ::isatty(STDERR_FILENO) == 1;
  options.stop_at = common.steps;
  options.resume = common.resume.has_value();
  options.resume_from = common.resume.value_or("");
  options.overwrite = common.overwrite;
  options.trace_file = common.trace;
  options.measure = own.compare_plan;
  if (!plan) return;
  options.predicted_step_s = plan->predicted.step_s;
  if (!common.trace.empty())
    options.predicted = std::make_shared<const planner::Timeline>(planner::step_timeline(*plan));
}

int run_in(const RunOptions& own, const CommonOptions& common, const DeviceWorld& world) {
  LoadedProgram program;
  if (const int status = load_program(common, program); status != kExitOk) return status;
  program.timings.start("lower");
  auto spec = train_spec(common, program);
  if (!spec.ok()) return fail(common, program.sources, spec.error());
  program.timings.stop();
  if (!common.emit.empty()) emit_forms(common, *spec);
  if (!common.emit.empty() && !wants(common, "program")) return kExitOk;
  backend::TrainLoopOptions options;
  ir::PassLog passes;
  options.trainer.debug_nan = own.debug_nan;
  if (const Status status = share_machine(common, world, options.trainer); !status.ok())
    return fail(common, status.error());
  options.world = world.world.get();
  options.trainer.passes = &passes;
  options.save_folder = save_folder(common, *spec);
  for (const std::string& file : {common.log, common.trace}) {
    if (file.empty()) continue;
    if (Status status = probe_output(file); !status.ok()) return fail(common, status.error());
  }
  std::string note;
  program.timings.start("compile");
  const bool predict = !common.dry_run && common.emit.empty();
  auto planned = planned_run(common, program, *spec, options.trainer, world.devices, predict, note);
  program.timings.stop();
  if (!planned.ok()) return fail(common, program.sources, planned.error());
  std::unique_ptr<backend::Trainer>& trainer = planned->trainer;
  if (!common.emit.empty()) {
    if (world.speaks) print(trainer->train_program().str());
    return kExitOk;
  }
  if (common.dry_run) {
    if (!world.speaks) return kExitOk;
    print_dry_run(common, *trainer, planned->plan, options.save_folder);
    program.timings.report(common);
    print_pass_times(common, passes);
    return kExitOk;
  }
  set_train_options(own, common, planned->plan, options);
  const backend::Program step = trainer->train_program();  // shares what the trainer has
  const backend::MemoryReport memory = trainer->memory();
  program.timings.start("train");
  auto outcome =
      backend::train(std::move(trainer), options, [&](const std::vector<Diagnostic>& warnings) {
        print_warnings(common, program.sources, warnings);
      });
  program.timings.stop();
  if (world.speaks) {
    program.timings.report(common);
    print_pass_times(common, passes);
  }
  if (!outcome.ok()) {
    if (outcome.error().id == DiagId::E0703 && !note.empty()) outcome.error().note(note);
    return fail(common, program.sources, outcome.error());
  }
  if (own.compare_plan && world.speaks) {
    const PlanComparison comparison = compare_plan(planned->plan, step, memory, outcome->measured);
    print(common.json ? comparison_json(comparison) : comparison_text(comparison));
  }
  return outcome->signal == 0 ? kExitOk : 128 + outcome->signal;
}

int run_program(const RunOptions& own, const CommonOptions& common) {
  auto world = make_world(common);
  if (!world.ok()) return fail(common, world.error());
  const int status = telling_others(*world, [&] { return run_in(own, common, *world); });
  const bool interrupted = status > 128;  // all devices stopped together
  return status == kExitOk || interrupted ? status : end_failed(*world, status);
}

}  // namespace

Action declare_run(CLI::App& app, CommonOptions& common) {
  auto own = std::make_shared<RunOptions>();
  add_program_flags(app, common);
  add_json_flag(app, common);
  add_emit_flag(app, common, {"ir", "grad", "profile", "program", "kernels"});
  add_device_flags(app, common);
  add_training_flags(app, common);
  app.add_flag("--debug-nan", own->debug_nan,
               "check every operation for values that are not finite");
  app.add_flag("--compare-plan", own->compare_plan,
               "print what the plan predicted beside what was measured");
  return [own, &common] { return run_program(*own, common); };
}

}  // namespace cad::cli
