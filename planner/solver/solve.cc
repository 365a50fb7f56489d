// planner/solver/solve.cc -- solve(): reduces, runs the engine, and says truthfully how it ended.
// For a budget that is too small it looks for the least one that is not.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "planner/solver/engine.h"
#include "planner/solver/solver.h"

namespace cad::planner::solver {
namespace {

bool all_whole(const Problem& problem) {
  const auto whole = [](double cost) { return cost == kForbidden || cost == std::floor(cost); };
  for (const Node& node : problem.nodes)
    if (!std::all_of(node.cost.begin(), node.cost.end(), whole)) return false;
  for (const Edge& edge : problem.edges)
    if (!std::all_of(edge.cost.begin(), edge.cost.end(), whole)) return false;
  return true;
}

EngineResult run(const Problem& problem, const Rules& rules, double gap) {
  Reduced reduced = make_reduced(problem);
  if (!reduce(reduced)) {
    EngineResult result;
    result.end = EngineResult::End::kProven;
    return result;
  }
  return run_engine(reduced, rules, gap);
}

// The same choices are allowed, all for nothing: whether any fits.
Problem without_costs(const Problem& problem) {
  Problem free = problem;
  const auto clear = [](std::vector<double>& costs) {
    for (double& cost : costs) cost = cost == kForbidden ? kForbidden : 0;
  };
  for (Node& node : free.nodes) clear(node.cost);
  for (Edge& edge : free.edges) clear(edge.cost);
  return free;
}

int64_t least_use(const Problem& problem) {
  Problem lightest = problem;
  for (Node& node : lightest.nodes) {
    for (Life& life : node.lives) {
      const auto least = life.use.empty() ? 0 : *std::min_element(life.use.begin(), life.use.end());
      life.use.assign(life.use.size(), least);
    }
    for (double& cost : node.cost) cost = 0;
    if (node.cost.empty()) return 0;
  }
  lightest.edges.clear();
  return check(lightest, std::vector<int>(problem.nodes.size(), 0)).peak;
}

// Bisects between what is proven too small and what is known to do.
void find_least_budget(const Problem& problem, const Rules& rules, Solution& solution) {
  Problem free = without_costs(problem);
  Rules whole = rules;
  whole.whole = true;
  int64_t low = solution.status == SolveStatus::kInfeasible ? *problem.budget + 1 : 0;
  low = std::max(low, least_use(problem));
  solution.least_budget_bound = low;
  free.budget.reset();
  if (rules.out_of_time()) return;
  const EngineResult any = run(free, whole, 0);
  if (any.best.choices.empty()) {
    solution.no_budget_helps = any.end == EngineResult::End::kProven;
    return;
  }
  int64_t high = check(problem, any.best.choices).peak;
  bool proven = true;  // nothing fits below `low`; else it is a guess
  while (low < high && !rules.out_of_time()) {
    free.budget = low + (high - low) / 2;
    const EngineResult result = run(free, whole, 0);
    if (!result.best.choices.empty()) {
      high = std::min(high, check(problem, result.best.choices).peak);
    } else {
      low = *free.budget + 1;
      proven = proven && result.end == EngineResult::End::kProven;
    }
    if (proven) solution.least_budget_bound = low;
  }
  solution.least_budget = high;
}

// What is given is checked, and the gap said truthfully.
void take(const Problem& problem, std::vector<int> choices, double bound, Solution& solution) {
  const Checked checked = check(problem, choices);
  CAD_CHECK(checked.fits, "a choice of cost {} and peak {} does not fit", checked.cost,
            checked.peak);
  solution.choices = std::move(choices);
  solution.cost = checked.cost;
  solution.bound = std::min(bound, checked.cost);
  const double room = solution.cost - solution.bound;
  solution.gap = room <= 0 ? 0 : room / std::max(std::abs(solution.cost), 1e-300);
}

void finish(const Problem& problem, const Options& options, EngineResult& result,
            Solution& solution) {
  solution.columns = result.mip.columns;
  solution.rows = result.mip.rows;
  const bool proven = result.end == EngineResult::End::kProven;
  if (result.best.choices.empty()) {
    solution.status = proven ? SolveStatus::kInfeasible : SolveStatus::kTimeLimitNoPlan;
    solution.bound = proven ? kForbidden : result.bound;
    if (proven || !options.simple) return;
    std::vector<int> simple = simple_choices(problem);
    if (simple.empty()) return;
    take(problem, std::move(simple), result.bound, solution);
    solution.status = solution.gap == 0             ? SolveStatus::kOptimal
                      : solution.gap <= options.gap ? SolveStatus::kWithinGap
                                                    : SolveStatus::kTimeLimitSimple;
    return;
  }
  take(problem, std::move(result.best.choices), proven ? kForbidden : result.bound, solution);
  solution.status = proven                        ? SolveStatus::kOptimal
                    : solution.gap <= options.gap ? SolveStatus::kWithinGap
                                                  : SolveStatus::kTimeLimit;
}

}  // namespace

Solution solve(const Problem& problem, const Options& options) {
  const double start = clock_s();
  Rules rules;
  // a little is left for checking and printing the answer, on a busy machine too
  rules.deadline = start + options.time_s - 0.01 * options.time_s;
  rules.whole = all_whole(problem);
  Solution solution;
  EngineResult result = run(problem, rules, options.gap);
  finish(problem, options, result, solution);
  if (solution.choices.empty() && !problem.nodes.empty() && problem.budget)
    find_least_budget(problem, rules, solution);
  if (problem.nodes.empty()) {
    solution.status = SolveStatus::kOptimal;
    solution.cost = solution.bound = solution.gap = 0;
  }
  solution.wall_s = clock_s() - start;
  return solution;
}

}  // namespace cad::planner::solver
