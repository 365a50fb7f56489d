// planner/solver/check.cc -- cost and memory of a choice, from the definition. It is the judge of
// the solver's answers, so it shares nothing with it: no reduced problem, no rows, no prices.
#include <algorithm>
#include <map>

#include "base/check.h"
#include "planner/solver/solver.h"

namespace cad::planner::solver {

Checked check(const Problem& problem, const std::vector<int>& choices) {
  CAD_CHECK(choices.size() == problem.nodes.size(), "{} choices for {} nodes", choices.size(),
            problem.nodes.size());
  Checked result;
  long double cost = 0;  // 64 bits of mantissa: sums of whole numbers up to 2^63 are exact
  std::map<int64_t, __int128> change;
  for (size_t i = 0; i < choices.size(); ++i) {
    const Node& node = problem.nodes[i];
    const auto k = static_cast<size_t>(choices[i]);
    CAD_CHECK(k < node.cost.size(), "node {} has no choice {}", i, choices[i]);
    cost += node.cost[k];
    for (const Life& life : node.lives) {
      if (life.from >= life.to) continue;
      change[life.from] += life.use[k];
      change[life.to] -= life.use[k];
    }
  }
  for (const Edge& edge : problem.edges) {
    const size_t width = problem.nodes[edge.b].cost.size();
    cost += edge.cost[choices[edge.a] * width + choices[edge.b]];
  }
  __int128 now = 0;
  for (const auto& [time, difference] : change) {
    now += difference;
    result.times.push_back(time);
    result.in_use.push_back(static_cast<int64_t>(now));
    result.peak = std::max(result.peak, static_cast<int64_t>(now));
  }
  result.cost = static_cast<double>(cost);
  result.fits = result.cost < kForbidden && (!problem.budget || result.peak <= *problem.budget);
  return result;
}

}  // namespace cad::planner::solver
