// backend/cpu/sgemm.h -- single-precision matrix product for one thread: packs both operands into
// panels and runs a register-blocked micro-kernel (AVX-512, AVX2 or portable, chosen at run time).
// Any strides: a transpose costs nothing but the packing's access pattern. Threads are split by the
// caller (backend/cpu/gemm.h), who also supplies the packing memory: nothing is allocated here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cad::backend {

// A strided matrix: element (i, j) is data[i * row + j * column].
template <class T>
struct MatrixView {
  T* data = nullptr;
  int64_t row = 0;  // elements
  int64_t column = 0;
};

struct SgemmArgs {
  int64_t m = 0, n = 0, k = 0;
  MatrixView<const float> a;  // (m, k)
  MatrixView<const float> b;  // (k, n)
  MatrixView<float> c;        // (m, n); row or column stride 1 is fastest
  bool accumulate = false;    // c += a b, else c = a b (k = 0 gives zeros)
};

// Packing memory one call may use, in bytes; 64-byte aligned. The same for every shape.
size_t sgemm_scratch_bytes();
void sgemm(const SgemmArgs& args, void* scratch);
// The micro-kernel in use: "avx512", "avx2" or "portable".
const char* sgemm_kernel_name();

}  // namespace cad::backend
