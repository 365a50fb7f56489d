// backend/trainer.h -- a training run as one device makes it: compiles the programs of a TrainSpec,
// owns the device's memory, and makes steps. It does not print, save or handle signals:
// backend/train_loop.h does. Order of a step: (step totals over all micro-batches) -> forward and
// backward of each micro-batch, gradients and loss added up -> gradients to the optimizer's layout
// -> norm -> stop or skip when not finite -> updates -> moving average.
//
// Several devices: create() makes what they share, on_device() one for each; then all call the same
// functions in the same order (backend/devices.h), and decide what to do next from facts that all
// know (backend/team.h). With one device create() gives the trainer itself.
#pragma once

#include <array>
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
#include "backend/team.h"
#include "backend/train_graph.h"
#include "ir/passes.h"
#include "ir/training.h"

namespace cad::backend {

class Jit;
class ThreadPool;

struct TrainerOptions {
  int threads = 0;             // 0: all cores; of each device, with several their share
  bool debug_nan = false;      // check every op of every step
  bool evaluate_only = false;  // no training data, gradients or optimizer: step() is not for use
  bool layout_only = false;    // opens no data and makes no code: memory() is all it is for
  int64_t budget = 0;          // bytes a device may use; 0: what the machine has
  int sharing = 1;             // devices that use this machine's memory
  std::shared_ptr<const DevicePlan> plan;  // nullptr: one device
  std::shared_ptr<Jit> jit;                // of other runs, for kernels that they share; or nullptr
  ir::PassLog* passes = nullptr;
  std::vector<TraceEvent>* trace = nullptr;  // of the train program, while set
};

struct StepReport {
  int64_t step = 0;  // 1, 2, ..
  double loss = 0;
  double grad_norm = 0;
  std::vector<double> rates;  // one an unfrozen optimizer entry
  bool skipped = false;       // f16 overflow: no update, the scale was halved
  int signal = 0;             // that a device had got before the update; 0: none
  // When (steady clock, ns) it began, and when what follows was done: micro-batches, gradients in
  // the optimizer's layout, their norm (all devices have it), update and average.
  enum Mark { kBegun, kPassed, kReduced, kMeasured, kUpdated, kMarks };
  std::array<int64_t, kMarks> marks{};
  int64_t moved_ns = 0;  // of the update: parameters to the optimizer's layout and back
};

struct EvalReport {
  std::string name;
  int64_t rows = 0;
  int signal = 0;  // that cut it short: there are no values then
  std::vector<std::pair<std::string, double>> values;  // "loss" first
};

// Sizes in bytes on one device, for the start line and --json.
struct MemoryReport {
  int64_t parameters = 0, optimizer = 0, gradients = 0, average = 0, region = 0, total = 0;
};

class Trainer {
 public:
  // Opens data, compiles, lays memory out: everything that can fail before the first byte of tensor
  // memory exists. `folder`: of the program, for relative file names.
  static Result<std::unique_ptr<Trainer>> create(ir::TrainSpec spec, const TrainerOptions& options);
  // Of several devices, the one of `team`: shares programs and data with this one.
  [[nodiscard]] std::unique_ptr<Trainer> on_device(const Team& team, ThreadPool& pool) const;
  ~Trainer();

  // Allocates and fills parameters: initialisers, then `init` files.
  Status start(std::vector<Diagnostic>& warnings);
  Status restore(const Checkpoint& checkpoint);
  Result<StepReport> step();
  [[nodiscard]] std::vector<EvalReport> evaluate_all();
  [[nodiscard]] EvalReport evaluate(size_t eval);
  // Of several devices: those that hold the same block of a parameter hold the same bits of it, as
  // they must from the first step on (ranks read files of their own). E1002.
  [[nodiscard]] Status check_replicas() const;
  // E0701 when the report holds a loss that is not finite.
  Status check_finite(size_t eval, const EvalReport& report);
  // Views into run memory; valid until the next step.
  [[nodiscard]] CheckpointContents contents() const;

