// planner/fold.h -- exact minimisation of a sum of node and pair costs over graphs that are nearly
// series-parallel: nodes with one or two neighbours are eliminated by min-plus products until only
// the kept ones are left. Choices reach an edge through classes (the layouts that the edge can
// see), which keeps the products small. Graphs that do not fold get a plan and a bound. Knows
// nothing of models; memory is priced by the caller. Not here: budgets (planner/frontier.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

namespace cad::planner {

constexpr float kNever = std::numeric_limits<float>::infinity();

// A table of costs, row-major.
struct Table {
  int rows = 0, columns = 0;
  std::vector<float> at;
  Table() = default;
  Table(int r, int c, float fill) : rows(r), columns(c), at(static_cast<size_t>(r) * c, fill) {}
  float& operator()(int r, int c) { return at[static_cast<size_t>(r) * columns + c]; }
  float operator()(int r, int c) const { return at[static_cast<size_t>(r) * columns + c]; }
};

// out[i][j] = min over k of a[i][k] + b[k][j].
Table min_plus(const Table& a, const Table& b);

struct FoldEdge {
  int a = 0, b = 0;                       // node numbers
  std::vector<int32_t> class_a, class_b;  // by choice of a, of b: row and column of the table
  Table cost;
};

struct FoldProblem {
  std::vector<std::vector<float>> nodes;  // cost by choice
  std::vector<FoldEdge> edges;
};

// What is left after folding, and how to get the eliminated choices back.
class Folded {
 public:
  // Eliminates every node but `kept` (none, one or two). Where no node with one or two neighbours
  // is left, every choice of one node is tried in turn, at most two such nodes deep, if that is
  // little work. Else the pairwise solver says what such nodes choose (planner/fold_core.h): they
  // are fixed so until the rest folds.
  Folded(FoldProblem problem, std::vector<int> kept);

  // No kept node: the minimum. One: by its choice (one row). Two: [first kept][second kept].
  // Infinite: nothing is allowed.
  [[nodiscard]] const Table& result() const { return result_; }
  // False: nodes were fixed, and what choices() gives may not be the best.
  [[nodiscard]] bool exact() const { return exact_; }
  // As result(); of what is not exact, a bound below what any choices cost.
  [[nodiscard]] const Table& bound() const { return exact_ ? result_ : bound_; }
  // The choices behind result() when those of the kept nodes are `fixed` (parallel to `kept`).
  // Where it is infinite there are none.
  [[nodiscard]] std::vector<int> choices(const std::vector<int>& fixed) const;

 private:
  struct Step {
    int node = -1;
    std::vector<float> cost;      // of the node when it was eliminated
    std::vector<FoldEdge> edges;  // to its neighbours then, node = a
  };
  Folded(FoldProblem problem, std::vector<int> kept, std::vector<char> gone, int depth,
         double work);
  void run();
  int next(bool& left) const;
  int most_connected() const;
  std::vector<int> degrees() const;
  bool branch();
  bool branches_on(int node);
  FoldProblem with_choice(int node, size_t choice) const;
  bool guide();
  void fix(int node);
  void eliminate(int node);
  void merge_parallel();
  void finish();
  Table filled(float value) const;  // of the result's shape

  FoldProblem problem_;
  std::vector<int> kept_;
  std::vector<Step> steps_;
  std::vector<char> gone_;
  Table result_, bound_;
  float constant_ = 0;  // minima of nodes without neighbours
  bool exact_ = true;
  std::vector<int> guide_;  // by node: what it chooses if it must be fixed
  int depth_ = 0;
  double work_;
  bool stuck_ = false;  // of a branch: it does not fold
  // one a choice of the node that is branched on; null where the choice is forbidden
  std::vector<std::unique_ptr<Folded>> branches_;
  std::vector<int32_t> best_branch_;  // by entry of the result
};

}  // namespace cad::planner
