// planner/chain_schedule.cc -- from a solved recurrence to the operations it stands for, and what
// operations take, found again by running them one by one.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "planner/chain_solver.h"

namespace cad::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

using TimeOf = std::function<double(int, int, int64_t)>;

struct Decision {
  double time = kNever;
  int option = -1;      // save with it
  int checkpoint = -1;  // or run unsaved up to this stage
};

// The fastest way to run stage k unsaved that fits, or null.
const ChainModel::Unsaved* fastest_run(const ChainModel& model, int s, int k, int t, int64_t m) {
  const ChainModel::Unsaved* best = nullptr;
  for (const auto& way : model.unsaved(k)) {
    if (model.run_need(s, k, t, way.tmp) <= m) best = &way;
  }
  return best;
}

Decision decide(const ChainModel& model, int s, int t, int64_t m, const TimeOf& time) {
  Decision best;
  for (size_t o = 0; o < model.options(s).size(); ++o) {
    const StageOption& option = model.options(s)[o];
    if (model.save_need(s, t, option) > m) continue;
    const double value =
        option.forward + option.backward + (s < t ? time(s + 1, t, m - option.saved) : 0);
    if (value < best.time) best = {value, static_cast<int>(o), -1};
  }
  double sweep = 0;
  for (int k = s + 1; k <= t; ++k) {
    const auto* way = fastest_run(model, s, k - 1, t, m);
    if (way == nullptr) break;
    sweep += way->forward;
    if (m < model.in(k)) continue;
    const double value = time(k, t, m - model.in(k)) + time(s, k - 1, m) + sweep;
    if (value < best.time) best = {value, -1, k};
  }
  return best;
}

}  // namespace

std::vector<ChainOp> chain_schedule(const ChainModel& model, int64_t m, const TimeOf& time) {
  struct Task {
    int s = 0, t = -1;  // t < 0: `op` is to be emitted
    int64_t m = 0;
    ChainOp op;
  };
  std::vector<ChainOp> schedule;
  std::vector<Task> stack{{0, model.stages() - 1, m, {}}};
  while (!stack.empty()) {
    const Task task = stack.back();
    stack.pop_back();
    if (task.t < 0) {
      schedule.push_back(task.op);
      continue;
    }
    const int s = task.s, t = task.t;
    const Decision best = decide(model, s, t, task.m, time);
    CAD_CHECK(best.time < kNever, "no decision for stages {} to {} in {}", s, t, task.m);
    if (best.option >= 0) {
      schedule.push_back({ChainOpKind::kForwardSave, s, best.option});
      stack.push_back({0, -1, 0, {ChainOpKind::kBackward, s, best.option}});
      if (s < t) stack.push_back({s + 1, t, task.m - model.options(s)[best.option].saved, {}});
      continue;
    }
    for (int k = s; k < best.checkpoint; ++k) {
      const auto* way = fastest_run(model, s, k, t, task.m);
      schedule.push_back(
          {k == s ? ChainOpKind::kForwardKeep : ChainOpKind::kForward, k, way->option});
    }
    const int k = best.checkpoint;
    stack.push_back({s, k - 1, task.m, {}});
    stack.push_back({0, -1, 0, {ChainOpKind::kDrop, k, 0}});
    stack.push_back({k, t, task.m - model.in(k), {}});
  }
  return schedule;
}

namespace {

class Simulator {
 public:
  explicit Simulator(const Chain& chain)
      : chain_(chain),
        n_(static_cast<int>(chain.stages.size())),
        backward_(n_),
        kept_(chain.stages.size(), false),
        saved_(chain.stages.size(), -1) {
    kept_[0] = true;
    memory_ = chain.input + chain.stages.back().output;
  }

