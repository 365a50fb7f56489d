// planner/solver/flat.cc -- copies a reduced problem into flat arrays.
#include "planner/solver/flat.h"

#include <algorithm>

namespace cad::planner::solver {
namespace {

void add_edges(Flat& f, const Reduced& r, const std::vector<int>& index) {
  for (const Pair& pair : r.pairs) {
    if (!pair.live) continue;
    Flat::Edge edge;
    edge.a = index[pair.a];
    edge.b = index[pair.b];
    edge.ka = f.choices(edge.a);
    edge.kb = f.choices(edge.b);
    edge.cost = f.cost.size();
    f.cost.insert(f.cost.end(), pair.cost.begin(), pair.cost.end());
    edge.turned = f.cost.size();
    for (int l = 0; l < edge.kb; ++l)
      for (int k = 0; k < edge.ka; ++k) f.cost.push_back(pair.cost[k * edge.kb + l]);
    f.edges.push_back(edge);
  }
  std::sort(f.edges.begin(), f.edges.end(), [](const Flat::Edge& x, const Flat::Edge& y) {
    return x.a != y.a ? x.a < y.a : x.b < y.b;
  });
}

void add_adjacency(Flat& f) {
  const int n = f.nodes();
  f.first_forward.assign(n + 1, 0);
  f.first_backward.assign(n + 1, 0);
  for (const Flat::Edge& e : f.edges) {
    ++f.first_forward[e.a + 1];
    ++f.first_backward[e.b + 1];
  }
  for (int i = 0; i < n; ++i) {
    f.first_forward[i + 1] += f.first_forward[i];
    f.first_backward[i + 1] += f.first_backward[i];
  }
  f.forward.resize(f.edges.size());
  f.backward.resize(f.edges.size());
  std::vector<int> forward_at = f.first_forward, backward_at = f.first_backward;
  for (size_t e = 0; e < f.edges.size(); ++e) {
    f.forward[forward_at[f.edges[e].a]++] = static_cast<int>(e);
    f.backward[backward_at[f.edges[e].b]++] = static_cast<int>(e);
  }
}

}  // namespace

Flat flatten(const Reduced& r) {
  Flat f;
  f.constant = r.constant;
  f.times = r.times;
  f.slack = r.slack;
  f.first.push_back(0);
  f.first_use.push_back(0);
  std::vector<int> index(r.state.size(), -1);
  for (size_t i = 0; i < r.state.size(); ++i) {
    if (r.state[i] != Reduced::State::kLive) continue;
    index[i] = f.nodes();
    f.node_of.push_back(static_cast<int>(i));
    f.unary.insert(f.unary.end(), r.unary[i].begin(), r.unary[i].end());
    f.first.push_back(static_cast<int>(f.unary.size()));
    for (const Life& life : r.lives[i]) {
      const auto row = [&](int64_t time) {
        return static_cast<int>(std::lower_bound(r.times.begin(), r.times.end(), time) -
                                r.times.begin());
      };
      f.uses.push_back({row(life.from), row(life.to), f.use.size()});
      f.use.insert(f.use.end(), life.use.begin(), life.use.end());
    }
    f.first_use.push_back(static_cast<int>(f.uses.size()));
  }
  add_edges(f, r, index);
  add_adjacency(f);
  return f;
}

std::vector<int> to_live(const Flat& f, const Reduced& r, const std::vector<int>& choices) {
  std::vector<int> live(r.state.size(), -1);
  for (int i = 0; i < f.nodes(); ++i) live[f.node_of[i]] = choices[i];
  return live;
}

}  // namespace cad::planner::solver
