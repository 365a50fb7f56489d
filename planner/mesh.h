// planner/mesh.h -- devices as a grid of named axes, and which links each axis runs over. Axes are
// ordered outermost first: the last axis joins neighbouring device numbers. An axis of size 1 costs
// nothing. Not here: how tensors lie on it (planner/layout.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "planner/cluster.h"

namespace cad::planner {

constexpr int kMaxAxes = 3;

// A set of mesh axes, bit i for axis i.
using AxisSet = uint8_t;

// What the groups along an axis (or a set of axes) look like on the machine, innermost level first:
// {2, pair link}, {4, node link}, {8, network}: sizes multiply to the group's size.
struct Level {
  int size = 1;
  Link link;
  bool operator==(const Level&) const = default;
};

struct Axis {
  std::string name;
  int size = 1;
  bool operator==(const Axis&) const = default;
};

struct Mesh {
  std::vector<Axis> axes;                  // at most kMaxAxes
  std::vector<std::vector<Level>> levels;  // for every AxisSet (index; 0 is empty): its groups
  [[nodiscard]] int devices() const;
  [[nodiscard]] int size(AxisSet set) const;  // product of the axes' sizes
  [[nodiscard]] std::string str() const;      // "dp=2, tp=4"
};

// The mesh of these axes (outermost first) over the first devices of the cluster, with the levels
// of every axis set. Groups that a node or a pair holds unevenly are priced as one level over the
// worst link they use. Errors: E0802 more devices than the cluster has, E0803 more axes than
// kMaxAxes, an axis below 1 or named twice.
Result<Mesh> make_mesh(const Cluster& cluster, const std::vector<Axis>& axes);

// "dp=2,tp=4" as axes; E0803 when it is none.
Result<std::vector<Axis>> parse_axes(const std::string& text);

// Every way to put n devices on at most `max_axes` axes of size 2 or more: all ordered
// factorisations of n, the order being the assignment to the topology. Of meshes that differ only
// by the names of their axes one is kept, sizes ascending. n = 1: one axis of size 1.
// Axes are named x, y, z from the outermost.
Result<std::vector<Mesh>> meshes(const Cluster& cluster, int n, int max_axes = kMaxAxes);

// The same for axes that a program names: every assignment of sizes (1 allowed) and order.
Result<std::vector<Mesh>> named_meshes(const Cluster& cluster, int n,
                                       const std::vector<std::string>& names);

// Numbers of devices below n that a plan may use, the others staying idle, largest first: half of
// them, half of these and so on, and powers of two, which divide most sizes. Not 1.
std::vector<int> fewer_devices(int n);

// Ordered factorisations of n into at most `max_factors` factors of 2 or more: 16 of 64, 46 of
// 1,024. n = 1: one, without factors.
std::vector<std::vector<int>> factorisations(int n, int max_factors = kMaxAxes);

}  // namespace cad::planner
