// tools/published_plans.h -- a published training run as the planner prices it: the model as a
// .cad program, lowered, its plan the named baseline (planner/baselines.h) on the run's mesh. What
// `colauto plan --plan NAME --mesh ..` prints for that program is what comes out here; there is no
// second formula. Not here: the comparison and the fit (tools/bench_published.cc).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "planner/cluster.h"
#include "planner/problem.h"

namespace cad::tools {

struct PublishedRun {
  double hidden = 0, layers = 0, heads = 0, sequence = 0, vocab = 0;
  int gpus = 1, tensor = 1;       // data parallel: gpus / tensor
  double micro_batch = 1;         // rows a data parallel rank
  double accumulate = 1;          // micro-batches a step
  bool recompute = false;         // every layer, in full
  bool f16 = false;               // of the 16 bit types f16 rather than bf16
  bool stored_attention = false;  // scores and probabilities go through memory
  bool dropout = true;
  std::string plan;  // a baseline: "zero3", "megatron-sp"
};

// As a program. Stored attention is `@keep` (with recomputation `@recompute`) on the probabilities,
// which also keeps the attention from being one fused op.
std::string program_text(const PublishedRun& run);

// A run made ready to be priced, as often as the constants change.
class PricedRun {
 public:
  explicit PricedRun(const PublishedRun& run, bool train = true);  // else its forward pass alone
  ~PricedRun();
  PricedRun(PricedRun&&) noexcept;
  // The baseline's plan is found for the first constants and kept. Ends the program where there is
  // none: a published plan that the planner does not know is a mistake in the table.
  planner::Evaluation price(const planner::Cluster& cluster,
                            const planner::CostConstants& constants);
  // The same, for a fit: the first call finds out how often the plan runs each kernel (a second or
  // so), later ones only price these. Always for the same cluster.
  planner::Evaluation price_again(const planner::Cluster& cluster,
                                  const planner::CostConstants& constants);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace cad::tools
