// Contractions of random dim groups in random storage orders against nested loops in double.
#include "backend/cpu/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "backend/cpu/gemm_kernels.h"
#include "backend/cpu/thread_pool.h"
#include "tests/runtime/values.h"

namespace cad::backend {
namespace {

using testing::Memory;

struct Groups {
  std::vector<int64_t> batch, m, n, k;
};

// Dense strides for an operand that holds some of the dims, in a random order.
struct Operand {
  std::vector<int64_t> strides;  // by dim; 0 where absent
  int64_t elements = 1;
};

Operand random_order(const std::vector<int64_t>& extents, const std::vector<bool>& has,
                     std::mt19937& random) {
  Operand o;
  o.strides.assign(extents.size(), 0);
  std::vector<size_t> dims;
  for (size_t d = 0; d < extents.size(); ++d) {
    if (has[d]) dims.push_back(d);
  }
  std::shuffle(dims.begin(), dims.end(), random);
  for (const size_t d : dims) {
    o.strides[d] = o.elements;
    o.elements *= extents[d];
  }
  return o;
}

void check(const Groups& groups, ir::DType type, bool add, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> extents;
  std::vector<bool> in_a, in_b, in_c;
  const auto put = [&](const std::vector<int64_t>& dims, bool a, bool b, bool c) {
    for (const int64_t d : dims) {
      extents.push_back(d);
      in_a.push_back(a);
      in_b.push_back(b);
      in_c.push_back(c);
    }
  };
  put(groups.batch, true, true, true);
  put(groups.m, true, false, true);
  put(groups.n, false, true, true);
  put(groups.k, true, true, false);
  const Operand oa = random_order(extents, in_a, random), ob = random_order(extents, in_b, random),
                oc = random_order(extents, in_c, random);
  std::vector<GemmDim> parts[4];
  for (size_t d = 0; d < extents.size(); ++d) {
    const int group = in_a[d] && in_b[d] && in_c[d] ? 0 : in_a[d] && in_c[d] ? 1 : in_c[d] ? 2 : 3;
    parts[group].push_back({extents[d], oa.strides[d], ob.strides[d], oc.strides[d]});
  }
  const ir::Tensor a = testing::random_tensor(type, {oa.elements}, random),
                   b = testing::random_tensor(type, {ob.elements}, random),
                   c = testing::random_tensor(type, {oc.elements}, random);
  ir::Tensor expected = c;
  if (!add) std::fill(expected.data.begin(), expected.data.end(), 0.0);
  std::vector<int64_t> index(extents.size());
  const int64_t all = testing::count(extents);
  for (int64_t i = 0; i < all; ++i) {
    int64_t rest = i, pa = 0, pb = 0, pc = 0;
    for (size_t d = 0; d < extents.size(); ++d) {
      const int64_t at = rest % extents[d];
      rest /= extents[d];
      pa += at * oa.strides[d];
      pb += at * ob.strides[d];
      pc += at * oc.strides[d];
    }
    expected.data[static_cast<size_t>(pc)] +=
        a.data[static_cast<size_t>(pa)] * b.data[static_cast<size_t>(pb)];
  }
  const GemmPlan plan = plan_gemm(parts[0], parts[1], parts[2], parts[3], type, type, type);
  const Memory left = testing::to_memory(a), right = testing::to_memory(b);
  std::vector<char> first;
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    const Memory out = add ? testing::to_memory(c)
                           : Memory(static_cast<size_t>(oc.elements * ir::dtype_bytes(type)));
    run_gemm(plan, left.get(), right.get(), out.get(), add, pool);
    const ir::Tensor got = testing::from_memory(out, type, {oc.elements});
    EXPECT_LE(testing::difference(got, expected),
              (type == ir::DType::kF32 ? 4 : 1) * testing::tolerance(type))
        << "batch " << plan.batches << " m " << plan.rows << " n " << plan.columns << " k "
        << plan.depth << " threads " << threads << " dtype " << ir::dtype_name(type) << " add "
        << add << " seed " << seed;
    const std::vector<char> bytes(out.as<char>(), out.as<char>() + out.bytes());
    if (threads == 1) first = bytes;
    EXPECT_EQ(bytes, first) << "the result depends on the number of threads";
  }
}

// These tests run once more for every narrower set of kernels: see tests/CMakeLists.txt.
TEST(Gemm, TheKernelsAskedFor) {
  const char* asked = std::getenv("COLAUTO_KERNELS");
  if (asked == nullptr) GTEST_SKIP() << "the widest: " << gemm_kernels().name;
#if defined(__x86_64__)
  if (std::string(asked) == "avx2" && __builtin_cpu_supports("avx2") == 0) GTEST_SKIP();
  EXPECT_STREQ(gemm_kernels().name, asked);
#else
  EXPECT_STREQ(gemm_kernels().name, "baseline");
#endif
}

// All sizes around those of a tile, which has 4 to 14 rows and 8 to 32 columns.
TEST(Gemm, OddSizes) {
  unsigned seed = 1000;
  for (const int64_t m : {1, 3, 4, 5, 6, 7, 13, 14, 15, 29}) {
    for (const int64_t n : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33}) {
      for (const int64_t k : {1, 5, 33}) {
        check({{}, {m}, {n}, {k}}, ir::DType::kF32, seed % 2 == 0, seed);
        ++seed;
      }
    }
  }
}

