// planner/chain.cc -- solve_chain: which of the exact ways through the recurrence is affordable,
// and what is rounded when none is.
#include "planner/chain.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "base/check.h"
#include "planner/chain_runs.h"
#include "planner/chain_solver.h"

namespace cad::planner {
namespace {

constexpr double kMostTableBytes = 256.0 * 1024 * 1024;
constexpr double kMostTableWork = 2e9;
constexpr int64_t kFewSlots = 16;
constexpr int64_t kPointCost = 50;  // of a step function, in inner steps of a table

// Every size divided by `unit`, rounded up or down.
Chain scaled(const Chain& chain, int64_t unit, bool up) {
  const auto size = [&](int64_t bytes) { return bytes / unit + (up && bytes % unit != 0 ? 1 : 0); };
  Chain result = chain;
  result.input = size(chain.input);
  for (ChainStage& stage : result.stages) {
    stage.output = size(stage.output);
    for (StageOption& o : stage.options) {
      o.saved = size(o.saved);
      o.forward_tmp = size(o.forward_tmp);
      o.backward_tmp = size(o.backward_tmp);
    }
  }
  return result;
}

int64_t common_divisor(const Chain& chain) {
  int64_t d = chain.input;
  for (const ChainStage& stage : chain.stages) {
    d = std::gcd(d, stage.output);
    for (const StageOption& o : stage.options) {
      d = std::gcd(std::gcd(d, o.saved), std::gcd(o.forward_tmp, o.backward_tmp));
    }
  }
  return std::max<int64_t>(d, 1);
}

void set_schedule(const Chain& chain, std::vector<ChainOp> schedule, ChainResult& result) {
  const ChainSimulation run = simulate(chain, schedule);
  CAD_CHECK(run.error.empty(), "schedule of the chain program: {}", run.error);
  result.time = run.time;
  result.peak = run.peak;
  result.choices.assign(chain.stages.size(), 0);
  for (const ChainOp& op : schedule) {
    if (op.kind == ChainOpKind::kForwardSave) result.choices[op.stage] = op.option;
  }
  result.schedule = std::move(schedule);
}

double table_work(const ChainModel& model, int64_t memory) {
  return (model.splits() + static_cast<double>(model.segments().size())) *
         (static_cast<double>(memory) + 1);
}

bool table_fits(const ChainModel& model, int64_t memory, double work) {
  const double bytes =
      8.0 * static_cast<double>(model.segments().size()) * (static_cast<double>(memory) + 16);
  return bytes <= kMostTableBytes && table_work(model, memory) <= work;
}

// With ample memory every stage runs once, with its fastest option.
std::vector<ChainOp> fastest_schedule(const ChainModel& model) {
  std::vector<ChainOp> schedule;
  schedule.reserve(2 * static_cast<size_t>(model.stages()));
  for (int s = 0; s < model.stages(); ++s) {
    schedule.push_back({ChainOpKind::kForwardSave, s, model.fastest_option(s)});
  }
  for (int s = model.stages(); s-- > 0;) {
    schedule.push_back({ChainOpKind::kBackward, s, model.fastest_option(s)});
  }
  return schedule;
}

// True from so many seconds on.
ChainLate after(double seconds) {
  const auto start = std::chrono::steady_clock::now();
  return [start, seconds] {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    return taken.count() >= seconds;
  };
}

// Exact by a table, or where that is large by step functions, or by a large table: false when all
// would take too long.
bool solve_exactly(const Chain& chain, const ChainModel& model, int64_t memory,
                   const ChainLimits& limits, const ChainLate& late, ChainResult& result) {
  const int last = model.stages() - 1;
  const auto take = [&](const auto& solved) {
    const auto time = [&](int s, int t, int64_t m) { return solved.time(s, t, m); };
    result.bound = time(0, last, memory);
    set_schedule(chain, chain_schedule(model, memory, time), result);
  };
  if (memory <= limits.slots && table_fits(model, memory, kMostTableWork)) {
    const ChainTable table(model, memory, late);
    if (!table.complete()) return false;
    take(table);
  } else if (const auto steps =
                 ChainSteps::solve(model, memory, limits.exact_work / kPointCost, 0, late)) {
    take(*steps);
  } else if (table_fits(model, memory, static_cast<double>(limits.exact_work))) {
    const ChainTable table(model, memory, late);
    if (!table.complete()) return false;
    take(table);
  } else {
    return false;
  }
  CAD_CHECK(std::abs(result.bound - result.time) <= 1e-9 * std::max(1.0, result.time),
            "recurrence {} and schedule {} disagree", result.bound, result.time);
  result.bound = result.time;  // equal but for the order of the sum
  result.status = ChainStatus::kOptimal;
  return true;
}

// A bound by what is held when the last stage runs backward: the other stages have all run once by
// then, and those that are not saved run again. Choosing what to save is a knapsack; its fractional
// optimum takes the steps of each stage's lower hull (size, time) by falling gain per size.
double saved_bound(const ChainModel& model, int64_t memory) {
  struct Step {
    double size = 0, gain = 0;
  };
  const int last = model.stages() - 1;
  std::vector<Step> steps;
  double time = model.base(last, last);
  for (int s = 0; s < last; ++s) {
    const double again = model.unsaved(s).back().forward;
    std::vector<std::pair<double, double>> hull{{0, again + model.base(s, s)}};
    std::vector<std::pair<double, double>> choices;
    for (const StageOption& o : model.options(s)) {
      choices.emplace_back(static_cast<double>(o.saved), o.forward + o.backward);
    }
    std::sort(choices.begin(), choices.end());
    for (const auto& c : choices) {
      if (c.second >= hull.back().second) continue;
      const auto slope = [](const auto& a, const auto& b) {
        return (b.second - a.second) / std::max(b.first - a.first, 1e-9);
      };
      while (hull.size() > 1 &&
             slope(hull[hull.size() - 2], hull.back()) >= slope(hull.back(), c)) {
        hull.pop_back();
      }
      hull.push_back(c);
    }
    time += hull[0].second;
    for (size_t i = 1; i < hull.size(); ++i) {
      steps.push_back({hull[i].first - hull[i - 1].first, hull[i - 1].second - hull[i].second});
    }
  }
  std::sort(steps.begin(), steps.end(),
            [](const Step& a, const Step& b) { return a.gain * b.size > b.gain * a.size; });
  int64_t own = INT64_MAX;
  for (const StageOption& o : model.options(last)) {
    own = std::min(own, model.save_need(last, last, o));
  }
  auto room = static_cast<double>(memory - own);
  for (const Step& step : steps) {
    const double part = step.size <= room ? 1 : room / step.size;
    time -= part * step.gain;
    room -= part * step.size;
    if (part < 1) break;
  }
  return time;
}

std::optional<BlockChain> equal_blocks(const Chain& chain) {
  const size_t n = chain.stages.size() - 1;
  const ChainStage& last = chain.stages[n];
  if (n == 0 || last.output != 0 || last.options.size() != 1) return std::nullopt;
  for (size_t s = 0; s < n; ++s) {
    if (!(chain.stages[s] == chain.stages[0])) return std::nullopt;
  }
  if (chain.stages[0].output != chain.input) return std::nullopt;
  return BlockChain{chain.stages[0].options, chain.input, static_cast<int64_t>(n), last.options[0]};
}

// Many equal blocks are many roundings: a plan of three runs needs none.
void try_three_runs(const Chain& chain, int64_t memory, ChainResult& result) {
  const auto blocks = equal_blocks(chain);
  if (!blocks) return;
  const ChainRuns plan = three_runs(*blocks, chain.input + memory);
  if (plan.feasible && plan.time < result.time)
    set_schedule(chain, runs_schedule(*blocks, plan), result);
}

// Out of time: of the decisions that fit, always the one that would be best if what follows ran
// once. What is feasible is exact, so that there is always one.
void solve_simply(const Chain& chain, int64_t memory, ChainResult& result) {
  const ChainModel model(chain);
  const std::vector<int64_t> least = least_memory(model);
  const auto time = [&](int s, int t, int64_t m) {
    return m < least[static_cast<size_t>(model.id(s, t))] ? std::numeric_limits<double>::infinity()
                                                          : model.base(s, t);
  };
  set_schedule(chain, chain_schedule(model, memory, time), result);
  try_three_runs(chain, memory, result);
  result.bound = std::max(result.bound, saved_bound(model, memory));
  result.bound = std::min(result.bound, result.time);
  result.status = result.time <= result.bound ? ChainStatus::kOptimal : ChainStatus::kSimple;
}

// Sizes in slots: rounded up for the schedule, down for the bound. When nothing fits rounded up,
// step functions cut to few points, whose memory is exact. False: it got late, `bound` may be
// known.
bool solve_rounded(const Chain& chain, int64_t memory, const ChainLimits& limits,
                   const ChainLate& late, ChainResult& result) {
  if (late()) return false;
  // Finer than asked for where that is cheap.
  const double cheap = static_cast<double>(limits.exact_work) / table_work(ChainModel(chain), 0);
  const int64_t asked = std::max<int64_t>(limits.slots, 1);
  int64_t slots = std::clamp(static_cast<int64_t>(cheap), asked, 8 * asked);
  int64_t unit = 0;
  Chain up;
  for (;; slots = std::max(kFewSlots, slots / 2)) {
    unit = memory / slots + (memory % slots != 0 ? 1 : 0);
    up = scaled(chain, unit, true);
    const ChainModel model(up);
    if (slots <= kFewSlots || table_fits(model, memory / unit, kMostTableWork)) break;
  }
  const int64_t m = memory / unit;
  const Chain down = scaled(chain, unit, false);
  const ChainModel low(down);
  const ChainTable bound(low, m, late);
  if (!bound.complete()) return false;
  result.bound =
      std::max(bound.time(0, low.stages() - 1, m), saved_bound(ChainModel(chain), memory));
  const ChainModel model(up);
  const ChainTable table(model, m, late);
  if (!table.complete()) return false;
  const auto time = [&](int s, int t, int64_t x) { return table.time(s, t, x); };
  if (std::isfinite(table.time(0, model.stages() - 1, m))) {
    set_schedule(chain, chain_schedule(model, m, time), result);
  } else {
    const ChainModel exact(chain);
    const auto steps = ChainSteps::solve(exact, memory, INT64_MAX, kFewSlots, late);
    if (!steps) return false;
    set_schedule(chain,
                 chain_schedule(exact, memory,
                                [&](int s, int t, int64_t x) { return steps->time(s, t, x); }),
                 result);
  }
  try_three_runs(chain, memory, result);
  result.discretised = true;
  result.unit = unit;
  result.slots = m;
  result.bound = std::min(result.bound, result.time);
  result.status = result.time <= result.bound ? ChainStatus::kOptimal : ChainStatus::kFeasible;
  return true;
}

std::string option_error(const StageOption& o, int64_t output, double& times, double& sizes) {
  for (const double time : {o.forward, o.backward}) {
    if (!std::isfinite(time)) return "a time is not finite";
    if (time < 0) return "a time is negative";
    times += time;
  }
  for (const int64_t size : {o.saved, o.forward_tmp, o.backward_tmp}) {
    if (size < 0) return "a size is negative";
    sizes += static_cast<double>(size);
  }
  if (o.saved < output) return "what is saved includes the output, so it cannot be smaller";
  return "";
}

}  // namespace

const char* chain_op_name(ChainOpKind kind) {
  switch (kind) {
    case ChainOpKind::kForward:
      return "forward";
    case ChainOpKind::kForwardKeep:
      return "forward-keep";
    case ChainOpKind::kForwardSave:
      return "forward-save";
    case ChainOpKind::kBackward:
      return "backward";
    case ChainOpKind::kDrop:
      return "drop";
  }
  return "";
}

const char* chain_status_name(ChainStatus status) {
  switch (status) {
    case ChainStatus::kOptimal:
      return "optimal";
    case ChainStatus::kFeasible:
      return "feasible";
    case ChainStatus::kSimple:
      return "time limit, with a simple solution";
    case ChainStatus::kInfeasible:
      return "infeasible";
  }
  return "";
}

std::string chain_error(const Chain& chain) {
  constexpr double kMostTime = 9007199254740992.0;     // 2^53: sums of whole numbers stay exact
  constexpr double kMostSize = 4611686018427387904.0;  // 2^62
  if (chain.stages.empty()) return "the chain has no stage";
  if (chain.input < 0) return "the size of the input is negative";
  double times = 0, sizes = static_cast<double>(chain.input);
  for (size_t s = 0; s < chain.stages.size(); ++s) {
    const ChainStage& stage = chain.stages[s];
    if (stage.options.empty()) return fmt::format("stage {} has no option", s);
    if (stage.output < 0) return fmt::format("stage {}: the size of its output is negative", s);
    sizes += 4 * static_cast<double>(stage.output);
    for (const StageOption& option : stage.options) {
      const std::string error = option_error(option, stage.output, times, sizes);
      if (!error.empty()) return fmt::format("stage {}: {}", s, error);
    }
  }
  // A stage runs at most once for every stage after it and once for itself.
  if (times * static_cast<double>(chain.stages.size() + 1) > kMostTime)
    return "the times are too large to be added exactly";
  if (sizes > kMostSize) return "the sizes are too large to be added";
  return "";
}

int64_t least_chain_budget(const Chain& chain) {
  CAD_CHECK(chain_error(chain).empty(), "chain: {}", chain_error(chain));
  const ChainModel model(chain);
  return chain.input + least_memory(model)[model.id(0, model.stages() - 1)];
}

ChainResult solve_chain(const Chain& chain, int64_t budget, const ChainLimits& limits) {
  ChainResult result;
  const ChainLate half = after(limits.seconds / 2), late = after(limits.seconds);
  result.least_budget = least_chain_budget(chain);
  if (budget < result.least_budget) return result;
  const int64_t divisor = common_divisor(chain);
  const Chain small = scaled(chain, divisor, false);
  const ChainModel model(small);
  if (budget - chain.input >= model.ample() * divisor) {
    set_schedule(chain, fastest_schedule(model), result);
    result.bound = result.time;
    result.status = ChainStatus::kOptimal;
    return result;
  }
  const int64_t memory = (budget - chain.input) / divisor;  // the input is held throughout
  if (!solve_exactly(chain, model, memory, limits, half, result) &&
      !solve_rounded(chain, memory * divisor, limits, late, result))
    solve_simply(chain, memory * divisor, result);
  CAD_CHECK(result.peak <= budget, "a schedule of peak {} for a budget of {}", result.peak, budget);
  return result;
}

}  // namespace cad::planner
