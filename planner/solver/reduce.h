// planner/solver/reduce.h -- the problem made smaller without losing an optimum: parallel edges
// merged, choices without a partner or dominated by another dropped, nodes with one choice or
// without memory of degree 0, 1, 2 folded (min-plus), tables that are sums of a row and a column
// part moved into the nodes, time points that others imply left out. What was done is remembered,
// so that expand() gives the choices of all nodes back.
#pragma once

#include "planner/solver/solver.h"

namespace cad::planner::solver {

// A table over two live nodes, a < b; row-major over their live choices.
struct Pair {
  int a = 0, b = 0;
  bool live = true;
  std::vector<double> cost;
};

struct Reduced {
  struct Fold {
    int node = 0, a = -1, b = -1;
    int width = 0;          // choices of b in the problem
    std::vector<int> best;  // the node's choice by the choices of a (and b), all as in the problem
  };
  struct Constant {  // memory that no choice changes
    int64_t from = 0, to = 0, bytes = 0;
  };
  enum class State : char { kLive, kFixed, kFolded };

  std::vector<State> state;
  std::vector<std::vector<int>> original;  // by node: live choice -> the problem's choice
  std::vector<std::vector<double>> unary;
  std::vector<std::vector<Life>> lives;  // least use subtracted
  std::vector<Pair> pairs;
  std::vector<std::vector<int>> pairs_of;  // by node; may hold dead pairs
  std::vector<Fold> folds;
  std::vector<Constant> constants;
  std::vector<int64_t> choices_of;  // of the problem, by node
  std::vector<int64_t> times;       // the time points that count (non-dominated), ascending
  std::vector<int64_t> slack;       // by time: budget less constants
  std::optional<int64_t> budget;
  double constant = 0;
  bool infeasible = false;

  size_t live_nodes() const;
  size_t columns() const;  // live choices of nodes with more than one
};

// CAD_CHECKs the shapes.
Reduced make_reduced(const Problem& problem);
// To a fixed point. May be called again after choices were forbidden (unary = kForbidden) or pairs.
// Returns false when no choice is left (infeasible is set).
bool reduce(Reduced& reduced);
// `live[i]`: index into the live choices of node i (ignored where the node is not live).
std::vector<int> expand(const Reduced& reduced, const std::vector<int>& live);

}  // namespace cad::planner::solver
