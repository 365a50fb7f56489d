// planner/frontier.cc -- see frontier.h.
#include "planner/frontier.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "planner/blend.h"
#include "planner/exact.h"
#include "planner/exact_proof.h"
#include "planner/moments.h"
#include "planner/priced.h"
#include "planner/refine.h"
#include "planner/segment_bound.h"
#include "planner/segments.h"

namespace cad::planner {

double priced(const Problem& /*problem*/, const Evaluation& e, double price) {
  return e.seconds + price * (e.bytes.persistent() + e.bytes.saved + e.bytes.again);
}

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

constexpr size_t kMostBases = 8;
constexpr size_t kSmallChoices = 1500;  // of a mesh that folds in milliseconds
constexpr size_t kMostShapes = 24;

struct Search::Impl {
  const Problem& p;
  double price = 0;
  double hide = 0;
  double start = 0;  // where to look first
  const Mask* mask = nullptr;
  double incumbent = std::numeric_limits<double>::infinity();
  bool small = false;                      // of at most kSmallChoices
  double tolerance = 0.004;                // a gap that is small enough
  double exact_s = 0;                      // for solve_exactly; 0: not asked for
  int64_t work = 0;                        // for prove()
  double least_moment = 0;                 // memory that every plan has for a moment
  double bound_price = 0, bound_hide = 0;  // of the best bound of the last line
  Line whole;                              // of the best bound at one price for all memory
  Line first;                              // to begin with: of another mesh's best bound
  double top_moment = 0;                   // memory for a moment at the top level
  std::vector<BodyPlan> bases;             // plans next to the budget
  BodyPool pool;                           // of all folds
  std::vector<BodyPlan> shapes;            // plans whose loops stay in other states of the carry

  // What runs again counts besides memory for a moment in loops, but not at the top level. So there
  // are two bounds: what runs again at its mean, and the least moment of loops; or only the least
  // moment of all.
  double again = 1;
  double loop_moment = 0;
  const Moments* moments = nullptr;  // priced instead of both
  MomentPrices prices;               // of the best bound of ascend(); where it begins

  explicit Impl(const Problem& problem) : p(problem) {
    for (size_t r = 0; r < p.regions.size(); ++r) {
      const double most = planner::least_moment(p.regions[r]);
      least_moment = std::max(least_moment, most);
      if (r == 0)
        top_moment = most;
      else
        loop_moment += most / (static_cast<double>(p.regions.size()) - 1);
    }
    size_t choices = 0;
    for (const RegionProblem& r : p.regions) {
      for (const VariableInfo& v : r.variables) choices += v.choices.size();
    }
    small = choices <= kSmallChoices;
    if (small) tolerance = 0.0005;
  }

  [[nodiscard]] double floor() const { return again > 0 ? loop_moment : least_moment; }

  struct Point {
    BodyPlan plan;
    Evaluation e;
    double value = 0, price = 0;
    double again = 0;  // as Impl::again
    [[nodiscard]] double bytes() const {
      return e.bytes.persistent() + e.bytes.saved + again * e.bytes.again;
    }
  };

  Point last_fit;  // the last plan of a fold that fits

  // Seconds on the line that folds minimise.
  [[nodiscard]] double weighted(const Evaluation& e) const {
    return e.compute * (1 - hide * p.model.overlap) + e.recompute + e.communicate + e.optimizer +
           e.parameters * (1 - (1 - hide) * p.model.overlap);
  }

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
    Point point;
    const Priced priced(p, options(lambda, limit));
    ++found.evaluations;
    point.price = lambda;
    point.again = again;
    point.value = priced.bound();
    if (priced.value() == static_cast<double>(kNever)) {
      point.e.valid = false;
      return point;
    }
    point.plan = priced.plan();
    point.e = evaluate(p, point.plan);
    CAD_CHECK(point.e.valid, "a folded plan uses a forbidden pair");
    offer(found, point.plan, point.e, budget);
    if (std::isfinite(budget)) {
      pool.add(p, point.plan);
      for (size_t child = 0; child < point.plan.loops.size(); ++child) remember(point.plan, child);
    }
    if (point.e.peak <= budget) last_fit = point;
    return point;
  }

