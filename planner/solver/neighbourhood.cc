// planner/solver/neighbourhood.cc -- cuts a neighbourhood out of a flat problem.
#include "planner/solver/neighbourhood.h"

#include <algorithm>

namespace cad::planner::solver {
namespace {

// Rows with the memory that the fixed nodes take; budget less slack is what is constant.
void add_rows(Reduced& r, const Flat& f, const std::vector<int>& choices,
              const std::vector<int>& index) {
  std::vector<int64_t> change(f.rows() + 1, 0);
  for (int i = 0; i < f.nodes(); ++i) {
    if (index[i] >= 0) continue;
    for (int u = f.first_use[i]; u < f.first_use[i + 1]; ++u) {
      const Flat::Use& use = f.uses[u];
      change[use.from] += f.use[use.at + choices[i]];
      change[use.to] -= f.use[use.at + choices[i]];
    }
  }
  std::vector<char> touched(f.rows() + 1, 0);
  for (const auto& lives : r.lives)
    for (const Life& life : lives)
      std::fill(touched.begin() + life.from, touched.begin() + life.to, 1);
  r.budget = f.slack.empty() ? 0 : *std::max_element(f.slack.begin(), f.slack.end());
  int64_t now = 0;
  for (int row = 0; row < f.rows(); ++row) {
    now += change[row];
    const int64_t taken = *r.budget - f.slack[row] + now;
    if (touched[row] && taken > 0) r.constants.push_back({row, row + 1, taken});
  }
}

void add_pairs(Reduced& r, const Flat& f, const std::vector<int>& choices,
               const std::vector<int>& index, const std::vector<int>& free) {
  const auto add = [&](int e) {
    const Flat::Edge& edge = f.edges[e];
    const int a = index[edge.a], b = index[edge.b];
    if (a >= 0 && b >= 0) {
      r.pairs_of[a].push_back(static_cast<int>(r.pairs.size()));
      r.pairs_of[b].push_back(static_cast<int>(r.pairs.size()));
      const auto begin = f.cost.begin() + static_cast<int64_t>(edge.cost);
      r.pairs.push_back({a, b, true, {begin, begin + static_cast<int64_t>(edge.ka) * edge.kb}});
      return;
    }
    const double* row =
        a >= 0 ? f.cost.data() + edge.turned + static_cast<size_t>(choices[edge.b]) * edge.ka
               : f.cost.data() + edge.cost + static_cast<size_t>(choices[edge.a]) * edge.kb;
    std::vector<double>& unary = r.unary[a >= 0 ? a : b];
    for (size_t k = 0; k < unary.size(); ++k) unary[k] += row[k];
  };
  for (const int i : free) {
    for (int at = f.first_forward[i]; at < f.first_forward[i + 1]; ++at) add(f.forward[at]);
    for (int at = f.first_backward[i]; at < f.first_backward[i + 1]; ++at) {
      const int e = f.backward[at];
      if (index[f.edges[e].a] < 0) add(e);  // the others came from their first end
    }
  }
}

// Drops what is not allowed from the cut-out (tables are still whole).
void mask(Reduced& r, const Flat& f, const std::vector<int>& choices,
          const std::vector<char>& allowed, const std::vector<int>& free) {
  for (size_t c = 0; c < free.size(); ++c) {
    const int i = free[c];
    for (int k = 0; k < f.choices(i); ++k)
      if (!allowed[f.first[i] + k] && k != choices[i]) r.unary[c][k] = kForbidden;
  }
}

// Adds nodes until the tables are large enough.
class Collector {
 public:
  Collector(const Flat& flat, int64_t entries) : f_(flat), left_(entries), seen_(flat.nodes(), 0) {}
  bool full() const { return left_ <= 0; }
  void add(int i) {
    if (seen_[i]) return;
    seen_[i] = 1;
    found_.push_back(i);
    left_ -= f_.choices(i);
    for (int at = f_.first_backward[i]; at < f_.first_backward[i + 1]; ++at) count(f_.backward[at]);
    for (int at = f_.first_forward[i]; at < f_.first_forward[i + 1]; ++at) count(f_.forward[at]);
  }
  std::vector<int> take() {
    std::sort(found_.begin(), found_.end());
    return std::move(found_);
  }
  const std::vector<int>& found() const { return found_; }

