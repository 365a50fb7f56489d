// backend/cpu/gemm.h -- contractions as packed matrix products. A contraction's dims fall into four
// groups: batch (in a, b and c), m (a, c), n (b, c) and k (a, b); each group may have several dims
// with any strides, so transposes, splits and merges are folded into the packing and cost nothing.
// Panels are converted to f32 while packed; sums are f32. The order in which a result element is
// summed does not depend on the number of threads.
//
// Why not BLAS: its calls take one stride a group and repack for every head of a batch; on the
// shapes of transformers these kernels are as fast (tools/bench_gemm.cc compares them).
#pragma once

#include <cstdint>
#include <vector>

#include "ir/type.h"

namespace cad::backend {

class ThreadPool;

struct GemmDim {
  int64_t extent = 1;
  int64_t a = 0, b = 0, c = 0;  // strides in elements; 0 in an operand that lacks the dim
};

struct GemmPlan {
  std::vector<GemmDim> batch, m, n, k;  // outermost first, compatible dims joined, none of size 1
  int64_t batches = 1, rows = 1, columns = 1, depth = 1;
  ir::DType a_type = ir::DType::kF32, b_type = ir::DType::kF32, c_type = ir::DType::kF32;
  bool swapped = false;  // computed as c' = b' a', so that c's columns are dense
  [[nodiscard]] double flops() const {
    return 2.0 * static_cast<double>(batches) * static_cast<double>(rows) *
           static_cast<double>(columns) * static_cast<double>(depth);
  }
};

GemmPlan plan_gemm(std::vector<GemmDim> batch, std::vector<GemmDim> m, std::vector<GemmDim> n,
                   std::vector<GemmDim> k, ir::DType a, ir::DType b, ir::DType c);

// c = a b, or c += a b with `add`. Writes all of c, also when depth or an extent is 0.
void run_gemm(const GemmPlan& plan, const void* a, const void* b, void* c, bool add,
              ThreadPool& pool);

// Allocates the packing buffers of all threads now rather than at first use.
void warm_up_gemm(ThreadPool& pool);

}  // namespace cad::backend
