// tests/planner/fold_test.cc -- folding against trying everything, on random graphs of up to five
// nodes, series-parallel or not, with forbidden pairs, parallel edges and kept nodes; and larger
// ones that do not fold, whose bounds and choices must be true.
#include "planner/fold.h"

#include <random>

#include <gtest/gtest.h>

#include "planner/fold_core.h"

namespace cad::planner {
namespace {

void add_node(std::mt19937& random, FoldProblem& p, size_t choices) {
  p.nodes.emplace_back();
  for (size_t c = 0; c < choices; ++c) p.nodes.back().push_back(static_cast<float>(random() % 50));
}

void add_edge(std::mt19937& random, FoldProblem& p, size_t a, size_t b) {
  FoldEdge edge;
  edge.a = static_cast<int>(a);
  edge.b = static_cast<int>(b);
  const int rows = 1 + static_cast<int>(random() % 3), columns = 1 + static_cast<int>(random() % 3);
  edge.cost = Table(rows, columns, 0);
  for (float& x : edge.cost.at) x = random() % 8 == 0 ? kNever : static_cast<float>(random() % 50);
  for (size_t c = 0; c < p.nodes[a].size(); ++c)
    edge.class_a.push_back(static_cast<int32_t>(random() % static_cast<size_t>(rows)));
  for (size_t c = 0; c < p.nodes[b].size(); ++c)
    edge.class_b.push_back(static_cast<int32_t>(random() % static_cast<size_t>(columns)));
  p.edges.push_back(std::move(edge));
}

FoldProblem random_problem(std::mt19937& random, size_t nodes, size_t most_edges) {
  FoldProblem p;
  for (size_t n = 0; n < nodes; ++n) add_node(random, p, 1 + random() % 3);
  if (nodes < 2) return p;
  const size_t edges = random() % (most_edges + 1);
  for (size_t e = 0; e < edges; ++e) {
    const size_t a = random() % nodes, b = random() % nodes;
    if (a != b) add_edge(random, p, a, b);
  }
  return p;
}

// Everyone joined to everyone else.
FoldProblem complete(std::mt19937& random, const std::vector<size_t>& choices) {
  FoldProblem p;
  for (const size_t count : choices) add_node(random, p, count);
  for (size_t a = 0; a < choices.size(); ++a) {
    for (size_t b = a + 1; b < choices.size(); ++b) add_edge(random, p, a, b);
  }
  return p;
}

float cost_of(const FoldProblem& p, const std::vector<int>& choices) {
  float sum = 0;
  for (size_t n = 0; n < p.nodes.size(); ++n) sum += p.nodes[n][static_cast<size_t>(choices[n])];
  for (const FoldEdge& e : p.edges) {
    sum += e.cost(e.class_a[static_cast<size_t>(choices[static_cast<size_t>(e.a)])],
                  e.class_b[static_cast<size_t>(choices[static_cast<size_t>(e.b)])]);
  }
  return sum;
}

// Least cost with the kept nodes' choices given.
float counted(const FoldProblem& p, std::vector<int> choices, size_t node,
              const std::vector<int>& kept) {
  if (node == p.nodes.size()) return cost_of(p, choices);
  for (const int k : kept) {
    if (static_cast<size_t>(k) == node) return counted(p, choices, node + 1, kept);
  }
  float least = kNever;
  for (size_t c = 0; c < p.nodes[node].size(); ++c) {
    choices[node] = static_cast<int>(c);
    least = std::min(least, counted(p, choices, node + 1, kept));
  }
  return least;
}

// With the first `keep` nodes kept. Two branches are enough for five nodes that all meet.
void expect_exact(const FoldProblem& p, size_t keep) {
  std::vector<int> kept;
  for (size_t k = 0; k < std::min(keep, p.nodes.size()); ++k) kept.push_back(static_cast<int>(k));
  const Folded folded(p, kept);
  ASSERT_TRUE(folded.exact());
  const int rows = kept.size() == 2 ? static_cast<int>(p.nodes[0].size()) : 1;
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < folded.result().columns; ++c) {
      std::vector<int> choices(p.nodes.size(), 0), fixed;
      if (kept.size() == 2) fixed = {r, c};
      if (kept.size() == 1) fixed = {c};
      for (size_t k = 0; k < fixed.size(); ++k) choices[k] = fixed[k];
      const float want = counted(p, choices, 0, kept);
      EXPECT_EQ(folded.result()(r, c), want);
      if (want != kNever) {
        EXPECT_EQ(cost_of(p, folded.choices(fixed)), want);
      }
    }
  }
}

