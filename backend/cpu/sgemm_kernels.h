// backend/cpu/sgemm_kernels.h -- the micro-kernels of sgemm and their packing, one set an
// instruction set; inside backend/cpu only.
#pragma once

#include <cstdint>

namespace cad::backend {

inline constexpr int64_t kMaxTileRows = 16;
inline constexpr int64_t kMaxTileColumns = 32;

struct SgemmKernel {
  const char* name;
  int64_t rows, columns;  // MR, NR
  // c (rows x columns, row stride `c_row`) = or += a b over `depth`.
  // a: (depth, rows) packed; b: (depth, columns) packed.
  void (*multiply)(int64_t depth, const float* a, const float* b, float* c, int64_t c_row,
                   bool accumulate);
  // Panels of `rows` (or `columns`) lines, each panel (depth, lines), the last padded with zeros.
  // Element (line, p) of the source is source[line * line_stride + p * depth_stride].
  void (*pack_rows)(const float* source, int64_t line_stride, int64_t depth_stride, int64_t lines,
                    int64_t depth, float* panel);
  void (*pack_columns)(const float* source, int64_t line_stride, int64_t depth_stride,
                       int64_t lines, int64_t depth, float* panel);
};

// The best one for this processor, chosen once.
const SgemmKernel& sgemm_kernel();

}  // namespace cad::backend
