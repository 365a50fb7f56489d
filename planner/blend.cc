// planner/blend.cc -- see blend.h. Everything a plan comes to but its moments is affine in the
// counts, so each body is evaluated once, in all of the iterations.
#include "planner/blend.h"

#include <algorithm>
#include <array>
#include <set>

namespace cad::planner {

namespace {

constexpr size_t kMostKept = 128;    // bodies of a loop in the pool
constexpr size_t kMostTried = 20;    // of them, in mixes
constexpr int64_t kMostCounts = 96;  // of one body, before steps are larger than one

// A plan all of whose replaced iterations are of one body.
struct Whole {
  const BodyPlan* body = nullptr;
  double hidden_comm = 0, hidden_compute = 0;  // seconds, by which of the two is hidden
  double held = 0, moment = 0;                 // bytes
};

bool is_single(const Run& run) {
  return run.pattern.size() == 1 && run.segment == 0;
}

class Blender {
 public:
  Blender(const Problem& p, const BodyPool& pool, const BodyPlan& plan, size_t child, double budget,
          double seconds)
      : p_(p),
        region_(p.regions[static_cast<size_t>(p.regions[0].children[child].region)]),
        plan_(plan),
        child_(child),
        budget_(budget),
        best_(seconds) {
    if (child < pool.children() && region_.entry >= 0 && find_states()) measure(pool);
  }

  std::optional<BodyPlan> run() {
    for (size_t a = 0; a < wholes_.size(); ++a) {
      for (size_t b = a; b < wholes_.size(); ++b) {
        for (size_t c = b; c < wholes_.size(); ++c) {
          // pairs and single bodies are triples with counts of zero
          if (wholes_.size() < 3 || (a != b && b != c)) counts({a, b, c});
        }
      }
    }
    if (!found_) return std::nullopt;
    return with(mix_, counts_);
  }

 private:
  [[nodiscard]] int state_of(const BodyPlan& body) const {
    const int entry = body.choices[static_cast<size_t>(region_.entry)];
    return entry == body.choices[static_cast<size_t>(region_.exit)] ? entry : -1;
  }

  // States that the plan stays in for some iterations; it goes from one to the next as it does.
  bool find_states() {
    for (const Run& run : plan_.loops[child_]) {
      if (!is_replaced(run)) continue;
      states_.insert(state_of(run.pattern[0]));
      total_ += run.count;
    }
    return total_ >= 2;
  }

  [[nodiscard]] bool is_replaced(const Run& run) const {
    return is_single(run) && state_of(run.pattern[0]) >= 0;
  }

  // The plan with these bodies, each where the first iteration in its state was.
  [[nodiscard]] BodyPlan with(const std::array<const BodyPlan*, 3>& bodies,
                              const std::array<int64_t, 3>& counts) const {
    BodyPlan out = plan_;
    out.loops[child_].clear();
    std::set<int> placed;
    for (const Run& run : plan_.loops[child_]) {
      if (!is_replaced(run)) {
        out.loops[child_].push_back(run);
        continue;
      }
      const int state = state_of(run.pattern[0]);
      if (!placed.insert(state).second) continue;
      for (size_t i = 0; i < bodies.size(); ++i) {
        if (counts[i] > 0 && state_of(*bodies[i]) == state)
          out.loops[child_].push_back({counts[i], {*bodies[i]}});
      }
    }
    return out;
  }

  void measure(const BodyPool& pool) {
    std::vector<const BodyPlan*> bodies;
    for (const BodyPlan& body : pool.of(child_)) {
      if (states_.count(state_of(body)) != 0) bodies.push_back(&body);
    }
    for (const BodyPlan* body : bodies) {
      const Evaluation e = evaluate(p_, with({body, body, body}, {total_, 0, 0}));
      if (!e.valid) continue;
      Whole w;
      w.body = body;
      const std::array<double, 2> lines = overlap_lines(p_, e);
      w.hidden_comm = lines[0];
      w.hidden_compute = lines[1];
      w.held = e.bytes.persistent() + e.bytes.saved;
      w.moment = e.transient + e.bytes.again;
      wholes_.push_back(w);
    }
    drop_worse();
    if (wholes_.size() > kMostTried) wholes_.resize(kMostTried);
  }

  // Bodies that another one beats in everything.
  void drop_worse() {
    std::vector<Whole> kept;
    for (size_t i = 0; i < wholes_.size(); ++i) {
      const auto beats = [&](size_t j) {
        const Whole &x = wholes_[j], &y = wholes_[i];
        const bool no_worse = x.hidden_comm <= y.hidden_comm &&
                              x.hidden_compute <= y.hidden_compute && x.held <= y.held &&
                              x.moment <= y.moment;
        const bool equal = x.hidden_comm == y.hidden_comm && x.hidden_compute == y.hidden_compute &&
                           x.held == y.held && x.moment == y.moment;
        return no_worse && (!equal || j < i);
      };
      bool beaten = false;
      for (size_t j = 0; j < wholes_.size() && !beaten; ++j) beaten = j != i && beats(j);
      if (!beaten) kept.push_back(wholes_[i]);
    }
    wholes_ = std::move(kept);
  }