  [[nodiscard]] const ir::TrainSpec& spec() const { return *spec_; }
  [[nodiscard]] const TrainerOptions& options() const { return options_; }
  [[nodiscard]] const Team& team() const { return team_; }
  [[nodiscard]] const planner::Mesh& mesh() const { return mesh_; }
  [[nodiscard]] int devices() const { return mesh_.axes.empty() ? 1 : mesh_.devices(); }
  [[nodiscard]] Parameters& parameters() { return parameters_; }
  [[nodiscard]] const Parameters& parameters() const { return parameters_; }
  [[nodiscard]] const Optimizer& optimizer() const { return optimizer_; }
  [[nodiscard]] const DataSet& data() const { return *data_; }
  [[nodiscard]] const DataSet& eval_data(size_t eval) const { return *evals_[eval].data; }
  [[nodiscard]] int64_t steps_done() const { return steps_done_; }
  [[nodiscard]] int64_t total_steps() const { return total_steps_; }  // the program's
  [[nodiscard]] int64_t rows_per_step() const { return data_->batch() * spec_->accumulate; }
  [[nodiscard]] MemoryReport memory() const { return memory_report_; }
  [[nodiscard]] int64_t checkpoint_bytes() const;  // of one checkpoint's tensors, about
  [[nodiscard]] int64_t touched_bytes() const { return memory_.touched_bytes(); }
  [[nodiscard]] const Program& train_program() const { return train_.program(); }
  [[nodiscard]] std::string config_hash() const;
  [[nodiscard]] ThreadPool& pool() { return *pool_; }
  [[nodiscard]] std::string folder() const;
  void trace_to(std::vector<TraceEvent>* events) { options_.trace = events; }
  // Gradients of the last step (unscaled by clipping), in the optimizer's layout: for tests.
  [[nodiscard]] const float* gradient(const std::string& local) const;

 private:
  Trainer() = default;
  struct Eval {
    std::shared_ptr<const DataSet> data;
    BoundProgram program;
  };
  // Programs that bring a parameter from one layout to another; -1: it lies so already.
  struct Conversions {
    int gradient = -1;  // gradient -> optimizer
    int take = -1;      // storage -> optimizer
    int give = -1;      // optimizer -> storage
  };
  struct PlainProgram;  // unfused, to find where a value that is not finite came from
  // What devices tell each other once a step.
  struct StepFacts {
    double squares = 0;
    int32_t odd_loss = 0, odd_op = 0, signal = 0, unused = 0;
  };

  Status open_data();
  Status read_checkpoint(const Checkpoint& checkpoint);
  Status assign_parameters(const LoweredRun* lowered);
  void compile_programs(LoweredRun* lowered);
  [[nodiscard]] RunGraph step_graph() const;
  void compile_train(RunGraph step, const CompileOptions& options);
  void add_conversions();
  [[nodiscard]] CompileOptions compile_options() const;
  int conversion(const Parameter& p, const planner::Layout& from, const planner::Layout& to);
  void plan_memory();
  void place_device(const std::vector<int>& coordinates);
  void bind();
  std::vector<OptimizerState*> optimizer_states();

  double run_micro_batches(bool debug);
  void add_step_totals();
  void convert(int program, void* from, void* to);
  void convert_gradients();
  double squares_of_gradients();
  StepFacts exchange(const StepFacts& mine) const;
  void update_parameters(const Optimizer::Update& update);
  void average_parameters();

  Diagnostic not_finite(DiagId id, const std::string& what, double value);
  void find_first_op();
  [[nodiscard]] bool anywhere(bool here) const;  // on any device
  static std::shared_ptr<PlainProgram> make_plain();
  // "`x` holds nan at row 3 of its data", of `count` rows from the run's row `first` on.
  std::optional<std::string> odd_data(const DataSet& data, int64_t first, int64_t count);
  bool reads_odd_data();
  std::optional<std::string> odd_parameter() const;

  std::shared_ptr<const ir::TrainSpec> spec_;
  TrainerOptions options_;
  Team team_;
  planner::Mesh mesh_;
  std::unique_ptr<ThreadPool> own_pool_;
  ThreadPool* pool_ = nullptr;
  std::shared_ptr<const DataSet> data_;
  // As files name them, and as this device holds them; the same with one device.
  Parameters whole_, parameters_;
  Optimizer whole_optimizer_, optimizer_;
  BoundProgram train_, totals_;
  std::vector<Eval> evals_;
  std::vector<Conversions> conversions_;  // by parameter
  std::vector<Program> conversion_programs_;
  std::map<std::string, int> known_conversions_;
  RunMemory memory_;
  MemoryReport memory_report_;
  int64_t persistent_bytes_ = 0, region_bytes_ = 0;
  int64_t scratch_offset_ = 0, conversion_offset_ = 0;  // in the region, behind the optimizer's
  std::vector<int64_t> gradient_offsets_;               // by parameter; -1: none
  std::vector<float*> gradients_;
  std::vector<std::byte*> averages_;  // by parameter, or its own data
  std::vector<double> norm_parts_;
  std::shared_ptr<PlainProgram> plain_;
  std::optional<NonFinite> first_bad_;
  int64_t steps_done_ = 0, rows_done_ = 0, updates_done_ = 0, total_steps_ = 0;
  double loss_scale_ = 1;
  int64_t good_steps_ = 0;
  int64_t converted_ns_ = 0;  // spent in convert()
};

}  // namespace cad::backend
