// backend/cpu/gemm_kernels.cc -- instances of gemm_kernels.inl for AVX-512, AVX2 with FMA, and
// whatever the compiler's baseline is, so that one binary runs on every CPU of its architecture.
#include "backend/cpu/gemm_kernels.h"

#include "backend/cpu/half.h"

namespace cad::backend {

namespace {

// f16: rare (only f16 precision on a CPU), so it goes element by element.
void pack_half(float* dst, int width, const uint16_t* src, int count, const int64_t* lines, int64_t depth,
               const int64_t* steps) {
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
#include "backend/cpu/gemm_kernels.inl"
#undef CAD_TARGET
#undef CAD_LANES
#undef CAD_VECTORS
#undef CAD_ROWS
#undef CAD_NAME
}  // namespace baseline

#if defined(__x86_64__)
namespace avx2 {
#define CAD_TARGET __attribute__((target("avx2,fma")))
#define CAD_LANES 8
#define CAD_VECTORS 2
#define CAD_ROWS 6
#define CAD_NAME "avx2"
#include "backend/cpu/gemm_kernels.inl"
#undef CAD_TARGET
#undef CAD_LANES
#undef CAD_VECTORS
#undef CAD_ROWS
#undef CAD_NAME
}  // namespace avx2

namespace avx512 {
#define CAD_TARGET __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")))
#define CAD_LANES 16
#define CAD_VECTORS 2
#define CAD_ROWS 14
#define CAD_NAME "avx512"
#include "backend/cpu/gemm_kernels.inl"
}  // namespace avx512
#endif

}  // namespace

const GemmKernels& gemm_kernels() {
#if defined(__x86_64__)
  static const GemmKernels& best =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
          ? avx512::kKernels
      : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? avx2::kKernels
                                                                        : baseline::kKernels;
  return best;
#else
  return baseline::kKernels;
#endif
}

}  // namespace cad::backend
