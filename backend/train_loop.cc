// backend/train_loop.cc -- see backend/train_loop.h.
#include "backend/train_loop.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>

#include <fmt/format.h>

#include "backend/interrupt.h"
#include "backend/trace_file.h"

namespace cad::backend {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One run's moving parts, so that the loop below reads in order.
struct Loop {
  Trainer& trainer;
  RunLog& log;
  const TrainLoopOptions& options;
  std::optional<CheckpointFolder> folder;
  std::optional<double> best;
  std::vector<EvalReport> reports;
  int64_t saved_step = -1, evaluated_step = -1;

  Status save() {
    if (!folder || saved_step == trainer.steps_done()) return Ok{};
    CheckpointContents contents = trainer.contents();
    contents.state.best = best;
    CAD_TRY_VOID(folder->save(contents));
    saved_step = trainer.steps_done();
    log.saved(fmt::format("{}/step-{:06}", folder->path(), saved_step), saved_step);
    return Ok{};
  }

  // `all`: at the end every evaluation is made.
  Status evaluate(bool all) {
    const int64_t step = trainer.steps_done();
    if (evaluated_step == step) return Ok{};
    std::vector<EvalReport> now;
    for (size_t i = 0; i < trainer.spec().evals.size(); ++i) {
      const int64_t every = trainer.spec().evals[i].every;
      if (!all && (every <= 0 || step % every != 0)) continue;
      now.push_back(trainer.evaluate(i));
      log.eval(now.back(), step);
    }
    if (now.empty()) return Ok{};
    if (all) reports = now;
    if (all) evaluated_step = step;
    const ir::SaveSpec& save = trainer.spec().save;
    const auto value =
        save.best == ir::SaveSpec::Best::kNone ? std::nullopt : eval_value(now, save.best_of);
    if (!folder || !value) return Ok{};
    const bool better =
        !best || (save.best == ir::SaveSpec::Best::kMin ? *value < *best : *value > *best);
    if (!better) return Ok{};
    best = value;
    CheckpointContents contents = trainer.contents();
    contents.state.best = best;
    return folder->save_best(contents);
  }
};

// Folders on the way to `path` that are not there yet. Those that still hold nothing when the run
// ends, because it failed before its first checkpoint, go again.
struct NewFolders {
  explicit NewFolders(const std::string& path) {
    std::error_code ignored;
    for (std::filesystem::path at = path; !at.empty() && !std::filesystem::exists(at, ignored);
         at = at.parent_path()) {
      paths.push_back(at.string());
      if (at == at.parent_path()) break;
    }
  }
  NewFolders(const NewFolders&) = delete;
  NewFolders& operator=(const NewFolders&) = delete;
  ~NewFolders() {
    for (const std::string& path : paths) ::rmdir(path.c_str());  // refused when it holds something
  }
  std::vector<std::string> paths;  // innermost first
};

Status open_folder(Loop& loop, bool resuming) {
  const TrainLoopOptions& options = loop.options;
  if (options.save_folder.empty()) return Ok{};
  using Mode = CheckpointFolder::Mode;
  const Mode mode = resuming ? Mode::kResume : options.overwrite ? Mode::kOverwrite : Mode::kFresh;
  const MemoryReport memory = loop.trainer.memory();
  // `best/` holds a checkpoint of its own, and may be written first.
  const ir::SaveSpec& save = loop.trainer.spec().save;
  const int64_t copies = save.best == ir::SaveSpec::Best::kNone ? 1 : 2;
  const int64_t bytes = copies * (memory.parameters + memory.optimizer + memory.average);
  CAD_TRY(folder, CheckpointFolder::open(options.save_folder, mode, save.keep, bytes));
  loop.folder = std::move(folder);
  return Ok{};
}

Result<Checkpoint> checkpoint_to_resume(const TrainLoopOptions& options) {
  const std::string from = options.resume_from.empty() ? options.save_folder : options.resume_from;
  if (from.empty()) {
    Diagnostic error =
        make_error(DiagId::E0614, "nothing to resume: the program saves nowhere", kExitUsage);
    error.help("name the checkpoint: `--resume DIR`");
    return error;
  }
  return find_checkpoint(from);
}

Status resume(Loop& loop, const Checkpoint& checkpoint, std::vector<Diagnostic>& warnings) {
  CAD_TRY_VOID(loop.trainer.restore(checkpoint));
  loop.best = checkpoint.state.best;
  if (loop.folder) loop.folder->discard_after(checkpoint.state.step);
  loop.saved_step = loop.trainer.steps_done();
  if (checkpoint.state.config != loop.trainer.config_hash()) {
    Diagnostic warning =
        make_error(DiagId::W0062,
                   fmt::format("`{}` was written with other settings", checkpoint.folder), kExitOk);
    warning.note(
        "the run goes on from its parameters, optimizer states and data position, but not as if it "
        "had never stopped");
    warnings.push_back(std::move(warning));
  }
  return Ok{};
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

}  // namespace

std::optional<double> eval_value(const std::vector<EvalReport>& reports, const std::string& name) {
  for (const EvalReport& report : reports) {
    for (const auto& [metric, value] : report.values) {
      if (metric == name || report.name + "." + metric == name) return value;
    }
  }
  return std::nullopt;
}

Result<TrainOutcome> train(ir::TrainSpec spec, const TrainLoopOptions& options,
                           const std::function<void(const std::vector<Diagnostic>&)>& on_warnings) {
  std::vector<TraceEvent> trace;
  TrainerOptions trainer_options = options.trainer;
  if (!options.trace_file.empty()) trainer_options.trace = &trace;
  CAD_TRY(trainer, Trainer::create(std::move(spec), trainer_options));
  RunLogOptions log_options = options.log;
  log_options.append = options.resume;
  CAD_TRY(log, RunLog::open(log_options));
  std::vector<Diagnostic> warnings;
  Loop loop{*trainer, log, options, std::nullopt, std::nullopt, {}, -1, -1};
  Checkpoint checkpoint;
  if (options.resume) {
    CAD_TRY(found, checkpoint_to_resume(options));
    checkpoint = std::move(found);
  }
  const NewFolders made(options.save_folder);
  CAD_TRY_VOID(open_folder(loop, options.resume));
  CAD_TRY_VOID(trainer->start(warnings));
  if (options.resume) CAD_TRY_VOID(resume(loop, checkpoint, warnings));
  on_warnings(warnings);
  const int64_t stop_at = options.stop_at.value_or(trainer->total_steps());
  InterruptGuard interrupts;
  log.start(*trainer, stop_at);

  const auto begin = Clock::now();
  const int64_t first = trainer->steps_done();
  const double tokens =
      static_cast<double>(trainer->rows_per_step() * trainer->data().tokens_per_row());
  std::vector<double> times;
  times.reserve(static_cast<size_t>(std::clamp<int64_t>(stop_at - first, 0, 1 << 20)));
  TrainOutcome outcome;
  while (trainer->steps_done() < stop_at && InterruptGuard::signal() == 0) {
    const auto start = Clock::now();
    CAD_TRY(report, trainer->step());
    const double took = seconds_since(start);
    if (times.size() < times.capacity()) times.push_back(took);
    log.step(report, took * 1000, tokens / took);
    CAD_TRY_VOID(log.status());
    const bool last = trainer->steps_done() >= stop_at;
    CAD_TRY_VOID(loop.evaluate(last));
    const int64_t every = trainer->spec().save.every;
    if (every > 0 && trainer->steps_done() % every == 0) CAD_TRY_VOID(loop.save());
  }
  outcome.signal = InterruptGuard::signal();
  if (outcome.signal == 0 && trainer->steps_done() >= stop_at && stop_at == first)
    CAD_TRY_VOID(loop.evaluate(true));
  CAD_TRY_VOID(loop.save());
  EndReport& end = outcome.end;
  end.steps = trainer->steps_done();
  end.wall_s = seconds_since(begin);
  double busy = 0;
  for (const double time : times) busy += time;
  end.tokens_per_s = busy > 0 ? tokens * static_cast<double>(times.size()) / busy : 0;
  end.peak_bytes = trainer->touched_bytes();
  end.predicted_peak_bytes = trainer->memory().total;
  end.predicted_step_s = median(times);
  end.interrupted = outcome.signal == 0 ? "" : outcome.signal == SIGINT ? "SIGINT" : "SIGTERM";
  log.end(end);
  CAD_TRY_VOID(log.status());
  if (!options.trace_file.empty())
    CAD_TRY_VOID(write_trace(options.trace_file, trainer->train_program(), trace));
  outcome.evals = std::move(loop.reports);
  return outcome;
}

}  // namespace cad::backend