TEST(Gemm, Shapes) {
  const std::vector<Groups> shapes = {{{}, {1}, {1}, {1}},      {{}, {14}, {32}, {8}},
                                      {{}, {15}, {33}, {9}},    {{}, {2}, {70}, {11}},
                                      {{}, {170}, {5}, {400}},  {{}, {3}, {800}, {2}},
                                      {{3}, {5}, {7}, {11}},    {{2, 3}, {4, 2}, {3, 5}, {2, 2}},
                                      {{4}, {16}, {}, {8}},     {{4}, {}, {16}, {8}},
                                      {{}, {}, {}, {20}},       {{}, {40}, {30}, {}},
                                      {{5}, {1}, {17}, {1, 3}}, {{}, {6, 5}, {64}, {4, 7}},
                                      {{}, {29}, {1}, {1000}},  {{7}, {}, {}, {5}}};
  unsigned seed = 0;
  for (const Groups& g : shapes) {
    for (const ir::DType type :
         {ir::DType::kF32, ir::DType::kBF16, ir::DType::kF16, ir::DType::kI32}) {
      for (const bool add : {false, true}) check(g, type, add, ++seed);
    }
  }
}

TEST(Gemm, StorageOrders) {
  for (unsigned seed = 100; seed < 130; ++seed)
    check({{3}, {17, 2}, {8, 5}, {10, 2}}, ir::DType::kF32, seed % 2 == 0, seed);
}

TEST(Gemm, EmptyDims) {
  for (const Groups& g : {Groups{{}, {3}, {4}, {0}}, Groups{{}, {0}, {4}, {5}},
                          Groups{{0}, {2}, {2}, {2}}, Groups{{2}, {2}, {40}, {0, 3}}}) {
    check(g, ir::DType::kF32, false, 1);
    check(g, ir::DType::kF32, true, 2);
    check(g, ir::DType::kBF16, false, 3);
    check(g, ir::DType::kI32, false, 4);
  }
}

// An operand read with stride 0 (a broadcast) and one read backwards.
TEST(Gemm, ZeroAndNegativeStrides) {
  ThreadPool pool(2);
  const int64_t m = 20, n = 35, k = 10;
  std::vector<float> a(static_cast<size_t>(k)), b(static_cast<size_t>(k * n)),
      c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < k; ++i) a[static_cast<size_t>(i)] = static_cast<float>(i + 1);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 7);
  const GemmPlan plan = plan_gemm({}, {{m, 0, 0, n}}, {{n, 0, 1, 1}}, {{k, -1, n, 0}},
                                  ir::DType::kF32, ir::DType::kF32, ir::DType::kF32);
  run_gemm(plan, a.data() + k - 1, b.data(), c.data(), false, pool);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t x = 0; x < k; ++x)
        sum += a[static_cast<size_t>(k - 1 - x)] * b[static_cast<size_t>(x * n + j)];
      EXPECT_FLOAT_EQ(c[static_cast<size_t>(i * n + j)], sum);
    }
  }
}

// f32 is f32: products by one keep all 24 bits, and long sums are off by parts in a million, not in
// a thousand as with operands cut to 10 bits.
TEST(Gemm, SinglePrecisionIsSingle) {
  constexpr int64_t m = 40, n = 24, k = 4096;
  ThreadPool pool(2);
  const auto product = [&](const std::vector<float>& a, const std::vector<float>& b, int64_t rows,
                           int64_t columns, int64_t depth) {
    const GemmPlan plan =
        plan_gemm({}, {{rows, depth, 0, columns}}, {{columns, 0, 1, 1}}, {{depth, 1, columns, 0}},
                  ir::DType::kF32, ir::DType::kF32, ir::DType::kF32);
    std::vector<float> out(static_cast<size_t>(rows * columns));
    run_gemm(plan, a.data(), b.data(), out.data(), false, pool);
    return out;
  };
  std::vector<float> exact, one(16 * 16, 0.0F);
  for (int i = 0; i < 16 * 16; ++i) {
    exact.push_back(1024.5F + 0x1p-13F * static_cast<float>(i));  // 24 bits each
    one[static_cast<size_t>(i)] = i % 17 == 0 ? 1.0F : 0.0F;
  }
  EXPECT_EQ(product(exact, one, 16, 16, 16), exact);
  EXPECT_EQ(product(one, exact, 16, 16, 16), exact);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> a(m * k), b(k * n);
  for (float& v : a) v = normal(random);
  for (float& v : b) v = normal(random);
  const std::vector<float> got = product(a, b, m, n, k);
  double error = 0, norm = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t x = 0; x < k; ++x)
        sum +=
            double{a[static_cast<size_t>(i * k + x)]} * double{b[static_cast<size_t>(x * n + j)]};
      error += std::pow(double{got[static_cast<size_t>(i * n + j)]} - sum, 2);
      norm += sum * sum;
    }
  }
  EXPECT_LT(std::sqrt(error / norm), 3e-6);
}

}  // namespace
}  // namespace cad::backend
