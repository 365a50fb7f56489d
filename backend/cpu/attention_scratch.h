// backend/cpu/attention_scratch.h -- how one thread's scratch memory for attention is divided. The
// same code counts (with no memory) and hands out. What comes last is written to its end whatever
// the sizes, so that all of the scratch that is counted is used.
#pragma once

#include <cstdint>

#include "backend/cpu/attention.h"
#include "backend/cpu/gemm_kernels.h"

namespace cad::backend {

struct AttentionScratch {
  // Shapes: K contracted elements, W of v's own, C = gemm_kernels().columns queries, S keys.
  float* k_rows = nullptr;         // panels of k: [S / R][K][R], R = max_rows
  float* v_rows = nullptr;         // backward: panels of v: [S / R][W][R]
  float* v_columns = nullptr;      // forward: [W / R][S][R]
  float* k_columns = nullptr;      // backward: [K / R][S][R]
  float* p = nullptr;              // [S][C]
  float* dp = nullptr;             // [S][C]
  float* q = nullptr;              // [K][C], scaled
  float* q_rows = nullptr;         // [K / C][C][C]: queries along the depth, scaled
  float* g = nullptr;              // [W][C]
  float* g_rows = nullptr;         // [W / C][C][C]
  float* out = nullptr;            // [W][C]
  float* dq = nullptr;             // [K][C]
  float* dk = nullptr;             // [S][K rounded up to C]
  float* dv = nullptr;             // [S][W rounded up to C]
  float* lanes = nullptr;          // [2][C]
  int64_t* key_offsets = nullptr;  // [2][S]: in k and in v

  AttentionScratch(const AttentionPlan& plan, float* memory) : at_(memory) {
    const int64_t keys = plan.s.extent, columns = gemm_kernels().columns;
    const auto depth = static_cast<int64_t>(plan.q_depth.size()),
               width = static_cast<int64_t>(plan.v_width.size());
    const auto wide = [&](int64_t n) { return (n + columns - 1) / columns * columns; };
    key_offsets = reinterpret_cast<int64_t*>(take(4 * keys));
    k_rows = take_packed(keys * depth);
    p = take(keys * columns);
    q = take_packed(depth * columns);
    out = take_packed(width * columns);
    if (!plan.backward) {
      v_columns = take_packed(keys * width);
      lanes = take(2 * columns);
      return;
    }
    v_rows = take_packed(keys * width);
    k_columns = take_packed(keys * depth);
    dp = take(keys * columns);
    q_rows = take_packed(wide(depth) * columns);
    g = take_packed(width * columns);
    g_rows = take_packed(wide(width) * columns);
    dq = take(depth * columns);
    dk = take(keys * wide(depth));
    dv = take(keys * wide(width));
    lanes = take(2 * columns);
  }
  [[nodiscard]] int64_t floats() const { return used_; }

 private:
  // Whole lines of memory.
  float* take(int64_t count) {
    float* here = at_ == nullptr ? nullptr : at_ + used_;
    used_ += (count + 15) / 16 * 16;
    return here;
  }
  // Packing may write past the end: see GemmKernels::pack.
  float* take_packed(int64_t count) { return take(count + 64); }
  float* at_;
  int64_t used_ = 0;
};

}  // namespace cad::backend
