// planner/cluster.h -- the machine that a plan is for: equal devices, the links between them, and
// how fast each is. Base units only: bytes, seconds, operations and bytes a second. Values come
// from `device` and `cluster` sections (the program's, the standard library's, a probed host's).
// Not here: which devices an axis joins (planner/mesh.h), what things cost
// (planner/compute_cost.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "ir/type.h"

namespace cad::planner {

// A link as one device sees it while all devices of its level use theirs.
struct Link {
  double bandwidth = 0;  // bytes a second, one direction
  double latency = 0;    // seconds a message
  bool operator==(const Link&) const = default;
};

// A device that is a share of a CPU: what data sheets of CPUs do not say. `colauto probe` measures
// it; else it is guessed from the rates (planner/machines.h).
struct CpuRates {
  double pointwise = 0;       // operations a second of fused loops whose data are in the caches
  double attention = 0;       // operations a second of fused attention
  double attention_grad = 0;  // and of its gradient
  double random = 0;          // bytes a second of f32 random numbers, drawn anew wherever used
  double packing = 0;         // bytes a second of operands and results that a product brings in and
                              // out, beside its multiply-adds
  double cache = 0;           // bytes: what one kernel leaves there is there for the next
  double cache_bandwidth = 0;  // bytes a second to it
};

struct Device {
  std::string name;
  double memory = 0;     // bytes
  double bandwidth = 0;  // bytes a second to its memory
  std::map<std::string, double>
      flops;                   // by rate name "f32" "tf32" "bf16" "f16": operations a second
  double launch_overhead = 0;  // seconds a kernel
  std::optional<CpuRates> cpu;
};

// Devices are numbered node by node; pairs are (0, 1), (2, 3), .. when `pairs` is given.
struct Cluster {
  std::string name;
  Device device;
  int64_t nodes = 1;
  int64_t per_node = 1;
  std::optional<Link> pairs;  // inside a pair
  std::optional<Link> intra;  // inside a node
  std::optional<Link> inter;  // across nodes
  [[nodiscard]] int64_t devices() const { return nodes * per_node; }
};

}  // namespace cad::planner