  ChainSimulation run(const std::vector<ChainOp>& schedule) {
    ChainSimulation result;
    result.peak = memory_;
    for (size_t i = 0; i < schedule.size(); ++i) {
      const int64_t during = step(schedule[i], result.time);
      if (!error_.empty()) {
        result.error = fmt::format("operation {}, {} of stage {}: {}", i,
                                   chain_op_name(schedule[i].kind), schedule[i].stage, error_);
        return result;
      }
      result.memory.push_back(during);
      if (during > result.peak) {
        result.peak = during;
        result.peak_at = static_cast<int64_t>(i);
      }
    }
    result.baseline = memory_;
    const bool all_back = backward_ == 0 && transient_ < 0 &&
                          std::count(kept_.begin(), kept_.end(), true) == 1 &&
                          std::all_of(saved_.begin(), saved_.end(), [](int o) { return o < 0; });
    if (!all_back) result.error = "the schedule ends with work undone or memory held";
    return result;
  }

 private:
  [[nodiscard]] bool has_input(int s) const {
    return kept_[s] || transient_ == s || (s > 0 && saved_[s - 1] >= 0);
  }

  // Memory during the operation; memory_ is then what is held after it.
  int64_t step(const ChainOp& op, double& time) {
    const int s = op.stage;
    if (s < 0 || s >= n_) return fail("there is no such stage");
    const ChainStage& stage = chain_.stages[s];
    if (op.kind == ChainOpKind::kDrop) return drop(s);
    if (op.option < 0 || op.option >= static_cast<int>(stage.options.size()))
      return fail("there is no such option");
    if (!has_input(s)) return fail("its input is not held");
    const StageOption& option = stage.options[op.option];
    if (op.kind == ChainOpKind::kBackward) return backward(s, op.option, time);
    if (backward_ <= s) return fail("its backward is done");
    time += option.forward;
    if (op.kind == ChainOpKind::kForwardSave) {
      if (saved_[s] >= 0) return fail("it is saved already");
      const int64_t during = memory_ + option.saved + option.forward_tmp;
      keep(s);
      saved_[s] = op.option;
      memory_ += option.saved;
      return during;
    }
    if (s + 1 >= n_) return fail("nothing reads its output");
    const int64_t during = memory_ + stage.output + option.forward_tmp;
    if (op.kind == ChainOpKind::kForwardKeep) keep(s);
    if (transient_ == s) memory_ -= chain_.input_of(s);
    if (transient_ >= 0 && transient_ != s) return fail("another stage's input would be lost");
    transient_ = s + 1;
    memory_ += stage.output;
    return during;
  }

  int64_t backward(int s, int option, double& time) {
    if (backward_ != s + 1) return fail("the gradient of its output is not there");
    if (saved_[s] != option) return fail("it is not saved with this option");
    const ChainStage& stage = chain_.stages[s];
    const int64_t during = memory_ + chain_.input_of(s) + stage.options[option].backward_tmp;
    memory_ += chain_.input_of(s) - stage.output - stage.options[option].saved;
    saved_[s] = -1;
    backward_ = s;
    time += stage.options[option].backward;
    return during;
  }

  int64_t drop(int s) {
    const int64_t during = memory_;
    if (s == 0) return fail("the chain's input stays");
    if (kept_[s] || transient_ == s) {
      memory_ -= chain_.input_of(s);
      kept_[s] = false;
      if (transient_ == s) transient_ = -1;
      return during;
    }
    return fail("it keeps no input");
  }

  void keep(int s) {
    if (transient_ != s) return;  // kept already, or part of what the stage before saved
    transient_ = -1;
    kept_[s] = true;
  }

  int64_t fail(std::string why) {
    error_ = std::move(why);
    return 0;
  }

  const Chain& chain_;
  int n_ = 0;
  int backward_ = 0;        // stages from here on are done
  int transient_ = -1;      // the stage whose input is held until it is used
  std::vector<bool> kept_;  // inputs that are held
  std::vector<int> saved_;  // option, or -1
  int64_t memory_ = 0;
  std::string error_;
};

}  // namespace

ChainSimulation simulate(const Chain& chain, const std::vector<ChainOp>& schedule) {
  CAD_CHECK(chain_error(chain).empty(), "chain: {}", chain_error(chain));
  return Simulator(chain).run(schedule);
}

}  // namespace cad::planner
