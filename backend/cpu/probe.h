// backend/cpu/probe.h -- measures this machine as the planner sees it: products by dtype and size
// with colauto's own gemm on all cores, the bandwidth of its memory, what starting a kernel on all
// threads costs, and all-reduces between devices that are shares of it. Medians; a few seconds in
// all. Not here: what the figures are for (planner/machines.h), writing them down
// (cli/probe_command.cc).
#pragma once

#include <cstdint>
#include <vector>

#include "ir/type.h"

namespace cad::backend {

struct ProbedProduct {
  ir::DType dtype = ir::DType::kF32;
  int64_t m = 0, n = 0, k = 0;
  double flops = 0;  // operations a second, 2 a multiply-add
};

// What the products say about others (planner/compute_cost.h): seconds = operations / flops + bytes
// of both operands and the result / packing.
struct ProductRates {
  double flops = 0;    // operations a second
  double packing = 0;  // bytes a second
};
// Least squares of relative errors over the products of one type.
ProductRates fit_products(const std::vector<ProbedProduct>& products, ir::DType dtype);

// All-reduces between devices that are threads of one process.
struct ProbedCollective {
  int devices = 0;
  double small = 0;  // seconds of 4 KiB
  double large = 0;  // seconds of `bytes`
  int64_t bytes = 0;
  // What these mean for planner/collective.h: seconds a message, bytes a second of one device.
  [[nodiscard]] double latency() const;
  [[nodiscard]] double bandwidth() const;
};

struct Probe {
  int cores = 1;
  int64_t memory = 0;          // bytes this process may use
  double bandwidth = 0;        // bytes a second, read and written, arrays far beyond the caches
  double cache = 0;            // bytes: three arrays of so many in all are still read from caches
  double cache_bandwidth = 0;  // bytes a second, read and written, arrays within the caches
  double pointwise = 0;        // operations a second of a fused loop
  double attention = 0, attention_grad = 0;  // and of fused attention
  double random = 0;                         // bytes a second of f32 random numbers
  double fork_join = 0;                      // seconds: an empty job on all threads
  std::vector<ProbedProduct> products;
  std::vector<ProbedCollective> all_reduces;  // 2, 4, 8 devices, and one a core where that is more
  // One link for all of them, as a cluster section has it: the worst latency, and the least that
  // all devices together got.
  [[nodiscard]] double link_latency() const;
  [[nodiscard]] double link_bandwidth() const;
};

// `seconds`: about how long it may take. Every figure is measured at least three times; sizes of
// products that would take too long are left out.
Probe probe_host(double seconds = 6);

}  // namespace cad::backend
