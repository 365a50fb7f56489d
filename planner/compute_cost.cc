// planner/compute_cost.cc -- see compute_cost.h.
#include "planner/compute_cost.h"

#include <algorithm>

namespace cad::planner {
namespace {

double rate_of(const Device& device, const char* name) {
  const auto at = device.flops.find(name);
  return at == device.flops.end() ? 0 : at->second;
}

// x / (x + half): 1 for large x. 0 stands for an extent that is not known, or large.
double saturation(double x, double half) {
  return x > 0 ? x / (x + half) : 1;
}

}  // namespace

const CostConstants& fitted_constants() {
  static const CostConstants kFitted;
  return kFitted;
}

double matmul_rate(const Device& device, ir::DType dtype) {
  double rate = 0;
  if (dtype == ir::DType::kBF16) rate = rate_of(device, "bf16");
  if (dtype == ir::DType::kF16) rate = rate_of(device, "f16");
  // 16-bit products of devices that list only one of the two run at that rate
  if (rate == 0 && dtype == ir::DType::kF16) rate = rate_of(device, "bf16");
  return rate > 0 ? rate : rate_of(device, "f32");
}

double compute_seconds(const Device& device, const Work& work, const CostConstants& constants) {
  const double flops = work.matmul_flops + work.attention_flops + work.other_flops;
  if (flops <= 0 && work.bytes <= 0) return 0;
  const double rate = matmul_rate(device, work.dtype);
  double compute = 0;
  if (work.matmul_flops > 0) {
    const double side = work.m > 0 && work.n > 0 ? std::min(work.m, work.n) : work.m + work.n;
    const double efficiency = constants.matmul_peak * saturation(work.k, constants.matmul_depth) *
                              saturation(side, constants.matmul_tile);
    compute += work.matmul_flops / (rate * efficiency);
  }
  if (work.attention_flops > 0) compute += work.attention_flops / (rate * constants.attention_peak);
  if (work.other_flops > 0) compute += work.other_flops / rate_of(device, "f32");
  const double memory = work.bytes / (device.bandwidth * constants.memory_peak);
  const double launch =
      device.launch_overhead > 0 ? device.launch_overhead : constants.launch_seconds;
  return std::max(compute, memory) + work.kernels * launch;
}

double exposed_seconds(double communication, double compute, const CostConstants& constants) {
  return communication - constants.overlap * std::min(communication, compute);
}

}  // namespace cad::planner
