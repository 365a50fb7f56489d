// backend/cpu/sgemm.cc -- the loops around the micro-kernels of sgemm_kernels.cc.
//
// Blocking (after Goto and van de Geijn): for each nc columns, for each kc of the depth, pack B's
// kc x nc into panels of NR columns; for each mc rows pack A's mc x kc into panels of MR rows; then
// MR x NR tiles of C. A's block stays in L2 (240 x 384 floats are 360 KiB), B's panel streams.
#include "backend/cpu/sgemm.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/sgemm_kernels.h"

namespace cad::backend {
namespace {

constexpr int64_t kDepth = 384;     // kc
constexpr int64_t kRows = 240;      // mc, a multiple of every MR
constexpr int64_t kColumns = 1536;  // nc, a multiple of every NR
constexpr int64_t kTile = kMaxTileRows * kMaxTileColumns;

// Equal blocks instead of a short last one: 768 is 2 x 384, 400 is 2 x 200.
int64_t even_block(int64_t size, int64_t most, int64_t multiple) {
  const int64_t blocks = (size + most - 1) / most;
  const int64_t even = (size + blocks - 1) / blocks;
  return std::min(most, (even + multiple - 1) / multiple * multiple);
}

struct Panels {
  float* a;
  float* b;
  float* tile;  // one edge tile of C
};

void multiply_block(const SgemmKernel& kernel, const SgemmArgs& args, int64_t i0, int64_t rows,
                    int64_t j0, int64_t columns, int64_t depth, bool accumulate,
                    const Panels& panels) {
  for (int64_t j = 0; j < columns; j += kernel.columns) {
    const float* b = panels.b + j * depth;
    const int64_t width = std::min(kernel.columns, columns - j);
    for (int64_t i = 0; i < rows; i += kernel.rows) {
      const float* a = panels.a + i * depth;
      const int64_t height = std::min(kernel.rows, rows - i);
      float* c = args.c.data + (i0 + i) * args.c.row + (j0 + j) * args.c.column;
      if (height == kernel.rows && width == kernel.columns && args.c.column == 1) {
        kernel.multiply(depth, a, b, c, args.c.row, accumulate);
        continue;
      }
      kernel.multiply(depth, a, b, panels.tile, kernel.columns, false);
      for (int64_t r = 0; r < height; ++r) {
        for (int64_t q = 0; q < width; ++q) {
          float& out = c[r * args.c.row + q * args.c.column];
          const float product = panels.tile[r * kernel.columns + q];
          out = accumulate ? out + product : product;
        }
      }
    }
  }
}

void clear(const SgemmArgs& args) {
  for (int64_t i = 0; i < args.m; ++i) {
    for (int64_t j = 0; j < args.n; ++j) args.c.data[i * args.c.row + j * args.c.column] = 0.0F;
  }
}

}  // namespace

size_t sgemm_scratch_bytes() {
  return static_cast<size_t>((kRows + kMaxTileRows) * kDepth +
                             (kColumns + kMaxTileColumns) * kDepth + kTile) *
         sizeof(float);
}

const char* sgemm_kernel_name() {
  return sgemm_kernel().name;
}

void sgemm(const SgemmArgs& given, void* scratch) {
  SgemmArgs args = given;
  if (args.m <= 0 || args.n <= 0) return;
  if (args.k <= 0) {
    if (!args.accumulate) clear(args);
    return;
  }
  // C column-major: compute the transposed product, so that tiles are stored along a row.
  if (args.c.column != 1 && args.c.row == 1) {
    std::swap(args.m, args.n);
    const MatrixView<const float> a = args.a;
    args.a = {args.b.data, args.b.column, args.b.row};
    args.b = {a.data, a.column, a.row};
    std::swap(args.c.row, args.c.column);
  }
  const SgemmKernel& kernel = sgemm_kernel();
  auto* memory = static_cast<float*>(scratch);
  const Panels panels{
      memory, memory + (kRows + kMaxTileRows) * kDepth,
      memory + (kRows + kMaxTileRows) * kDepth + (kColumns + kMaxTileColumns) * kDepth};
  const int64_t depth_block = even_block(args.k, kDepth, 1);
  const int64_t row_block = even_block(args.m, kRows, kernel.rows);
  const int64_t column_block = even_block(args.n, kColumns, kernel.columns);
  for (int64_t j = 0; j < args.n; j += column_block) {
    const int64_t columns = std::min(column_block, args.n - j);
    for (int64_t p = 0; p < args.k; p += depth_block) {
      const int64_t depth = std::min(depth_block, args.k - p);
      kernel.pack_columns(args.b.data + p * args.b.row + j * args.b.column, args.b.column,
                          args.b.row, columns, depth, panels.b);
      for (int64_t i = 0; i < args.m; i += row_block) {
        const int64_t rows = std::min(row_block, args.m - i);
        kernel.pack_rows(args.a.data + i * args.a.row + p * args.a.column, args.a.row,
                         args.a.column, rows, depth, panels.a);
        multiply_block(kernel, args, i, rows, j, columns, depth, args.accumulate || p > 0, panels);
      }
    }
  }
}

}  // namespace cad::backend
