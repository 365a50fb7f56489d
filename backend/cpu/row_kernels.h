// backend/cpu/row_kernels.h -- the vector code of attention on blocks [rows][width], where width is
// gemm_kernels().columns and every lane is a query: reductions go down the rows, never across
// lanes.
#pragma once

#include <cstdint>

namespace cad::backend {

struct DropStream {
  uint64_t key = 0, step = 0;
  uint64_t element = 0, lane_stride = 0;  // of lane 0, and from lane to lane
  float threshold = 0;                    // kept when the uniform number is at least this
  float kept = 1;                         // what a kept element is multiplied by
};

struct RowKernels {
  // most[j] = max over rows (and what it was)
  void (*maximum)(const float* block, int64_t rows, float* most);
  // block = exp(block - most), total[j] += sums over rows
  void (*exponentials)(float* block, int64_t rows, const float* most, float* total);
  // p = exp(p - lse); dp = p * (dp * keep - delta); p = p * keep. `keep` is drawn when drop is
  // given: element (i, j) has index drop->element + i * row_stride + j * drop->lane_stride.
  void (*gradient)(float* p, float* dp, int64_t rows, const float* lse, const float* delta,
                   const DropStream* drop, uint64_t row_stride);
  // block *= keep
  void (*dropout)(float* block, int64_t rows, const DropStream& drop, uint64_t row_stride);
  // sums[j] = sum over rows of x * y
  void (*dot)(const float* x, const float* y, int64_t rows, float* sums);
  // block *= factor, over count floats
  void (*scale)(float* block, int64_t count, float factor);
};

const RowKernels& row_kernels();

}  // namespace cad::backend
