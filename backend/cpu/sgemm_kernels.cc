// backend/cpu/sgemm_kernels.cc -- MR x NR tiles held in registers. Sizes: AVX-512 12 x 32 (24
// accumulators, 2 of B, a broadcast of A), AVX2 6 x 16, portable 4 x 8.
#include "backend/cpu/sgemm_kernels.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cad::backend {
namespace {

// Lines of one panel that exist; the rest are zeros.
template <int Lines>
void pack_edge(const float* source, int64_t line_stride, int64_t depth_stride, int64_t lines,
               int64_t depth, float* panel) {
  for (int64_t p = 0; p < depth; ++p) {
    for (int64_t line = 0; line < Lines; ++line) {
      panel[p * Lines + line] = line < lines ? source[line * line_stride + p * depth_stride] : 0.0F;
    }
  }
}

// 8 x 8 blocks through a local buffer keep both sides' cache lines whole.
template <int Lines>
void pack_transposed(const float* source, int64_t line_stride, int64_t depth, float* panel) {
  constexpr int kBlock = 16;
  int64_t p = 0;
  for (; p + kBlock <= depth; p += kBlock) {
    float block[Lines][kBlock];
    for (int line = 0; line < Lines; ++line)
      std::memcpy(block[line], source + line * line_stride + p, sizeof block[0]);
    for (int q = 0; q < kBlock; ++q) {
      float* out = panel + (p + q) * Lines;
      for (int line = 0; line < Lines; ++line) out[line] = block[line][q];
    }
  }
  for (; p < depth; ++p) {
    for (int line = 0; line < Lines; ++line)
      panel[p * Lines + line] = source[line * line_stride + p];
  }
}

template <int Lines>
void pack(const float* source, int64_t line_stride, int64_t depth_stride, int64_t lines,
          int64_t depth, float* panel) {
  for (int64_t first = 0; first < lines; first += Lines, panel += Lines * depth) {
    const float* from = source + first * line_stride;
    if (lines - first < Lines) {
      pack_edge<Lines>(from, line_stride, depth_stride, lines - first, depth, panel);
    } else if (line_stride == 1) {
      for (int64_t p = 0; p < depth; ++p)
        std::memcpy(panel + p * Lines, from + p * depth_stride, Lines * sizeof(float));
    } else if (depth_stride == 1) {
      pack_transposed<Lines>(from, line_stride, depth, panel);
    } else {
      pack_edge<Lines>(from, line_stride, depth_stride, Lines, depth, panel);
    }
  }
}

template <int Rows, int Columns>
void multiply_portable(int64_t depth, const float* a, const float* b, float* c, int64_t c_row,
                       bool accumulate) {
  float sums[Rows][Columns] = {};
  for (int64_t p = 0; p < depth; ++p, a += Rows, b += Columns) {
    for (int i = 0; i < Rows; ++i) {
      for (int j = 0; j < Columns; ++j) sums[i][j] += a[i] * b[j];
    }
  }
  for (int i = 0; i < Rows; ++i) {
    for (int j = 0; j < Columns; ++j) {
      c[i * c_row + j] = accumulate ? c[i * c_row + j] + sums[i][j] : sums[i][j];
    }
  }
}

constexpr SgemmKernel kPortable = {"portable", 4, 8, multiply_portable<4, 8>, pack<4>, pack<8>};

#if defined(__x86_64__)

__attribute__((target("avx512f"))) void multiply_avx512(int64_t depth, const float* a,
                                                        const float* b, float* c, int64_t c_row,
                                                        bool accumulate) {
  constexpr int kRows = 12;
  __m512 low[kRows];
  __m512 high[kRows];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    low[i] = _mm512_setzero_ps();
    high[i] = _mm512_setzero_ps();
    _mm_prefetch(reinterpret_cast<const char*>(c + i * c_row), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(c + i * c_row + 16), _MM_HINT_T0);
  }
  for (int64_t p = 0; p < depth; ++p, a += kRows, b += 32) {
    const __m512 b0 = _mm512_loadu_ps(b);
    const __m512 b1 = _mm512_loadu_ps(b + 16);
    _mm_prefetch(reinterpret_cast<const char*>(b + 256), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(b + 272), _MM_HINT_T0);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const __m512 x = _mm512_set1_ps(a[i]);
      low[i] = _mm512_fmadd_ps(x, b0, low[i]);
      high[i] = _mm512_fmadd_ps(x, b1, high[i]);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
    float* out = c + i * c_row;
    if (accumulate) {
      low[i] = _mm512_add_ps(low[i], _mm512_loadu_ps(out));
      high[i] = _mm512_add_ps(high[i], _mm512_loadu_ps(out + 16));
    }
    _mm512_storeu_ps(out, low[i]);
    _mm512_storeu_ps(out + 16, high[i]);
  }
}

__attribute__((target("avx2,fma"))) void multiply_avx2(int64_t depth, const float* a,
                                                       const float* b, float* c, int64_t c_row,
                                                       bool accumulate) {
  constexpr int kRows = 6;
  __m256 low[kRows];
  __m256 high[kRows];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) low[i] = high[i] = _mm256_setzero_ps();
  for (int64_t p = 0; p < depth; ++p, a += kRows, b += 16) {
    const __m256 b0 = _mm256_loadu_ps(b);
    const __m256 b1 = _mm256_loadu_ps(b + 8);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const __m256 x = _mm256_broadcast_ss(a + i);
      low[i] = _mm256_fmadd_ps(x, b0, low[i]);
      high[i] = _mm256_fmadd_ps(x, b1, high[i]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
    float* out = c + i * c_row;
    if (accumulate) {
      low[i] = _mm256_add_ps(low[i], _mm256_loadu_ps(out));
      high[i] = _mm256_add_ps(high[i], _mm256_loadu_ps(out + 8));
    }
    _mm256_storeu_ps(out, low[i]);
    _mm256_storeu_ps(out + 8, high[i]);
  }
}

constexpr SgemmKernel kAvx512 = {"avx512", 12, 32, multiply_avx512, pack<12>, pack<32>};
constexpr SgemmKernel kAvx2 = {"avx2", 6, 16, multiply_avx2, pack<6>, pack<16>};

const SgemmKernel& choose() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return kAvx2;
  return kPortable;
}

#else

const SgemmKernel& choose() {
  return kPortable;
}

#endif

}  // namespace

const SgemmKernel& sgemm_kernel() {
  static const SgemmKernel& kernel = choose();
  return kernel;
}

}  // namespace cad::backend
