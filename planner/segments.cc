// planner/segments.cc -- see segments.h. What a segment saves is there only while it runs, so its
// iterations are chosen at lower prices of what they save; the bodies of the plan itself are tried
// too. Iterations of a loop that leave the carry in one state may be in any order: those of the
// plan are taken together, put into segments as planner/segment_runs.h says, and what is left of
// them stays behind the segments, since what those keep is held longest.
#include "planner/segments.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "planner/segment_runs.h"

namespace cad::planner {

namespace {

constexpr double kSegmentPrices[] = {0.01, 0.03, 0.1, 0.3};
constexpr size_t kMostKinds = 8;

class Segmenter {
 public:
  Segmenter(const Problem& p, const PriceOptions& options, double budget) : p_(p), budget_(budget) {
    for (const double part : kSegmentPrices) {
      PriceOptions o = options;
      o.segment_price = part;
      o.only_segments = true;
      prices_.emplace_back(p, o);
    }
  }

  // Puts iterations of each loop of the plan into segments, for each state that it stays in; at
  // most so many runs of them.
  void take(const BodyPlan& base, int runs) {
    for (size_t child = 0; child < base.loops.size(); ++child) {
      if (!prices_[0].may_segment(child)) continue;
      std::vector<int> states;
      for (const Run& run : base.loops[child]) {
        const int state = state_of(child, run);
        if (state >= 0 && std::find(states.begin(), states.end(), state) == states.end())
          states.push_back(state);
      }
      for (const int state : states) take(base, child, state, runs);
    }
  }

  [[nodiscard]] const std::optional<Segmented>& best() const { return best_; }
  [[nodiscard]] const BodyPlan* best_base() const { return best_base_; }

 private:
  // Iterations of one plan that are taken together.
  struct Group {
    const BodyPlan* base = nullptr;
    size_t child = 0;
    int state = 0;
    std::vector<const BodyPlan*> bodies;  // by kind
    LoopKinds loop;
  };

  [[nodiscard]] const RegionProblem& region(size_t child) const {
    return p_.regions[static_cast<size_t>(p_.regions[0].children[child].region)];
  }

  // That the carry has before and after each iteration of the run; -1: they differ.
  [[nodiscard]] int state_of(size_t child, const Run& run) const {
    if (run.pattern.size() != 1 || run.segment > 0) return -1;
    const std::vector<int>& choices = run.pattern[0].choices;
    const int state = choices[static_cast<size_t>(region(child).entry)];
    return state == choices[static_cast<size_t>(region(child).exit)] ? state : -1;
  }

  void take(const BodyPlan& base, size_t child, int state, int runs) {
    Group group;
    group.base = &base;
    group.child = child;
    group.state = state;
    for (const Run& run : base.loops[child]) {
      if (state_of(child, run) == state) group.loop.iterations += run.count;
    }
    const VariableInfo& carry = region(child).variables[static_cast<size_t>(region(child).entry)];
    group.loop.carry = static_cast<double>(carry.bytes[static_cast<size_t>(state)]);
    if (add_kinds(group)) compose(group, runs);
  }

  // False: the plan's own iterations are no kinds.
  bool add_kinds(Group& group) {
    std::vector<PlainRun> own;
    for (const Run& run : group.base->loops[group.child]) {
      if (state_of(group.child, run) != group.state) continue;
      const int kind = add_kind(group, run.pattern[0]);
      if (kind < 0) return false;
      own.push_back({kind, run.count});
    }
    for (const BodyPlan& body : segment_bodies(group.child, group.state)) add_kind(group, body);
    group.loop.plain.push_back(own);
    for (int kind = 0; kind < static_cast<int>(group.bodies.size()); ++kind) {
      if (own.size() > 1 || own[0].kind != kind)
        group.loop.plain.push_back(std::vector<PlainRun>{PlainRun{kind, group.loop.iterations}});
    }
    return true;
  }

