// tests/planner/fold_test.cc -- folding against trying everything, on random graphs of up to five
// nodes, series-parallel or not, with forbidden pairs, parallel edges and kept nodes.
#include "planner/fold.h"

#include <random>

#include <gtest/gtest.h>

namespace cad::planner {
namespace {

FoldProblem random_problem(std::mt19937& random) {
  FoldProblem p;
  const size_t nodes = 1 + random() % 5;
  for (size_t n = 0; n < nodes; ++n) {
    p.nodes.emplace_back();
    const size_t choices = 1 + random() % 3;
    for (size_t c = 0; c < choices; ++c)
      p.nodes.back().push_back(static_cast<float>(random() % 50));
  }
  if (nodes < 2) return p;
  const size_t edges = random() % (2 * nodes + 1);
  for (size_t e = 0; e < edges; ++e) {
    FoldEdge edge;
    edge.a = static_cast<int>(random() % nodes);
    edge.b = static_cast<int>(random() % nodes);
    if (edge.a == edge.b) continue;
    const int rows = 1 + static_cast<int>(random() % 3),
              columns = 1 + static_cast<int>(random() % 3);
    edge.cost = Table(rows, columns, 0);
    for (float& x : edge.cost.at)
      x = random() % 8 == 0 ? kNever : static_cast<float>(random() % 50);
    for (size_t c = 0; c < p.nodes[static_cast<size_t>(edge.a)].size(); ++c)
      edge.class_a.push_back(static_cast<int32_t>(random() % static_cast<size_t>(rows)));
    for (size_t c = 0; c < p.nodes[static_cast<size_t>(edge.b)].size(); ++c)
      edge.class_b.push_back(static_cast<int32_t>(random() % static_cast<size_t>(columns)));
    p.edges.push_back(std::move(edge));
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

TEST(Fold, EqualsTryingEverything) {
  std::mt19937 random(11);
  int branched = 0;
  for (int i = 0; i < 500; ++i) {
    const FoldProblem p = random_problem(random);
    std::vector<int> kept;
    const size_t keep = random() % 3;
    for (size_t k = 0; k < std::min(keep, p.nodes.size()); ++k) kept.push_back(static_cast<int>(k));
    const Folded folded(p, kept);
    if (folded.stuck()) {  // only where nothing is allowed, or deeper than two branches
      ++branched;
      continue;
    }
    const int rows = kept.size() == 2 ? static_cast<int>(p.nodes[0].size()) : 1;
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < folded.result().columns; ++c) {
        std::vector<int> choices(p.nodes.size(), 0), fixed;
        if (kept.size() == 2) fixed = {r, c};
        if (kept.size() == 1) fixed = {c};
        for (size_t k = 0; k < fixed.size(); ++k) choices[k] = fixed[k];
        const float want = counted(p, choices, 0, kept);
        EXPECT_EQ(folded.result()(r, c), want) << i;
        if (want != kNever) {
          EXPECT_EQ(cost_of(p, folded.choices(fixed)), want) << i;
        }
      }
    }
  }
  EXPECT_LT(branched, 50);
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
