// backend/train_loop.cc -- see backend/train_loop.h.
#include "backend/train_loop.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>

#include <fmt/format.h>

#include "backend/comm/agree.h"
#include "backend/devices.h"
#include "backend/interrupt.h"
#include "backend/program_verify.h"
#include "backend/trace_file.h"
#include "ir/text.h"

namespace cad::backend {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What is written down about one device's steps.
struct Record {
  DeviceTrace trace;
  DeviceTimes times;
  bool traces = false, measures = false;

  void follow(Trainer& trainer) {
    if (traces || measures) trainer.trace_to(&trace.events);
  }
  void step(const Program& program, const StepReport& report, double took, size_t first_event,
            bool warm) {
    if (traces) trace.marks.push_back(report.marks);
    if (measures && warm) times.add(program, trace.events, first_event, report, took);
    if (!traces) trace.events.clear();
  }
};

// One run's moving parts, so that the loop below reads in order.
struct Loop {
  Trainer& trainer;
  RunLog& log;
  const TrainLoopOptions& options;
  Record& record;
  std::optional<CheckpointFolder> folder;
  std::optional<double> best;
  std::vector<EvalReport> reports;
  int64_t saved_step = -1, evaluated_step = -1;
  int signal = 0;  // that cut an evaluation short

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
      signal = now.back().signal;
      if (signal != 0) return Ok{};
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
  // `best/` holds a checkpoint of its own, and may be written first.
  const ir::SaveSpec& save = loop.trainer.spec().save;
  const int64_t copies = save.best == ir::SaveSpec::Best::kNone ? 1 : 2;
  const int64_t bytes = copies * loop.trainer.checkpoint_bytes();
  CAD_TRY(folder,
          CheckpointFolder::open(options.save_folder, mode, save.keep, bytes, loop.trainer.team()));
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

}  // namespace

std::optional<double> eval_value(const std::vector<EvalReport>& reports, const std::string& name) {
  for (const EvalReport& report : reports) {
    for (const auto& [metric, value] : report.values) {
      if (metric == name || report.name + "." + metric == name) return value;
    }
  }
  return std::nullopt;
}

namespace {

using OnWarnings = std::function<void(const std::vector<Diagnostic>&)>;

// What must be the same on all devices, before anything is allocated: ranks have command lines and
// files of their own. E1002.
Status check_equal(const Trainer& trainer, const TrainLoopOptions& options,
                   const Checkpoint& checkpoint) {
  const Team& team = trainer.team();
  if (team.comm() == nullptr) return Ok{};
  const ir::TrainSpec& spec = trainer.spec();
  const std::string plan =
      fmt::format("plan {}\nmesh {}\n", trainer.options().plan->name, trainer.mesh().str()) +
      trainer.parameters().layouts_text();
  std::string settings =
      fmt::format("--steps {}\n--save {}\n--resume {}\n--debug-nan {}\n",
                  options.stop_at.value_or(-1), options.save_folder,
                  options.resume ? checkpoint.state.step : -1, trainer.options().debug_nan);
  settings += fmt::format("settings {}\n", trainer.config_hash());
  const std::pair<const char*, std::string> facts[] = {
      {"seed", std::to_string(spec.seed)},
      {"program", ir::print(spec.forward)},
      {"plan", plan},
      {"settings", settings},
      {"data", trainer.data().fingerprint()},
      {"collectives", collective_sequence(trainer.train_program())}};
  for (const auto& [name, text] : facts) {
    if (const auto difference = agree(*team.comm(), name, text))
      return make_error(DiagId::E1002, *difference, kExitRunFailed);
  }
  return Ok{};
}

// An error of this device that the others do not know of: it ends them too. All other errors are
// agreed on (Team::agree, facts of a step), so that every device returns one by itself.
Status or_end_all(const Team& team, Status status) {
  if (!status.ok() && team.comm() != nullptr) {
    team.comm()->world().fail(
        fmt::format("{}: {}", team.name_of(team.device()), status.error().message));
  }
  return status;
}

// Steps, evaluations and saves until the run is to stop.
Status make_steps(Loop& loop, int64_t stop_at, std::vector<double>& times, TrainOutcome& outcome) {
  Trainer& trainer = loop.trainer;
  const int64_t first = trainer.steps_done();
  const double tokens =
      static_cast<double>(trainer.rows_per_step() * trainer.data().tokens_per_row());
  // One device looks between steps; several agree within each.
  const bool alone = trainer.team().devices() == 1;
  if (alone) outcome.signal = InterruptGuard::signal();
  while (trainer.steps_done() < stop_at && outcome.signal == 0) {
    const size_t events = loop.record.trace.events.size();
    const auto start = Clock::now();
    CAD_TRY(report, trainer.step());
    const double took = seconds_since(start);
    const bool warm = trainer.steps_done() > first + 1 || first + 1 >= stop_at;
    loop.record.step(trainer.train_program(), report, took, events, warm);
    if (times.size() < times.capacity()) times.push_back(took);
    loop.log.step(report, took * 1000, tokens / took);
    CAD_TRY_VOID(or_end_all(trainer.team(), loop.log.status()));
    const bool last = trainer.steps_done() >= stop_at;
    CAD_TRY_VOID(loop.evaluate(last));
    const int64_t every = trainer.spec().save.every;
    if (every > 0 && trainer.steps_done() % every == 0) CAD_TRY_VOID(loop.save());
    outcome.signal = alone ? InterruptGuard::signal() : report.signal;
    if (loop.signal != 0) outcome.signal = loop.signal;
  }
  if (outcome.signal == 0 && trainer.steps_done() >= stop_at && stop_at == first) {
    CAD_TRY_VOID(loop.evaluate(true));
    outcome.signal = loop.signal;
  }
  return loop.save();
}

// The run as one device makes it; the first one speaks for all.
Result<TrainOutcome> run_device(Trainer& trainer, const TrainLoopOptions& options,
                                const OnWarnings& on_warnings, Record& record) {
  const Team& team = trainer.team();
  RunLogOptions log_options;
  log_options.quiet = true;
  if (team.first()) log_options = options.log;
  log_options.append = options.resume;
  auto log = RunLog::open(log_options);
  CAD_TRY_VOID(team.agree(log.ok() ? Status(Ok{}) : Status(log.error()), "opening the log"));
  std::vector<Diagnostic> warnings;
  std::optional<NewFolders> made;  // goes after the folder and its lock
  Loop loop{trainer, *log, options, record, std::nullopt, std::nullopt, {}, -1, -1, 0};
  Checkpoint checkpoint;
  if (options.resume) {
    auto found = checkpoint_to_resume(options);
    CAD_TRY_VOID(team.agree(found.ok() ? Status(Ok{}) : Status(found.error()),
                            "looking for the checkpoint"));
    checkpoint = std::move(*found);
  }
  CAD_TRY_VOID(check_equal(trainer, options, checkpoint));
  if (team.first()) made.emplace(options.save_folder);
  CAD_TRY_VOID(open_folder(loop, options.resume));
  CAD_TRY_VOID(trainer.start(warnings));
  if (options.resume) CAD_TRY_VOID(resume(loop, checkpoint, warnings));
  CAD_TRY_VOID(trainer.check_replicas());
  if (team.first()) on_warnings(warnings);
  const int64_t stop_at = options.stop_at.value_or(trainer.total_steps());
  std::optional<InterruptGuard> interrupts;
  if (team.devices() == 1) interrupts.emplace();
  log->start(trainer, stop_at);

  const auto begin = Clock::now();
  std::vector<double> times;
  times.reserve(
      static_cast<size_t>(std::clamp<int64_t>(stop_at - trainer.steps_done(), 0, 1 << 20)));
  TrainOutcome outcome;
  EndReport& end = outcome.end;
  end.made = -trainer.steps_done();
  CAD_TRY_VOID(make_steps(loop, stop_at, times, outcome));
  end.steps = trainer.steps_done();
  end.made += end.steps;
  end.wall_s = seconds_since(begin);
  double busy = 0;
  for (const double time : times) busy += time;
  const double tokens =
      static_cast<double>(trainer.rows_per_step() * trainer.data().tokens_per_row());
  end.tokens_per_s = busy > 0 ? tokens * static_cast<double>(times.size()) / busy : 0;
  end.peak_bytes = team.gather(trainer.touched_bytes(), "peaks");
  end.predicted_peak_bytes = trainer.memory().total;
  record.times.peak_bytes = trainer.touched_bytes();
  end.predicted_step_s = options.predicted_step_s > 0 ? options.predicted_step_s : std::nan("");
  end.interrupted = outcome.signal == 0 ? "" : outcome.signal == SIGINT ? "SIGINT" : "SIGTERM";
  log->end(end);
  CAD_TRY_VOID(or_end_all(team, log->status()));
  outcome.evals = std::move(loop.reports);
  return outcome;
}

}  // namespace

Result<TrainOutcome> train(ir::TrainSpec spec, const TrainLoopOptions& options,
                           const std::function<void(const std::vector<Diagnostic>&)>& on_warnings) {
  World* world = options.world;
  TrainerOptions trainer_options = options.trainer;
  if (world != nullptr) {
    trainer_options.threads = threads_of_device(world->local_devices(), trainer_options.threads);
  }
  auto trainer = Trainer::create(std::move(spec), trainer_options);
  if (trainer.ok()) return train(std::move(*trainer), options, on_warnings);
  // Other processes must not wait for devices that never come.
  if (world != nullptr)
    world->fail(
        fmt::format("{}: {}", world->name_of(world->first_device()), trainer.error().message));
  return std::move(trainer.error());
}

Result<TrainOutcome> train(std::unique_ptr<Trainer> trainer, const TrainLoopOptions& options,
                           const std::function<void(const std::vector<Diagnostic>&)>& on_warnings) {
  World* world = options.world;
  const bool traces = !options.trace_file.empty();
  const auto count = static_cast<size_t>(world == nullptr ? 1 : world->local_devices());
  std::vector<Record> records(count);  // of this process's devices
  for (Record& record : records) {
    record.traces = traces;
    record.measures = options.measure;
  }
  const auto finish = [&](Result<TrainOutcome> outcome) -> Result<TrainOutcome> {
    if (!outcome.ok()) return outcome;
    std::vector<DeviceTrace> events;
    for (Record& record : records) {
      events.push_back(std::move(record.trace));
      if (options.measure) outcome->measured.push_back(std::move(record.times));
    }
    if (traces)
      CAD_TRY_VOID(write_trace(options.trace_file, trainer->train_program(), events,
                               options.predicted.get()));
    return outcome;
  };
  if (world == nullptr) {
    records[0].follow(*trainer);
    return finish(run_device(*trainer, options, on_warnings, records[0]));
  }
  const InterruptGuard interrupts;
  std::vector<std::optional<Result<TrainOutcome>>> results(count);
  const DevicesOutcome all =
      run_on_devices(*world, trainer->options().threads, [&](Device& device) -> Status {
        const auto i = static_cast<size_t>(device.number - world->first_device());
        const auto own = trainer->on_device(Team(device.comm), device.pool);
        records[i].trace.device = records[i].times.device = device.number;
        records[i].follow(*own);
        results[i].emplace(run_device(*own, options, on_warnings, records[i]));
        return Ok{};  // failing the world here would cut short who is still being told
      });
  // Ranks would write over each other's file.
  if (world->first_device() != 0) return first_of(results, all);
  return finish(first_of(results, all));
}

}  // namespace cad::backend
