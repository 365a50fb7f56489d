// planner/segments.cc -- see segments.h. What a segment saves is there only while it runs, so its
// iterations are chosen at lower prices of what they save; the bodies of the plan itself are tried
// too. The run with segments stands before the one that it is taken from: what it keeps is least
// and is held longest.
#include "planner/segments.h"

#include <algorithm>

namespace cad::planner {

namespace {

constexpr double kSegmentPrices[] = {0.02, 0.3};

// Part of a run that is put into segments.
struct Place {
  const BodyPlan* base = nullptr;
  size_t child = 0, run = 0;
  BodyPlan body;
};

class Segmenter {
 public:
  Segmenter(const Problem& p, double budget) : p_(p), budget_(budget) {}

  // Some ways to put iterations of one run of a loop into segments; `parts`: in how many steps
  // their number is tried, `most`: how many lengths.
  void replace(const Place& place, int64_t parts, size_t most) {
    const int64_t all = place.base->loops[place.child][place.run].count;
    int64_t last = 0;
    for (int64_t part = 1; part <= parts; ++part) {
      const int64_t n = std::max<int64_t>(1, all * part / parts);
      if (n == last) continue;
      last = n;
      for (const int64_t length : lengths(n, most)) {
        BodyPlan plan = *place.base;
        std::vector<Run>& runs = plan.loops[place.child];
        Run segments{n, {place.body}, length};
        if (n == all) {
          runs[place.run] = std::move(segments);
        } else {
          runs[place.run].count -= n;
          runs.insert(runs.begin() + static_cast<std::ptrdiff_t>(place.run), std::move(segments));
        }
        offer(std::move(plan), place);
      }
    }
  }

  // Around the best one, more ways.
  void refine() {
    if (!best_) return;
    const Place place = best_place_;
    replace(place, 16, 8);
  }

  [[nodiscard]] const std::optional<Segmented>& best() const { return best_; }

 private:
  void offer(BodyPlan plan, const Place& place) {
    const Evaluation e = evaluate(p_, plan);
    if (!e.valid) return;
    const bool fits = e.peak <= budget_;
    const bool had = best_ && best_->evaluation.peak <= budget_;
    const bool better = !best_ || (fits ? !had || e.seconds < best_->evaluation.seconds
                                        : !had && e.peak < best_->evaluation.peak);
    if (!better) return;
    best_ = Segmented{std::move(plan), e};
    best_place_ = place;
  }

  // Divisors of n, at most so many of them.
  static std::vector<int64_t> lengths(int64_t n, size_t most) {
    std::vector<int64_t> all;
    for (int64_t d = 1; d <= n; ++d) {
      if (n % d == 0) all.push_back(d);
    }
    if (all.size() <= most) return all;
    std::vector<int64_t> some;
    for (size_t i = 0; i < most; ++i) some.push_back(all[i * (all.size() - 1) / (most - 1)]);
    return some;
  }

  const Problem& p_;
  double budget_;
  std::optional<Segmented> best_;
  Place best_place_;
};

}  // namespace

std::optional<Segmented> with_segments(const Problem& problem, const PriceOptions& options,
                                       const std::vector<BodyPlan>& bases, double budget) {
  std::vector<Priced> prices;
  for (const double part : kSegmentPrices) {
    PriceOptions o = options;
    o.segment_price = part;
    o.only_segments = true;
    prices.emplace_back(problem, o);
  }
  Segmenter segmenter(problem, budget);
  const auto try_base = [&](const BodyPlan& base) {
    for (size_t child = 0; child < base.loops.size(); ++child) {
      if (!prices[0].may_segment(child)) continue;
      const RegionProblem& body =
          problem.regions[static_cast<size_t>(problem.regions[0].children[child].region)];
      for (size_t run = 0; run < base.loops[child].size(); ++run) {
        const Run& from = base.loops[child][run];
        const int state = from.pattern[0].choices[static_cast<size_t>(body.entry)];
        if (from.pattern.size() != 1 || from.segment > 0 ||
            from.pattern[0].choices[static_cast<size_t>(body.exit)] != state)
          continue;
        segmenter.replace({&base, child, run, from.pattern[0]}, 3, 4);
        for (Priced& priced : prices) {
          if (auto again = priced.segment_body(child, state))
            segmenter.replace({&base, child, run, std::move(*again)}, 3, 4);
        }
      }
    }
  };
  for (const BodyPlan& base : bases) try_base(base);
  segmenter.refine();
  if (!segmenter.best()) return std::nullopt;
  // a second run of segments, of another length
  const BodyPlan once = segmenter.best()->plan;
  try_base(once);
  segmenter.refine();
  return segmenter.best();
}

}  // namespace cad::planner
