// backend/cpu/gemm_kernels.h -- the instruction-set dependent part of gemm.cc: micro-kernels and
// packing, picked once for the CPU at hand.
#pragma once

#include <cstdint>

#include "ir/type.h"

namespace cad::backend {

struct GemmKernels {
  int max_rows;  // rows of a tile: a micro-kernel exists for 1..max_rows
  int columns;   // of a tile
  // tile[rows][columns] = sum over k of a[k * rows + i] * b[k * columns + j], stored at
  // c + i * stride (add: added to it).
  void (*tile)(int rows, int64_t depth, const float* a, const float* b, float* c, int64_t stride,
               bool add);
  // The same with a's row i at a + i * columns, dense along k: nothing needs packing.
  void (*tile_of_rows)(int rows, int64_t depth, const float* a, const float* b, float* c,
                       int64_t stride, bool add);
  // dst[k * width + i] = src[lines[i] + steps[k]], i < count (<= width; the rest is zero, unless
  // width == count). May write up to 16 floats past the end of dst.
  void (*pack)(float* dst, int width, const void* src, ir::DType type, int count,
               const int64_t* lines, int64_t depth, const int64_t* steps);
  const char* name;
};

const GemmKernels& gemm_kernels();

}  // namespace cad::backend
