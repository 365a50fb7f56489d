// planner/frontier.cc -- see frontier.h.
#include "planner/frontier.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "planner/priced.h"

namespace cad::planner {

double priced(const Problem& problem, const Evaluation& e, double price) {
  (void)problem;
  return e.seconds + price * (e.bytes.persistent() + e.bytes.saved + e.bytes.again);
}

struct Search::Impl {
  const Problem& p;
  double price = 0;
  double hide = 0;
  const Mask* mask = nullptr;
  double least_moment = 0;  // memory that every plan has for a moment

  explicit Impl(const Problem& problem) : p(problem) {
    for (const RegionProblem& r : p.regions) {
      for (const VariableInfo& v : r.variables) {
        double least = std::numeric_limits<double>::infinity();
        for (const Choice& c : v.choices) least = std::min(least, static_cast<double>(c.transient));
        least_moment = std::max(least_moment, least);
      }
    }
  }

  struct Point {
    BodyPlan plan;
    Evaluation e;
    double value = 0, price = 0;
    [[nodiscard]] double bytes() const {
      return e.bytes.persistent() + e.bytes.saved + e.bytes.again;
    }
  };

  // Seconds on the line that folds minimise.
  [[nodiscard]] double weighted(const Evaluation& e) const {
    return e.compute * (1 - hide * p.model.overlap) + e.recompute + e.communicate + e.optimizer +
           e.parameters * (1 - (1 - hide) * p.model.overlap);
  }

  // Float sums lose a few units in the last place: a bound gives these away.
  static double safe(double value) { return value * (1 - 4e-6); }

  void offer(Found& found, const BodyPlan& plan, const Evaluation& e, double budget) const {
    if (!e.valid) return;
    found.least_peak = found.least_peak == 0 ? e.peak : std::min(found.least_peak, e.peak);
    const bool fits = e.peak <= budget;
    const bool better =
        fits ? !found.feasible || e.seconds < found.evaluation.seconds
             : !found.feasible && (found.plan.choices.empty() || e.peak < found.evaluation.peak);
    if (!better) return;
    found.feasible = found.feasible || fits;
    found.plan = plan;
    found.evaluation = e;
  }

  Point at(Found& found, double lambda, double budget, double limit) {
    const Priced priced(p, {lambda, limit, hide, mask});
    ++found.evaluations;
    Point point;
    point.price = lambda;
    if (priced.stuck()) {
      found.exact = false;
      return point;
    }
    point.value = priced.value();
    if (point.value == static_cast<double>(kNever)) {
      point.e.valid = false;
      return point;
    }
    point.plan = priced.plan();
    point.e = evaluate(p, point.plan);
    CAD_CHECK(point.e.valid, "a folded plan uses a forbidden pair");
    offer(found, point.plan, point.e, budget);
    return point;
  }

  // Mixes of the two plans in every loop of the top level: as much of the fast one as fits.
  void mix(Found& found, const Point& fast, const Point& small, double budget, double limit) {
    const Priced priced(p, {small.price, limit, hide, mask});
    for (size_t child = 0; child < p.regions[0].children.size(); ++child) {
      const auto n = static_cast<int64_t>(
          p.regions[static_cast<size_t>(p.regions[0].children[child].region)].trips);
      int64_t low = 1, high = n - 1;  // iterations of the small one
      while (low <= high) {
        const int64_t middle = low + (high - low) / 2;
        const auto plan = priced.spliced(child, small.plan, fast.plan, middle);
        if (!plan) break;
        const Evaluation e = evaluate(p, *plan);
        offer(found, *plan, e, budget);
        if (e.valid && e.peak <= budget)
          high = middle - 1;
        else
          low = middle + 1;
      }
    }
  }

  // The best bound over prices, and plans on the way, for choices within `limit`.
  double slopes(Found& found, double budget, double limit, double moment) {
    const double room = budget - moment;
    Point fast = at(found, 0, budget, limit);
    if (!found.exact) return 0;
    if (!fast.e.valid) return std::numeric_limits<double>::infinity();
    double bound = safe(fast.value);
    price = 0;
    if (fast.e.peak <= budget || !std::isfinite(budget)) return bound;
    // a price so high that memory alone counts
    const double high = 1e4 * std::max(fast.value, 1e-9) / std::max(fast.bytes(), 1.0);
    Point small = at(found, high, budget, limit);
    if (small.e.peak > budget) {
      // is there room at all? the least of bytes, from the price that counts almost only them
      const double least = (safe(small.value) - fast.value * 1e3) / high;
      bound = std::max(bound, safe(small.value) - high * room);
      if (small.bytes() * 0.999 > room && least > room)
        bound = std::numeric_limits<double>::infinity();
    }
    for (int i = 0; i < 40; ++i) {
      const double spare = fast.bytes() - small.bytes();
      if (spare <= 0) break;
      const double lambda = (weighted(small.e) - weighted(fast.e)) / spare;
      if (!(lambda > 0)) break;
      Point middle = at(found, lambda, budget, limit);
      price = lambda;
      bound = std::max(bound, safe(middle.value) - lambda * room);
      const double line = weighted(fast.e) + lambda * fast.bytes();
      if (middle.value >= line * (1 - 2e-6)) break;
      if (middle.e.peak <= budget) {
        if (middle.bytes() <= small.bytes() && weighted(middle.e) >= weighted(small.e)) break;
        small = std::move(middle);
      } else {
        if (middle.bytes() >= fast.bytes()) break;
        fast = std::move(middle);
      }
    }
    mix(found, fast, small, budget, limit);
    return bound;
  }
};

Search::Search(const Problem& problem) : impl_(std::make_unique<Impl>(problem)) {}
Search::~Search() = default;
double Search::price() const {
  return impl_->price;
}

double Search::bound_at(double price, double budget) {
  const Priced priced(impl_->p,
                      {price, std::numeric_limits<double>::infinity(), impl_->hide, impl_->mask});
  if (priced.stuck()) return 0;
  const double room = std::isfinite(budget) ? budget - impl_->least_moment : 0;
  return Impl::safe(priced.value()) - price * room;
}

Found Search::run(double budget) {
  Found found;
  const double infinite = std::numeric_limits<double>::infinity();
  impl_->hide = 0;
  found.bound = impl_->slopes(found, budget, infinite, impl_->least_moment);
  const Evaluation& e = found.evaluation;
  const double overlap = impl_->p.model.overlap;
  if (found.exact && found.feasible && overlap > 0 && e.parameters > e.compute) {
    // compute is too short to hide that much: the other line, and one between
    const double first = impl_->price;
    for (const double hide : {1.0, 0.5}) {
      impl_->hide = hide;
      found.bound =
          std::max(found.bound, impl_->slopes(found, budget, infinite, impl_->least_moment));
    }
    impl_->hide = 0;
    impl_->price = first;
  }
  return found;
}

}  // namespace cad::planner
