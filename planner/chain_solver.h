// planner/chain_solver.h -- two exact ways through the recurrence of planner/chain_model.h, and the
// schedule that a solved one stands for. Tables over every m are fast (equal blocks: length x
// memory only); step functions keep just the memories at which the time changes, so they take
// sizes of any magnitude while the chain is short. planner/chain.cc chooses.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "planner/chain_model.h"

namespace cad::planner {

// Whether to give up, asked now and then.
using ChainLate = std::function<bool()>;

// C(s, t, m) for all segments and 0 <= m <= memory.
class ChainTable {
 public:
  ChainTable(const ChainModel& model, int64_t memory, const ChainLate& late = nullptr);
  [[nodiscard]] bool complete() const { return complete_; }  // false: given up, of no use
  [[nodiscard]] double time(int s, int t, int64_t m) const;  // infinite where nothing fits

 private:
  struct Guess {
    int k = 0;
    int64_t need = 0;  // of the runs up to it
    double add = 0;    // their time
  };
  struct Split {
    int k = 0, left = 0, right = 0;  // first checkpoint; segments from it and before it
  };
  [[nodiscard]] bool fill(int64_t from, const ChainLate& late);  // false: given up
  void add_saves(int s, int t, int64_t from, double* acc) const;
  void add_run(int s, int k, int t, int64_t from, double* sweep) const;
  template <bool kOneWay>
  bool relax(const Split& split, int64_t from, int64_t need, double add, const double* sweep,
             double* acc) const;
  void add_splits(int s, int t, int64_t from, Guess& guess, double* acc) const;
  void add_splits_several_ways(int s, int t, int64_t from, double* acc) const;
  [[nodiscard]] int64_t row_at(int segment) const { return segment * stride_; }
  const ChainModel& model_;
  std::vector<int64_t> least_;
  int64_t stride_ = 0;
  bool complete_ = false;
  std::vector<double> rows_;  // [segment][m]
  std::vector<Guess> guess_;  // by segment: the checkpoint that was last found best
  // by segment (s, t), in the chunk at hand: C at its last memory, and at that less in(s)
  std::vector<double> right_end_, left_end_;
  bool one_way_ = true;            // every stage has one way to run unsaved, and then:
  std::vector<double> forward_;    // time of the stages before s
  std::vector<int64_t> run_need_;  // input, output and transient of each
};

// The same as step functions: for each segment the points (m, time) where less time starts.
class ChainSteps {
 public:
  // Nothing when more than `work` points would have to be looked at, or when it is late. With
  // `thin`, a function is cut to that many points (the first and last stay): times are then upper
  // bounds, while what is feasible stays exact.
  static std::optional<ChainSteps> solve(const ChainModel& model, int64_t memory, int64_t work,
                                         size_t thin = 0, const ChainLate& late = nullptr);
  [[nodiscard]] double time(int s, int t, int64_t m) const;
  [[nodiscard]] bool thinned() const { return thinned_; }

 private:
  struct Point {
    int64_t m = 0;
    double time = 0;
  };
  using Steps = std::vector<Point>;
  explicit ChainSteps(const ChainModel& model) : model_(&model) {}
  static void lower(const Steps& more, Steps& best);
  void add_saves(int s, int t, int64_t memory, Steps& best);
  void add_splits(int s, int t, int64_t memory, Steps& best);
  const ChainModel* model_;
  std::vector<Steps> steps_;  // by segment
  int64_t work_ = 0;          // points that may still be looked at
  bool thinned_ = false;
};

// The schedule of (0, n-1) at m, decision by decision from the solved recurrence `time`.
std::vector<ChainOp> chain_schedule(const ChainModel& model, int64_t m,
                                    const std::function<double(int, int, int64_t)>& time);

}  // namespace cad::planner
