// planner/solver/simple.cc -- a choice without a search, for when time is over before there is one:
// node by node the cheapest beside what was chosen before, or the lightest. No bound, no promise
// that it fits: check() judges it.
#include <algorithm>
#include <utility>

#include "planner/solver/solver.h"

namespace cad::planner::solver {
namespace {

enum class By { kCost, kUse };

// Edges by the later one of their nodes.
std::vector<std::vector<const Edge*>> edges_back(const Problem& problem) {
  std::vector<std::vector<const Edge*>> out(problem.nodes.size());
  for (const Edge& edge : problem.edges) out[std::max(edge.a, edge.b)].push_back(&edge);
  return out;
}

// Of node i's choice k, with its pairs to the nodes before.
double cost_beside(const Problem& problem, const std::vector<const Edge*>& edges,
                   const std::vector<int>& choices, size_t i, size_t k) {
  double cost = problem.nodes[i].cost[k];
  for (const Edge* edge : edges) {
    const auto side = [&](int node) {
      return static_cast<size_t>(node) == i
                 ? k
                 : static_cast<size_t>(choices[static_cast<size_t>(node)]);
    };
    const size_t width = problem.nodes[static_cast<size_t>(edge->b)].cost.size();
    cost += edge->cost[side(edge->a) * width + side(edge->b)];
  }
  return cost;
}

// Empty: a node had no choice left that is allowed.
std::vector<int> greedy(const Problem& problem, By by) {
  const auto edges = edges_back(problem);
  std::vector<int> choices(problem.nodes.size(), -1);
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node& node = problem.nodes[i];
    std::pair<double, double> best{kForbidden, kForbidden};
    for (size_t k = 0; k < node.cost.size(); ++k) {
      const double cost = cost_beside(problem, edges[i], choices, i, k);
      if (!(cost < kForbidden)) continue;
      double use = 0;
      for (const Life& life : node.lives) {
        if (life.from < life.to) use += static_cast<double>(life.use[k]);
      }
      const std::pair<double, double> here =
          by == By::kCost ? std::pair(cost, use) : std::pair(use, cost);
      if (choices[i] >= 0 && !(here < best)) continue;
      best = here;
      choices[i] = static_cast<int>(k);
    }
    if (choices[i] < 0) return {};
  }
  return choices;
}

}  // namespace

std::vector<int> simple_choices(const Problem& problem) {
  std::vector<int> best;
  double least = kForbidden;
  for (const By by : {By::kCost, By::kUse}) {
    std::vector<int> choices = greedy(problem, by);
    if (choices.empty()) continue;
    const Checked checked = check(problem, choices);
    if (!checked.fits || !(checked.cost < least)) continue;
    least = checked.cost;
    best = std::move(choices);
  }
  return best;
}

}  // namespace cad::planner::solver
