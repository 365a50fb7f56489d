// planner/solver/reduce.cc -- the loop of reductions; the single steps are below in the order in
// which a round takes them. Time points are in reduce_times.cc.
#include "planner/solver/reduce.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "planner/solver/reduce_steps.h"

namespace cad::planner::solver {

size_t Reduced::live_nodes() const {
  return std::count(state.begin(), state.end(), State::kLive);
}

size_t Reduced::columns() const {
  size_t count = 0;
  for (size_t i = 0; i < state.size(); ++i)
    if (state[i] == State::kLive) count += unary[i].size();
  return count;
}

namespace {

void check_shapes(const Problem& problem) {
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node& node = problem.nodes[i];
    for (const double cost : node.cost)
      CAD_CHECK(cost > -kForbidden, "node {}: a cost is {}", i, cost);
    for (const Life& life : node.lives) {
      CAD_CHECK(life.use.size() == node.cost.size(), "node {}: {} uses for {} choices", i,
                life.use.size(), node.cost.size());
      for (const int64_t use : life.use) CAD_CHECK(use >= 0, "node {}: use {}", i, use);
    }
  }
  const auto count = static_cast<int>(problem.nodes.size());
  for (size_t e = 0; e < problem.edges.size(); ++e) {
    const Edge& edge = problem.edges[e];
    CAD_CHECK(edge.a >= 0 && edge.a < count && edge.b >= 0 && edge.b < count, "edge {}", e);
    CAD_CHECK(
        edge.cost.size() == problem.nodes[edge.a].cost.size() * problem.nodes[edge.b].cost.size(),
        "edge {}: {} costs", e, edge.cost.size());
    for (const double cost : edge.cost)
      CAD_CHECK(cost > -kForbidden, "edge {}: a cost is {}", e, cost);
  }
}

}  // namespace

Reduced make_reduced(const Problem& problem) {
  check_shapes(problem);
  Reduced r;
  const size_t n = problem.nodes.size();
  r.budget = problem.budget;
  r.state.assign(n, Reduced::State::kLive);
  r.original.resize(n);
  r.unary.resize(n);
  r.lives.resize(n);
  r.pairs_of.resize(n);
  r.choices_of.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const Node& node = problem.nodes[i];
    r.choices_of[i] = static_cast<int64_t>(node.cost.size());
    r.unary[i] = node.cost;
    for (size_t k = 0; k < node.cost.size(); ++k) r.original[i].push_back(static_cast<int>(k));
    if (!problem.budget) continue;
    for (const Life& life : node.lives)
      if (life.from < life.to) r.lives[i].push_back(life);
    if (node.cost.empty()) r.infeasible = true;
  }
  for (const Node& node : problem.nodes) r.infeasible = r.infeasible || node.cost.empty();
  std::map<std::pair<int, int>, int> index;
  for (const Edge& edge : problem.edges) {
    const size_t ka = problem.nodes[edge.a].cost.size(), kb = problem.nodes[edge.b].cost.size();
    if (edge.a == edge.b) {
      for (size_t k = 0; k < ka; ++k) r.unary[edge.a][k] += edge.cost[k * kb + k];
      continue;
    }
    const bool turned = edge.a > edge.b;
    const auto ends = std::minmax(edge.a, edge.b);
    const auto [at, fresh] =
        index.try_emplace({ends.first, ends.second}, static_cast<int>(r.pairs.size()));
    if (fresh) {
      r.pairs.push_back({ends.first, ends.second, true, {}});
      r.pairs.back().cost.assign(ka * kb, 0.0);
      r.pairs_of[edge.a].push_back(at->second);
      r.pairs_of[edge.b].push_back(at->second);
    }
    std::vector<double>& cost = r.pairs[at->second].cost;
    for (size_t k = 0; k < ka; ++k)
      for (size_t l = 0; l < kb; ++l)
        cost[turned ? l * ka + k : k * kb + l] += edge.cost[k * kb + l];
  }
  return r;
}

bool reduce(Reduced& r) {
  if (r.infeasible) return false;
  for (;;) {
    if (!drop_unsupported(r)) return false;
    fix_single(r);
    const size_t columns = r.columns();
    // may forbid choices that need too much memory
    if (!keep_times(r) || !drop_unsupported(r)) return false;
    bool changed = r.columns() < columns;
    changed = split_tables(r) || changed;
    changed = fold_free(r) || changed;
    changed = drop_dominated(r) || changed;
    if (!changed) return true;
  }
}

std::vector<int> expand(const Reduced& r, const std::vector<int>& live) {
  std::vector<int> choices(r.state.size(), -1);
  for (size_t i = 0; i < r.state.size(); ++i) {
    if (r.state[i] == Reduced::State::kLive) choices[i] = r.original[i][live[i]];
    if (r.state[i] == Reduced::State::kFixed) choices[i] = r.original[i][0];
  }
  for (auto fold = r.folds.rbegin(); fold != r.folds.rend(); ++fold) {
    size_t at = 0;
    if (fold->a >= 0) at = static_cast<size_t>(choices[fold->a]);
    if (fold->b >= 0) at = at * fold->width + choices[fold->b];
    choices[fold->node] = fold->best[at];
  }
  return choices;
}

}  // namespace cad::planner::solver