  void raise(double& bound, double value, double lambda) {
    if (value <= bound) return;
    bound = value;
    bound_price = lambda;
    bound_hide = hide;
  }

  [[nodiscard]] PriceOptions options(double lambda, double limit) const {
    PriceOptions o;
    o.price = lambda;
    o.limit = limit;
    o.hide = hide;
    o.again = again;
    o.moments = moments;
    o.mask = mask;
    return o;
  }

  // Mixes of the two plans in every loop of the top level: as much of the fast one as fits.
  void mix(Found& found, const Point& fast, const Point& small, double budget, double limit) {
    if (!std::isfinite(limit)) bases = {small.plan, fast.plan};
    const Priced priced(p, options(small.price, limit));
    for (size_t child = 0; child < p.regions[0].children.size(); ++child) {
      const auto n = static_cast<int64_t>(
          p.regions[static_cast<size_t>(p.regions[0].children[child].region)].trips);
      int64_t low = 1, high = n - 1;  // iterations of the small one
      while (low <= high) {
        const int64_t middle = low + (high - low) / 2;
        const auto plan = priced.spliced(child, small.plan, fast.plan, middle);
        if (!plan) break;
        if (bases.size() < kMostBases) bases.push_back(*plan);
        remember(*plan, child);
        const Evaluation e = evaluate(p, *plan);
        offer(found, *plan, e, budget);
        if (e.valid && e.peak <= budget)
          high = middle - 1;
        else
          low = middle + 1;
      }
    }
  }