TEST(Fold, EqualsTryingEverything) {
  std::mt19937 random(11);
  for (int i = 0; i < 500; ++i) {
    const size_t nodes = 1 + random() % 5;
    const FoldProblem p = random_problem(random, nodes, 2 * nodes);
    SCOPED_TRACE(i);
    expect_exact(p, random() % 3);
  }
}

// Beside a part that needs branches there are nodes that meet nothing of it.
TEST(Fold, PartsThatDoNotMeet) {
  std::mt19937 random(14);
  for (int i = 0; i < 100; ++i) {
    FoldProblem p = complete(random, {2, 2, 3, 3, 2});
    add_node(random, p, 2);
    if (i % 2 == 0) {
      add_node(random, p, 2);
      add_edge(random, p, 5, 6);
    }
    SCOPED_TRACE(i);
    expect_exact(p, static_cast<size_t>(i % 3));
  }
}

// What does not fold, with two nodes that must choose alike although their choices look alike to
// all others.
TEST(FoldCore, NodesThatChooseAlike) {
  std::mt19937 random(15);
  int none = 0, best = 0;
  for (int i = 0; i < 100; ++i) {
    const FoldProblem p = complete(random, {5, 5, 2, 3, 2, 2});
    float least = kNever;
    for (int c = 0; c < 5; ++c) least = std::min(least, counted(p, {c, c, 0, 0, 0, 0}, 0, {0, 1}));
    const Core core = solve_core(p, std::vector<char>(6, 0), {0, 1});
    ASSERT_EQ(core.feasible, least != kNever) << i;
    none += core.feasible ? 0 : 1;
    if (!core.feasible) continue;
    EXPECT_EQ(core.choices[0], core.choices[1]) << i;
    const float cost = cost_of(p, core.choices);
    EXPECT_GE(cost, least) << i;
    EXPECT_LE(core.bound, static_cast<double>(least) * (1 + 1e-6)) << i;
    best += cost == least ? 1 : 0;
  }
  EXPECT_GE(none, 5);
  EXPECT_GE(best, 95 - none);
}

// Complete graphs of nine nodes: two branches leave seven that do not fold.
TEST(Fold, BoundsWhatDoesNotFold) {
  std::mt19937 random(12);
  int inexact = 0, met = 0, lost = 0;
  for (int i = 0; i < 60; ++i) {
    const FoldProblem p = random_problem(random, 9, 90);
    std::vector<int> kept;
    if (i % 2 == 1) kept = {0, 1};
    const Folded folded(p, kept);
    const Table &result = folded.result(), &bound = folded.bound();
    ASSERT_EQ(result.at.size(), bound.at.size());
    inexact += folded.exact() ? 0 : 1;
    for (int r = 0; r < result.rows; ++r) {
      for (int c = 0; c < result.columns; ++c) {
        std::vector<int> choices(p.nodes.size(), 0), fixed;
        if (!kept.empty()) fixed = {r, c};
        for (size_t k = 0; k < fixed.size(); ++k) choices[k] = fixed[k];
        const float want = counted(p, choices, 0, kept);
        EXPECT_LE(bound(r, c), want * (1 + 1e-5F)) << i;
        EXPECT_GE(result(r, c), want) << i;
        (result(r, c) == want ? met : lost) += 1;
        if (result(r, c) != kNever) {
          EXPECT_EQ(cost_of(p, folded.choices(fixed)), result(r, c)) << i;
        }
      }
    }
  }
  EXPECT_GT(inexact, 10);
  EXPECT_GT(met, lost);
}

