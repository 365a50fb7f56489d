// backend/cpu/attention.h -- tiled attention, forward and backward (see kAttention in ir/ops.def).
// Scores of a tile live in cache only; forward keeps log-sum-exp per row, backward computes the
// probabilities again. Work is shared over batch x heads x tiles; every result element has one
// writer and a fixed order of sums.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/steps.h"
#include "ir/graph.h"

namespace cad::backend {

class ThreadPool;

// Strides (elements) of one dim in each operand; 0 where it is absent.
struct AttentionDim {
  int64_t extent = 1;
  int64_t q = 0, k = 0, v = 0, out = 0, lse = 0, mask = 0, probs = 0;   // probs: row-major, for random numbers
  int64_t dq = 0, dk = 0, dv = 0, g = 0;
  bool rows = false;       // counts rows of the batch dim (global element indices)
};

struct AttentionPlan {
  std::vector<AttentionDim> batch;    // all but t, s, k and v's own: in the probabilities
  AttentionDim t, s;
  std::vector<AttentionDim> depth;    // contracted: q and k (as a rule one)
  std::vector<AttentionDim> width;    // v's own: v and out (as a rule one)
  ir::DType q_type = ir::DType::kF32, k_type = ir::DType::kF32, v_type = ir::DType::kF32,
            out_type = ir::DType::kF32;
  float scale = 1, p = 0;
  bool causal = false, masked = false, backward = false;
  uint64_t site = 0;
  int loop_numbers = 0;
  int64_t batches = 1, depths = 1, widths = 1;
  int64_t rows_stride = 0;            // elements of the probabilities a batch row spans; 0: none
  int64_t scratch_bytes = 0;          // shared by the threads
  double flops = 0;
};

// Layouts are those of the partition, by value.
AttentionPlan plan_attention(const ir::Graph& g, const ir::Node& node, const std::vector<Layout>& layouts,
                             const ir::Bindings& bindings, int threads);

struct AttentionRun {
  // forward: q, k, v, mask? -> out, lse; backward: q, k, v, out, lse, g, mask? -> dq, dk, dv
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const uint8_t* mask = nullptr;
  void* out = nullptr;
  float* lse = nullptr;
  const void* g = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  void* scratch = nullptr;
  std::vector<int64_t> numbers;       // of the enclosing loops, outermost first
  uint64_t seed = 0;
  int64_t step = 0, row_offset = 0, step_rows = 0;
};
void run_attention(const AttentionPlan& plan, const AttentionRun& run, ThreadPool& pool);
void run_attention_grad(const AttentionPlan& plan, const AttentionRun& run, ThreadPool& pool);

}  // namespace cad::backend
