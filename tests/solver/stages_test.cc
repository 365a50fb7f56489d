// tests/solver/stages_test.cc -- each stage alone, against trying everything: folding keeps the
// optimum, every sweep's bound is below it, fixing keeps it, the program has it.
#include <cmath>

#include <gtest/gtest.h>

#include "planner/solver/dive.h"
#include "planner/solver/mip.h"
#include "planner/solver/neighbourhood.h"
#include "tests/solver/solver_testing.h"

namespace cad::planner::solver {
namespace {

Rules whole_rules() {
  Rules rules;
  rules.deadline = clock_s() + 600;
  rules.whole = true;
  return rules;
}

// The optimum of the live part, by trying everything.
double live_optimum(const Reduced& reduced, std::vector<int>* best = nullptr) {
  const Flat flat = flatten(reduced);
  std::vector<int> choices(flat.nodes(), 0);
  double least = kForbidden;
  for (;;) {
    const std::vector<int64_t> over = over_use(flat, choices);
    const double cost = cost_of(flat, choices);
    if (cost < least && std::all_of(over.begin(), over.end(), [](int64_t o) { return o <= 0; })) {
      least = cost;
      if (best) *best = expand(reduced, to_live(flat, reduced, choices));
    }
    int i = 0;
    while (i < flat.nodes() && ++choices[i] == flat.choices(i)) choices[i++] = 0;
    if (i == flat.nodes()) return least;
  }
}

TEST(Reduce, KeepsTheOptimumAndItsChoices) {
  size_t before = 0, after = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    const Problem problem = random_problem(seed);
    const Exhaustive expected = try_all(problem);
    Reduced reduced = make_reduced(problem);
    before += reduced.columns();
    if (!reduce(reduced)) {
      EXPECT_EQ(expected.cost, kForbidden);
      continue;
    }
    after += reduced.columns();
    std::vector<int> choices;
    ASSERT_EQ(live_optimum(reduced, &choices), expected.cost);
    if (expected.cost == kForbidden) continue;
    EXPECT_EQ(plain_cost(problem, choices), expected.cost);
  }
  EXPECT_LT(after * 3, before);
}

TEST(Reduce, AChainAndATriangleFoldAway) {
  Shape shape;
  shape.memory = false;
  shape.forbidden = 0;
  int folded = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Problem problem = random_problem(seed, shape);
    std::erase_if(problem.edges, [](const Edge& e) { return std::abs(e.a - e.b) > 1; });
    const size_t choices = problem.nodes[0].cost.size();
    if (problem.nodes.size() > 2)  // one more edge: the ends of the first three meet
      problem.edges.push_back(
          {0, 2, std::vector<double>(choices * problem.nodes[2].cost.size(), 1.0)});
    Reduced reduced = make_reduced(problem);
    ASSERT_TRUE(reduce(reduced));
    EXPECT_EQ(reduced.live_nodes(), 0u);
    EXPECT_EQ(reduced.constant, try_all(problem).cost);
    ++folded;
  }
  EXPECT_EQ(folded, 100);
}

TEST(Reduce, OnlyTimesThatCount) {
  Problem problem;
  // lives [0,4) [1,3) [2,6) [5,8): times 2 and 5 imply the others
  for (const auto& [from, to] : std::vector<std::pair<int, int>>{{0, 4}, {1, 3}, {2, 6}, {5, 8}})
    problem.nodes.push_back({{0, 9}, {{from, to, {10, 1}}}});
  problem.budget = 12;
  Reduced reduced = make_reduced(problem);
  ASSERT_TRUE(reduce(reduced));
  EXPECT_EQ(reduced.times, (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(reduced.slack, (std::vector<int64_t>{9, 10}));  // less the least use of each life
  problem.budget = 40;                                      // everything fits at once
  Reduced ample = make_reduced(problem);
  ASSERT_TRUE(reduce(ample));
  EXPECT_TRUE(ample.times.empty());
  EXPECT_EQ(ample.live_nodes(), 0u);
}

TEST(Dual, BoundsFromBelowAtAnyPricesAndFixesOnlyWhatItMay) {
  int fixed = 0, equal = 0, compared = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    const Problem problem = random_problem(seed, knotted());
    const Exhaustive expected = try_all(problem);
    if (expected.cost == kForbidden) continue;
    Reduced reduced = make_reduced(problem);
    ASSERT_TRUE(reduce(reduced));
    if (reduced.live_nodes() == 0) continue;
    const Flat flat = flatten(reduced);
    Dual dual(flat);
    std::mt19937_64 random(seed);
    double highest = -kForbidden;
    for (int round = 0; round < 6; ++round) {
      double before = -kForbidden;
      for (int sweep = 0; sweep < 8; ++sweep) {
        const double bound = dual.sweep(sweep % 2 == 0);
        EXPECT_LE(bound, expected.cost + 1e-9);
        EXPECT_GE(bound, before - 1e-9);  // sweeps at one price never lose
        before = bound;
      }
      highest = std::max(highest, before);
      dual.sweep(true);
      size_t count = 0;
      const std::vector<char> mark = dual.hopeless(false, expected.cost + 1e-6, count);
      Reduced without = reduced;
      for (int i = 0; i < flat.nodes(); ++i)
        for (int k = 0; k < flat.choices(i); ++k)
          if (mark[flat.first[i] + k]) without.unary[flat.node_of[i]][k] = kForbidden;
      ASSERT_TRUE(reduce(without));
      EXPECT_EQ(live_optimum(without), expected.cost);
      fixed += static_cast<int>(count);
      std::vector<double> prices(flat.rows());
      for (double& price : prices) price = static_cast<double>(random() % 100) / 100.0;
      dual.set_prices(prices);
    }
    ++compared;
    equal += highest > expected.cost - 1e-6;
  }
  EXPECT_GT(compared, 50);
  EXPECT_GT(fixed, 100);
  EXPECT_GT(equal, 0);
}

TEST(Dual, TermsAreNotNegativeAndAddUpToTheCost) {
  int looked = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Reduced reduced = make_reduced(random_problem(seed, knotted()));
    if (!reduce(reduced) || reduced.live_nodes() == 0) continue;
    const Flat flat = flatten(reduced);
    Dual dual(flat);
    dual.set_prices(std::vector<double>(flat.rows(), 0.25));
    for (int sweep = 0; sweep < 3; ++sweep) dual.sweep(sweep % 2 == 0);
    const Dual::Terms terms = dual.terms();
    for (const double term : terms.node) EXPECT_GE(term, -1e-9);
    for (const auto& pair : terms.pair)
      for (const double term : pair) EXPECT_GE(term, -1e-9);
    std::vector<int> choices(flat.nodes());
    std::mt19937_64 random(seed);
    for (int i = 0; i < flat.nodes(); ++i)
      choices[i] = static_cast<int>(random() % static_cast<uint64_t>(flat.choices(i)));
    double sum = dual.bound();
    for (int i = 0; i < flat.nodes(); ++i) sum += terms.node[flat.first[i] + choices[i]];
    for (size_t e = 0; e < flat.edges.size(); ++e)
      sum += terms.pair[e][choices[flat.edges[e].a] * flat.edges[e].kb + choices[flat.edges[e].b]];
    for (const int64_t over : over_use(flat, choices)) sum -= 0.25 * static_cast<double>(over);
    const double cost = cost_of(flat, choices);
    if (cost < kForbidden) {
      EXPECT_NEAR(sum, cost, 1e-6);
    }
    ++looked;
  }
  EXPECT_GT(looked, 10);
}

