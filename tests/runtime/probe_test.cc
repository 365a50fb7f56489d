// tests/runtime/probe_test.cc -- what `colauto probe` makes of its measurements; that it measures
// at all is tests/commands/devices_test.cc.
#include "backend/cpu/probe.h"

#include <gtest/gtest.h>

namespace cad::backend {
namespace {

ProbedProduct took(int64_t m, int64_t n, int64_t k, double flops, double packing) {
  const auto volume = static_cast<double>(m * n * k);
  const auto bytes = 4 * static_cast<double>(m * k + k * n + m * n);
  const double seconds = 2 * volume / flops + bytes / packing;
  return {ir::DType::kF32, m, n, k, 2 * volume / seconds};
}

TEST(Probe, ProductsGiveTwoRates) {
  std::vector<ProbedProduct> products;
  for (const int64_t size : {128, 256, 1024})
    products.push_back(took(size, size, size, 150e9, 30e9));
  products.push_back(took(1024, 1024, 64, 150e9, 30e9));
  products.push_back({ir::DType::kBF16, 512, 512, 512, 70e9});
  const ProductRates rates = fit_products(products, ir::DType::kF32);
  EXPECT_NEAR(rates.flops, 150e9, 1e3);
  EXPECT_NEAR(rates.packing, 30e9, 1e3);
  // one size tells nothing about packing
  EXPECT_NEAR(fit_products(products, ir::DType::kBF16).flops, 70e9, 1e3);
}

// Where flat products were no slower, packing costs next to nothing and is not negative.
TEST(Probe, PackingIsNeverNegative) {
  const std::vector<ProbedProduct> products = {{ir::DType::kF32, 1024, 1024, 1024, 100e9},
                                               {ir::DType::kF32, 1024, 1024, 16, 120e9}};
  const ProductRates rates = fit_products(products, ir::DType::kF32);
  EXPECT_NEAR(rates.flops, 110e9, 2e9);
  EXPECT_GT(rates.packing, 1e12);
}

}  // namespace
}  // namespace cad::backend
