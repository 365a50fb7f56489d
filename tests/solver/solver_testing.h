// tests/solver/solver_testing.h -- random small problems and their optimum by trying everything,
// with a recomputation of cost and peak of its own (a time at a time, no sweep over events).
#pragma once

#include <algorithm>
#include <random>

#include "planner/solver/solver.h"

namespace cad::planner::solver {

struct Exhaustive {
  double cost = kForbidden;  // within the budget
  std::vector<int> choices;
  int64_t least_peak = -1;        // over the choices without a forbidden pair; -1: there are none
  double unlimited = kForbidden;  // without the budget
};

inline double plain_cost(const Problem& problem, const std::vector<int>& choices) {
  double cost = 0;
  for (size_t i = 0; i < choices.size(); ++i) cost += problem.nodes[i].cost[choices[i]];
  for (const Edge& edge : problem.edges)
    cost += edge.cost[choices[edge.a] * problem.nodes[edge.b].cost.size() + choices[edge.b]];
  return cost;
}

// Times of the random problems are 0 to 12.
inline int64_t plain_peak(const Problem& problem, const std::vector<int>& choices) {
  int64_t peak = 0;
  for (int64_t time = 0; time <= 12; ++time) {
    int64_t now = 0;
    for (size_t i = 0; i < choices.size(); ++i)
      for (const Life& life : problem.nodes[i].lives)
        if (life.from <= time && time < life.to) now += life.use[choices[i]];
    peak = std::max(peak, now);
  }
  return peak;
}

inline Exhaustive try_all(const Problem& problem) {
  Exhaustive found;
  std::vector<int> choices(problem.nodes.size(), 0);
  for (;;) {
    const double cost = plain_cost(problem, choices);
    if (cost < kForbidden) {
      const int64_t peak = plain_peak(problem, choices);
      found.unlimited = std::min(found.unlimited, cost);
      if (found.least_peak < 0 || peak < found.least_peak) found.least_peak = peak;
      if ((!problem.budget || peak <= *problem.budget) && cost < found.cost) {
        found.cost = cost;
        found.choices = choices;
      }
    }
    size_t i = 0;
    while (i < choices.size() && ++choices[i] == static_cast<int>(problem.nodes[i].cost.size()))
      choices[i++] = 0;
    if (i == choices.size()) return found;
  }
}

struct Shape {
  int least_nodes = 1, most_nodes = 6, least_choices = 1, most_choices = 5;
  bool whole = true;  // costs are whole numbers, else fractions
  double forbidden = 0.15;
  bool memory = true;
};

// Few of these fold away: for the tests of single stages.
inline Shape knotted() {
  Shape shape;
  shape.least_nodes = 5;
  shape.least_choices = shape.most_choices = 3;
  shape.forbidden = 0.05;
  return shape;
}

inline Problem random_problem(uint64_t seed, const Shape& shape = {}) {
  std::mt19937_64 random(seed);
  const auto number = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  const auto cost = [&] {
    if (static_cast<double>(number(0, 999)) < 1000 * shape.forbidden) return kForbidden;
    const auto value = static_cast<double>(number(0, 60));
    return shape.whole ? value : value * 1e-4 + static_cast<double>(number(0, 1000)) * 1e-8;
  };
  Problem problem;
  problem.nodes.resize(static_cast<size_t>(number(shape.least_nodes, shape.most_nodes)));
  for (Node& node : problem.nodes) {
    const auto choices = static_cast<size_t>(number(shape.least_choices, shape.most_choices));
    for (size_t k = 0; k < choices; ++k) {
      const double value = cost();
      node.cost.push_back(value == kForbidden && k == 0 ? 0 : value);
    }
    for (int64_t lives = shape.memory ? number(0, 2) : 0; lives > 0; --lives) {
      Life life;
      life.from = number(0, 10);
      life.to = life.from + number(0, 12 - life.from);  // may be empty
      for (size_t k = 0; k < choices; ++k) {
        const int64_t parts = number(0, 3);
        life.use.push_back(parts * number(0, 100));
      }
      node.lives.push_back(std::move(life));
    }
  }
  const auto n = static_cast<int64_t>(problem.nodes.size());
  for (int64_t edges = number(0, 2 * n); edges > 0; --edges) {  // parallel ones and loops too
    Edge edge;
    edge.a = static_cast<int>(number(0, n - 1));
    edge.b = static_cast<int>(number(0, 9) == 0 ? edge.a : number(0, n - 1));
    const size_t size = problem.nodes[edge.a].cost.size() * problem.nodes[edge.b].cost.size();
    for (size_t c = 0; c < size; ++c) edge.cost.push_back(cost());
    problem.edges.push_back(std::move(edge));
  }
  if (shape.memory && number(0, 9) > 0) {
    const int64_t parts = number(0, 12);
    problem.budget = parts * number(0, 100);
  }
  return problem;
}

}  // namespace cad::planner::solver
