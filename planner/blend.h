// planner/blend.h -- the best counts of up to three kinds of iterations in one loop. Time is the
// larger of two lines and memory has a limit, so a long loop's best plan mixes at most three bodies
// (a vertex of the linear program over counts); counts are whole, so they are tried. Bodies come
// from the folds of a search (planner/frontier.h). Not here: which bodies there are, bounds.
#pragma once

#include <optional>
#include <vector>

#include "planner/problem.h"

namespace cad::planner {

// Distinct bodies of the loops of the top level that start and end in one state of the carry.
class BodyPool {
 public:
  void add(const Problem& problem, const BodyPlan& plan);
  [[nodiscard]] const std::vector<BodyPlan>& of(size_t child) const { return bodies_[child]; }
  [[nodiscard]] size_t children() const { return bodies_.size(); }

 private:
  std::vector<std::vector<BodyPlan>> bodies_;  // by child
};

// States of the carry that loop `child` of the top level stays in, in order, once for each stay.
std::vector<int> stays(const Problem& problem, const BodyPlan& plan, size_t child);

// `plan` with the iterations of loop `child` that leave the carry as it was replaced by the mix of
// bodies of the pool, in the states that it has, that is fastest within the budget; nullopt: none
// is faster than `seconds`.
std::optional<BodyPlan> blended(const Problem& problem, const BodyPool& pool, const BodyPlan& plan,
                                size_t child, double budget, double seconds);

}  // namespace cad::planner