 private:
  void count(int e) {
    const Flat::Edge& edge = f_.edges[e];
    if (seen_[edge.a] && seen_[edge.b]) left_ -= static_cast<int64_t>(edge.ka) * edge.kb;
  }
  const Flat& f_;
  int64_t left_;
  std::vector<char> seen_;
  std::vector<int> found_;
};

}  // namespace

Reduced extract(const Flat& f, const std::vector<int>& choices, const std::vector<char>& allowed,
                const std::vector<int>& free) {
  Reduced r;
  const size_t n = free.size();
  std::vector<int> index(f.nodes(), -1);
  for (size_t c = 0; c < n; ++c) index[free[c]] = static_cast<int>(c);
  r.state.assign(n, Reduced::State::kLive);
  r.original.resize(n);
  r.unary.resize(n);
  r.lives.resize(n);
  r.pairs_of.resize(n);
  for (size_t c = 0; c < n; ++c) {
    const int i = free[c];
    r.choices_of.push_back(f.choices(i));
    r.unary[c].assign(f.unary.begin() + f.first[i], f.unary.begin() + f.first[i + 1]);
    for (int k = 0; k < f.choices(i); ++k) r.original[c].push_back(k);
    for (int u = f.first_use[i]; u < f.first_use[i + 1]; ++u) {
      const Flat::Use& use = f.uses[u];
      const auto begin = f.use.begin() + static_cast<int64_t>(use.at);
      r.lives[c].push_back({use.from, use.to, {begin, begin + f.choices(i)}});
    }
  }
  add_rows(r, f, choices, index);
  add_pairs(r, f, choices, index, free);
  mask(r, f, choices, allowed, free);
  return r;
}

double local_cost(const Flat& f, const std::vector<int>& choices, const std::vector<int>& free) {
  std::vector<char> is_free(f.nodes(), 0);
  for (const int i : free) is_free[i] = 1;
  double cost = 0;
  const auto add = [&](int e) {
    const Flat::Edge& edge = f.edges[e];
    cost += f.cost[edge.cost + static_cast<size_t>(choices[edge.a]) * edge.kb + choices[edge.b]];
  };
  for (const int i : free) {
    cost += f.unary[f.first[i] + choices[i]];
    for (int at = f.first_forward[i]; at < f.first_forward[i + 1]; ++at) add(f.forward[at]);
    for (int at = f.first_backward[i]; at < f.first_backward[i + 1]; ++at)
      if (!is_free[f.edges[f.backward[at]].a]) add(f.backward[at]);
  }
  return cost;
}

std::vector<int> region(const Flat& f, int centre, int64_t entries) {
  Collector collector(f, entries);
  collector.add(centre);
  for (size_t at = 0; at < collector.found().size() && !collector.full(); ++at) {
    const int i = collector.found()[at];
    for (int e = f.first_backward[i]; e < f.first_backward[i + 1] && !collector.full(); ++e)
      collector.add(f.edges[f.backward[e]].a);
    for (int e = f.first_forward[i]; e < f.first_forward[i + 1] && !collector.full(); ++e)
      collector.add(f.edges[f.forward[e]].b);
  }
  return collector.take();
}

std::vector<int> window(const Flat& f, int first, int64_t entries) {
  Collector collector(f, entries);
  for (int i = std::max(0, first); i < f.nodes() && !collector.full(); ++i) collector.add(i);
  return collector.take();
}

std::vector<int> alive(const Flat& f, int row, uint64_t seed, int64_t entries) {
  std::vector<int> there;
  for (int i = 0; i < f.nodes(); ++i) {
    bool is_there = false;
    for (int u = f.first_use[i]; u < f.first_use[i + 1]; ++u)
      is_there = is_there || (f.uses[u].from <= row && row < f.uses[u].to);
    if (is_there) there.push_back(i);
  }
  Collector collector(f, entries);
  while (!there.empty() && !collector.full()) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    const size_t at = (seed >> 33) % there.size();
    const int i = there[at];
    there[at] = there.back();
    there.pop_back();
    collector.add(i);
    for (int e = f.first_backward[i]; e < f.first_backward[i + 1] && !collector.full(); ++e)
      collector.add(f.edges[f.backward[e]].a);
    for (int e = f.first_forward[i]; e < f.first_forward[i + 1] && !collector.full(); ++e)
      collector.add(f.edges[f.forward[e]].b);
  }
  return collector.take();
}

}  // namespace cad::planner::solver