  // Prices by the slope between a plan that does not fit and one that does, until no plan lies
  // below the line; then the mixes of the two.
  void narrow(Found& found, double budget, double limit, double room, Point& fast, Point& small,
              double& bound) {
    for (int i = 0; i < 40; ++i) {
      const double spare = fast.bytes() - small.bytes();
      if (spare <= 0) break;
      const double lambda = (weighted(small.e) - weighted(fast.e)) / spare;
      if (!(lambda > 0)) break;
      Point middle = at(found, lambda, budget, limit);
      if (!middle.e.valid) break;
      price = lambda;
      raise(bound, safe(middle.value) - lambda * room, lambda);
      if (bound >= incumbent) return;
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
  }

  // Two neighbouring prices around `start`, of which one fits and one does not. False: not found.
  bool bracket(Found& found, double budget, double limit, double room, Point& fast, Point& small,
               double& bound) {
    bool have_fast = false, have_small = false;
    double lambda = start;
    for (int i = 0; i < 4 && !(have_fast && have_small); ++i) {
      Point point = at(found, lambda, budget, limit);
      if (!point.e.valid) return false;
      raise(bound, safe(point.value) - lambda * room, lambda);
      price = lambda;
      if (bound >= incumbent) return true;
      if (point.e.peak <= budget) {
        small = std::move(point);
        have_small = true;
        lambda /= have_fast ? 1 : 1.7;
      } else {
        fast = std::move(point);
        have_fast = true;
        lambda *= have_small ? 1 : 1.7;
      }
    }
    return have_fast && have_small;
  }

  // The best bound over prices, and plans on the way, for choices within `limit`.
  double slopes(Found& found, double budget, double limit, double moment) {
    const double room = budget - moment;
    if (start > 0 && std::isfinite(budget)) {
      Point fast, small;
      double bound = -std::numeric_limits<double>::infinity();
      if (bracket(found, budget, limit, room, fast, small, bound)) {
        if (bound < incumbent) narrow(found, budget, limit, room, fast, small, bound);
        return bound;
      }
    }
    Point fast = at(found, 0, budget, limit);
    if (!fast.e.valid) return safe(fast.value);
    double bound = -std::numeric_limits<double>::infinity();
    raise(bound, safe(fast.value), 0);
    price = 0;
    if (bound >= incumbent) return bound;
    if (fast.e.peak <= budget || !std::isfinite(budget)) {
      // of plans that are as fast, the one that needs least
      const double touch = 2e-6 * fast.value / std::max(fast.bytes(), 1.0);
      const Evaluation kept = found.evaluation;
      const BodyPlan plan = found.plan;
      const Point lean = at(found, touch, budget, limit);
      if (lean.e.valid && lean.e.peak < kept.peak && found.feasible &&
          lean.e.seconds <= found.evaluation.seconds * (1 + 1e-7)) {
        found.plan = lean.plan;
        found.evaluation = lean.e;
      }
      return bound;
    }
    // a price so high that memory alone counts
    const double high = 1e4 * std::max(fast.value, 1e-9) / std::max(fast.bytes(), 1.0);
    Point small = at(found, high, budget, limit);
    if (!small.e.valid) return bound;
    if (small.e.peak > budget) {
      // is there room at all? the least of bytes, from the price that counts almost only them
      const double least = (safe(small.value) - fast.value * 1e3) / high;
      raise(bound, safe(small.value) - high * room, high);
      if (small.bytes() * 0.999 > room && least > room) return kUnlimited;
    }
    narrow(found, budget, limit, room, fast, small, bound);
    return bound;
  }

  // A better bound than one price for all of the memory gives: a price for each variable whose
  // moment was the most in some plan on the way, their sum being the price of what is held. From
  // `prices` on, until the bound is `enough`; `best`: seconds of a plan, which no bound is above.
  // `only`: a bound below `enough` is of no use.
  double ascend(Found& found, double budget, double best, double enough, int folds,
                bool only = false) {
    constexpr double kEnd = 1e-4;  // of the bound: no more is left to win
    constexpr double kFurthest = 3;
    double bound = -kUnlimited;
    MomentPrices top = prices, next = prices;
    PriceModel model(budget, best);
    const double kept = hide;
    for (int i = 0; i < folds && next.sum() > 0; ++i) {
      const Point point = priced_moments(found, budget, next);
      if (!point.e.valid) {
        bound = std::isinf(point.value) ? kUnlimited : 0;
        break;
      }
      const double value = safe(point.value) - next.sum() * budget;
      Moments moment = mean_moments(p, point.plan);
      meet(moment, 0, next);
      top.list.resize(next.list.size());
      if (value > bound) {
        bound = value;
        top = next;
      }
      model.add(overlap_lines(p, point.e), point.e.bytes.persistent() + point.e.bytes.saved,
                std::move(moment));
      if (bound >= enough) break;
      for (size_t k = 0; k < next.list.size(); ++k) {
        top.list[k].region = next.list[k].region;
        top.list[k].variable = next.list[k].variable;
      }
      next = model.best(top);
      // no plan is known there yet that says how far is too far
      const double part = next.sum() / top.sum();
      if (part < 1 / kFurthest) {
        next = top;
        for (MomentPrice& x : next.list) x.price /= kFurthest;
      } else if (part > kFurthest) {
        for (MomentPrice& x : next.list) x.price *= kFurthest / part;
      }
      const double most = model.value(next);
      if (most < bound + kEnd * std::abs(bound) || (only && most < enough)) break;
    }
    hide = kept;
    prices = top;
    prices.bound = bound;
    return bound;
  }

  Point priced_moments(Found& found, double budget, const MomentPrices& at_prices) {
    const Moments parts = parts_of(at_prices);
    moments = &parts;
    hide = at_prices.hide;
    Point point = at(found, at_prices.sum(), budget, kUnlimited);
    moments = nullptr;
    return point;
  }

  // Of the sum of prices, by region and variable.
  [[nodiscard]] Moments parts_of(const MomentPrices& of) const {
    Moments parts;
    for (const RegionProblem& r : p.regions) parts.emplace_back(r.variables.size(), 0.0);
    const double sum = of.sum();
    for (const MomentPrice& x : of.list) parts[x.region][x.variable] = x.price / sum;
    return parts;
  }

  // The variable whose moment is the most gets a price, this one, if it has none.
  static void meet(const Moments& moment, double price, MomentPrices& to) {
    MomentPrice most{0, 0, price};
    for (size_t r = 0; r < moment.size(); ++r) {
      for (size_t v = 0; v < moment[r].size(); ++v) {
        if (moment[r][v] > moment[most.region][most.variable]) most = {r, v, price};
      }
    }
    const bool known = std::any_of(to.list.begin(), to.list.end(), [&](const MomentPrice& x) {
      return x.region == most.region && x.variable == most.variable;
    });
    if (!known) to.list.push_back(most);
  }

  // ascend() from the line's price and the plan that was found, if that leaves a gap.
  void ascend_whole(Found& found, double budget, double& bound) {
    constexpr int kFolds = 12;
    constexpr double kFirst = 0.1;  // of a step, for as much as the budget
    const double best = found.feasible ? std::min(incumbent, found.evaluation.seconds) : incumbent;
    const double enough = std::min(incumbent, best * (1 - tolerance / 2));
    if (!std::isfinite(budget) || !std::isfinite(best) || bound >= enough) return;
    if (found.plan.choices.empty()) return;
    if (prices.sum() == 0) {
      prices = {};
      prices.hide = whole.hide;
    }
    // where what is held fits at no price, what is alive for a moment may not
    const double first = whole.price > 0 ? whole.price : kFirst * best / budget;
    meet(mean_moments(p, found.plan), prices.list.empty() ? first : 0, prices);
    bound = std::max(bound, ascend(found, budget, best, enough, kFolds));
  }

  // A mesh that can be no better than the incumbent mostly shows it at once at its prices.
  bool dropped(Found& found, double budget) {
    constexpr int kFolds = 4;
    if (!std::isfinite(incumbent) || !std::isfinite(budget)) return false;
    if (prices.list.empty()) return dropped_on_line(found, budget);
    found.bound = std::max(0.0, ascend(found, budget, incumbent, incumbent, kFolds, true));
    price = prices.sum();  // memory binds, whether or not there is a price of this mesh's own
    return found.bound >= incumbent;
  }

  // The same where moments have no prices. Without a weight of the second line best_line() begins
  // with this fold.
  bool dropped_on_line(Found& found, double budget) {
    if (!(first.hide > 0)) return false;
    hide = first.hide;
    again = p.regions.size() > 1 ? first.again : 0;
    const Point point = at(found, first.price, budget, kUnlimited);
    const double bound = safe(point.value) - first.price * (budget - floor());
    found.bound = std::max(0.0, bound);
    whole = {first.price, first.hide, again, bound};
    price = first.price;
    hide = 0;
    return bound >= incumbent;
  }

  // Plans by the most memory that any of their choices takes for a moment: within (moment, limit].
  struct Part {
    double limit = std::numeric_limits<double>::infinity(), moment = 0, bound = 0;
  };

  double best_line(Found& found, double budget, double limit, double moment) {
    hide = 0;
    double bound = slopes(found, budget, limit, moment);
    const Evaluation& e = found.evaluation;
    if (!found.feasible || p.model.overlap <= 0 || e.parameters <= e.compute) return bound;
    // compute is too short to hide that much: the best weight of the two lines, and mixes of the
    // plans on both sides of it
    const double first = price;
    BodyPlan low_plan = last_fit.plan, high_plan;
    const auto line_at = [&](double weight) {
      hide = weight;
      const double kept_price = bound_price, kept_hide = bound_hide;
      const double line = slopes(found, budget, limit, moment);
      if (line > bound) {
        bound = line;
      } else {
        bound_price = kept_price;
        bound_hide = kept_hide;
      }
      (last_fit.e.parameters > last_fit.e.compute ? low_plan : high_plan) = last_fit.plan;
      return line;
    };
    const auto closed = [&] {
      return bound >= std::min(incumbent, found.evaluation.seconds) * (1 - tolerance);
    };
    line_at(1);
    if (last_fit.e.parameters <= last_fit.e.compute) {
      // the bound is concave in the weight: its top lies between neighbours that are lower
      double low = 0, middle = 0.5, high = 1, top = line_at(middle);
      for (int i = 0; i < 12 && !closed(); ++i) {
        const bool right = high - middle >= middle - low;
        const double at = right ? (middle + high) / 2 : (low + middle) / 2;
        const double line = line_at(at);
        if (line > top) {
          (right ? low : high) = middle;
          middle = at;
          top = line;
        } else {
          (right ? high : low) = at;
        }
      }
      if (!closed()) mix_lines(found, low_plan, high_plan, budget, limit);
    }
    hide = 0;
    price = first;
    return bound;
  }

  // Loops that start as one of two plans and end as the other.
  void mix_lines(Found& found, const BodyPlan& a, const BodyPlan& b, double budget, double limit) {
    if (a.choices.empty() || b.choices.empty()) return;
    const Priced priced(p, options(price, limit));
    for (size_t child = 0; child < p.regions[0].children.size(); ++child) {
      const auto n = static_cast<int64_t>(
          p.regions[static_cast<size_t>(p.regions[0].children[child].region)].trips);
      for (const auto* both : {&a, &b}) {
        // the larger of two lines is least where they meet: around the best of some, ever closer
        const auto at = [&](int64_t k) {
          const auto plan = priced.spliced(child, *both, both == &a ? b : a, k);
          if (!plan) return kUnlimited;
          remember(*plan, child);
          const Evaluation e = evaluate(p, *plan);
          offer(found, *plan, e, budget);
          return e.valid && e.peak <= budget ? e.seconds : kUnlimited;
        };
        int64_t step = std::max<int64_t>(1, n / 24), best_k = 0;
        double least = kUnlimited;
        const auto look = [&](int64_t k) {
          if (k < 1 || k >= n) return;
          const double seconds = at(k);
          if (seconds >= least) return;
          least = seconds;
          best_k = k;
        };
        for (int64_t k = 1; k < n; k += step) look(k);
        while (step > 1 && best_k > 0) {
          step = (step + 1) / 2;
          const int64_t middle = best_k;
          look(middle - step);
          look(middle + step);
        }
      }
    }
  }

  // Memory for a moment is a maximum, not a sum: where it leaves a gap, plans are parted by it.
  void search(Found& found, double budget) {
    constexpr int kMostParts = 6;
    // parting takes several times as long as what came before it
    constexpr double kWorthParting = 0.008;
    if (dropped(found, budget)) return;
    std::vector<Part> parts(1);
    again = p.regions.size() > 1 && loop_moment >= top_moment ? 1 : 0;
    const double known = found.bound;
    parts[0].bound = best_line(found, budget, parts[0].limit, floor());
    if (parts[0].bound > whole.bound) whole = {bound_price, bound_hide, again, parts[0].bound};
    parts[0].bound = std::max(parts[0].bound, known);
    ascend_whole(found, budget, parts[0].bound);
    if (std::isfinite(budget) && found.feasible && parts[0].bound < incumbent)
      improve(found, budget);
    const double enough =
        found.feasible ? std::min(incumbent, found.evaluation.seconds) : incumbent;
    if (p.regions.size() > 1 && std::isfinite(budget) && std::isfinite(parts[0].bound) &&
        parts[0].bound < enough * (1 - tolerance)) {
      again = 1 - again;
      const double kept = price, begin = start;
      start = price;
      const double other = best_line(found, budget, parts[0].limit, floor());
      start = begin;
      if (other > whole.bound) {
        parts[0].bound = std::max(parts[0].bound, other);
        whole = {bound_price, bound_hide, again, other};
      } else {
        price = kept;
      }
      if (found.feasible) improve(found, budget);
    }
    again = 0;  // from here on plans are parted by their moments
    parts[0].moment = least_moment;
    if (parts[0].bound >= incumbent && std::isfinite(parts[0].bound)) {
      found.bound = parts[0].bound;
      return;
    }
    const auto least = [&] {
      return std::min_element(parts.begin(), parts.end(),
                              [](const Part& a, const Part& b) { return a.bound < b.bound; });
    };
    while (static_cast<int>(parts.size()) < kMostParts && std::isfinite(budget)) {
      const auto part = least();
      if (!std::isfinite(part->bound)) break;
      const double best =
          found.feasible ? std::min(incumbent, found.evaluation.seconds) : incumbent;
      if (part->bound >= best * (1 - (tolerance < 1e-3 ? tolerance : kWorthParting))) break;
      const double high =
          std::min(part->limit, found.evaluation.transient + found.evaluation.bytes.again);
      const double middle = (part->moment + high) / 2;
      if (!(middle > part->moment * 1.02)) break;
      Part lower{middle, part->moment, part->bound};
      Part upper{part->limit, middle, part->bound};
      const double kept = price;
      lower.bound = std::max(lower.bound, best_line(found, budget, lower.limit, lower.moment));
      upper.bound = std::max(upper.bound, best_line(found, budget, upper.limit, upper.moment));
      if (price == 0) price = kept;
      *part = lower;
      parts.push_back(upper);
      if (found.feasible) improve(found, budget);
    }
    found.bound = least()->bound;
    prove_all(found, budget, whole.price, whole.hide);
    finish_exactly(found, budget);
    if (!found.feasible) smallest(found, budget);
  }

  // Where prices leave a gap, every plan below a target is looked for, the target being raised from
  // the bound on until a plan is found or the best one is met.
  void prove_all(Found& found, double budget, double at_price, double at_hide) {
    if (work <= 0 || !std::isfinite(found.bound)) return;
    double step = 0;
    for (int i = 0; i < 12; ++i) {
      const double best =
          found.feasible ? std::min(incumbent, found.evaluation.seconds) : incumbent;
      const double most = best * (1 - tolerance);
      if (found.bound >= most) return;
      // the work grows with the distance from the bound, fast
      const bool known = std::isfinite(most) && tolerance < 1e-3;
      if (step > 0)
        step *= known ? 1.4 : 2;
      else
        step = std::max(found.bound * (known ? 0.002 : 0.01),
                        std::isfinite(most) ? (most - found.bound) / (known ? 8 : 4) : 0);
      ProofLimits limits;
      limits.target = std::min(most, found.bound + step);
      limits.price = at_price;
      limits.hide = at_hide;
      limits.moments = prices;
      limits.work = std::min(limits.work, work);
      limits.grain = 0.5 * tolerance * found.bound;
      const auto proof = prove(p, budget, limits);
      if (proof) work -= proof->work;
      if (!proof || !proof->complete) return;
      found.bound = std::max(found.bound, proof->bound);
      if (!proof->plan) continue;
      const Evaluation e = evaluate(p, *proof->plan);
      CAD_CHECK(e.valid, "a plan put together from labels uses a forbidden pair");
      offer(found, *proof->plan, e, budget);
      return;
    }
  }

  // Small problems are solved to the end where prices leave a gap.
  void finish_exactly(Found& found, double budget) const {
    constexpr size_t kMostChoices = 4000;
    if (exact_s <= 0 || !std::isfinite(budget) || !std::isfinite(found.bound)) return;
    if (found.feasible && found.bound >= found.evaluation.seconds * (1 - tolerance)) return;
    const auto exact = solve_exactly(p, budget, exact_s, kMostChoices);
    if (!exact) return;
    found.columns = exact->columns;
    found.rows = exact->rows;
    if (exact->status == solver::SolveStatus::kInfeasible) {
      found.bound = std::numeric_limits<double>::infinity();
      return;
    }
    if (exact->plan) {
      const Evaluation e = evaluate(p, *exact->plan);
      CAD_CHECK(e.valid, "the solver's plan uses a forbidden pair");
      offer(found, *exact->plan, e, budget);
    }
    found.bound = std::max(found.bound, exact->bound);
  }

  // Nothing fits: how little memory is enough? Ever less for a moment, at a price that counts
  // memory alone.
  void smallest(Found& found, double budget) {
    for (int i = 0; i < 8 && !found.plan.choices.empty(); ++i) {
      const double before = found.evaluation.peak;
      const double limit = found.evaluation.transient * 0.9;
      const double high = 1e4 * std::max(found.evaluation.seconds, 1e-9) / std::max(before, 1.0);
      const Point point = at(found, high, budget, limit);
      if (!point.e.valid || found.evaluation.peak >= before) break;
    }
  }

  // As a shape, for mixes in states that no plan at hand has.
  void remember(const BodyPlan& plan, size_t child) {
    if (!small || shapes.size() >= kMostShapes) return;
    const auto same = [&](const BodyPlan& other) {
      return stays(p, other, child) == stays(p, plan, child);
    };
    if (std::none_of(shapes.begin(), shapes.end(), same)) shapes.push_back(plan);
  }

  // The pool's best mix in the states that `shape` goes through.
  void blend(Found& found, const BodyPlan& shape, size_t child, double budget) const {
    const auto mixed = blended(p, pool, shape, child, budget, found.evaluation.seconds);
    if (mixed) offer(found, *mixed, evaluate(p, *mixed), budget);
  }

  // Shapes that go from the states of one to those of another.
  void join_shapes() {
    const Priced priced(p, options(price, kUnlimited));
    const std::vector<BodyPlan> given = shapes;
    for (size_t child = 0; child < p.regions[0].children.size(); ++child) {
      const auto trips = static_cast<int64_t>(
          p.regions[static_cast<size_t>(p.regions[0].children[child].region)].trips);
      for (const BodyPlan& a : given) {
        for (const BodyPlan& b : given) {
          if (stays(p, a, child) == stays(p, b, child)) continue;
          if (const auto plan = priced.spliced(child, a, b, trips / 2)) remember(*plan, child);
        }
      }
    }
  }

  // What the mix of two bodies leaves of the budget.
  void improve(Found& found, double budget) {
    if (small) join_shapes();
    for (size_t c = 0; c < p.regions[0].children.size(); ++c) {
      blend(found, found.plan, c, budget);
      for (const BodyPlan& shape : shapes) {
        if (stays(p, shape, c) != stays(p, found.plan, c)) blend(found, shape, c, budget);
      }
    }
    const BodyPlan plan = refined(p, found.plan, budget);
    offer(found, plan, evaluate(p, plan), budget);
  }
};

Search::Search(const Problem& problem) : impl_(std::make_unique<Impl>(problem)) {}
Search::~Search() = default;
std::vector<BodyPlan> Search::bases() const {
  return impl_->bases;
}
int64_t Search::work_left() const {
  return impl_->work;
}
const MomentPrices& Search::moment_prices() const {
  return impl_->prices;
}
void Search::begin_with(MomentPrices prices) {
  impl_->prices = std::move(prices);
}
void Search::begin_on(const Line& line) {
  impl_->first = line;
}
void Search::price_moments(const Line& line, double budget, double incumbent) {
  constexpr int kFolds = 12;
  Impl& s = *impl_;
  Found found;
  s.hide = line.hide;
  s.again = line.again;
  s.prices = {};
  if (!(line.price > 0)) return;
  const Impl::Point point = s.at(found, line.price, budget, kUnlimited);
  if (!point.e.valid) return;
  s.prices.hide = line.hide;
  Impl::meet(mean_moments(s.p, point.plan), line.price, s.prices);
  s.ascend(found, budget, incumbent, incumbent, kFolds);
}
double Search::price() const {
  return impl_->price;
}

void Search::be_exact(double time_s, double tolerance, int64_t work) {
  impl_->work = work;
  impl_->tolerance = std::min(impl_->tolerance, tolerance);
  impl_->exact_s = time_s;
}

Search::Line Search::line() const {
  return impl_->whole;
}

// Where the last run ended with prices of moments, those.
double Search::segment_bound(const Line& line, double near, double budget, double enough,
                             int folds) {
  Impl& s = *impl_;
  const double sum = s.prices.sum();
  if ((line.price == 0 && sum == 0) || !std::isfinite(budget)) return line.bound;
  if (!segment_parts(s.p, budget, {}, nullptr).possible) return kUnlimited;
  const Moments parts = s.parts_of(s.prices);
  const bool priced_moments = sum > 0 && !(line.price > 0 && line.bound > s.prices.bound);
  s.again = line.again;
  s.hide = priced_moments ? s.prices.hide : line.hide;
  SegmentBoundStart start;
  start.options = s.options(priced_moments ? sum : line.price, kUnlimited);
  start.near = near;
  start.floor = s.floor();
  if (priced_moments) {
    start.options.moments = &parts;
    start.near = std::min(near > 0 ? near : sum, sum);
  }
  if (std::isfinite(line.bound) && !segments_may_help(s.p, start.options))
    return priced_moments ? s.prices.bound : line.bound;
  return planner::segment_bound(s.p, start, budget, enough, folds);
}

Found Search::run(double budget, double incumbent, double start) {
  Found found;
  impl_->incumbent = incumbent;
  impl_->start = start;
  impl_->whole = {0, 0, 0, -kUnlimited};
  impl_->bases.clear();
  impl_->search(found, budget);
  return found;
}

}  // namespace cad::planner