// Choices that all others see alike are one, whatever there are of them: what the cheapest of them
// leave is solved, with as much work and to the same end.
TEST(FoldCore, ChoicesThatLookAlikeAreOne) {
  constexpr size_t kNodes = 16, kChoices = 8, kCopies = 30;
  std::mt19937 random(16);
  FoldProblem plain;
  for (size_t n = 0; n < kNodes; ++n) add_node(random, plain, kChoices);
  for (size_t a = 0; a < kNodes; ++a) {
    for (size_t b = a + 1; b < kNodes; ++b) {
      FoldEdge edge{static_cast<int>(a), static_cast<int>(b), {}, {}, Table(kChoices, kChoices, 0)};
      for (float& x : edge.cost.at) x = static_cast<float>(random() % 50);
      for (int32_t c = 0; c < static_cast<int32_t>(kChoices); ++c) edge.class_a.push_back(c);
      edge.class_b = edge.class_a;
      plain.edges.push_back(std::move(edge));
    }
  }
  FoldProblem copied = plain;
  for (std::vector<float>& node : copied.nodes) {
    for (size_t c = 0; c < kChoices * kCopies; ++c) node.push_back(node[c % kChoices] + 1);
  }
  for (FoldEdge& edge : copied.edges) {
    for (std::vector<int32_t>* classes : {&edge.class_a, &edge.class_b}) {
      for (size_t c = 0; c < kChoices * kCopies; ++c) classes->push_back((*classes)[c % kChoices]);
    }
  }
  const std::vector<char> none(kNodes, 0);
  const Core once = solve_core(plain, none, {}), many = solve_core(copied, none, {});
  ASSERT_TRUE(once.feasible);
  EXPECT_EQ(many.choices, once.choices);
  EXPECT_EQ(many.bound, once.bound);
  EXPECT_LT(once.bound, static_cast<double>(cost_of(plain, once.choices)));  // work ended it
}

// Thirty nodes of twenty choices, everyone joined to six others: no table is ever made of it, and
// the same problem ends in the same choices.
TEST(Fold, TakesNoLongerThanItsWork) {
  std::mt19937 random(13);
  FoldProblem p;
  for (int n = 0; n < 30; ++n) {
    p.nodes.emplace_back();
    for (int c = 0; c < 20; ++c) p.nodes.back().push_back(static_cast<float>(random() % 50));
  }
  for (int a = 0; a < 30; ++a) {
    for (int step = 1; step <= 3; ++step) {
      FoldEdge edge;
      edge.a = a;
      edge.b = (a + step) % 30;
      edge.cost = Table(20, 20, 0);
      for (float& x : edge.cost.at) x = static_cast<float>(random() % 50);
      for (int c = 0; c < 20; ++c) edge.class_a.push_back(c);
      edge.class_b = edge.class_a;
      p.edges.push_back(std::move(edge));
    }
  }
  const Folded folded(p, {}), again(p, {});
  EXPECT_GT(folded.bound().at[0], 0);
  EXPECT_LE(folded.bound().at[0], folded.result().at[0]);
  EXPECT_EQ(cost_of(p, folded.choices({})), folded.result().at[0]);
  EXPECT_EQ(folded.choices({}), again.choices({}));
}

TEST(Fold, MinPlusProduct) {
  Table a(2, 2, 0), b(2, 3, kNever);
  a(0, 0) = 1;
  a(0, 1) = 5;
  a(1, 0) = kNever;
  a(1, 1) = 2;
  b(0, 0) = 4;
  b(1, 0) = 1;
  b(1, 2) = 7;
  const Table c = min_plus(a, b);
  EXPECT_EQ(c(0, 0), 5);
  EXPECT_EQ(c(1, 0), 3);
  EXPECT_EQ(c(0, 1), kNever);
  EXPECT_EQ(c(0, 2), 12);
  EXPECT_EQ(c(1, 2), 9);
}

}  // namespace
}  // namespace cad::planner
