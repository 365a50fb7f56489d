// planner/exact_proof.h -- whether a plan of one mesh is faster than a given time within a hard
// budget, decided by looking at every plan that prices do not rule out: label sets of one
// iteration (planner/exact_fold.h), put together iteration by iteration, equal iterations in any
// order being one. So short loops are proven without being unrolled. Work is counted, not timed:
// the same problem gives the same answer on every machine.
#pragma once

#include <optional>

#include "planner/price_model.h"
#include "planner/problem.h"

namespace cad::planner {

struct ProofLimits {
  double target = 0;           // seconds: slower plans are not looked for
  double price = 0;            // seconds a byte, of a good bound
  double hide = 0;             // of the same: planner/priced.h
  MomentPrices moments;        // of another one; none: empty
  double grain = 0;            // seconds that may be lost in all
  int64_t work = 400'000'000;  // joins and comparisons of labels
};

struct Proof {
  bool complete = false;         // false: too large; `bound` says nothing then
  std::optional<BodyPlan> plan;  // the fastest one below the target that fits, as far as is known
  double bound = 0;              // seconds: no plan that fits is faster
  int64_t work = 0;              // of ProofLimits::work
};

// nullopt: the graph does not fold, or a loop has more than 128 iterations.
std::optional<Proof> prove(const Problem& problem, double budget, const ProofLimits& limits);

}  // namespace cad::planner
