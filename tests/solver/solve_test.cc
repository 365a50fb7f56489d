// tests/solver/solve_test.cc -- solve() against trying everything, its statuses, and that runs
// agree.
#include <chrono>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/solver/solver_testing.h"

namespace cad::planner::solver {
namespace {

void expect_matches(const Problem& problem, const Exhaustive& expected, uint64_t seed) {
  const Solution solution = solve(problem, {});
  SCOPED_TRACE(seed);
  if (expected.cost == kForbidden) {
    EXPECT_EQ(solution.status, SolveStatus::kInfeasible);
    EXPECT_TRUE(solution.choices.empty());
    EXPECT_EQ(solution.least_budget.has_value(), expected.least_peak >= 0 && problem.budget);
    if (solution.least_budget) {
      EXPECT_EQ(*solution.least_budget, expected.least_peak);
      EXPECT_EQ(solution.least_budget_bound, expected.least_peak);
    }
    return;
  }
  ASSERT_EQ(solution.status, SolveStatus::kOptimal);
  EXPECT_NEAR(solution.cost, expected.cost, 1e-9 * std::abs(expected.cost));
  EXPECT_EQ(solution.bound, solution.cost);
  EXPECT_NEAR(plain_cost(problem, solution.choices), solution.cost, 1e-12 * solution.cost);
  if (problem.budget) {
    EXPECT_LE(plain_peak(problem, solution.choices), *problem.budget);
  }
}

TEST(Solve, EqualsExhaustiveSearchOnWholeCosts) {
  int feasible = 0, infeasible = 0, tight = 0;
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    const Problem problem = random_problem(seed);
    const Exhaustive expected = try_all(problem);
    ++(expected.cost < kForbidden ? feasible : infeasible);
    tight += expected.cost < kForbidden && expected.cost > expected.unlimited;
    expect_matches(problem, expected, seed);
  }
  // the cases are of every kind
  EXPECT_GT(feasible, 200);
  EXPECT_GT(infeasible, 100);
  EXPECT_GT(tight, 40);
}

TEST(Solve, EqualsExhaustiveSearchOnFractions) {
  Shape shape;
  shape.whole = false;
  shape.forbidden = 0.05;
  for (uint64_t seed = 1000; seed < 1300; ++seed) {
    const Problem problem = random_problem(seed, shape);
    expect_matches(problem, try_all(problem), seed);
  }
}

TEST(Solve, BudgetsFromTooSmallToAmple) {
  Shape shape;
  shape.forbidden = 0;
  for (uint64_t seed = 2000; seed < 2020; ++seed) {
    Problem problem = random_problem(seed, shape);
    problem.budget.reset();
    const int64_t least = try_all(problem).least_peak;
    double before = kForbidden;
    for (const int64_t more : {-1, 0, 10, 50, 100, 400}) {
      if (least + more < 0) continue;
      problem.budget = least + more;
      const Exhaustive expected = try_all(problem);
      expect_matches(problem, expected, seed);
      EXPECT_LE(expected.cost, before);
      before = expected.cost;
    }
  }
}

// A grid of nodes with memory: too large for exhaustive search, too knotted to fold.
Problem grid(int side, int choices, uint64_t seed) {
  std::mt19937_64 random(seed);
  Problem problem;
  problem.nodes.resize(static_cast<size_t>(side) * side);
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    Node& node = problem.nodes[i];
    Life life{static_cast<int64_t>(i), static_cast<int64_t>(i) + 2 * side, {}};
    for (int k = 0; k < choices; ++k) {
      const auto use = static_cast<int64_t>(random() % 100);
      node.cost.push_back(static_cast<double>(100 - use + static_cast<int64_t>(random() % 20)));
      life.use.push_back(use);
    }
    node.lives.push_back(life);
  }
  const auto join = [&](int a, int b) {
    Edge edge{a, b, {}};
    for (int c = 0; c < choices * choices; ++c)
      edge.cost.push_back(static_cast<double>(random() % 50));
    problem.edges.push_back(edge);
  };
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) {
      if (x + 1 < side) join(y * side + x, y * side + x + 1);
      if (y + 1 < side) join(y * side + x, y * side + side + x);
    }
  }
  problem.budget = 60 * side;
  return problem;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(Solve, TimeLimitIsAStatusOfItsOwn) {
  const Problem hard = grid(25, 8, 1);
  Options options;
  options.time_s = 0.01;
  const auto start = std::chrono::steady_clock::now();
  const Solution solution = solve(hard, options);
  EXPECT_LT(seconds_since(start), 1.0);
  EXPECT_NE(solution.status, SolveStatus::kOptimal);
  EXPECT_NE(solution.status, SolveStatus::kInfeasible);
  EXPECT_EQ(solution.choices.empty(), solution.status == SolveStatus::kTimeLimitNoPlan);
  const Problem smaller = grid(14, 6, 1);
  options.time_s = 3;
  const Solution longer = solve(smaller, options);
  ASSERT_EQ(longer.status, SolveStatus::kTimeLimit);
  EXPECT_LT(longer.bound, longer.cost);
  EXPECT_GT(longer.gap, 0);
  EXPECT_NEAR(longer.gap, (longer.cost - longer.bound) / longer.cost, 1e-12);
  EXPECT_TRUE(check(smaller, longer.choices).fits);
}

TEST(Solve, StopsWithinTheGap) {
  Options options;
  options.gap = 0.5;
  options.time_s = 20;
  const Solution solution = solve(grid(12, 6, 2), options);
  EXPECT_TRUE(solution.status == SolveStatus::kWithinGap ||
              solution.status == SolveStatus::kOptimal);
  EXPECT_LE(solution.gap, 0.5);
}

TEST(Solve, RunsAgree) {
  const Problem problem = grid(4, 5, 3);
  const Solution first = solve(problem, {}), second = solve(problem, {});
  EXPECT_EQ(first.status, SolveStatus::kOptimal);
  EXPECT_EQ(first.choices, second.choices);
}

TEST(Solve, NothingToChoose) {
  Problem problem;
  EXPECT_EQ(solve(problem, {}).status, SolveStatus::kOptimal);
  problem.nodes.resize(1);  // a node without choices
  EXPECT_EQ(solve(problem, {}).status, SolveStatus::kInfeasible);
  problem.nodes[0].cost = {3};
  problem.nodes[0].lives = {{0, 5, {8}}};
  problem.budget = 8;
  const Solution fits = solve(problem, {});
  EXPECT_EQ(fits.status, SolveStatus::kOptimal);
  EXPECT_EQ(fits.cost, 3);
  problem.budget = 7;
  const Solution not_quite = solve(problem, {});
  EXPECT_EQ(not_quite.status, SolveStatus::kInfeasible);
  EXPECT_EQ(not_quite.least_budget, 8);
  EXPECT_EQ(not_quite.least_budget_bound, 8);
}

TEST(Solve, SumsOfLargeWholeNumbersAreExact) {
  Problem problem;
  problem.nodes = {{{4503599627370497.0, 4503599627370498.0}, {}}, {{1, 2}, {}}};
  problem.edges = {{0, 1, {kForbidden, 7, 5, kForbidden}}};
  const Solution solution = solve(problem, {});
  EXPECT_EQ(solution.status, SolveStatus::kOptimal);
  EXPECT_EQ(solution.cost, 4503599627370504.0);  // 2^52 + 2 + 5 + 1, not one off
}

}  // namespace
}  // namespace cad::planner::solver
