// backend/train_loop.h -- a whole run around backend/trainer.h: the folder, resuming, steps until
// the last one, evaluations and checkpoints when due, signals, the log. On several devices every
// one of them runs the same loop; the first one prints and logs.
#pragma once

#include <string>
#include <vector>

#include "backend/run_log.h"
#include "backend/step_times.h"
#include "backend/trainer.h"
#include "planner/plan_timeline.h"

namespace cad::backend {

struct TrainLoopOptions {
  TrainerOptions trainer;
  World* world = nullptr;  // of the devices of trainer.plan; nullptr: one device
  RunLogOptions log;
  std::optional<int64_t> stop_at;  // --steps: the step after which this run stops
  bool resume = false, overwrite = false;
  std::string resume_from;  // --resume DIR; empty: the newest of the save folder
  std::string save_folder;  // resolved; empty: nothing is saved
  std::string trace_file;
  // One step as it was predicted, drawn beside the trace; nullptr: none.
  std::shared_ptr<const planner::Timeline> predicted;
  double predicted_step_s = 0;  // of the plan; 0: nothing was predicted
  bool measure = false;         // TrainOutcome::measured
};

struct TrainOutcome {
  EndReport end;
  int signal = 0;                 // SIGINT, SIGTERM: the step was finished and saved
  std::vector<EvalReport> evals;  // of the last step
  // Of the devices of this process, when asked for. The first step of several is left out: it meets
  // cold caches.
  std::vector<DeviceTimes> measured;
};

// `warnings` are complete before the first step; `on_warnings` is called then so they are seen
// first.
Result<TrainOutcome> train(ir::TrainSpec spec, const TrainLoopOptions& options,
                           const std::function<void(const std::vector<Diagnostic>&)>& on_warnings);

// Of a trainer that is there already, made with threads_of_device() threads; options.trainer is not
// read.
Result<TrainOutcome> train(std::unique_ptr<Trainer> trainer, const TrainLoopOptions& options,
                           const std::function<void(const std::vector<Diagnostic>&)>& on_warnings);

// Value of "loss", "acc", "val.acc" among the reports; nullopt when there is none.
std::optional<double> eval_value(const std::vector<EvalReport>& reports, const std::string& name);

}  // namespace cad::backend
