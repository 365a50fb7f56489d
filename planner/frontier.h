// planner/frontier.h -- the fastest plan of one mesh within a memory budget. At a given price of
// memory (seconds a byte) the joint problem folds (planner/fold.h), a loop of L iterations
// being the L-th min-plus power of its body. Prices come from the slopes of the time/memory
// frontier; every evaluation gives a plan and a lower bound on all plans. Between the two plans
// next to the budget, loops mix both bodies. docs/planner.md tells it in prose.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "planner/price_model.h"
#include "planner/problem.h"

namespace cad::planner {

struct Found {
  bool feasible = false;
  BodyPlan plan;  // the fastest that fits; without one, the one that needs least memory
  Evaluation evaluation;
  double bound = 0;               // seconds: no plan of this mesh within the budget is faster
  double least_peak = 0;          // bytes: of the plan that needs least
  int evaluations = 0;            // folds
  int64_t columns = 0, rows = 0;  // of what went to lp_solve, if anything did
};

// Budget in bytes a device; infinite: none.
class Search {
 public:
  explicit Search(const Problem& problem);
  ~Search();
  // `incumbent`: seconds of a plan that is at hand; the search ends when its bound is above it.
  // `start`: a price near the one that is looked for, if known.
  Found run(double budget, double incumbent = std::numeric_limits<double>::infinity(),
            double start = 0);
  // Closes gaps above `tolerance`: by labels (planner/exact_proof.h) as far as `work` goes, then,
  // where the problem is small enough, by lp_solve for so many seconds (planner/exact.h).
  void be_exact(double time_s, double tolerance = 1e-7, int64_t work = 400'000'000);
  [[nodiscard]] int64_t work_left() const;
  // Plans on both sides of the budget of the last run, between which loops were mixed.
  [[nodiscard]] std::vector<BodyPlan> bases() const;
  // Of the best bound of the last run: prices and the bound itself, before proofs.
  struct Line {
    double price = 0, hide = 0, again = 0, bound = 0;
  };
  [[nodiscard]] Line line() const;
  // The same for plans with segments too (planner/segments.h), from a few folds at prices around
  // `near`; fewer where one gives at least `enough`.
  double segment_bound(const Line& line, double near, double budget, double enough, int folds);
  // Of the best bound of the last run by prices of moments; and where the next one begins: prices
  // of another mesh of the same graph, for a bound against its incumbent; and its line.
  [[nodiscard]] const MomentPrices& moment_prices() const;
  void begin_with(MomentPrices prices);
  void begin_on(const Line& line);
  // Finds such prices from a line's price on; `incumbent`: seconds of a plan.
  void price_moments(const Line& line, double budget, double incumbent);
  // The price at which the last run ended.
  [[nodiscard]] double price() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Seconds plus price times priced bytes (persistent + saved + what runs again in the largest loop):
// what a fold minimises. For tests.
double priced(const Problem& problem, const Evaluation& evaluation, double price);

}  // namespace cad::planner
