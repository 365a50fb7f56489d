// planner/solver/ascent.cc -- the price steps: a supergradient from the min-marginals' choices,
// its length by Polyak's rule towards a target above the bound, shorter whenever the bound stalls.
#include "planner/solver/ascent.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace cad::planner::solver {

double clock_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Rules::limit(double cost) const {
  if (cost == kForbidden) return kForbidden;
  // sums of whole numbers carry rounding of the messages only: far below a half
  if (whole) return cost - 1 + 1e-3 + 1e-12 * std::abs(cost);
  return cost - tolerance * std::abs(cost);
}

bool Rules::out_of_time() const {
  constexpr double kForget = 0.995;  // a look
  const double now = clock_s();
  if (pace->last >= 0) pace->longest = std::max(now - pace->last, kForget * pace->longest);
  pace->last = now;
  return now + pace->longest > deadline;
}

std::vector<int64_t> over_use(const Flat& f, const std::vector<int>& choices) {
  std::vector<int64_t> change(f.rows() + 1, 0);
  for (int i = 0; i < f.nodes(); ++i) {
    for (int u = f.first_use[i]; u < f.first_use[i + 1]; ++u) {
      const Flat::Use& use = f.uses[u];
      change[use.from] += f.use[use.at + choices[i]];
      change[use.to] -= f.use[use.at + choices[i]];
    }
  }
  int64_t now = 0;
  std::vector<int64_t> over(f.rows());
  for (int r = 0; r < f.rows(); ++r) {
    now += change[r];
    over[r] = now - f.slack[r];
  }
  return over;
}

double cost_of(const Flat& f, const std::vector<int>& choices) {
  double cost = f.constant;
  for (int i = 0; i < f.nodes(); ++i) cost += f.unary[f.first[i] + choices[i]];
  for (const Flat::Edge& e : f.edges)
    cost += f.cost[e.cost + static_cast<size_t>(choices[e.a]) * e.kb + choices[e.b]];
  return cost;
}

Ascent::Ascent(const Reduced& reduced, const Rules& rules)
    : reduced_(reduced),
      rules_(rules),
      flat_(std::make_unique<Flat>(flatten(reduced))),
      dual_(*flat_) {
  std::vector<int64_t> most(flat_->rows() + 1, 0);
  for (int i = 0; i < flat_->nodes(); ++i) {
    for (int u = flat_->first_use[i]; u < flat_->first_use[i + 1]; ++u) {
      const Flat::Use& use = flat_->uses[u];
      const auto begin = flat_->use.begin() + static_cast<int64_t>(use.at);
      const int64_t largest = *std::max_element(begin, begin + flat_->choices(i));
      most[use.from] += largest;
      most[use.to] -= largest;
    }
  }
  int64_t now = 0;
  for (int r = 0; r < flat_->rows(); ++r) {
    now += most[r];
    scale_.push_back(
        std::max({1.0, static_cast<double>(flat_->slack[r]), 0.01 * static_cast<double>(now)}));
  }
  double range = 0;
  for (int i = 0; i < flat_->nodes(); ++i) {
    const auto begin = flat_->unary.begin() + flat_->first[i];
    const auto [least, most] = std::minmax_element(begin, begin + flat_->choices(i));
    range = std::max(range, *most - *least);
  }
  if (range > 0) least_length_ = range;
  best_prices_ = dual_.prices();
}

Ascent::Ascent(const Reduced& reduced, const Rules& rules, const Ascent& before,
               const Reduced& before_reduced)
    : Ascent(reduced, rules) {
  dual_.take_over(before.dual_, reduced, before_reduced);
  best_prices_ = dual_.prices();
  step_ = before.step_;
}

void Ascent::back_to_best_prices() {
  dual_.set_prices(best_prices_);
}

void Ascent::offer(const std::vector<int>& choices, Best& best) {
  const double cost = cost_of(*flat_, choices);
  if (!(cost < best.cost)) return;
  best.cost = cost;
  best.choices = expand(reduced_, to_live(*flat_, reduced_, choices));
}

void Ascent::step_prices(const std::vector<int64_t>& over, const Best& best) {
  const std::vector<double>& price = dual_.prices();
  std::vector<double> next = price;
  double norm = 0;
  for (int r = 0; r < flat_->rows(); ++r) {
    if (over[r] <= 0 && price[r] <= 0) continue;
    const double g = static_cast<double>(over[r]) / scale_[r];
    norm += g * g;
  }
  if (norm == 0) return;
  double room = std::max(std::abs(bound_), least_length_) * step_;
  if (best.cost < kForbidden)
    room = std::min(room, 0.5 * (best.cost - bound_) + 1e-12 * std::abs(best.cost));
  const double length = std::max(room, 1e-300) / norm;
  for (int r = 0; r < flat_->rows(); ++r)
    next[r] =
        std::max(0.0, price[r] + length * static_cast<double>(over[r]) / scale_[r] / scale_[r]);
  dual_.set_prices(std::move(next));
}

Ascent::End Ascent::run(int iterations, Best& best) {
  for (int iteration = 0; iteration < iterations; ++iteration) {
    dual_.sweep(true);
    const double bound = dual_.sweep(false);
    stalled_ = bound > bound_ + 1e-7 * std::abs(bound_) ? 0 : stalled_ + 1;
    if (bound > bound_) {
      bound_ = bound;
      best_prices_ = dual_.prices();
    }
    if (bound_ > rules_.limit(best.cost)) return End::kClosed;
    dual_.decode(true, decoded_);
    const std::vector<int64_t> over = over_use(*flat_, decoded_);
    if (std::all_of(over.begin(), over.end(), [](int64_t o) { return o <= 0; })) {
      offer(decoded_, best);
      if (bound_ > rules_.limit(best.cost)) return End::kClosed;
    }
    if (stalled_ > 20) {
      step_ *= 0.7;
      stalled_ = 0;
      if (step_ < 1e-9) return End::kConverged;
    }
    if (rules_.out_of_time()) return End::kTime;
    if (flat_->rows() == 0 && step_ < 1e-3) return End::kConverged;
    std::vector<int> likely(flat_->nodes());
    for (int i = 0; i < flat_->nodes(); ++i) {
      const double* m = dual_.marginals().data() + flat_->first[i];
      likely[i] = static_cast<int>(std::min_element(m, m + flat_->choices(i)) - m);
    }
    step_prices(over_use(*flat_, likely), best);
  }
  return End::kIterations;
}

size_t Ascent::fix(Reduced& reduced, const Best& best) {
  if (best.cost == kForbidden) return 0;
  back_to_best_prices();
  for (int s = 0; s < 3; ++s) {
    dual_.sweep(true);
    dual_.sweep(false);
  }
  dual_.sweep(true);
  size_t count = 0;
  const double rounding = 1e-9 * std::abs(best.cost) + (rules_.whole ? 1e-3 : 0);
  const std::vector<char> mark = dual_.hopeless(false, best.cost + rounding, count);
  for (int i = 0; i < flat_->nodes(); ++i)
    for (int k = 0; k < flat_->choices(i); ++k)
      if (mark[flat_->first[i] + k]) reduced.unary[flat_->node_of[i]][k] = kForbidden;
  return count;
}

}  // namespace cad::planner::solver