TEST(Dive, EndsInASolutionThatFits) {
  int found = 0, optimal = 0, tried = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const Problem problem = random_problem(seed, knotted());
    const Exhaustive expected = try_all(problem);
    Reduced reduced = make_reduced(problem);
    if (expected.cost == kForbidden || !reduce(reduced) || reduced.live_nodes() == 0) continue;
    ++tried;
    Ascent ascent(reduced, whole_rules());
    Best best;
    ascent.run(20, best);
    best = {};
    dive(reduced, ascent, whole_rules(), {}, best);
    if (best.choices.empty()) continue;
    ++found;
    EXPECT_TRUE(check(problem, best.choices).fits);
    EXPECT_EQ(plain_cost(problem, best.choices), best.cost);
    EXPECT_GE(best.cost, expected.cost);
    optimal += best.cost == expected.cost;
  }
  EXPECT_GT(found * 10, tried * 8);
  EXPECT_GT(optimal * 2, tried);
}

TEST(Mip, HasTheOptimumOfTheRest) {
  int solved = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const Problem problem = random_problem(seed, knotted());
    const Exhaustive expected = try_all(problem);
    Reduced reduced = make_reduced(problem);
    if (!reduce(reduced) || reduced.live_nodes() == 0) continue;
    Ascent ascent(reduced, whole_rules());
    Best best;
    MipStats stats;
    EXPECT_TRUE(solve_mip(reduced, ascent, whole_rules(), {}, best, stats));
    EXPECT_EQ(best.cost, expected.cost);
    ++solved;
    if (best.choices.empty()) continue;
    EXPECT_TRUE(check(problem, best.choices).fits);
    // with the optimum known there is nothing below it
    Best again = best;
    EXPECT_TRUE(solve_mip(reduced, ascent, whole_rules(), {}, again, stats));
    EXPECT_EQ(again.cost, expected.cost);
    again.cost += 1;
    EXPECT_TRUE(solve_mip(reduced, ascent, whole_rules(), {}, again, stats));
    EXPECT_EQ(again.cost, expected.cost);
  }
  EXPECT_GT(solved, 20);
}

TEST(Neighbourhood, IsTheProblemWithTheOthersFixed) {
  int looked = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const Problem problem = random_problem(seed, knotted());
    const Exhaustive expected = try_all(problem);
    if (expected.cost == kForbidden) continue;
    Reduced reduced = make_reduced(problem);
    ASSERT_TRUE(reduce(reduced));
    const Flat flat = flatten(reduced);
    if (flat.nodes() < 2) continue;
    // around a solution that fits, free every second node: compare with trying them
    std::vector<int> best;
    live_optimum(reduced, &best);
    std::vector<int> current(flat.nodes()), free;
    for (int i = 0; i < flat.nodes(); ++i) {
      const auto& original = reduced.original[flat.node_of[i]];
      current[i] = static_cast<int>(
          std::find(original.begin(), original.end(), best[flat.node_of[i]]) - original.begin());
      if (i % 2 == 0) free.push_back(i);
    }
    const std::vector<char> all(flat.unary.size(), 1);
    Reduced cut = extract(flat, current, all, free);
    const double here = local_cost(flat, current, free);
    ASSERT_TRUE(reduce(cut));
    EXPECT_EQ(live_optimum(cut), here);  // the current choices are optimal: nothing is better
    ++looked;
  }
  EXPECT_GT(looked, 20);
}

}  // namespace
}  // namespace cad::planner::solver
