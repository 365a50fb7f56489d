// backend/cpu/gemm_kernels.cc -- instances of gemm_kernels.inl for AVX-512, AVX2 with FMA, and
// whatever the compiler's baseline is, so that one binary runs on every CPU of its architecture.
#include "backend/cpu/gemm_kernels.h"

#include <cstdlib>
#include <string_view>

#if defined(__x86_64__)
#include <immintrin.h>  // defines: the widening multiplications
#endif

#include "backend/cpu/half.h"
#include "backend/cpu/row_kernels.h"

namespace cad::backend {

namespace {

// f16: rare (only f16 precision on a CPU), so it goes element by element.
void pack_half(float* dst, int width, const uint16_t* src, int count, const int64_t* lines,
               int64_t depth, const int64_t* steps) {
  for (int64_t k = 0; k < depth; ++k) {
    for (int i = 0; i < count; ++i) dst[k * width + i] = f16_to_float(src[lines[i] + steps[k]]);
    for (int i = count; i < width; ++i) dst[k * width + i] = 0;
  }
}

namespace baseline {
#define CAD_TARGET
#define CAD_LANES 4
#define CAD_VECTORS 2
#define CAD_ROWS 4
#define CAD_NAME "baseline"
#define CAD_MULTIPLY(x, y) (((x)&0xFFFFFFFFULL) * (y))
#include "backend/cpu/gemm_kernels.inl"
#include "backend/cpu/row_kernels.inl"
#undef CAD_TARGET
#undef CAD_LANES
#undef CAD_VECTORS
#undef CAD_ROWS
#undef CAD_NAME
#undef CAD_MULTIPLY
}  // namespace baseline

#if defined(__x86_64__)
namespace avx2 {
#define CAD_TARGET __attribute__((target("avx2,fma")))
#define CAD_LANES 8
#define CAD_VECTORS 2
#define CAD_ROWS 6
#define CAD_NAME "avx2"
#define CAD_MULTIPLY(x, y) __builtin_bit_cast(VecL, _mm256_mul_epu32((__m256i)(x), (__m256i)(y)))
#include "backend/cpu/gemm_kernels.inl"
#include "backend/cpu/row_kernels.inl"
#undef CAD_TARGET
#undef CAD_LANES
#undef CAD_VECTORS
#undef CAD_ROWS
#undef CAD_NAME
#undef CAD_MULTIPLY
}  // namespace avx2

namespace avx512 {
#define CAD_TARGET __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")))
#define CAD_LANES 16
#define CAD_VECTORS 2
#define CAD_ROWS 14
#define CAD_NAME "avx512"
#define CAD_MULTIPLY(x, y) \
  __builtin_bit_cast(VecL, _mm512_maskz_mul_epu32(0xFF, (__m512i)(x), (__m512i)(y)))
#include "backend/cpu/gemm_kernels.inl"
#include "backend/cpu/row_kernels.inl"
}  // namespace avx512
#endif

}  // namespace

namespace {

struct Choice {
  const GemmKernels* gemm;
  const RowKernels* rows;
};

// The widest set that the CPU has; COLAUTO_KERNELS (avx512, avx2, baseline) asks for a narrower
// one, so that tests reach all of them.
Choice choose() {
#if defined(__x86_64__)
  const char* asked = std::getenv("COLAUTO_KERNELS");
  const std::string_view name = asked == nullptr ? "" : asked;
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx512 && name != "avx2" && name != "baseline")
    return {&avx512::kKernels, &avx512::kRowKernels};
  if (has_avx2 && name != "baseline") return {&avx2::kKernels, &avx2::kRowKernels};
#endif
  return {&baseline::kKernels, &baseline::kRowKernels};
}

const Choice& best() {
  static const Choice choice = choose();
  return choice;
}

}  // namespace

const GemmKernels& gemm_kernels() {
  return *best().gemm;
}
const RowKernels& row_kernels() {
  return *best().rows;
}

}  // namespace cad::backend
