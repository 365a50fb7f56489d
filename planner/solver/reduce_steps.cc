// planner/solver/reduce_steps.cc -- the single reductions on choices and tables; see
// reduce_steps.h for what each guarantees.
#include "planner/solver/reduce_steps.h"

#include <algorithm>
#include <cmath>

namespace cad::planner::solver {

using State = Reduced::State;

const std::vector<int>& live_pairs(Reduced& r, int i) {
  std::vector<int>& list = r.pairs_of[i];
  list.erase(std::remove_if(list.begin(), list.end(), [&](int e) { return !r.pairs[e].live; }),
             list.end());
  return list;
}

namespace {

// Copies the kept rows (of the pair's a) or columns (of its b) of a table.
void shrink_table(Pair& pair, bool rows, const std::vector<size_t>& kept, size_t before,
                  size_t other) {
  std::vector<double> cost;
  cost.reserve(kept.size() * other);
  if (rows) {
    for (const size_t k : kept)
      cost.insert(cost.end(), pair.cost.begin() + k * other, pair.cost.begin() + (k + 1) * other);
  } else {
    for (size_t l = 0; l < other; ++l)
      for (const size_t k : kept) cost.push_back(pair.cost[l * before + k]);
  }
  pair.cost = std::move(cost);
}

}  // namespace

bool compact(Reduced& r, int i) {
  std::vector<double>& unary = r.unary[i];
  const size_t before = unary.size();
  std::vector<size_t> kept;
  for (size_t k = 0; k < before; ++k)
    if (unary[k] < kForbidden) kept.push_back(k);
  if (kept.empty()) {
    r.infeasible = true;
    return false;
  }
  if (kept.size() == before) return true;
  for (const int e : live_pairs(r, i)) {
    Pair& pair = r.pairs[e];
    const int j = pair.a == i ? pair.b : pair.a;
    shrink_table(pair, pair.a == i, kept, before, r.unary[j].size());
  }
  for (size_t at = 0; at < kept.size(); ++at) {
    unary[at] = unary[kept[at]];
    r.original[i][at] = r.original[i][kept[at]];
    for (Life& life : r.lives[i]) life.use[at] = life.use[kept[at]];
  }
  unary.resize(kept.size());
  r.original[i].resize(kept.size());
  for (Life& life : r.lives[i]) life.use.resize(kept.size());
  return true;
}

bool drop_unsupported(Reduced& r) {
  std::vector<int> work;
  std::vector<char> queued(r.state.size(), 1);
  for (size_t i = 0; i < r.state.size(); ++i)
    if (r.state[i] == State::kLive) work.push_back(static_cast<int>(i));
  // compact() first: afterwards every unary is finite, so a table's entry alone decides
  for (const int i : work)
    if (!compact(r, i)) return false;
  while (!work.empty()) {
    const int i = work.back();
    work.pop_back();
    queued[i] = 0;
    bool dropped = false;
    for (const int e : live_pairs(r, i)) {
      const Pair& pair = r.pairs[e];
      const bool rows = pair.a == i;
      const size_t ki = r.unary[i].size(), kj = pair.cost.size() / ki;
      for (size_t k = 0; k < ki; ++k) {
        bool supported = false;
        for (size_t l = 0; l < kj && !supported; ++l)
          supported = pair.cost[rows ? k * kj + l : l * ki + k] < kForbidden;
        if (supported) continue;
        r.unary[i][k] = kForbidden;
        dropped = true;
      }
    }
    if (!dropped) continue;
    if (!compact(r, i)) return false;
    for (const int e : live_pairs(r, i)) {
      const int j = r.pairs[e].a == i ? r.pairs[e].b : r.pairs[e].a;
      if (!queued[j]) work.push_back(j);
      queued[j] = 1;
    }
  }
  return true;
}

void fix_single(Reduced& r) {
  for (size_t i = 0; i < r.state.size(); ++i) {
    if (r.state[i] != State::kLive || r.unary[i].size() != 1) continue;
    r.state[i] = State::kFixed;
    r.constant += r.unary[i][0];
    for (const Life& life : r.lives[i]) r.constants.push_back({life.from, life.to, life.use[0]});
    r.lives[i].clear();
    for (const int e : live_pairs(r, static_cast<int>(i))) {
      Pair& pair = r.pairs[e];
      pair.live = false;
      const int j = pair.a == static_cast<int>(i) ? pair.b : pair.a;
      for (size_t l = 0; l < r.unary[j].size(); ++l) r.unary[j][l] += pair.cost[l];
      pair.cost = {};
    }
    r.pairs_of[i].clear();
  }
}

bool split_tables(Reduced& r) {
  bool changed = false;
  for (Pair& pair : r.pairs) {
    if (!pair.live) continue;
    const size_t ka = r.unary[pair.a].size(), kb = r.unary[pair.b].size();
    const std::vector<double>& cost = pair.cost;
    bool sum = true;
    for (size_t k = 0; k < ka && sum; ++k) {
      for (size_t l = 0; l < kb && sum; ++l) {
        const double here = cost[k * kb + l];
        sum = here < kForbidden && here == cost[k * kb] + (cost[l] - cost[0]);
      }
    }
    if (!sum) continue;
    for (size_t k = 0; k < ka; ++k) r.unary[pair.a][k] += cost[k * kb];
    for (size_t l = 0; l < kb; ++l) r.unary[pair.b][l] += cost[l] - cost[0];
    pair.live = false;
    pair.cost = {};
    changed = true;
  }
  return changed;
}

namespace {

int other_end(const Pair& pair, int i) {
  return pair.a == i ? pair.b : pair.a;
}

// Cost of the pair with node i at k and the other end at l.
double entry(const Reduced& r, const Pair& pair, int i, size_t k, size_t l) {
  return pair.a == i ? pair.cost[k * r.unary[pair.b].size() + l]
                     : pair.cost[l * r.unary[i].size() + k];
}

void fold_into_constant(Reduced& r, int i) {
  const auto best = std::min_element(r.unary[i].begin(), r.unary[i].end());
  r.constant += *best;
  r.folds.push_back({i, -1, -1, 0, {r.original[i][best - r.unary[i].begin()]}});
}

void fold_into_node(Reduced& r, int i, int e) {
  Pair& pair = r.pairs[e];
  const int j = other_end(pair, i);
  Reduced::Fold fold{i, j, -1, 0, std::vector<int>(r.choices_of[j], -1)};
  for (size_t l = 0; l < r.unary[j].size(); ++l) {
    double least = kForbidden;
    size_t at = 0;
    for (size_t k = 0; k < r.unary[i].size(); ++k) {
      const double cost = r.unary[i][k] + entry(r, pair, i, k, l);
      if (cost < least) least = cost, at = k;
    }
    r.unary[j][l] += least;
    fold.best[r.original[j][l]] = r.original[i][at];
  }
  r.folds.push_back(std::move(fold));
  pair.live = false;
  pair.cost = {};
}

Pair& pair_between(Reduced& r, int a, int b) {
  for (const int e : live_pairs(r, a))
    if (other_end(r.pairs[e], a) == b) return r.pairs[e];
  r.pairs_of[a].push_back(static_cast<int>(r.pairs.size()));
  r.pairs_of[b].push_back(static_cast<int>(r.pairs.size()));
  r.pairs.push_back({a, b, true, std::vector<double>(r.unary[a].size() * r.unary[b].size(), 0.0)});
  return r.pairs.back();
}

// False if the new table would be larger than what it replaces.
bool fold_into_pair(Reduced& r, int i, int e, int f) {
  int a = other_end(r.pairs[e], i), b = other_end(r.pairs[f], i);
  if (a > b) std::swap(a, b), std::swap(e, f);
  const size_t ka = r.unary[a].size(), kb = r.unary[b].size(), ki = r.unary[i].size();
  if (ka * kb > 2 * ki * (ka + kb) + 16) return false;
  Pair first = std::move(r.pairs[e]), second = std::move(r.pairs[f]);
  r.pairs[e].live = r.pairs[f].live = false;
  Pair& joined = pair_between(r, a, b);
  Reduced::Fold fold{i, a, b, static_cast<int>(r.choices_of[b]), {}};
  fold.best.assign(r.choices_of[a] * r.choices_of[b], -1);
  for (size_t k = 0; k < ka; ++k) {
    for (size_t l = 0; l < kb; ++l) {
      double least = kForbidden;
      size_t at = 0;
      for (size_t m = 0; m < ki; ++m) {
        const double cost = r.unary[i][m] + entry(r, first, i, m, k) + entry(r, second, i, m, l);
        if (cost < least) least = cost, at = m;
      }
      joined.cost[k * kb + l] += least;
      fold.best[r.original[a][k] * r.choices_of[b] + r.original[b][l]] = r.original[i][at];
    }
  }
  r.folds.push_back(std::move(fold));
  return true;
}

}  // namespace

bool fold_free(Reduced& r) {
  std::vector<int> work;
  for (size_t i = r.state.size(); i-- > 0;) work.push_back(static_cast<int>(i));
  bool changed = false;
  while (!work.empty()) {
    const int i = work.back();
    work.pop_back();
    if (r.state[i] != State::kLive || !r.lives[i].empty()) continue;
    const std::vector<int> pairs = live_pairs(r, i);
    if (pairs.size() > 2) continue;
    std::vector<int> ends;
    for (const int e : pairs) ends.push_back(other_end(r.pairs[e], i));
    if (pairs.empty()) fold_into_constant(r, i);
    if (pairs.size() == 1) fold_into_node(r, i, pairs[0]);
    if (pairs.size() == 2 && !fold_into_pair(r, i, pairs[0], pairs[1])) continue;
    r.state[i] = State::kFolded;
    changed = true;
    work.insert(work.end(), ends.begin(), ends.end());
  }
  return changed;
}

namespace {

// Whether choice k of node i is never better than m; `tie` when k may lose a draw.
bool never_better(const Reduced& r, int i, const std::vector<int>& pairs, size_t k, size_t m) {
  for (const Life& life : r.lives[i])
    if (life.use[m] > life.use[k]) return false;
  double difference = r.unary[i][m] - r.unary[i][k];  // cost of m over k, at the worst
  for (const int e : pairs) {
    const Pair& pair = r.pairs[e];
    const size_t ki = r.unary[i].size(), kj = pair.cost.size() / ki;
    const bool rows = pair.a == i;
    const size_t step = rows ? 1 : ki;
    const double* mine = pair.cost.data() + (rows ? k * kj : k);
    const double* other = pair.cost.data() + (rows ? m * kj : m);
    double worst = -kForbidden;
    for (size_t l = 0; l < kj; ++l) {
      if (mine[l * step] == kForbidden) continue;
      worst = std::max(worst, other[l * step] - mine[l * step]);
    }
    difference += worst;  // some partner of k is allowed: worst is not -infinity
    if (difference == kForbidden) return false;
  }
  return difference <= 0;
}

}  // namespace

bool drop_dominated(Reduced& r) {
  bool changed = false;
  for (size_t node = 0; node < r.state.size(); ++node) {
    const int i = static_cast<int>(node);
    if (r.state[i] != State::kLive) continue;
    const std::vector<int> pairs = live_pairs(r, i);
    const size_t ki = r.unary[i].size();
    bool dropped = false;
    for (size_t k = 0; k < ki; ++k) {
      for (size_t m = 0; m < ki; ++m) {
        if (m == k || r.unary[i][m] == kForbidden || !never_better(r, i, pairs, k, m)) continue;
        r.unary[i][k] = kForbidden;
        dropped = true;
        break;
      }
    }
    if (!dropped) continue;
    compact(r, i);
    changed = true;
  }
  return changed;
}

}  // namespace cad::planner::solver
