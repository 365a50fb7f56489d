// planner/chain.h -- checkpointing over a chain of stages: which stages save what their backward
// pass needs, which keep only their input and run again, so that a step takes least time within a
// memory budget. The model and the recurrence are those of Beaumont, Eyraud-Dubois, Herrmann, Joly
// and Shilova (arXiv 1911.13214), with several options a stage as in Rockmate (Zhao and others,
// 2023). docs/checkpointing.md tells it in prose. Not here: plans of at most three runs for equal
// blocks (planner/chain_runs.h), the file format of `colauto solve` (cli/solve_chain.cc).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace cad::planner {

// One way to run a stage. Times in any one unit (the planner: seconds), sizes in any one unit.
struct StageOption {
  double forward = 0;
  double backward = 0;      // includes what the option itself recomputes
  int64_t saved = 0;        // kept from the saving run to the backward; includes the stage's output
  int64_t forward_tmp = 0;  // transient, beyond input, output and what is saved
  int64_t backward_tmp = 0;  // transient, beyond input, saved and the gradients of both ends
  bool operator==(const StageOption&) const = default;
};

struct ChainStage {
  int64_t output = 0;  // size of the output and of its gradient
  std::vector<StageOption> options;
  bool operator==(const ChainStage&) const = default;
};

// The last stage is the loss: no forward of its own, output 0, saved 0.
struct Chain {
  int64_t input = 0;  // size of the first stage's input and of its gradient
  std::vector<ChainStage> stages;

  [[nodiscard]] int64_t input_of(size_t stage) const {
    return stage == 0 ? input : stages[stage - 1].output;
  }
};

enum class ChainOpKind : uint8_t {
  kForward,      // run without saving; an input that nothing keeps is dropped
  kForwardKeep,  // run without saving, the input is kept as a checkpoint
  kForwardSave,  // run and save what backward needs; the input stays
  kBackward,     // consumes what was saved and the gradient of the output
  kDrop,         // drop the input of `stage` that was kept
};
const char* chain_op_name(ChainOpKind kind);  // "forward", "forward-keep", ..

struct ChainOp {
  ChainOpKind kind = ChainOpKind::kForward;
  int32_t stage = 0;
  int32_t option = 0;  // of kForward, kForwardKeep, kForwardSave and kBackward
  bool operator==(const ChainOp&) const = default;
};

enum class ChainStatus : uint8_t {
  kOptimal,     // least time over all persistent schedules
  kFeasible,    // fits; `bound` says how far from optimal it can be
  kSimple,      // the same, out of time: nothing but a simple schedule was found
  kInfeasible,  // no persistent schedule fits: see least_budget
};
const char* chain_status_name(ChainStatus status);  // "optimal" "feasible" ..

struct ChainResult {
  ChainStatus status = ChainStatus::kInfeasible;
  double time = 0;           // of the schedule, by simulate()
  double bound = 0;          // no persistent schedule within the budget is faster
  int64_t peak = 0;          // of the schedule, by simulate()
  int64_t least_budget = 0;  // the least budget with any schedule, exact
  bool discretised = false;  // sizes were rounded up to multiples of `unit`
  int64_t unit = 1;
  int64_t slots = 0;              // the budget in units
  std::vector<ChainOp> schedule;  // empty when infeasible
  std::vector<int> choices;       // per stage: the option that its saving run takes
};

struct ChainLimits {
  int64_t slots = 500;              // at least, after rounding, where exact tables are too large
  int64_t exact_work = 1000000000;  // inner steps that an exact table may take
  // After half of them no exact way is followed further, and after all of them none; finding the
  // least budget, with which everything begins, is not cut short.
  double seconds = std::numeric_limits<double>::infinity();
};

// Least time within `budget`, which counts everything: the chain's input, what is kept and saved,
// gradients and transients at every position of the schedule. Needs a chain that passes
// chain_error(). Exact while tables are small (`limits`), else sizes are rounded up, so that a fit
// that is claimed holds, and `bound` comes from the sizes rounded down. Out of time, a simple
// schedule that fits.
ChainResult solve_chain(const Chain& chain, int64_t budget, const ChainLimits& limits = {});

// The least budget for which a persistent schedule exists; exact, O(n^3) for n different stages.
int64_t least_chain_budget(const Chain& chain);

// Why the chain cannot be solved, or empty: no stage, a stage without options, negative or
// non-finite numbers, saved < output, sums beyond what is exact (2^53 for times, 2^62 for sizes).
std::string chain_error(const Chain& chain);

// What running a schedule takes, by position, from nothing but the definitions above. It starts
// with the input alone and must end with the input and its gradient alone.
struct ChainSimulation {
  std::string error;            // why the schedule cannot be run, or empty
  double time = 0;              // sum over the operations
  int64_t peak = 0;             // largest memory during any operation
  int64_t peak_at = 0;          // index of the operation with the peak
  int64_t baseline = 0;         // memory at the end: the input and its gradient
  std::vector<int64_t> memory;  // during each operation
};
ChainSimulation simulate(const Chain& chain, const std::vector<ChainOp>& schedule);

}  // namespace cad::planner
