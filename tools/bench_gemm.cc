// tools/bench_gemm.cc -- backend/cpu/gemm.h beside OpenBLAS on the shapes of transformers, one
// thread, in CPU time (so that a busy machine does not matter much). Not part of the build:
//   g++ -std=c++20 -O2 -I. tools/bench_gemm.cc backend/cpu/gemm.cc backend/cpu/gemm_kernels.cc
//       backend/cpu/thread_pool.cc build/release/libcad_ir.a build/release/libcad_base.a
//       -lopenblas -lfmt -lpthread -o bench_gemm
#include <cblas.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "backend/cpu/gemm.h"
#include "backend/cpu/thread_pool.h"

namespace {

double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <class F>
double median_seconds(F&& f) {
  std::vector<double> times;
  f();
  for (double total = 0; times.size() < 5 || (total < 0.4 && times.size() < 40);
       total += times.back()) {
    const double start = cpu_seconds();
    f();
    times.push_back(cpu_seconds() - start);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Shape {
  int m, n, k;
  bool a_transposed, b_transposed;
};

}  // namespace

int main() {
  using namespace cad::backend;
  openblas_set_num_threads(1);
  ThreadPool pool(1);
  const Shape shapes[] = {{1024, 2304, 768, false, false}, {1024, 768, 768, false, false},
                          {1024, 3072, 768, false, false}, {1024, 768, 3072, false, false},
                          {1024, 768, 2304, false, true},  {768, 3072, 1024, true, false},
                          {768, 768, 1024, true, false},   {4096, 192, 192, false, false},
                          {4096, 576, 192, false, false},  {4096, 768, 192, false, false},
                          {4096, 192, 768, false, false},  {192, 768, 4096, true, false},
                          {4096, 192, 768, false, true},   {4096, 256, 192, false, true},
                          {1024, 8192, 768, false, true}};
  constexpr auto kF32 = cad::ir::DType::kF32;
  for (const Shape& s : shapes) {
    std::vector<float> a(static_cast<size_t>(s.m) * s.k, 0.5F),
        b(static_cast<size_t>(s.k) * s.n, 0.25F), c(static_cast<size_t>(s.m) * s.n);
    const GemmDim m{s.m, s.a_transposed ? 1 : s.k, 0, s.n}, n{s.n, 0, s.b_transposed ? s.k : 1, 1},
        k{s.k, s.a_transposed ? s.m : 1, s.b_transposed ? 1 : s.n, 0};
    const GemmPlan plan = plan_gemm({}, {m}, {n}, {k}, kF32, kF32, kF32);
    const double own =
        median_seconds([&] { run_gemm(plan, a.data(), b.data(), c.data(), false, pool); });
    const double blas = median_seconds([&] {
      cblas_sgemm(CblasRowMajor, s.a_transposed ? CblasTrans : CblasNoTrans,
                  s.b_transposed ? CblasTrans : CblasNoTrans, s.m, s.n, s.k, 1, a.data(),
                  s.a_transposed ? s.m : s.k, b.data(), s.b_transposed ? s.k : s.n, 0, c.data(),
                  s.n);
    });
    std::printf("m %5d n %5d k %5d %c%c  own %6.1f  openblas %6.1f GFLOP/s\n", s.m, s.n, s.k,
                s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N', plan.flops() / own * 1e-9,
                plan.flops() / blas * 1e-9);
  }
}
