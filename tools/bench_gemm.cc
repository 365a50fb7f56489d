// tools/bench_gemm.cc -- backend/cpu/gemm.h beside OpenBLAS and oneDNN on the shapes of
// transformers; run by `tools/bench gemm [threads]`, not part of the build. The three take turns on
// every shape; printed are medians of GFLOP/s. With one thread CPU time counts, so that a busy
// machine does not matter much; with more it is the clock.
#include <cblas.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "backend/cpu/gemm.h"
#include "backend/cpu/thread_pool.h"

namespace {

double seconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Median seconds of each function; they take turns so that slow moments hit all alike.
std::vector<double> medians(const std::vector<std::function<void()>>& functions, clockid_t clock) {
  std::vector<std::vector<double>> times(functions.size());
  for (const auto& f : functions) f();
  double total = 0;
  for (int turn = 0; turn < 5 || (total < 1 && turn < 40); ++turn) {
    for (size_t i = 0; i < functions.size(); ++i) {
      const double start = seconds(clock);
      functions[i]();
      times[i].push_back(seconds(clock) - start);
      total += times[i].back();
    }
  }
  std::vector<double> result;
  for (auto& t : times) {
    std::nth_element(t.begin(), t.begin() + static_cast<long>(t.size() / 2), t.end());
    result.push_back(t[t.size() / 2]);
  }
  return result;
}

struct Shape {
  int m, n, k;
  bool a_transposed, b_transposed;
};

}  // namespace

int main(int argc, char** argv) {
  using namespace cad::backend;
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  openblas_set_num_threads(threads);
  omp_set_num_threads(threads);
  ThreadPool pool(threads);
  const clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  std::printf("GFLOP/s, %d thread%s   own  openblas  onednn\n", threads, threads == 1 ? "" : "s");
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
    const auto lda = s.a_transposed ? s.m : s.k, ldb = s.b_transposed ? s.k : s.n;
    const auto times =
        medians({[&] { run_gemm(plan, a.data(), b.data(), c.data(), false, pool); },
                 [&] {
                   cblas_sgemm(CblasRowMajor, s.a_transposed ? CblasTrans : CblasNoTrans,
                               s.b_transposed ? CblasTrans : CblasNoTrans, s.m, s.n, s.k, 1,
                               a.data(), lda, b.data(), ldb, 0, c.data(), s.n);
                 },
                 [&] {
                   dnnl_sgemm(s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N', s.m, s.n, s.k,
                              1, a.data(), lda, b.data(), ldb, 0, c.data(), s.n);
                 }},
                clock);
    std::printf("m %5d n %5d k %5d %c%c %6.1f  %6.1f   %6.1f\n", s.m, s.n, s.k,
                s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N',
                plan.flops() / times[0] * 1e-9, plan.flops() / times[1] * 1e-9,
                plan.flops() / times[2] * 1e-9);
  }
}
