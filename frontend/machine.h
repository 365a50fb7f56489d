// frontend/machine.h -- machines and plans as a program describes them: plain structs in base units
// (bytes, seconds, operations a second), checked. The planner reads them; nothing here plans.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/source.h"

namespace cad::frontend {

struct DeviceSpec {
  std::string name;
  double memory = 0;     // bytes
  double bandwidth = 0;  // bytes a second to its memory
  std::map<std::string, double>
      flops;                          // by dtype: "f32", "tf32", "bf16", "f16"; operations a second
  std::map<std::string, double> cpu;  // what only CPUs have: "pointwise", "attention", "cache", ..
  Span span;
};

struct LinkSpec {
  double bandwidth = 0;  // bytes a second
  double latency = 0;    // seconds
};

struct ClusterSpec {
  std::string name;
  std::string device;  // a DeviceSpec of the program or of the standard library
  int64_t nodes = 1;
  int64_t per_node = 1;
  std::optional<LinkSpec> intra, inter, pairs;
  Span span;
};

constexpr size_t kMostMeshAxes = 3;  // that are planned for

struct MeshSpec {
  std::string name;
  std::vector<std::pair<std::string, int64_t>> axes;  // outermost first
  Span span;
};

struct PlanSpec {
  std::string name;
  std::map<std::string, std::string> shard;  // dim -> mesh axis: soft preferences
  std::string checkpoint = "auto";           // auto, none, all
  std::optional<double> budget_fraction;     // of a device's memory
  std::optional<double> budget_bytes;
  Span span;
};

struct Machines {
  std::vector<DeviceSpec> devices;
  std::vector<ClusterSpec> clusters;
  std::vector<MeshSpec> meshes;
  std::vector<PlanSpec> plans;
};

}  // namespace cad::frontend
