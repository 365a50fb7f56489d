// planner/exact_fold.h -- one region folded three ways in one order of elimination: numbers inwards
// (the least of a weighted sum, as planner/fold.h), numbers outwards (for every choice and every
// table on the way: the least that a whole plan with it comes to), and label sets inwards, from
// which everything is left out that those numbers rule out. Internal to the proof
// (planner/exact_proof.h), which joins regions; knows nothing of meshes or ops.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "planner/exact_labels.h"
#include "planner/fold.h"

namespace cad::planner {

// A linear measure of labels: every plan that is looked for measures at most `most` in all.
struct Measure {
  double comm = 0, compute = 0;  // weights of the two sums of seconds
  double held = 0, again = 0;    // of bytes
  double mean = 0;               // of moments at their prices
  double most = 0;
  [[nodiscard]] double of(const Label& l) const {
    return comm * l.hidden_comm + compute * l.hidden_compute + held * l.held + again * l.again +
           mean * l.mean;
  }
};

// Between two nodes, one node (b < 0) or none (a < 0 too). Classes by choice.
struct ExactFactor {
  int a = -1, b = -1;
  std::vector<int32_t> class_a, class_b;
  LabelTable labels;
};

// A node's choice: one of `own`, and one of each list of `with`, whose moments add.
struct ExactChoice {
  Label own;
  std::vector<const Labels*> with;
};

struct ExactRegion {
  std::vector<std::vector<ExactChoice>> nodes;
  std::vector<ExactFactor> factors;
  int entry = -1, exit = -1;  // nodes that stay
};

// What one measure comes to.
struct Scalars {
  std::vector<Table> factor;               // originals, then one message a step
  std::vector<std::vector<float>> node;    // by node, choice: with the messages to it alone
  std::vector<std::array<Table, 2>> side;  // by step: to each neighbour
  std::vector<Table> own, half;  // by step: of the node; and joined to its second neighbour
  Table result;                  // entry x exit, or one number
  // filled by outside(): the least of a whole plan, less what the entry itself stands for
  std::vector<Table> factor_rest, own_rest, half_rest;
  std::vector<std::array<Table, 2>> side_rest;
  Table last_rest;                        // of the table between entry and exit
  std::vector<std::vector<float>> total;  // by node, choice: the least of a whole plan with it
  float least = kNever;                   // of all plans
};

class ExactFold {
 public:
  explicit ExactFold(const ExactRegion& region);
  [[nodiscard]] bool stuck() const { return stuck_; }

  // `given`: numbers of factors whose labels are not known yet.
  using Given = std::vector<std::pair<int, const Table*>>;
  [[nodiscard]] Scalars inside(const Measure& measure, const Given& given) const;
  // `rest`: the least outside the region, by entry and exit (one number without them).
  void outside(Scalars& s, const Table& rest) const;

  // Entry x exit (or one cell), by labels that no measure rules out and that fit: held + moment +
  // again <= budget, a moment being at least `floor`.
  [[nodiscard]] LabelTable labels(LabelMaker& maker, const std::vector<Scalars>& scalars,
                                  const std::vector<Measure>& measures, double budget,
                                  double floor) const;
  // Filters that a label goes through at most: each may cost LabelMaker::grain().
  [[nodiscard]] int filters() const;

 private:
  // Factors between a node and one neighbour as one table.
  struct Side {
    int other = -1;
    std::vector<int> parts;
    std::vector<char> turned;  // the node is the part's b
    int rows = 1, columns = 1;
    std::vector<int32_t> own, theirs;                     // by choice of the node, of the other
    std::vector<std::vector<int32_t>> row_of, column_of;  // by part, row: the part's
  };
  struct Step {
    int node = -1;
    std::array<Side, 2> sides;
    std::vector<int> single;  // messages to the node alone
  };
  struct Shape {  // of a factor
    int a = -1, b = -1, rows = 1, columns = 1;
    std::vector<int32_t> class_a, class_b;
    bool whole = false;  // has sets of labels: what is outside of it is asked for
  };
  struct Cell;  // what a label must satisfy

  void order();
  int choose(const std::vector<char>& gone) const;
  void eliminate(int node, std::vector<char>& gone);
  Side merged(int node, int other, const std::vector<int>& parts) const;
  [[nodiscard]] size_t choices(int node) const {
    return node < 0 ? 1 : r_.nodes[static_cast<size_t>(node)].size();
  }
  Table side_value(const Side& side, const std::vector<Table>& factor) const;
  void spread(const Side& side, const Table& total, Scalars& s) const;
  void spread_single(const std::vector<int>& single, const std::vector<float>& total,
                     Scalars& s) const;
  void last_outside(Scalars& s, const Table& rest) const;
  LabelTable side_labels(LabelMaker& maker, const Side& side, const std::vector<LabelTable>& factor,
                         const std::vector<const Table*>& rest, const Cell& cell) const;
  std::vector<Labels> node_labels(LabelMaker& maker, int node, const std::vector<int>& single,
                                  const std::vector<LabelTable>& factor,
                                  const std::vector<Scalars>& scalars, const Cell& cell) const;

  const ExactRegion& r_;
  std::vector<Shape> shapes_;
  std::vector<char> used_;  // by factor: eliminated with a node
  std::vector<Step> steps_;
  std::vector<int> constants_;                   // messages to nobody
  std::array<std::vector<int>, 2> last_single_;  // of entry, exit
  Side last_;                                    // entry - exit
  bool stuck_ = false;
};

}  // namespace cad::planner
