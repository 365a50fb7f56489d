// planner/solver/engine.cc -- see engine.h. Two copies of the problem are at work: `base`, whole,
// in which neighbourhoods are cut around the best solution, and `now_`, from which everything is
// fixed away that cannot be in a solution as good as the best.
#include "planner/solver/engine.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "planner/solver/dive.h"
#include "planner/solver/neighbourhood.h"

namespace cad::planner::solver {
namespace {

constexpr DiveOptions kFirstDive{0.34, 4, 0.03};  // quick: something to fix against
constexpr DiveOptions kDives[] = {
    {0.1, 10, 0.01}, {0.03, 15, 0.01}, {0.05, 20, 0.003}, {0.02, 20, 0.01}, {0.2, 10, 0.03},
};

class Engine {
 public:
  Engine(const Reduced& base, const Rules& rules, double gap)
      : base_(base), rules_(rules), gap_(gap), now_(std::make_unique<Reduced>(base)) {}

  EngineResult run() {
    if (!solve_rest()) search();
    if (result_.end == EngineResult::End::kProven) result_.bound = result_.best.cost;
    return std::move(result_);
  }

 private:
  // True when done.
  bool proven() {
    result_.end = EngineResult::End::kProven;
    return true;
  }

  bool note(Ascent::End end) {
    // what was fixed away costs at least the best solution
    result_.bound = std::max(result_.bound, std::min(ascent_->bound(), result_.best.cost));
    if (end == Ascent::End::kClosed) return proven();
    if (end == Ascent::End::kTime) return true;
    if (result_.best.cost < kForbidden &&
        result_.best.cost - result_.bound <= gap_ * std::abs(result_.best.cost)) {
      result_.end = EngineResult::End::kGap;
      return true;
    }
    return false;
  }

  bool climb(int iterations) { return note(ascent_->run(iterations, result_.best)); }

  // Fixes and reduces; true when nothing is left.
  bool fix() {
    auto next = std::make_unique<Reduced>(*now_);
    const size_t count = ascent_->fix(*next, result_.best);
    if (count * 50 < now_->columns()) return false;
    if (!reduce(*next)) return proven();
    auto ascent = std::make_unique<Ascent>(*next, rules_, *ascent_, *now_);
    ascent_ = std::move(ascent);
    now_ = std::move(next);
    return solve_rest_if_empty();
  }

  bool solve_rest_if_empty() {
    if (now_->live_nodes() > 0) return false;
    if (now_->constant < result_.best.cost) {
      result_.best.cost = now_->constant;
      result_.best.choices = expand(*now_, std::vector<int>(now_->state.size(), -1));
    }
    return proven();
  }

  bool mip(const MipLimits& limits) {
    return solve_mip(*now_, *ascent_, rules_, limits, result_.best, result_.mip) && proven();
  }

