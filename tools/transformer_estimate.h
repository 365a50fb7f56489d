// tools/transformer_estimate.h -- seconds and bytes of one training step of a GPT under a fixed
// plan (tensor and data parallel, recomputation, ZeRO), by formula: the ops of a block, each priced
// by planner/compute_cost.h and planner/collective.h. It is not a cost model of its own and does
// not search; it exists to compare those two with published runs, whose plans are fixed.
#pragma once

#include <string>

#include "planner/cluster.h"
#include "planner/compute_cost.h"

namespace cad::tools {

struct TransformerRun {
  double hidden = 0, layers = 0, heads = 0, sequence = 0, vocab = 0;
  int gpus = 1, tensor = 1;       // data parallel: gpus / tensor
  double micro_batch = 1;         // rows a data parallel rank
  double accumulate = 1;          // micro-batches a step
  bool recompute = false;         // every layer, in full
  int zero = 0;                   // stage 0 .. 3
  bool half = true;               // products and activations in 16 bits, else f32
  bool f16 = false;               // of the 16 bit types f16 rather than bf16
  bool stored_attention = false;  // scores and probabilities go through memory
  bool dropout = true;
  bool sequence_parallel = false;
  double gradient_bytes = 4;  // a parameter, as reduced
  bool overlap = true;        // data parallel collectives run beside compute
};

struct StepSeconds {
  double layer_forward = 0,
         layer_backward = 0;  // one layer, one micro-batch; recomputation in the
                              // backward pass; tensor parallel collectives in both
  double head = 0;            // logits and loss, forward and backward, one micro-batch
  double exposed = 0;         // data parallel collectives of a step that nothing hides
  double optimizer = 0;
  double total = 0;
};

StepSeconds step_seconds(const TransformerRun& run, const planner::Cluster& cluster,
                         const planner::CostConstants& constants);

double parameters(const TransformerRun& run);
// Of one device: parameters, gradients, optimizer, activations at their peak.
struct StepBytes {
  double states = 0, activations = 0;
  [[nodiscard]] double total() const { return states + activations; }
};
StepBytes step_bytes(const TransformerRun& run);
// What one layer saves for its backward pass on one device, nothing recomputed.
double layer_bytes(const TransformerRun& run);
// A parameter's 16-bit copy, gradient, f32 value and two moments on one of `data` devices.
double state_bytes_a_parameter(int zero, double data, bool half, double gradient_bytes);

}  // namespace cad::tools
