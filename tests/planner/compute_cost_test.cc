// tests/planner/compute_cost_test.cc -- the roofline of one device: which side of it work is on,
// and how its efficiency moves with the shape. Against published runs: tools/bench_published.cc.
#include "planner/compute_cost.h"

#include <gtest/gtest.h>

#include "planner/machines.h"

namespace cad::planner {
namespace {

Device device_of(const std::string& name) {
  return *library_machines().find_device(name);
}

Work product(double m, double n, double k, ir::DType dtype = ir::DType::kBF16) {
  Work work;
  work.m = m;
  work.n = n;
  work.k = k;
  work.matmul_flops = 2 * m * n * k;
  work.bytes = ir::dtype_bytes(dtype) * (m * n + n * k + m * k);
  work.dtype = dtype;
  return work;
}

double efficiency(const Device& device, const Work& work) {
  return work.matmul_flops / compute_seconds(device, work) / matmul_rate(device, work.dtype);
}

TEST(ComputeCost, NothingIsFree) {
  EXPECT_EQ(compute_seconds(device_of("a100"), Work{}), 0.0);
}

TEST(ComputeCost, StreamingIsBandwidthAndALaunch) {
  const CostConstants& c = fitted_constants();
  Work work;
  work.bytes = 2e9;
  EXPECT_DOUBLE_EQ(compute_seconds(device_of("a100"), work),
                   2e9 / (2.039e12 * c.memory_peak) + c.launch_seconds);
  work.kernels = 3;
  EXPECT_DOUBLE_EQ(compute_seconds(device_of("a100"), work),
                   2e9 / (2.039e12 * c.memory_peak) + 3 * c.launch_seconds);
  Device slow = device_of("a100");
  slow.launch_overhead = 1e-3;
  EXPECT_DOUBLE_EQ(compute_seconds(slow, work), 2e9 / (2.039e12 * c.memory_peak) + 3e-3);
}

TEST(ComputeCost, LargeProductsReachMoreOfThePeak) {
  for (const char* name : {"a100", "h100", "v100"}) {
    const Device device = device_of(name);
    const ir::DType dtype = ir::DType::kF16;
    const double large = efficiency(device, product(8192, 8192, 8192, dtype));
    const double small = efficiency(device, product(512, 512, 512, dtype));
    const double thin = efficiency(device, product(8192, 64, 8192, dtype));
    EXPECT_GT(large, 0.5) << name;
    EXPECT_LT(large, fitted_constants().matmul_peak) << name;
    EXPECT_LT(small, large) << name;
    EXPECT_LT(thin, large) << name;
    // symmetric in m and n
    EXPECT_DOUBLE_EQ(efficiency(device, product(8192, 64, 8192, dtype)),
                     efficiency(device, product(64, 8192, 8192, dtype)));
  }
  // fewer bytes a FLOP: the same product reaches less of the peak
  EXPECT_LT(efficiency(device_of("h100"), product(4096, 4096, 4096)),
            efficiency(device_of("a100"), product(4096, 4096, 4096)));
}

// More work never takes less time.
TEST(ComputeCost, MonotoneInTheExtents) {
  const Device device = device_of("a100");
  for (double size = 1; size < 20000; size *= 1.5) {
    EXPECT_LE(compute_seconds(device, product(size, 1024, 1024)),
              compute_seconds(device, product(size * 1.5, 1024, 1024)));
    EXPECT_LE(compute_seconds(device, product(1024, 1024, size)),
              compute_seconds(device, product(1024, 1024, size * 1.5)));
  }
}

TEST(ComputeCost, RatesByType) {
  const Device v100 = device_of("v100");
  EXPECT_DOUBLE_EQ(matmul_rate(v100, ir::DType::kF32), 15.7e12);
  EXPECT_DOUBLE_EQ(matmul_rate(v100, ir::DType::kF16), 125e12);
  EXPECT_DOUBLE_EQ(matmul_rate(v100, ir::DType::kBF16), 15.7e12);  // it has no bf16 units
  EXPECT_DOUBLE_EQ(matmul_rate(device_of("a100"), ir::DType::kBF16), 312e12);
}

TEST(ComputeCost, WhatOverlapLeaves) {
  const double part = fitted_constants().overlap;
  EXPECT_DOUBLE_EQ(exposed_seconds(1, 10), 1 - part);
  EXPECT_DOUBLE_EQ(exposed_seconds(10, 1), 10 - part);
  EXPECT_EQ(exposed_seconds(0, 1), 0.0);
}

// A CPU's figures are what was measured: no part of a peak is taken.
TEST(ComputeCost, AShareOfACpu) {
  Device cpu;
  cpu.bandwidth = 10e9;
  cpu.flops["f32"] = 100e9;
  cpu.cpu = CpuRates{5e9, 50e9, 25e9, 2e9, 20e9, 1e6, 40e9};
  const ir::DType f32 = ir::DType::kF32;
  const Work large = product(1000, 1000, 1000, f32);
  EXPECT_DOUBLE_EQ(compute_seconds(cpu, large), 2e9 / 100e9 + 4 * 3e6 / 20e9);
  // two small products of a batch, and the same multiply-adds in one
  Work two = product(100, 100, 100, f32);
  two.matmul_flops *= 2;
  EXPECT_DOUBLE_EQ(compute_seconds(cpu, two), 4e6 / 100e9 + 2 * 4 * 3e4 / 20e9);
  Work attention;
  attention.attention_flops = 1e9;
  attention.other_flops = 1e8;
  attention.shown = 0.5;
  EXPECT_DOUBLE_EQ(compute_seconds(cpu, attention), 1e9 / 50e9 + 0.5e8 / 5e9);
  attention.backward = true;
  EXPECT_DOUBLE_EQ(compute_seconds(cpu, attention), 1e9 / 25e9 + 0.5e8 / 5e9);
  Work dropout;
  dropout.draws = 1e6;
  EXPECT_DOUBLE_EQ(compute_seconds(cpu, dropout), 4e6 / 2e9);
  // in the caches, beyond them, between
  const auto streaming = [&](double bytes) {
    Work work;
    work.bytes = bytes;
    return compute_seconds(cpu, work);
  };
  EXPECT_DOUBLE_EQ(streaming(1e6), 1e6 / 40e9);
  EXPECT_DOUBLE_EQ(streaming(2e6), 2e6 / 10e9);
  EXPECT_DOUBLE_EQ(streaming(1.5e6), 0.75e6 / 40e9 + 0.75e6 / 10e9);
  EXPECT_DOUBLE_EQ(streaming(1e9), 0.1);
}

}  // namespace
}  // namespace cad::planner
