// planner/fold_core.cc -- see fold_core.h. Choices that all edges see alike are one, the cheapest.
#include "planner/fold_core.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "planner/solver/ascent.h"
#include "planner/solver/dive.h"

namespace cad::planner {

namespace {

using solver::kForbidden;

class CoreSolver {
 public:
  CoreSolver(const FoldProblem& problem, const std::vector<char>& gone,
             const std::vector<int>& alike)
      : p_(problem), alike_(alike), number_(problem.nodes.size(), -1) {
    for (size_t n = 0; n < p_.nodes.size(); ++n) {
      if (gone[n] != 0) continue;
      number_[n] = static_cast<int>(left_.size());
      left_.push_back(distinct(n));
    }
  }

  Core run() {
    Core core;
    core.bound = kForbidden;
    for (const std::vector<int>& choices : left_) {
      if (choices.empty()) return core;
    }
    auto now = std::make_unique<solver::Reduced>(solver::make_reduced(problem()));
    const double size = entries(*now);
    if (!solver::reduce(*now)) return core;
    climb(std::move(now), size);
    core.bound = bound_;
    if (best_.choices.empty()) return core;
    core.feasible = true;
    core.choices.assign(p_.nodes.size(), -1);
    for (size_t n = 0; n < p_.nodes.size(); ++n) {
      if (number_[n] < 0) continue;
      const auto i = static_cast<size_t>(number_[n]);
      core.choices[n] = left_[i][static_cast<size_t>(best_.choices[i])];
    }
    return core;
  }

 private:
  // Of the choices that every edge puts into the same classes the cheapest one.
  std::vector<int> distinct(size_t node) const {
    const std::vector<float>& cost = p_.nodes[node];
    std::vector<std::vector<int32_t>> keys(cost.size());
    for (const FoldEdge& edge : p_.edges) {
      const bool first = edge.a == static_cast<int>(node);
      if (!first && edge.b != static_cast<int>(node)) continue;
      const std::vector<int32_t>& classes = first ? edge.class_a : edge.class_b;
      for (size_t c = 0; c < cost.size(); ++c) keys[c].push_back(classes[c]);
    }
    if (std::find(alike_.begin(), alike_.end(), static_cast<int>(node)) != alike_.end()) {
      for (size_t c = 0; c < cost.size(); ++c) keys[c].push_back(static_cast<int32_t>(c));
    }
    std::map<std::vector<int32_t>, int> best;
    for (size_t c = 0; c < cost.size(); ++c) {
      if (cost[c] == kNever) continue;
      const auto [at, fresh] = best.emplace(std::move(keys[c]), static_cast<int>(c));
      if (!fresh && cost[c] < cost[static_cast<size_t>(at->second)])
        at->second = static_cast<int>(c);
    }
    std::vector<int> choices;
    for (const auto& [key, choice] : best) choices.push_back(choice);
    std::sort(choices.begin(), choices.end());
    return choices;
  }

  [[nodiscard]] solver::Problem problem() const {
    solver::Problem out;
    for (size_t n = 0; n < p_.nodes.size(); ++n) {
      if (number_[n] < 0) continue;
      out.nodes.emplace_back();
      for (const int c : of(static_cast<int>(n)))
        out.nodes.back().cost.push_back(static_cast<double>(p_.nodes[n][static_cast<size_t>(c)]));
    }
    for (const FoldEdge& edge : p_.edges) {
      solver::Edge made{
          number_[static_cast<size_t>(edge.a)], number_[static_cast<size_t>(edge.b)], {}};
      for (const int a : of(edge.a)) {
        for (const int b : of(edge.b)) {
          const float cost =
              edge.cost(edge.class_a[static_cast<size_t>(a)], edge.class_b[static_cast<size_t>(b)]);
          made.cost.push_back(cost == kNever ? kForbidden : static_cast<double>(cost));
        }
      }
      out.edges.push_back(std::move(made));
    }
    for (size_t i = 1; i < alike_.size(); ++i) {
      solver::Edge equal{
          number_[static_cast<size_t>(alike_[0])], number_[static_cast<size_t>(alike_[i])], {}};
      for (const int a : of(alike_[0])) {
        for (const int b : of(alike_[i])) equal.cost.push_back(a == b ? 0 : kForbidden);
      }
      out.edges.push_back(std::move(equal));
    }
    return out;
  }

  [[nodiscard]] const std::vector<int>& of(int node) const {
    return left_[static_cast<size_t>(number_[static_cast<size_t>(node)])];
  }

  static double entries(const solver::Reduced& r) {
    double sum = 1;
    for (const solver::Pair& pair : r.pairs) sum += static_cast<double>(pair.cost.size());
    return sum;
  }

  // True: nothing is left, so the best known is the best.
  bool nothing_left(const solver::Reduced& r) {
    if (r.live_nodes() > 0) return false;
    if (r.constant < best_.cost) {
      best_.cost = r.constant;
      best_.choices = solver::expand(r, std::vector<int>(r.state.size(), -1));
    }
    bound_ = best_.cost;
    return true;
  }

  void climb(std::unique_ptr<solver::Reduced> now, double size) {
    constexpr double kWork = 1.5e8;  // entries of tables that are looked at in one round
    constexpr int kRounds = 4;
    constexpr solver::DiveOptions kQuick{0.34, 4, 0.03}, kSlow{0.1, 8, 0.03};
    const int sweeps = static_cast<int>(std::clamp(kWork / (2 * size), 6.0, 80.0));
    solver::Rules rules;
    rules.deadline = kForbidden;
    rules.tolerance = 1e-6;  // costs are floats
    if (nothing_left(*now)) return;
    auto ascent = std::make_unique<solver::Ascent>(*now, rules);
    for (int round = 0; round < kRounds; ++round) {
      const auto end = ascent->run(sweeps, best_);
      // what was left out costs at least the best known
      bound_ = std::max(bound_, std::min(ascent->bound(), best_.cost));
      if (end == solver::Ascent::End::kClosed) {
        bound_ = std::max(bound_, best_.cost * (1 - rules.tolerance));
        return;
      }
      solver::dive(*now, *ascent, rules, round == 0 ? kQuick : kSlow, best_);
      if (best_.choices.empty()) continue;
      auto next = std::make_unique<solver::Reduced>(*now);
      const size_t fixed = ascent->fix(*next, best_);
      if (fixed == 0 && round > 0) return;
      if (!solver::reduce(*next)) {
        bound_ = best_.cost;
        return;
      }
      if (nothing_left(*next)) return;
      auto ahead = std::make_unique<solver::Ascent>(*next, rules, *ascent, *now);
      ascent = std::move(ahead);
      now = std::move(next);
    }
  }

  const FoldProblem& p_;
  const std::vector<int>& alike_;
  std::vector<int> number_;             // by node of the fold: of what is left
  std::vector<std::vector<int>> left_;  // choices, by that number
  solver::Best best_;
  double bound_ = -kForbidden;
};

}  // namespace

Core solve_core(const FoldProblem& problem, const std::vector<char>& gone,
                const std::vector<int>& alike) {
  return CoreSolver(problem, gone, alike).run();
}

}  // namespace cad::planner
