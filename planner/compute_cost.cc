// planner/compute_cost.cc -- see compute_cost.h.
#include "planner/compute_cost.h"

#include <algorithm>

namespace cad::planner {
namespace {

double rate_of(const Device& device, const char* name) {
  const auto at = device.flops.find(name);
  return at == device.flops.end() ? 0 : at->second;
}

// Part of `rate` that a product of m x k by k x n reaches. Tiles of side T re-read both operands
// and write the result: s/2 (1/min(m,T) + 1/min(n,T) + 1/k) bytes a FLOP at s bytes an element. Of
// the time this takes at the device's bandwidth the part `matmul_reread` is not hidden, so small
// and flat products lose, and all of them on devices with few bytes a FLOP. Extents of 0 are large.
double product_efficiency(const Device& device, const Work& work, double k, double rate,
                          const CostConstants& constants) {
  const double tile = constants.matmul_tile;
  const auto side = [tile](double extent) {
    return 1 / (extent > 0 ? std::min(extent, tile) : tile);
  };
  const double depth = k > 0 ? 1 / k : 0;
  const double bytes_a_flop =
      ir::dtype_bytes(work.dtype) / 2.0 * (side(work.m) + side(work.n) + depth);
  const double moving = constants.matmul_reread * bytes_a_flop * rate / device.bandwidth;
  return 1 / (1 / constants.matmul_peak + moving);
}

// Of a CPU. A product is its multiply-adds at the rate of a large one, and all that goes in and out
// once more at the rate of packing: what makes small and flat ones slow. Streaming runs at the
// caches' bandwidth as long as all of it fits there, at the memory's from twice that size on.
double cpu_seconds(const Device& device, const Work& work) {
  const CpuRates& cpu = *device.cpu;
  double compute = 0;
  if (work.matmul_flops > 0) {
    compute += work.matmul_flops / matmul_rate(device, work.dtype);
    if (const double volume = work.m * work.n * work.k; volume > 0) {
      const double products = work.matmul_flops / (2 * volume);
      const double elements = work.m * work.k + work.k * work.n + work.m * work.n;
      compute += products * elements * ir::dtype_bytes(work.dtype) / cpu.packing;
    }
  }
  compute += work.attention_flops / (work.backward ? cpu.attention_grad : cpu.attention);
  compute += work.other_flops * work.shown / cpu.pointwise;
  compute += work.draws * work.shown * 4 / cpu.random;
  const double beyond =
      cpu.cache > 0 ? std::clamp(work.bytes / cpu.cache - 1, 0.0, 1.0) : 1.0;  // of the bytes
  const double memory =
      work.bytes * ((1 - beyond) / cpu.cache_bandwidth + beyond / device.bandwidth);
  return std::max(compute, memory) + work.kernels * device.launch_overhead;
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
  if (flops <= 0 && work.bytes <= 0 && work.draws <= 0) return 0;
  if (device.cpu) return cpu_seconds(device, work);
  const double rate = matmul_rate(device, work.dtype);
  double compute = 0;
  if (work.matmul_flops > 0)
    compute +=
        work.matmul_flops / (rate * product_efficiency(device, work, work.k, rate, constants));
  if (work.attention_flops > 0) {
    const double efficiency = product_efficiency(device, work, 0, rate, constants);
    compute += work.attention_flops / (rate * efficiency * constants.attention);
  }
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
