// backend/cpu/probe.cc -- see probe.h.
#include "backend/cpu/probe.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <limits>
#include <thread>

#include "backend/comm/thread_world.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/probe_kernels.h"
#include "backend/cpu/thread_pool.h"
#include "backend/run_memory.h"
#include "base/check.h"
#include "base/unexpected.h"

namespace cad::backend {
namespace {

constexpr int64_t kSizes[] = {128, 256, 512, 1024, 2048};
// Flat ones, as layers have: few channels, few rows, many columns.
struct Shape {
  int64_t m, n, k;
};
constexpr Shape kFlat[] = {
    {1024, 256, 64}, {1024, 1024, 192}, {1024, 768, 768}, {192, 768, 1024}, {512, 4096, 256}};
constexpr ir::DType kTypes[] = {ir::DType::kF32, ir::DType::kBF16, ir::DType::kF16};
constexpr int64_t kStreamElements = int64_t{16} << 20;  // 64 MiB an array, three of them
constexpr size_t kRotated = size_t{96} << 20;           // bytes of operands, beyond the caches
constexpr int kLeast = 3, kMost = 200;                  // measurements of one figure

double now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// Median seconds of f(), run once before (page faults, cold caches, sleeping threads).
template <class F>
double median_seconds(double budget, F&& f) {
  f();
  std::vector<double> times;
  const double begin = now();
  while (static_cast<int>(times.size()) < kLeast ||
         (static_cast<int>(times.size()) < kMost && now() - begin < budget)) {
    const double start = now();
    f();
    times.push_back(now() - start);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

double measure_product(ir::DType dtype, const Shape& shape, double budget, ThreadPool& pool) {
  const auto bytes = [&](int64_t elements) {
    return static_cast<size_t>(elements * ir::dtype_bytes(dtype));
  };
  // zeros: every multiply-add takes the same time whatever it multiplies. Each run reads and writes
  // other memory, as in a training step: caches hold what was used last, not what comes next.
  const size_t a = bytes(shape.m * shape.k), b = bytes(shape.k * shape.n),
               c = bytes(shape.m * shape.n);
  const size_t one = (a + b + c + 4095) / 4096 * 4096;
  const size_t copies = std::max<size_t>(1, kRotated / one);
  std::vector<std::byte> memory(copies * one);
  size_t next = 0;
  const GemmPlan plan = plan_gemm({}, {{shape.m, shape.k, 0, shape.n}}, {{shape.n, 0, 1, 1}},
                                  {{shape.k, 1, shape.n, 0}}, dtype, dtype, dtype);
  const double seconds = median_seconds(budget, [&] {
    std::byte* at = memory.data() + next++ % copies * one;
    run_gemm(plan, at, at + a, at + a + b, false, pool);
  });
  return plan.flops() / seconds;
}

// a[i] = b[i] + 3 c[i] (McCalpin's triad), every thread its own part: two arrays read, one written.
double measure_bandwidth(int64_t elements, double budget, ThreadPool& pool) {
  const auto count = static_cast<size_t>(elements);
  std::vector<float> a(count), b(count, 1), c(count, 2);
  const double seconds = median_seconds(budget, [&] {
    pool.split(elements, 1024, [&](int64_t begin, int64_t end) {
      float* out = a.data();
      const float* x = b.data();
      const float* y = c.data();
      for (int64_t i = begin; i < end; ++i) out[i] = x[i] + 3 * y[i];
    });
  });
  return 3.0 * sizeof(float) * static_cast<double>(elements) / seconds;
}

// Bandwidth within the caches, and how large they are: the most bytes in all that are moved faster
// than halfway (by ratio) between caches and memory.
void measure_cache(Probe& probe, double budget, ThreadPool& pool) {
  // From 3 MiB a thread in all: tensors of layers are too large for the innermost caches.
  constexpr int kDoublings = 5;
  const int64_t least = int64_t{256} * 1024 * pool.size();  // elements of an array
  for (int i = 0; i < kDoublings; ++i) {
    const int64_t elements = least << i;
    if (elements >= kStreamElements) break;
    const double bandwidth = measure_bandwidth(elements, budget / kDoublings, pool);
    if (i == 0) probe.cache_bandwidth = std::max(bandwidth, probe.bandwidth);
    if (bandwidth * bandwidth >= probe.cache_bandwidth * probe.bandwidth)
      probe.cache = 3.0 * sizeof(float) * static_cast<double>(elements);
  }
}

// Seconds of one all-reduce over all devices of the world, as device 0 sees it: the median.
double measure_all_reduce(ThreadWorld& world, int64_t elements, int times) {
  const int devices = world.devices();
  CollectiveCall call;
  call.kind = CollectiveKind::kAllReduce;
  call.outer = elements;
  for (int device = 0; device < devices; ++device) call.members.push_back(device);
  std::vector<double> seconds;
  const auto loop = [&](int device) {
    Communicator comm(world, device);
    const std::vector<float> in(static_cast<size_t>(elements), 1);
    std::vector<float> out(in.size());
    for (int i = 0; i <= times; ++i) {
      const double start = now();
      if (!comm.run(call, in.data(), out.data())) return;
      if (device == 0 && i > 0) seconds.push_back(now() - start);
    }
  };
  std::vector<std::thread> threads;
  std::exception_ptr unexpected;
  try {
    for (int device = 1; device < devices; ++device) threads.emplace_back(loop, device);
    loop(0);
  } catch (const std::exception& e) {  // no room for another thread: those that run must end first
    world.fail(unexpected_text(e));
    unexpected = std::current_exception();
  }
  for (std::thread& thread : threads) thread.join();
  if (unexpected) std::rethrow_exception(unexpected);
  CAD_CHECK(!seconds.empty(), "{}", world.failure().value_or("no all-reduce ended"));
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

ProbedCollective measure_collective(int devices) {
  constexpr int64_t kSmall = 1024, kLarge = int64_t{8} << 20;  // f32 elements
  ProbedCollective result;
  result.devices = devices;
  result.bytes = kLarge * 4;
  ThreadWorld small(result.devices), large(result.devices);
  result.small = measure_all_reduce(small, kSmall, 200);
  result.large = measure_all_reduce(large, kLarge, 5);
  return result;
}

}  // namespace

// An all-reduce is 2 ceil(log2 n) messages and 2 (n-1)/n of the bytes (docs/planner.md).
double ProbedCollective::latency() const {
  int rounds = 0;
  while ((1 << rounds) < devices) ++rounds;
  return small / (2.0 * rounds);
}

double ProbedCollective::bandwidth() const {
  const double moving = std::max(large - small, large / 10);
  return 2.0 * static_cast<double>(bytes) * (devices - 1) / devices / moving;
}

double Probe::link_latency() const {
  double worst = 0;
  for (const ProbedCollective& measured : all_reduces) worst = std::max(worst, measured.latency());
  return worst;
}

double Probe::link_bandwidth() const {
  CAD_CHECK(!all_reduces.empty(), "no all-reduce was measured");
  double least = std::numeric_limits<double>::infinity();
  for (const ProbedCollective& measured : all_reduces)
    least = std::min(least, measured.bandwidth() * measured.devices);
  return least;
}

ProductRates fit_products(const std::vector<ProbedProduct>& products, ir::DType dtype) {
  // Least squares of x f + y t = 1, with f, t operations and bytes by the seconds they took.
  double ff = 0, ft = 0, tt = 0, f1 = 0, t1 = 0;
  for (const ProbedProduct& p : products) {
    if (p.dtype != dtype) continue;
    const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n),
               k = static_cast<double>(p.k);
    const double took = 2 * m * n * k / p.flops;
    const double f = 2 * m * n * k / took,
                 t = (m * k + k * n + m * n) * ir::dtype_bytes(dtype) / took;
    ff += f * f, ft += f * t, tt += t * t, f1 += f, t1 += t;
  }
  CAD_CHECK(ff > 0, "no product of {} was measured", ir::dtype_name(dtype));
  const double determinant = ff * tt - ft * ft;
  double x = f1 / ff, y = 0;
  if (determinant > 1e-9 * ff * tt) {
    const double both = (f1 * tt - t1 * ft) / determinant,
                 bytes = (t1 * ff - f1 * ft) / determinant;
    if (both > 0 && bytes > 0) x = both, y = bytes;
  }
  // a product that is all packing is no product
  return {1 / x, 1 / std::max(y, x * 1e-3)};
}

Probe probe_host(double seconds) {
  ThreadPool pool;
  warm_up_gemm(pool);
  Probe probe;
  probe.cores = pool.size();
  probe.memory = RunMemory::machine_bytes();
  const double share = seconds / (std::size(kTypes) * std::size(kSizes) + std::size(kFlat) + 4);
  probe.fork_join = median_seconds(share / 4, [&] { pool.each([](int) {}); });
  probe.bandwidth = measure_bandwidth(kStreamElements, share, pool);
  measure_cache(probe, share, pool);
  const KernelRates kernels =
      measure_kernels(pool, [&](const auto& f) { return median_seconds(share / 2, f); });
  probe.pointwise = kernels.pointwise;
  probe.random = kernels.random;
  probe.attention = kernels.attention;
  probe.attention_grad = kernels.attention_grad;
  for (const Shape& shape : kFlat) {
    const double flops = measure_product(ir::DType::kF32, shape, share, pool);
    probe.products.push_back({ir::DType::kF32, shape.m, shape.n, shape.k, flops});
  }
  for (const ir::DType dtype : kTypes) {
    for (const int64_t size : kSizes) {
      const double flops = measure_product(dtype, {size, size, size}, share, pool);
      probe.products.push_back({dtype, size, size, size, flops});
      // the next size takes eight times as long: leave it out where that would be too long
      const double next = 8 * 2.0 * static_cast<double>(size * size * size) / flops;
      if ((kLeast + 1) * next > 3 * share) break;
    }
  }
  for (const int devices : {2, 4, 8}) probe.all_reduces.push_back(measure_collective(devices));
  if (probe.cores > 8) probe.all_reduces.push_back(measure_collective(std::min(probe.cores, 64)));
  return probe;
}

}  // namespace cad::backend
