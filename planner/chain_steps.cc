// planner/chain_steps.cc -- the recurrence as step functions: the points (m, time) of a segment are
// merged from those of shorter ones, and those that another one beats are dropped.
#include <algorithm>
#include <limits>

#include "planner/chain_solver.h"

namespace cad::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

void ChainSteps::add_saves(int s, int t, int64_t memory, Steps& best) {
  for (const StageOption& o : model_->options(s)) {
    const int64_t need = model_->save_need(s, t, o);
    const double own = o.forward + o.backward;
    if (need > memory) continue;
    Steps found;
    if (s == t) found.push_back({need, own});
    if (s < t) {
      for (const Point& p : steps_[model_->id(s + 1, t)]) {
        const int64_t m = std::max(need, p.m + o.saved);
        if (m > memory) break;
        if (!found.empty() && found.back().m == m) found.pop_back();
        found.push_back({m, own + p.time});
      }
    }
    work_ -= static_cast<int64_t>(found.size());
    lower(found, best);
  }
}

// The lower envelope of two falling step functions.
void ChainSteps::lower(const Steps& more, Steps& best) {
  Steps merged;
  merged.reserve(best.size() + more.size());
  size_t i = 0, j = 0;
  while (i < best.size() || j < more.size()) {
    const bool first = j == more.size() || (i < best.size() && best[i].m <= more[j].m);
    const Point& p = first ? best[i++] : more[j++];
    if (!merged.empty() && p.time >= merged.back().time) continue;
    if (!merged.empty() && p.m == merged.back().m) merged.pop_back();
    merged.push_back(p);
  }
  best.swap(merged);
}

// For every first checkpoint k: the sum of C(k, t, m - in(k)), C(s, k-1, m) and of the unsaved runs
// of s..k-1, each a falling step function of m, at the points where one of them steps.
void ChainSteps::add_splits(int s, int t, int64_t memory, Steps& best) {
  Steps sweep{{0, 0}}, longer;
  for (int k = s + 1; k <= t; ++k) {
    const auto& ways = model_->unsaved(k - 1);
    longer.clear();
    size_t i = 0, w = 0;
    const auto need = [&](size_t way) { return model_->run_need(s, k - 1, t, ways[way].tmp); };
    int64_t m = std::max(sweep[0].m, need(0));
    while (m <= memory) {
      while (i + 1 < sweep.size() && sweep[i + 1].m <= m) ++i;
      while (w + 1 < ways.size() && need(w + 1) <= m) ++w;
      longer.push_back({m, sweep[i].time + ways[w].forward});
      m = memory + 1;
      if (i + 1 < sweep.size()) m = std::min(m, sweep[i + 1].m);
      if (w + 1 < ways.size()) m = std::min(m, need(w + 1));
    }
    sweep.swap(longer);
    if (sweep.empty()) return;
    const Steps& left = steps_[model_->id(k, t)];
    const Steps& right = steps_[model_->id(s, k - 1)];
    if (left.empty() || right.empty()) continue;
    const int64_t kept = model_->in(k);
    size_t a = 0, b = 0, e = 0;  // e: points of `best` up to m
    i = 0;
    Steps found;
    m = std::max({sweep[0].m, left[0].m + kept, right[0].m});
    while (m <= memory) {
      while (a + 1 < left.size() && left[a + 1].m + kept <= m) ++a;
      while (b + 1 < right.size() && right[b + 1].m <= m) ++b;
      while (i + 1 < sweep.size() && sweep[i + 1].m <= m) ++i;
      while (e < best.size() && best[e].m <= m) ++e;
      const double time = left[a].time + right[b].time + sweep[i].time;
      if (e == 0 || time < best[e - 1].time) found.push_back({m, time});
      --work_;
      m = memory + 1;
      if (a + 1 < left.size()) m = std::min(m, left[a + 1].m + kept);
      if (b + 1 < right.size()) m = std::min(m, right[b + 1].m);
      if (i + 1 < sweep.size()) m = std::min(m, sweep[i + 1].m);
    }
    if (!found.empty()) lower(found, best);
    if (work_ < 0) return;
  }
}

std::optional<ChainSteps> ChainSteps::solve(const ChainModel& model, int64_t memory, int64_t work,
                                            size_t thin, const ChainLate& late) {
  ChainSteps solver(model);
  solver.steps_.resize(model.segments().size());
  solver.work_ = work;
  for (size_t i = 0; i < solver.steps_.size(); ++i) {
    const auto [s, t] = model.segments()[i];
    Steps kept;
    solver.add_saves(s, t, memory, kept);
    solver.add_splits(s, t, memory, kept);
    solver.work_ -= t - s;
    if (solver.work_ < 0 || (i % 256 == 255 && late && late())) return std::nullopt;
    if (thin > 1 && kept.size() > thin) {
      solver.thinned_ = true;
      for (size_t j = 0; j < thin; ++j) kept[j] = kept[j * (kept.size() - 1) / (thin - 1)];
      kept.resize(thin);
    }
    solver.steps_[i] = std::move(kept);
  }
  return solver;
}

double ChainSteps::time(int s, int t, int64_t m) const {
  const Steps& steps = steps_[model_->id(s, t)];
  const auto above = std::upper_bound(steps.begin(), steps.end(), m,
                                      [](int64_t value, const Point& p) { return value < p.m; });
  return above == steps.begin() ? kNever : (above - 1)->time;
}

}  // namespace cad::planner
