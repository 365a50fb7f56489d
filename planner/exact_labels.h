// planner/exact_labels.h -- what a part of a plan comes to, as labels (seconds, bytes), and sets of
// them of which none beats another. Tables of such sets multiply as tables of numbers do in
// planner/fold.h, which gives every plan that could be best instead of the best at one price.
// Internal to the proof (planner/exact.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cad::planner {

// Time is the larger of two sums (CostModel::overlap): with the parameters' collectives as far as
// overlap leaves them, and with compute as far as those collectives leave it.
struct Label {
  double hidden_comm = 0, hidden_compute = 0;  // seconds: the two sums
  double held = 0;                             // bytes until the backward pass, and persistent ones
  double again = 0;                            // bytes that run again, of one iteration
  double moment = 0;                           // bytes for a moment, the most of any
  double mean = 0;                             // seconds: moments at prices of them, all of them
  int32_t from = -1;                           // Derivations: the choices behind it; -1: none

  [[nodiscard]] double seconds() const {
    return hidden_comm > hidden_compute ? hidden_comm : hidden_compute;
  }
};
using Labels = std::vector<Label>;

// Of one op, at the same time: moments add. What runs again is the first one's; without choices.
inline Label at_once(const Label& a, const Label& b) {
  return {a.hidden_comm + b.hidden_comm,
          a.hidden_compute + b.hidden_compute,
          a.held + b.held,
          a.again,
          a.moment + b.moment,
          a.mean + b.mean,
          -1};
}

// How labels were put together, to find their choices again.
struct Derivation {
  enum class Kind : uint8_t {
    kChoice,     // left: variable, right: choice
    kJoin,       // both, of one region
    kIteration,  // left: of one iteration of a body
    kSequence,   // iterations: left, then right
    kLoop,       // left: child of the region, right: its iterations
  } kind = Kind::kJoin;
  int32_t left = -1, right = -1;
};

class Derivations {
 public:
  int32_t add(Derivation d) {
    list_.push_back(d);
    return static_cast<int32_t>(list_.size()) - 1;
  }
  int32_t join(int32_t a, int32_t b) {
    return a < 0 ? b : b < 0 ? a : add({Derivation::Kind::kJoin, a, b});
  }
  [[nodiscard]] const Derivation& at(int32_t i) const { return list_[static_cast<size_t>(i)]; }
  [[nodiscard]] size_t size() const { return list_.size(); }

 private:
  std::vector<Derivation> list_;
};

struct LabelTable {
  int rows = 0, columns = 0;
  std::vector<Labels> cells;
  LabelTable() = default;
  LabelTable(int r, int c) : rows(r), columns(c), cells(static_cast<size_t>(r) * c) {}
  Labels& operator()(int r, int c) { return cells[static_cast<size_t>(r) * columns + c]; }
  const Labels& operator()(int r, int c) const {
    return cells[static_cast<size_t>(r) * columns + c];
  }
};

// Sets of labels as they are made: joins, filters, and a count of the work that may still be done.
class LabelMaker {
 public:
  // A label replaces one that is at most `grain` seconds faster and needs no less memory; `work`:
  // joins and comparisons before it gives up.
  LabelMaker(double grain, int64_t work) : grain_(grain), work_(work) {}

  // Adds all sums of one label of a and one of b that are `allowed` to the set being made.
  template <class Allowed>
  void add_joins(const Labels& a, const Labels& b, const Allowed& allowed,
                 Derivation::Kind kind = Derivation::Kind::kJoin) {
    work_ -= static_cast<int64_t>(a.size() * b.size());
    if (work_ <= 0) return;
    for (const Label& x : a) {
      for (const Label& y : b) {
        const Label sum{x.hidden_comm + y.hidden_comm,
                        x.hidden_compute + y.hidden_compute,
                        x.held + y.held,
                        x.again + y.again,
                        x.moment > y.moment ? x.moment : y.moment,
                        x.mean + y.mean,
                        -1};
        if (allowed(sum)) made_.push_back({sum, x.from, y.from, kind});
      }
    }
  }
  void add(const Label& label);
  // The set, without labels that others replace. Moments below `floor` are alike. `loose`: what
  // runs again is not compared.
  Labels take(double floor = 0, bool loose = false);

  Derivations& derivations() { return derivations_; }
  [[nodiscard]] const Derivations& derivations() const { return derivations_; }
  [[nodiscard]] bool gave_up() const { return work_ <= 0; }
  [[nodiscard]] int64_t work_left() const { return work_; }
  [[nodiscard]] double grain() const { return grain_; }

 private:
  struct Candidate {
    Label label;
    int32_t left = -1, right = -1;
    Derivation::Kind kind = Derivation::Kind::kJoin;
  };
  double grain_;
  int64_t work_;
  std::vector<Candidate> made_;
  Derivations derivations_;
};

}  // namespace cad::planner