  // The body's kind, a new one if it is new; -1: it cannot be one, or there are enough.
  int add_kind(Group& group, const BodyPlan& body) {
    for (size_t i = 0; i < group.bodies.size(); ++i) {
      if (group.bodies[i]->choices == body.choices) return static_cast<int>(i);
    }
    if (group.bodies.size() >= kMostKinds) return -1;
    const int64_t n = group.loop.iterations;
    const auto with = [&](int64_t segment) {
      return evaluate(p_, built(group, {{n, {body}, segment}}));
    };
    const Evaluation plain = with(0), single = with(1), whole = with(n);
    if (!plain.valid || !single.valid || !whole.valid) return -1;
    const auto count = static_cast<double>(n);
    SegmentKind kind;
    kind.plain = overlap_lines(p_, plain);
    kind.again = overlap_lines(p_, single);
    kind.base = single.bytes.persistent() + single.bytes.saved - count * group.loop.carry;
    kind.saved = (plain.bytes.persistent() + plain.bytes.saved - kind.base) / count;
    kind.moment = plain.peak - plain.bytes.persistent() - plain.bytes.saved;
    // one segment of all iterations: as it runs again, nothing that the rest needs is as large
    kind.inside = whole.peak - kind.base - group.loop.carry - count * kind.saved;
    group.loop.kinds.push_back(kind);
    group.bodies.push_back(&body);
    return static_cast<int>(group.bodies.size()) - 1;
  }

  const std::vector<BodyPlan>& segment_bodies(size_t child, int state) {
    const auto [at, fresh] = bodies_.emplace(std::make_pair(child, state), std::vector<BodyPlan>());
    if (!fresh) return at->second;
    for (Priced& priced : prices_) {
      if (auto body = priced.segment_body(child, state)) at->second.push_back(std::move(*body));
    }
    return at->second;
  }

  // The plan with these runs where the first iteration of the group was, without the others.
  [[nodiscard]] BodyPlan built(const Group& group, const std::vector<Run>& runs) const {
    BodyPlan plan = *group.base;
    std::vector<Run>& loop = plan.loops[group.child];
    loop.clear();
    bool placed = false;
    for (const Run& run : group.base->loops[group.child]) {
      if (state_of(group.child, run) != group.state) {
        loop.push_back(run);
      } else if (!placed) {
        loop.insert(loop.end(), runs.begin(), runs.end());
        placed = true;
      }
    }
    return plan;
  }

  void compose(const Group& group, int most) {
    constexpr int kTries = 3;
    double budget = budget_;
    for (int i = 0; i < kTries; ++i) {
      const auto runs = best_segment_runs(group.loop, budget, most);
      if (!runs) break;
      const double over = offer(group, *runs) - budget_;
      if (over <= 0) return;
      budget -= over;  // the rest needs more for a moment than was thought
    }
    if (best_ && best_->evaluation.peak <= budget_) return;
    smallest(group);
  }

  // Nothing fits: the least budget, within a part of it.
  void smallest(const Group& group) {
    constexpr double kWithin = 1e-3;
    constexpr int kMostDoubled = 40;
    double low = budget_, high = budget_;
    std::optional<SegmentRuns> found;
    for (int i = 0; i < kMostDoubled && !found; ++i) {
      low = high;
      high *= 2;
      found = best_segment_runs(group.loop, high, 1);
    }
    if (!found) return;
    while (high > low * (1 + kWithin)) {
      const double middle = (low + high) / 2;
      auto runs = best_segment_runs(group.loop, middle, 1);
      (runs ? high : low) = middle;
      if (runs) found = std::move(runs);
    }
    offer(group, *found);
  }

  // Its peak.
  double offer(const Group& group, const SegmentRuns& runs) {
    std::vector<Run> loop;
    for (const SegmentRun& run : runs.segments)
      loop.push_back(
          {run.segments * run.length, {*group.bodies[static_cast<size_t>(run.kind)]}, run.length});
    for (const PlainRun& run : runs.plain)
      loop.push_back({run.count, {*group.bodies[static_cast<size_t>(run.kind)]}, 0});
    BodyPlan plan = built(group, loop);
    const Evaluation e = evaluate(p_, plan);
    if (!e.valid) return 0;
    const bool fits = e.peak <= budget_;
    const bool had = best_ && best_->evaluation.peak <= budget_;
    const bool better = !best_ || (fits ? !had || e.seconds < best_->evaluation.seconds
                                        : !had && e.peak < best_->evaluation.peak);
    if (better) {
      best_ = Segmented{std::move(plan), e};
      best_base_ = group.base;
    }
    return e.peak;
  }

