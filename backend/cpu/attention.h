// backend/cpu/attention.h -- tiled attention, forward and backward (see kAttention in ir/ops.def).
// Scores of a tile live in cache only; forward keeps log-sum-exp per row, backward computes the
// probabilities again. Work is shared over batch x heads x tiles; every result element has one
// writer and a fixed order of sums.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/steps.h"
#include "ir/graph.h"

namespace cad::backend {

class ThreadPool;

// Strides (elements) of one dim in each operand; 0 where it is absent.
struct AttentionDim {
  int64_t extent = 1;
  int64_t q = 0, k = 0, v = 0, out = 0, lse = 0, mask = 0, g = 0, dq = 0, dk = 0, dv = 0;
  // Row-major stride among the probabilities, for random numbers; times the step's rows for dims
  // before the batch dim.
  int64_t probs = 0;
  bool before_rows = false;
  bool is_rows = false;  // the batch dim itself
  ir::DimId part;        // set when a device has a part of the dim
};

// How many combinations of indices there are.
inline int64_t total(const std::vector<AttentionDim>& dims) {
  int64_t n = 1;
  for (const AttentionDim& d : dims) n *= d.extent;
  return n;
}

struct AttentionPlan {
  std::vector<AttentionDim> shared;  // in k and v (and q): independent problems
  std::vector<AttentionDim> own;     // of q alone or with one of k and v: loops inside a problem
  AttentionDim t, s;
  // Offsets of the contracted elements and of v's own, in each operand.
  std::vector<int64_t> q_depth, k_depth, dq_depth, dk_depth, v_width, out_width, g_width, dv_width;
  ir::DType dtype = ir::DType::kF32;  // of q, k, v, out and the gradients
  float scale = 1;
  double p = 0;
  bool causal = false, masked = false, backward = false;
  bool adds = false;  // dk and dv of a problem come in parts
  uint64_t site = 0;
  int loop_numbers = 0;
  // Independent problems and, forward, parts of each; threads that have tasks: all of these do.
  int64_t tasks = 0, parts = 1;
  int threads = 1;
  int64_t k_elements = 0, v_elements = 0;
  int64_t thread_floats = 0;  // scratch of one thread
  int64_t scratch_bytes = 0;
  double flops = 0;
};

// Layouts are those of the partition, by value.
AttentionPlan plan_attention(const ir::Graph& g, const ir::Node& node,
                             const std::vector<Layout>& layouts, const ir::Bindings& bindings,
                             int threads);

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
  std::vector<int64_t> numbers;  // of the enclosing loops, outermost first
  uint64_t seed = 0;
  int64_t step = 0, row_offset = 0, step_rows = 0;
  // Of a device's part: where it begins among the probabilities, and among the queries.
  uint64_t first_element = 0;
  int64_t first_query = 0;
};
// Where the device with these coordinates on Graph::mesh begins: sets the run's first_element and
// first_query. step_rows is set already.
void set_attention_part(const AttentionPlan& plan, const ir::Graph& g, const ir::Bindings& bindings,
                        std::span<const int> coordinates, AttentionRun& run);
void run_attention(const AttentionPlan& plan, const AttentionRun& run, ThreadPool& pool);
void run_attention_grad(const AttentionPlan& plan, const AttentionRun& run, ThreadPool& pool);

}  // namespace cad::backend
