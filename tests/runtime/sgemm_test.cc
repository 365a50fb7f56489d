// sgemm against a triple loop in double: every tile edge, every stride order, both accumulations.
#include "backend/cpu/sgemm.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace cad::backend {
namespace {

struct Case {
  int64_t m, n, k;
  bool a_transposed, b_transposed, c_transposed, accumulate;
};

void run_case(const Case& c) {
  std::mt19937 random(static_cast<unsigned>(c.m * 31 + c.n * 7 + c.k));
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  const auto fill = [&](int64_t size) {
    std::vector<float> data(static_cast<size_t>(size));
    for (float& x : data) x = uniform(random);
    return data;
  };
  const std::vector<float> a = fill(c.m * c.k);
  const std::vector<float> b = fill(c.k * c.n);
  std::vector<float> out = fill(c.m * c.n);
  const std::vector<float> before = out;
  SgemmArgs args;
  args.m = c.m;
  args.n = c.n;
  args.k = c.k;
  args.a = c.a_transposed ? MatrixView<const float>{a.data(), 1, c.m}
                          : MatrixView<const float>{a.data(), c.k, 1};
  args.b = c.b_transposed ? MatrixView<const float>{b.data(), 1, c.k}
                          : MatrixView<const float>{b.data(), c.n, 1};
  args.c = c.c_transposed ? MatrixView<float>{out.data(), 1, c.m}
                          : MatrixView<float>{out.data(), c.n, 1};
  args.accumulate = c.accumulate;
  std::vector<char> scratch(sgemm_scratch_bytes() + 64);
  sgemm(args, scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64);
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.n; ++j) {
      const auto at = static_cast<size_t>(i * args.c.row + j * args.c.column);
      double want = c.accumulate ? before[at] : 0.0;
      for (int64_t p = 0; p < c.k; ++p) {
        want += static_cast<double>(args.a.data[i * args.a.row + p * args.a.column]) *
                args.b.data[p * args.b.row + j * args.b.column];
      }
      ASSERT_NEAR(out[at], want, 1e-5 * (1.0 + std::sqrt(static_cast<double>(c.k))))
          << c.m << "x" << c.n << "x" << c.k << " at " << i << ", " << j;
    }
  }
}

TEST(Sgemm, EdgesAndStrides) {
  for (const int64_t m : {1, 5, 12, 13, 250}) {
    for (const int64_t n : {1, 31, 32, 65}) {
      for (const int64_t k : {0, 1, 7, 385}) {
        for (int flags = 0; flags < 16; ++flags) {
          run_case(
              {m, n, k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, (flags & 8) != 0});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Sgemm, SeveralBlocksInEveryDimension) {
  run_case({500, 1600, 800, false, true, false, true});
}

TEST(Sgemm, NothingToDo) {
  run_case({0, 5, 3, false, false, false, false});
  run_case({5, 0, 3, false, false, false, false});
}

}  // namespace
}  // namespace cad::backend
