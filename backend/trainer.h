// backend/trainer.h -- a training run on one device: compiles the programs of a TrainSpec, owns the
// memory, and makes steps. It does not print, save or handle signals: backend/train_loop.h does.
// Order of a step: (step totals over all micro-batches) -> forward and backward of each
// micro-batch, gradients and loss added up -> norm -> stop or skip when not finite -> updates ->
// moving average.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/bound_program.h"
#include "backend/checkpoint.h"
#include "backend/data.h"
#include "backend/optimizer.h"
#include "backend/parameters.h"
#include "backend/run_memory.h"
#include "ir/passes.h"
#include "ir/training.h"

namespace cad::backend {

class ThreadPool;

struct TrainerOptions {
  int threads = 0;             // 0: all cores
  bool debug_nan = false;      // check every op of every step
  bool evaluate_only = false;  // no training data, gradients or optimizer: step() is not for use
  int64_t budget = 0;          // bytes the run may use; 0: what the machine has
  ir::PassLog* passes = nullptr;
  std::vector<TraceEvent>* trace = nullptr;  // of the train program, while set
};

struct StepReport {
  int64_t step = 0;  // 1, 2, ..
  double loss = 0;
  double grad_norm = 0;
  std::vector<double> rates;  // one an unfrozen optimizer entry
  bool skipped = false;       // f16 overflow: no update, the scale was halved
};

struct EvalReport {
  std::string name;
  int64_t rows = 0;
  std::vector<std::pair<std::string, double>> values;  // "loss" first
};

// Sizes in bytes, for the start line and --json.
struct MemoryReport {
  int64_t parameters = 0, optimizer = 0, gradients = 0, average = 0, region = 0, total = 0;
};

class Trainer {
 public:
  // Opens data, compiles, lays memory out: everything that can fail before the first byte of tensor
  // memory exists. `folder`: of the program, for relative file names.
  static Result<std::unique_ptr<Trainer>> create(ir::TrainSpec spec, const TrainerOptions& options);
  ~Trainer();

  // Allocates and fills parameters: initialisers, then `init` files.
  Status start(std::vector<Diagnostic>& warnings);
  Status restore(const Checkpoint& checkpoint);
  Result<StepReport> step();
  [[nodiscard]] std::vector<EvalReport> evaluate_all();
  [[nodiscard]] EvalReport evaluate(size_t eval);
  // E0701 when the report holds a loss that is not finite.
  Status check_finite(size_t eval, const EvalReport& report);
  // Views into run memory; valid until the next step.
  [[nodiscard]] CheckpointContents contents() const;

  [[nodiscard]] const ir::TrainSpec& spec() const { return spec_; }
  [[nodiscard]] Parameters& parameters() { return parameters_; }
  [[nodiscard]] const Parameters& parameters() const { return parameters_; }
  [[nodiscard]] const Optimizer& optimizer() const { return optimizer_; }
  [[nodiscard]] const DataSet& data() const { return *data_; }
  [[nodiscard]] int64_t steps_done() const { return steps_done_; }
  [[nodiscard]] int64_t total_steps() const { return total_steps_; }  // the program's
  [[nodiscard]] int64_t rows_per_step() const { return data_->batch() * spec_.accumulate; }
  [[nodiscard]] MemoryReport memory() const { return memory_report_; }
  [[nodiscard]] int64_t touched_bytes() const { return memory_.touched_bytes(); }
  [[nodiscard]] const Program& train_program() const { return train_.program(); }
  [[nodiscard]] std::string config_hash() const;
  [[nodiscard]] ThreadPool& pool() { return *pool_; }
  [[nodiscard]] std::string folder() const;
  // Gradients of the last step (unscaled by clipping): for tests.
  [[nodiscard]] const float* gradient(const std::string& path) const;

 private:
  Trainer() = default;
  struct Eval {
    std::optional<DataSet> data;
    BoundProgram program;
  };
  Status open_data();
  void compile_programs(const TrainerOptions& options);
  void plan_memory();
  void bind();
  double run_micro_batches(bool debug);
  void add_step_totals();
  Diagnostic not_finite(DiagId id, const std::string& what, double value);
  void find_first_op();
  // "`x` holds nan at row 3 of its data", of `count` rows from the run's row `first` on.
  std::optional<std::string> odd_data(const DataSet& data, const BoundProgram& program,
                                      int64_t first, int64_t count);
  std::optional<std::string> odd_parameter() const;
  void average_parameters();

  ir::TrainSpec spec_;
  TrainerOptions options_;
  std::unique_ptr<ThreadPool> pool_;
  std::optional<DataSet> data_;
  Parameters parameters_;
  Optimizer optimizer_;
  BoundProgram train_, totals_;
  std::vector<Eval> evals_;
  RunMemory memory_;
  MemoryReport memory_report_;
  int64_t persistent_bytes_ = 0, region_bytes_ = 0;
  std::vector<int64_t> gradient_offsets_;  // by parameter; -1: none
  std::vector<float*> gradients_;
  std::vector<std::byte*> averages_;  // by parameter, or its own data
  std::vector<double> norm_parts_;
  std::optional<NonFinite> first_bad_;
  int64_t steps_done_ = 0, rows_done_ = 0, updates_done_ = 0, total_steps_ = 0;
  double loss_scale_ = 1;
  int64_t good_steps_ = 0;
};

}  // namespace cad::backend
