// planner/solver/reduce_times.cc -- which time points count. A time t is implied by t' when every
// life at t is also there at t' and t' leaves no more room; a time at which even the largest uses
// fit is implied by nothing at all. In the published instances one in five is left.
#include <algorithm>
#include <set>

#include "planner/solver/reduce_steps.h"

namespace cad::planner::solver {
namespace {

struct Event {
  int64_t from = 0, to = 0, most = 0;
};

// At segment s (from starts[s] to the next start).
struct Segments {
  std::vector<int64_t> starts, slack, most;
  std::vector<size_t> first, last;  // lives of s are all there in segments [first, last)
  std::vector<int> count;
};

Segments make_segments(const Reduced& r, const std::vector<Event>& events) {
  Segments g;
  for (const Event& e : events) {
    g.starts.push_back(e.from);
    g.starts.push_back(e.to);
  }
  for (const auto& c : r.constants) {
    g.starts.push_back(c.from);
    g.starts.push_back(c.to);
  }
  std::sort(g.starts.begin(), g.starts.end());
  g.starts.erase(std::unique(g.starts.begin(), g.starts.end()), g.starts.end());
  const size_t n = g.starts.size();
  const auto at = [&](int64_t time) {
    return std::lower_bound(g.starts.begin(), g.starts.end(), time) - g.starts.begin();
  };
  std::vector<__int128> constant(n + 1), most(n + 1);
  std::vector<int> count(n + 1);
  // begins[s]: a life starts there; the last start at or before s among the lives of s needs the
  // live set, kept as a multiset of (start, end).
  std::vector<std::vector<std::pair<size_t, size_t>>> begins(n), ends(n + 1);
  for (const Event& e : events) {
    const size_t from = at(e.from), to = at(e.to);
    most[from] += e.most;
    most[to] -= e.most;
    ++count[from];
    --count[to];
    begins[from].push_back({from, to});
    ends[to].push_back({from, to});
  }
  for (const auto& c : r.constants) {
    constant[at(c.from)] += c.bytes;
    constant[at(c.to)] -= c.bytes;
  }
  std::multiset<size_t> live_from, live_to;
  __int128 constant_now = 0, most_now = 0;
  int count_now = 0;
  for (size_t s = 0; s < n; ++s) {
    constant_now += constant[s];
    most_now += most[s];
    count_now += count[s];
    for (const auto& [from, to] : ends[s]) {
      live_from.erase(live_from.find(from));
      live_to.erase(live_to.find(to));
    }
    for (const auto& [from, to] : begins[s]) {
      live_from.insert(from);
      live_to.insert(to);
    }
    g.slack.push_back(static_cast<int64_t>(*r.budget - constant_now));
    g.most.push_back(static_cast<int64_t>(most_now));
    g.count.push_back(count_now);
    g.first.push_back(live_from.empty() ? 0 : *live_from.rbegin());
    g.last.push_back(live_to.empty() ? n : *live_to.begin());
  }
  return g;
}

// The segments that no other implies.
std::vector<size_t> choose(const Segments& g) {
  std::vector<size_t> order;
  for (size_t s = 0; s < g.starts.size(); ++s)
    if (g.most[s] > g.slack[s]) order.push_back(s);
  std::sort(order.begin(), order.end(), [&](size_t x, size_t y) {
    if (g.slack[x] != g.slack[y]) return g.slack[x] < g.slack[y];
    if (g.count[x] != g.count[y]) return g.count[x] > g.count[y];
    return x < y;
  });
  std::set<size_t> kept;
  for (const size_t s : order) {
    const auto other = kept.lower_bound(g.first[s]);
    if (other == kept.end() || *other >= g.last[s]) kept.insert(s);
  }
  return {kept.begin(), kept.end()};
}

// The least use of every life becomes constant; those that never differ go.
void subtract_least(Reduced& r) {
  for (size_t i = 0; i < r.lives.size(); ++i) {
    if (r.state[i] != Reduced::State::kLive) continue;
    std::vector<Life>& lives = r.lives[i];
    for (Life& life : lives) {
      const int64_t least = *std::min_element(life.use.begin(), life.use.end());
      if (least == 0) continue;
      r.constants.push_back({life.from, life.to, least});
      for (int64_t& use : life.use) use -= least;
    }
    lives.erase(std::remove_if(lives.begin(), lives.end(),
                               [](const Life& life) {
                                 return *std::max_element(life.use.begin(), life.use.end()) == 0;
                               }),
                lives.end());
  }
}

}  // namespace

bool keep_times(Reduced& r) {
  r.times.clear();
  r.slack.clear();
  if (!r.budget) return true;
  subtract_least(r);
  std::vector<Event> events;
  for (size_t i = 0; i < r.lives.size(); ++i) {
    if (r.state[i] != Reduced::State::kLive) continue;
    for (const Life& life : r.lives[i])
      events.push_back({life.from, life.to, *std::max_element(life.use.begin(), life.use.end())});
  }
  const Segments g = make_segments(r, events);
  for (const int64_t slack : g.slack) {
    if (slack < 0) {
      r.infeasible = true;
      return false;
    }
  }
  if (g.starts.empty() && *r.budget < 0) r.infeasible = true;
  for (const size_t s : choose(g)) {
    r.times.push_back(g.starts[s]);
    r.slack.push_back(g.slack[s]);
  }
  for (size_t i = 0; i < r.lives.size(); ++i) {
    std::vector<Life>& lives = r.lives[i];
    lives.erase(std::remove_if(lives.begin(), lives.end(),
                               [&](const Life& life) {
                                 const auto t =
                                     std::lower_bound(r.times.begin(), r.times.end(), life.from);
                                 return t == r.times.end() || *t >= life.to;
                               }),
                lives.end());
    // a use above the room of one of its times can never be chosen
    if (r.state[i] != Reduced::State::kLive) continue;
    for (const Life& life : lives) {
      auto t = std::lower_bound(r.times.begin(), r.times.end(), life.from) - r.times.begin();
      int64_t room = std::numeric_limits<int64_t>::max();
      for (; t < static_cast<int64_t>(r.times.size()) && r.times[t] < life.to; ++t)
        room = std::min(room, r.slack[t]);
      for (size_t k = 0; k < life.use.size(); ++k)
        if (life.use[k] > room) r.unary[i][k] = kForbidden;
    }
  }
  return !r.infeasible;
}

}  // namespace cad::planner::solver