  // Climb, fix and dive until solved or the neighbourhoods are due.
  bool solve_rest() {
    if (solve_rest_if_empty()) return true;
    ascent_ = std::make_unique<Ascent>(*now_, rules_);
    ascent_->set_step(0.05);
    if (climb(60)) return true;
    if (now_->columns() < 400 && mip({1500, 20'000})) return true;
    dive(*now_, *ascent_, rules_, kFirstDive, result_.best);
    if (rules_.out_of_time()) return true;
    if (climb(240) || fix()) return true;
    if (mip({1000, 20'000})) return true;
    for (const DiveOptions& options : kDives) {
      const double before = result_.best.cost;
      ascent_->back_to_best_prices();
      dive(*now_, *ascent_, rules_, options, result_.best);
      if (rules_.out_of_time()) return true;
      if (result_.best.cost < before && fix()) return true;
      if (result_.best.cost < kForbidden) break;
      if (climb(100)) return true;
    }
    return mip({2000, 100'000});
  }

  bool find_any();
  void search();
  bool improve(const std::vector<int>& free, int iterations);
  std::vector<int> choose(int trial, int64_t entries);
  std::vector<char> allowed() const;
  std::vector<int> to_flat(const std::vector<int>& choices) const;

  const Reduced& base_;
  Rules rules_;
  double gap_;
  std::unique_ptr<Reduced> now_;
  std::unique_ptr<Ascent> ascent_;
  EngineResult result_;
  // of the neighbourhoods
  std::unique_ptr<Flat> flat_;  // of base_
  std::vector<int> current_;
  std::vector<char> allowed_;
  uint64_t seed_ = 1;
  int window_at_ = 0;
};

std::vector<int> Engine::to_flat(const std::vector<int>& choices) const {
  std::vector<int> flat(flat_->nodes());
  for (int i = 0; i < flat_->nodes(); ++i) {
    const std::vector<int>& original = base_.original[flat_->node_of[i]];
    flat[i] = static_cast<int>(
        std::lower_bound(original.begin(), original.end(), choices[flat_->node_of[i]]) -
        original.begin());
  }
  return flat;
}

// What fixing has left, by the choices of flat_.
std::vector<char> Engine::allowed() const {
  std::vector<char> mark(flat_->unary.size(), 0);
  for (int i = 0; i < flat_->nodes(); ++i) {
    const int node = flat_->node_of[i];
    const std::vector<int>& all = base_.original[node];
    for (const int k : now_->original[node]) {
      const auto at = std::lower_bound(all.begin(), all.end(), k) - all.begin();
      mark[flat_->first[i] + at] = 1;
    }
  }
  return mark;
}

std::vector<int> Engine::choose(int trial, int64_t entries) {
  seed_ = seed_ * 6364136223846793005ULL + 1442695040888963407ULL;
  const auto random = static_cast<int>(seed_ >> 34);
  const int kind = trial % 4;
  if (kind < 2) {
    std::vector<int> found = window(*flat_, window_at_, entries);
    window_at_ = found.back() + 1 >= flat_->nodes()
                     ? 0
                     : window_at_ + std::max<int>(1, static_cast<int>(found.size()) / 2);
    return found;
  }
  if (kind == 2 || flat_->rows() == 0) return region(*flat_, random % flat_->nodes(), entries);
  std::vector<int> found = alive(*flat_, random % flat_->rows(), seed_, entries);
  return found.empty() ? region(*flat_, random % flat_->nodes(), entries) : found;
}

bool Engine::improve(const std::vector<int>& free, int iterations) {
  Reduced r = extract(*flat_, current_, allowed_, free);
  Best best;
  best.cost = local_cost(*flat_, current_, free);
  const double before = best.cost;
  if (!reduce(r)) return false;
  const auto take = [&] {
    if (best.choices.empty() || !(best.cost < before)) return false;
    for (size_t c = 0; c < free.size(); ++c) current_[free[c]] = best.choices[c];
    return true;
  };
  if (r.live_nodes() == 0) {
    if (r.constant < best.cost)
      best = {r.constant, expand(r, std::vector<int>(r.state.size(), -1))};
    return take();
  }
  auto ascent = std::make_unique<Ascent>(r, rules_);
  ascent->set_step(0.1);
  if (ascent->run(iterations, best) == Ascent::End::kClosed) return take();
  auto next = std::make_unique<Reduced>(r);
  ascent->fix(*next, best);
  if (!reduce(*next)) return take();
  if (next->live_nodes() == 0) {
    if (next->constant < best.cost)
      best = {next->constant, expand(*next, std::vector<int>(next->state.size(), -1))};
    return take();
  }
  Ascent fixed(*next, rules_, *ascent, r);
  if (fixed.run(20, best) == Ascent::End::kClosed) return take();
  MipStats stats;
  if (solve_mip(*next, fixed, rules_, {600, 5'000}, best, stats)) return take();
  fixed.back_to_best_prices();
  dive(*next, fixed, rules_, {0.1, 10, 0.02}, best);
  return take();
}

// Dives of other shapes until one ends in a solution; true when done. Half of the time is left for
// the least budget.
bool Engine::find_any() {
  const double half = rules_.deadline - (rules_.deadline - clock_s()) / 2;
  for (int round = 0; result_.best.choices.empty() && clock_s() < half; ++round) {
    if (climb(200)) return true;
    DiveOptions options = kDives[round % std::size(kDives)];
    options.iterations *= 2 + round;
    options.step *= 1 + round % 3;
    ascent_->back_to_best_prices();
    dive(*now_, *ascent_, rules_, options, result_.best);
    if (mip({3000, 200'000})) return true;
  }
  return result_.best.choices.empty() || fix();
}

void Engine::search() {
  if (find_any()) return;
  flat_ = std::make_unique<Flat>(flatten(base_));
  current_ = to_flat(result_.best.choices);
  allowed_ = allowed();
  int64_t entries = 20'000;
  int failures = 0;
  for (int trial = 0; !rules_.out_of_time(); ++trial) {
    if (improve(choose(trial, entries), 60)) {
      result_.best.cost = cost_of(*flat_, current_);  // below what it was
      result_.best.choices = expand(base_, to_live(*flat_, base_, current_));
      failures = 0;
    } else if (++failures > 60) {
      entries = std::min<int64_t>(entries * 2, 2'000'000);
      failures = 0;
    }
    if (trial % 40 != 39) continue;
    const double before = result_.best.cost;
    if (climb(50) || fix()) return;
    if (now_->columns() < 3000 && mip({2500, 50'000})) return;
    if (result_.best.cost < before) current_ = to_flat(result_.best.choices);
    allowed_ = allowed();
  }
}

}  // namespace

EngineResult run_engine(const Reduced& base, const Rules& rules, double gap) {
  return Engine(base, rules, gap).run();
}

}  // namespace cad::planner::solver