  const Problem& p_;
  double budget_;
  std::vector<Priced> prices_;
  std::map<std::pair<size_t, int>, std::vector<BodyPlan>> bodies_;  // by child and state
  std::optional<Segmented> best_;
  const BodyPlan* best_base_ = nullptr;  // that it was made of
};

// Bytes: no variable's moment is more, without what runs again.
double most_moment(const RegionProblem& r) {
  double most = 0;
  for (const VariableInfo& v : r.variables) {
    for (const Choice& c : v.choices) most = std::max(most, static_cast<double>(c.transient));
  }
  for (const Pair& pair : r.pairs) {
    double alive = 0;
    for (const float x : pair.alive.at) alive = std::max(alive, static_cast<double>(x));
    most += alive;
  }
  return most;
}

// Bytes: no plan holds less, besides what is saved.
double least_held(const Problem& p) {
  double total = 0;
  for (size_t i = 0; i < p.regions.size(); ++i) {
    double times = p.regions[i].trips;
    for (auto at = static_cast<int>(i); at != 0;) {
      const auto outer =
          std::find_if(p.regions.begin(), p.regions.end(), [&](const RegionProblem& r) {
            return std::any_of(r.children.begin(), r.children.end(),
                               [&](const RegionProblem::Child& c) { return c.region == at; });
          });
      at = static_cast<int>(outer - p.regions.begin());
      if (at != 0) times *= outer->trips;
    }
    for (const VariableInfo& v : p.regions[i].variables) {
      double least = std::numeric_limits<double>::infinity();
      for (const Choice& c : v.choices)
        least =
            std::min(least, static_cast<double>(c.parameters) + static_cast<double>(c.gradients) +
                                static_cast<double>(c.optimizer));
      if (std::isfinite(least)) total += times * least;
    }
  }
  return total;
}

// Parts of 1: as given, else all of it the variable that has most for a moment at least.
std::vector<double> variables_of(const RegionProblem& r, const Moments* where, size_t region) {
  std::vector<double> parts(r.variables.size(), 0.0);
  double sum = 0;
  if (where != nullptr) {
    parts = (*where)[region];
    for (const double x : parts) sum += x;
  }
  if (sum > 0) {
    for (double& x : parts) x /= sum;
    return parts;
  }
  size_t most = 0;
  double bytes = -1;
  for (size_t v = 0; v < r.variables.size(); ++v) {
    double least = std::numeric_limits<double>::infinity();
    for (const Choice& c : r.variables[v].choices)
      least = std::min(least, static_cast<double>(c.transient));
    if (static_cast<int>(v) == r.exit || least <= bytes) continue;
    bytes = least;
    most = v;
  }
  parts[most] = 1;
  return parts;
}

}  // namespace

std::optional<Segmented> with_segments(const Problem& problem, const PriceOptions& options,
                                       const std::vector<BodyPlan>& bases, double budget) {
  Segmenter segmenter(problem, options, budget);
  for (const BodyPlan& base : bases) segmenter.take(base, 1);
  if (!segmenter.best()) return std::nullopt;
  segmenter.take(*segmenter.best_base(), 3);
  // iterations in another state, or of another loop
  const BodyPlan once = segmenter.best()->plan;
  segmenter.take(once, 3);
  return segmenter.best();
}

SegmentParts segment_parts(const Problem& p, double budget, SegmentWeights weights,
                           const Moments* where) {
  constexpr double kSteep[] = {0, 0.6, 0.95};  // where between the two ends of (1..3)
  PriceOptions none;
  none.only_segments = true;
  const Priced loops(p, none);
  double carry = 0, moment = 0, n = 0, trips = 1;
  size_t region = 0;
  for (size_t c = 0; c < p.regions[0].children.size(); ++c) {
    if (!loops.may_segment(c)) continue;
    region = static_cast<size_t>(p.regions[0].children[c].region);
    const RegionProblem& r = p.regions[region];
    const double least = least_moment(r);
    moment = n == 0 ? least : std::min(moment, least);
    const VariableInfo& entry = r.variables[static_cast<size_t>(r.entry)];
    for (const float bytes : entry.bytes) carry = std::max(carry, static_cast<double>(bytes));
    for (const Choice& x : entry.choices) carry = std::max(carry, static_cast<double>(x.saved));
    trips = r.trips;
    n += 1;
  }
  SegmentParts parts;
  parts.room = budget;
  const double most = budget - least_held(p) - moment;  // D
  parts.possible = n == 0 || most >= 0;
  if (n == 0) return parts;
  if (n > 1 || carry <= 0 || most <= 0)  // of several loops the mean of what holds for each
    weights = {weights[0], carry <= 0 || most <= 0 ? 0 : weights[1], 0, 0, 0};
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!(sum > 0))
    weights = {1, 0, 0, 0, 0};
  else
    for (double& x : weights) x /= sum;
  SegmentPrices& prices = parts.prices;
  prices.moment = prices.plain = weights[0];
  prices.carry = weights[0];
  for (size_t k = 0; k < 3; ++k) {
    const double part = weights[k + 1];
    if (part <= 0) continue;
    const double low = 1 / (most + carry), high = 2 / (most + 2 * carry);
    const double b = low + (high - low) * kSteep[k];
    const double left = std::max(0.0, most - b * (most * most / 2 + carry * most));
    const double a = k == 0 ? 1 : std::clamp(b * (carry + std::sqrt(2 * left / b)), 0.0, 1.0);
    prices.moment += part * a;
    prices.plain += part * a;
    prices.carried += part * b / n;
    parts.room -= part * (1 - a) * moment;
  }
  prices.plain += weights[4] / trips;
  prices.segment = weights[4] / trips;
  prices.inside = weights[4];
  if (prices.inside <= 0) return parts;
  for (const RegionProblem& r : p.regions) prices.where.emplace_back(r.variables.size(), 0.0);
  prices.where[region] = variables_of(p.regions[region], where, region);
  return parts;
}