  // All counts of the first kind, or every so many and then those around the best.
  void counts(const std::array<size_t, 3>& kinds) {
    const int64_t step = (total_ + kMostCounts - 1) / kMostCounts;
    const int64_t most = kinds[0] == kinds[1] ? 0 : total_;
    int64_t best = -1;
    for (int64_t a = 0; a <= most; a += step) {
      if (take_best(kinds, a)) best = a;
    }
    if (step == 1 || best < 0) return;
    for (int64_t a = std::max<int64_t>(0, best - step); a <= std::min(most, best + step); ++a)
      take_best(kinds, a);
  }

  // With so many of the first kind, seconds are the larger of two linear functions of the second's
  // count, which memory bounds on one side: the best is at an end, where the two meet, or at that
  // bound.
  bool take_best(const std::array<size_t, 3>& kinds, int64_t first) {
    const Whole &w = wholes_[kinds[0]], &x = wholes_[kinds[1]], &y = wholes_[kinds[2]];
    const int64_t left = total_ - first;
    const auto a = static_cast<double>(first), rest = static_cast<double>(left);
    const auto turn = [](const Whole& of) { return of.hidden_comm - of.hidden_compute; };
    double moment = std::max(x.moment, y.moment);
    if (first > 0) moment = std::max(moment, w.moment);
    const double room = static_cast<double>(total_) * (budget_ - moment);
    const std::array<double, 2> places = {-(a * turn(w) + rest * turn(y)) / (turn(x) - turn(y)),
                                          (room - a * w.held - rest * y.held) / (x.held - y.held)};
    bool better = take(kinds, {first, 0, left});
    if (left == 0) return better;
    if (take(kinds, {first, left, 0})) better = true;
    for (const double place : places) {
      if (!(place > 0 && place < rest)) continue;
      const auto below = static_cast<int64_t>(place);
      for (const int64_t b : {below, below + 1}) {
        if (b <= left && take(kinds, {first, b, left - b})) better = true;
      }
    }
    return better;
  }

  bool take(const std::array<size_t, 3>& kinds, const std::array<int64_t, 3>& counts) {
    double comm = 0, compute = 0, held = 0, moment = 0;
    for (size_t i = 0; i < 3; ++i) {
      if (counts[i] == 0) continue;
      const Whole& w = wholes_[kinds[i]];
      const double part = static_cast<double>(counts[i]) / static_cast<double>(total_);
      comm += part * w.hidden_comm;
      compute += part * w.hidden_compute;
      held += part * w.held;
      moment = std::max(moment, w.moment);
    }
    // a little less than it is: whether it fits is said by evaluate()
    if (held + moment > budget_ * (1 + 1e-12)) return false;
    const double seconds = std::max(comm, compute);
    if (seconds >= best_ * (1 - 1e-9)) return false;
    best_ = seconds;
    found_ = true;
    mix_ = {wholes_[kinds[0]].body, wholes_[kinds[1]].body, wholes_[kinds[2]].body};
    counts_ = counts;
    return true;
  }

  const Problem& p_;
  const RegionProblem& region_;
  const BodyPlan& plan_;
  size_t child_;
  double budget_, best_;
  std::set<int> states_;
  int64_t total_ = 0;  // iterations that are replaced
  std::vector<Whole> wholes_;
  bool found_ = false;
  std::array<const BodyPlan*, 3> mix_{};
  std::array<int64_t, 3> counts_{};
};

}  // namespace

void BodyPool::add(const Problem& problem, const BodyPlan& plan) {
  bodies_.resize(problem.regions[0].children.size());
  for (size_t c = 0; c < plan.loops.size(); ++c) {
    const RegionProblem& r =
        problem.regions[static_cast<size_t>(problem.regions[0].children[c].region)];
    if (r.entry < 0 || !r.children.empty()) continue;
    for (const Run& run : plan.loops[c]) {
      if (!is_single(run)) continue;
      const std::vector<int>& choices = run.pattern[0].choices;
      if (choices[static_cast<size_t>(r.entry)] != choices[static_cast<size_t>(r.exit)]) continue;
      const bool known = std::any_of(bodies_[c].begin(), bodies_[c].end(),
                                     [&](const BodyPlan& body) { return body.choices == choices; });
      if (!known && bodies_[c].size() < kMostKept) bodies_[c].push_back(run.pattern[0]);
    }
  }
}

std::vector<int> stays(const Problem& problem, const BodyPlan& plan, size_t child) {
  const RegionProblem& r =
      problem.regions[static_cast<size_t>(problem.regions[0].children[child].region)];
  std::vector<int> states;
  for (const Run& run : plan.loops[child]) {
    if (r.entry < 0 || !is_single(run)) continue;
    const std::vector<int>& choices = run.pattern[0].choices;
    const int state = choices[static_cast<size_t>(r.entry)];
    const bool stay = state == choices[static_cast<size_t>(r.exit)];
    if (stay && (states.empty() || states.back() != state)) states.push_back(state);
  }
  return states;
}

std::optional<BodyPlan> blended(const Problem& problem, const BodyPool& pool, const BodyPlan& plan,
                                size_t child, double budget, double seconds) {
  return Blender(problem, pool, plan, child, budget, seconds).run();
}

}  // namespace cad::planner
