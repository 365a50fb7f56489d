// planner/solver/solver.h -- the pairwise problem with memory: choose one of each node's choices so
// that the sum of node and pair costs is least and the memory in use never exceeds the budget. The
// solver knows nothing of models; the joint planner and `colauto solve` are its users. It proves a
// lower bound with every answer. How: docs/solver.md; the stages: reduce.h (exact folding), dual.h
// and ascent.h (prices and messages), dive.h and neighbourhood.h (search), mip.h (lp_solve).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace cad::planner::solver {

constexpr double kForbidden = std::numeric_limits<double>::infinity();

// Memory of a node over the half-open times [from, to), which may be empty; use[k] bytes (>= 0) by
// choice. The lives of one node may overlap: they add.
struct Life {
  int64_t from = 0, to = 0;
  std::vector<int64_t> use;
};

struct Node {
  std::vector<double> cost;  // by choice; kForbidden: never
  std::vector<Life> lives;
};

// Cost of every pair, row-major [choice of a][choice of b]. Several edges may join the same pair
// (they add); a may equal b (the diagonal counts).
struct Edge {
  int a = 0, b = 0;
  std::vector<double> cost;
};

// Costs are seconds or whole numbers. Whole numbers up to 2^53 stay exact, sums included.
struct Problem {
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  std::optional<int64_t> budget;  // bytes; none: unlimited
};

struct Options {
  double time_s = 60;   // wall clock; the only thing that may make two runs differ
  double gap = 0;       // stop when (cost - bound) <= gap * |cost|
  bool simple = false;  // without a solution in time: simple_choices(), where they fit
};

enum class SolveStatus {
  kOptimal,          // bound equals cost (whole costs: exactly; else to 1e-9 of the cost)
  kWithinGap,        // proven within Options::gap
  kTimeLimit,        // stopped with a solution; bound says how far it can be from the optimum
  kTimeLimitSimple,  // stopped before the search had one; what there is was chosen without it
  kTimeLimitNoPlan,  // stopped without a solution; one may exist
  kInfeasible,       // proven: no choice satisfies the budget and the forbidden pairs
};
const char* status_text(SolveStatus status);  // "optimal", "within the gap", ..

struct Solution {
  SolveStatus status = SolveStatus::kTimeLimitNoPlan;
  std::vector<int> choices;    // by node; empty without a solution
  double cost = kForbidden;    // of `choices`
  double bound = -kForbidden;  // no solution costs less
  double gap = kForbidden;     // (cost - bound) / |cost|; 0 when they agree
  // With a budget that is too small (or not yet met): the least peak that was found, if any, and a
  // peak that no choice can go below.
  std::optional<int64_t> least_budget;
  int64_t least_budget_bound = 0;
  bool no_budget_helps = false;  // the forbidden pairs alone exclude each other
  double wall_s = 0;
  int64_t columns = 0, rows = 0;  // of the largest program that went to lp_solve
};

// CAD_CHECKs the shapes (tables of the right length, no NaN, no negative use).
Solution solve(const Problem& problem, const Options& options);

// Cost and memory of a choice, from the definition alone: shares no code with solve().
struct Checked {
  double cost = 0;              // kForbidden if it uses a forbidden choice or pair
  int64_t peak = 0;             // bytes
  std::vector<int64_t> times;   // where the memory in use changes, ascending
  std::vector<int64_t> in_use;  // from times[i] on
  bool fits = false;            // peak <= budget and cost finite
};
Checked check(const Problem& problem, const std::vector<int>& choices);

// A choice that fits, made in one pass without a search; empty: none was found so.
std::vector<int> simple_choices(const Problem& problem);

}  // namespace cad::planner::solver