bool segments_may_help(const Problem& p, const PriceOptions& o) {
  PriceOptions none = o;
  none.only_segments = true;
  const Priced loops(p, none);
  for (size_t c = 0; c < p.regions[0].children.size(); ++c) {
    if (!loops.may_segment(c)) continue;
    const RegionProblem& r = p.regions[static_cast<size_t>(p.regions[0].children[c].region)];
    // with prices of moments: at most the whole price is that of one of the loop's
    const bool moments = o.moments != nullptr;
    const double share = moments ? 1 : o.again / static_cast<double>(p.regions.size() - 1);
    const double again = share * o.price / r.trips;
    double difference = moments ? -o.price / r.trips * most_moment(r) : 0;
    for (size_t v = 0; v < r.variables.size(); ++v) {
      if (static_cast<int>(v) == r.exit) continue;
      double least = std::numeric_limits<double>::infinity();
      for (const Choice& x : r.variables[v].choices)
        least = std::min(least, static_cast<double>(x.forward) -
                                    o.price * static_cast<double>(x.saved) -
                                    again * static_cast<double>(x.again));
      difference += least;
    }
    for (const Pair& pair : r.pairs) {
      double least = std::numeric_limits<double>::infinity();
      for (size_t i = 0; i < pair.forward.at.size(); ++i) {
        const double saved = pair.saved.at.empty() ? 0 : static_cast<double>(pair.saved.at[i]);
        least = std::min(least, static_cast<double>(pair.forward.at[i]) - o.price * saved);
      }
      difference += least;
    }
    if (difference < 0) return true;
  }
  return false;
}

}  // namespace cad::planner
