// planner/compute_cost.h -- seconds of an op on one device: a roofline with an efficiency that
// depends on the shape, and the few constants of the whole cost model. They were fitted once to
// published runs (tools/bench_published.cc refits them and prints the errors); none belongs to one
// model, machine or run. Collectives are in planner/collective.h, formulas in docs/planner.md.
#pragma once

#include "ir/type.h"
#include "planner/cluster.h"

namespace cad::planner {

// The constants of the cost model, all of them.
struct CostConstants {
  double matmul_peak = 0.95;   // part of the peak rate that a product without end would reach
  double matmul_tile = 1540;   // side of the blocks for which a product reads its operands anew
  double matmul_reread = 2.0;  // how much of that reading, at the memory's bandwidth, is not hidden
  double attention = 0.86;     // rate of fused attention beside a product of its m, n, k
  double memory_peak = 0.6;    // part of the peak bandwidth that streaming kernels reach
  double launch_seconds = 3e-6;  // a kernel, where the device names no overhead of its own
  double overlap = 0.83;         // part of gradient and parameter collectives that runs beside
                                 // compute, at most as long as that compute
  double library_link = 0.8;     // effective part of data-sheet link bandwidth, set by hand (NCCL
                                 // reaches 235 of 300 GB/s); stdlib/devices.cad holds it already,
                                 // nothing multiplies by it
  bool operator==(const CostConstants&) const = default;
};
const CostConstants& fitted_constants();

// Queries that our CPU kernels of attention take together: of a causal mask they skip what all of
// them skip.
inline constexpr double kCpuAttentionTile = 64;

// One op (or one fused kernel) with a device's own share of the extents.
struct Work {
  double matmul_flops = 0;     // of contractions, 2 a multiply-add
  double attention_flops = 0;  // of fused attention: its two products, all of them
  double other_flops = 0;      // pointwise, reductions
  double draws = 0;            // random numbers
  double bytes = 0;            // read and written in device memory; of a fused chain what is left
  ir::DType dtype = ir::DType::kF32;  // of the operands: chooses the rate
  double m = 0, n = 0, k = 0;         // of the contraction, batch dims left out; 0: large
  bool backward = false;              // attention_flops are those of the gradient
  double shown = 1;  // part of attention that a causal mask leaves; in attention_flops already
  double kernels = 1;
};

// max(compute, bytes / bandwidth) + launch overhead. Work without any flops and bytes costs 0. Of a
// device with CpuRates the constants are not asked: its figures are what was measured, not peaks.
double compute_seconds(const Device& device, const Work& work,
                       const CostConstants& constants = fitted_constants());

// Operations a second of matrix products in this dtype: "f32" when the device lists no rate for it.
double matmul_rate(const Device& device, ir::DType dtype);

// What of `communication` seconds is left to wait for, when it may run beside `compute` seconds.
double exposed_seconds(double communication, double compute,
                       const CostConstants& constants = fitted_constants());

}  // namespace cad::planner
