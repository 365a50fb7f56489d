// planner/solver/flat.h -- the live part of a reduced problem in contiguous arrays, for the loops
// that run over all tables thousands of times. Nodes keep their order (that of the program, which
// is what makes message passing fast). Memory is by row: a row is a time point that counts.
#pragma once

#include "planner/solver/reduce.h"

namespace cad::planner::solver {

struct Flat {
  struct Use {  // of one life: use[at + k] bytes in the rows [from, to)
    int from = 0, to = 0;
    size_t at = 0;
  };
  struct Edge {
    int a = 0, b = 0;  // a < b
    int ka = 0, kb = 0;
    size_t cost = 0;    // [ka][kb] in `cost`
    size_t turned = 0;  // [kb][ka] in `cost`
  };

  std::vector<int> node_of;  // flat node -> node of the problem
  std::vector<int> first;    // offset of the node's choices, one more than nodes
  std::vector<double> unary;
  std::vector<int> first_use;  // offset in uses, one more than nodes
  std::vector<Use> uses;
  std::vector<int64_t> use;
  std::vector<Edge> edges;  // sorted by a, then b
  std::vector<double> cost;
  std::vector<int> first_forward, forward;    // edges with a == node
  std::vector<int> first_backward, backward;  // edges with b == node
  std::vector<int64_t> times, slack;          // by row
  double constant = 0;

  int nodes() const { return static_cast<int>(node_of.size()); }
  int choices(int i) const { return first[i + 1] - first[i]; }
  int rows() const { return static_cast<int>(slack.size()); }
};

Flat flatten(const Reduced& reduced);
// Choices by flat node to the argument of expand().
std::vector<int> to_live(const Flat& flat, const Reduced& reduced, const std::vector<int>& choices);

}  // namespace cad::planner::solver
