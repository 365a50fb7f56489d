// planner/priced.h -- the joint problem at one price of memory: folded regions, min-plus powers of
// loop bodies, and the plan behind the optimum. Internal to the search (planner/frontier.h) and the
// baselines (planner/baselines.h).
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "planner/moments.h"
#include "planner/problem.h"

namespace cad::planner {

// Which choices may be taken, by region and variable (empty: all), and whether a region may save a
// converted copy of an operand (empty: it may).
struct Mask {
  std::vector<std::vector<std::vector<char>>> choices;
  std::vector<char> copies;
};

// Of the price, where loops may have segments (planner/segments.h says why): what a byte costs that
struct SegmentPrices {
  double moment = 1;   // is there for a moment, as without segments
  double plain = 1;    // such a loop saves without segments
  double segment = 0;  // an iteration in segments saves,
  double carried = 0;  // and more for each byte of its carry,
  double carry = 0;    // and of the carry itself, a mean over all iterations of the loop
  // is there for a moment in any iteration of such a loop, a mean over the iterations, divided
  // among variables as `where` says: its sum for a loop is 1
  double inside = 0;
  Moments where;
};

struct PriceOptions {
  double price = 0;  // seconds a byte
  // Choices whose momentary memory is above this are left out.
  double limit = std::numeric_limits<double>::infinity();
  // 0 to 1, which of the two lines whose maximum is the time of the parameters' collectives counts:
  // 0 what overlap leaves of them, 1 what compute is too short for.
  double hide = 0;
  // What of the price counts for bytes that run again. They are there for a moment, of one loop and
  // one iteration: with 1 the price is that of their mean over all iterations and loops.
  double again = 1;
  // Parts of the price, at most 1 in all, by region and variable: what a variable's moment costs,
  // of loops its mean over all iterations, with what runs again then; `again` counts for nothing.
  const Moments* moments = nullptr;
  const Mask* mask = nullptr;
  // Of the price: what a byte costs that a loop saves while its segments run again (Run::segment).
  double segment_price = 0;
  bool only_segments = false;  // nothing but segment_body() will be asked
  // Equal iterations may run again in segments: what value() then gives is a bound on plans with
  // segments and without. Nothing else may be asked.
  const SegmentPrices* segments = nullptr;
  // Regions that do not fold count with their bounds: nothing but value() may be asked.
  bool bounds = false;
};

// Float sums lose a few units in the last place: a bound gives these away.
inline double safe(double value) {
  return value * (1 - 4e-6);
}

class Priced {
 public:
  Priced(const Problem& p, const PriceOptions& options);

  // Seconds plus price times bytes of plan(), the least there is where all regions fold; infinite
  // when nothing is allowed.
  [[nodiscard]] double value() const;
  // The same or, where a region does not fold, a bound below it.
  [[nodiscard]] double bound() const;
  [[nodiscard]] BodyPlan plan() const { return body(0, folded_[0]->choices({})); }
  // A plan whose loop `child` of the top level starts with `count` iterations of `first` and ends
  // as `last` does. Top-level choices are the best ones for such ends.
  [[nodiscard]] std::optional<BodyPlan> spliced(size_t child, const BodyPlan& first,
                                                const BodyPlan& last, int64_t count) const;

  // Loops of the top level whose iterations may run again in segments: they carry one value, hold
  // no loop themselves, and the program does not say that anything in them is kept.
  [[nodiscard]] bool may_segment(size_t child) const;
  // The best iteration of a segment that starts and ends with this choice of the carry, if any.
  [[nodiscard]] std::optional<BodyPlan> segment_body(size_t child, int state);

 private:
  // `segment`: of iterations in segments, where a byte that they save costs that part of the price.
  [[nodiscard]] FoldProblem priced_region(size_t r, std::optional<double> segment = {}) const;
  [[nodiscard]] std::vector<float> priced_choices(size_t r, size_t v,
                                                  std::optional<double> segment) const;
  const Folded& segment_fold(size_t r);
  [[nodiscard]] double moment_price(size_t r, size_t v, bool segment) const;
  [[nodiscard]] double executions(size_t r) const;
  [[nodiscard]] double again_price(size_t r, bool segment) const;
  void fold(size_t r);
  void allow_segments(size_t r);
  struct Classes {
    std::vector<int> of;         // by state of a body's carry, at its end
    Table ends;                  // from state to class, one iteration
    std::vector<Table> squares;  // from class to class: 1, 2, 4, .. iterations
  };
  Classes& classes(size_t r) const;
  const Table& power(size_t r, int64_t n) const;
  // States of a loop's carry before, between and after its iterations. Of many equal steps, or two
  // in turn, a few are written out: `more` says how many more turns there are at a position.
  struct Walk {
    std::vector<int> states;
    std::vector<std::pair<size_t, int64_t>> more;
  };
  [[nodiscard]] Walk walk(size_t r, int from, int to, int64_t n) const;
  [[nodiscard]] std::optional<Walk> regular_walk(size_t r, int from, int to, int64_t n) const;
  [[nodiscard]] BodyPlan body(size_t r, const std::vector<int>& choices) const;
  [[nodiscard]] std::vector<Run> runs(size_t c, const Walk& walk) const;
  const std::optional<BodyPlan>& top_around(size_t child, int first, int last) const;

  const Problem& p_;
  PriceOptions o_;
  double compute_, parameters_;  // weights of these seconds
  std::vector<std::unique_ptr<Folded>> folded_;
  std::vector<Table> tables_;
  std::vector<std::unique_ptr<Folded>> segment_folds_;            // by region, when asked for
  mutable std::vector<Classes> classes_;                          // by region, when asked for
  mutable std::map<std::pair<size_t, int64_t>, Table> products_;  // any power that was asked for
  // by child, first and last state: splices differ in their counts mostly
  mutable std::map<std::tuple<size_t, int, int>, std::optional<BodyPlan>> tops_;
  std::vector<char> segmented_;  // by region: its iterations may be in segments
  bool exact_ = true;            // all regions fold
  bool inner_exact_ = true;      // all loops do
};

}  // namespace cad::planner
