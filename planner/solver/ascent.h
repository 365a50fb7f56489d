// planner/solver/ascent.h -- the climb of the lower bound: sweeps of dual.h with a step of the
// memory prices after each pair, and the choices that fall out on the way. On layered graphs with
// few binding times this alone often meets the optimum.
#pragma once

#include <memory>

#include "planner/solver/dual.h"

namespace cad::planner::solver {

// The best choices known for one reduced problem, as arguments of expand().
struct Best {
  double cost = kForbidden;
  std::vector<int> choices;  // original choices by node of the problem; empty: none
};

// How far apart the looks at the clock are: on a busy machine one sweep of a large problem takes
// seconds, and the work must end before the deadline, not at the first look behind it.
struct Pace {
  double last = -1;    // when the clock was looked at
  double longest = 0;  // seconds between looks, lately
};

// When to stop and what counts as better.
struct Rules {
  double deadline = 0;      // steady clock seconds
  bool whole = false;       // all costs are whole numbers: better means better by 1
  double tolerance = 1e-9;  // relative, otherwise
  // The largest bound that still leaves room for something better than `cost`.
  double limit(double cost) const;
  bool out_of_time() const;  // or would be by the next look
  std::shared_ptr<Pace> pace = std::make_shared<Pace>();
};

double clock_s();

// Use of memory less the slack, by row.
std::vector<int64_t> over_use(const Flat& flat, const std::vector<int>& choices);
double cost_of(const Flat& flat, const std::vector<int>& choices);

class Ascent {
 public:
  Ascent(const Reduced& reduced, const Rules& rules);
  Ascent(const Reduced& reduced, const Rules& rules, const Ascent& before,
         const Reduced& before_reduced);

  enum class End { kClosed, kConverged, kIterations, kTime };
  // kClosed: the bound leaves no room below best.cost. Better choices go to `best`.
  End run(int iterations, Best& best);

  double bound() const { return bound_; }  // the best of all sweeps
  const Flat& flat() const { return *flat_; }
  Dual& dual() { return dual_; }
  const std::vector<int>& decoded() const { return decoded_; }
  void back_to_best_prices();
  // Forbids in `reduced` what is in no solution that costs best.cost or less; how many choices
  // went.
  size_t fix(Reduced& reduced, const Best& best);
  void set_step(double step) { step_ = step; }

 private:
  void offer(const std::vector<int>& choices, Best& best);
  void step_prices(const std::vector<int64_t>& over, const Best& best);

  const Reduced& reduced_;
  Rules rules_;
  std::unique_ptr<Flat> flat_;
  Dual dual_;
  std::vector<double> scale_;  // by row: what a use is measured in
  double least_length_ = 1;    // what a step is measured in while the bound is near 0
  std::vector<double> best_prices_;
  std::vector<int> decoded_;
  double bound_ = -kForbidden;
  double step_ = 0.02;
  int stalled_ = 0;
};

}  // namespace cad::planner::solver
