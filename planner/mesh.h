// planner/mesh.h -- devices as a grid of named axes, and which links each axis runs over. Axes are
// ordered outermost first: the last axis joins neighbouring device numbers. An axis of size 1 costs
// nothing. Not here: how tensors lie on it (planner/layout.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
};

struct Mesh {
  std::vector<Axis> axes;                  // at most kMaxAxes
  std::vector<std::vector<Level>> levels;  // for every AxisSet (index; 0 is empty): its groups
  [[nodiscard]] int devices() const;
  [[nodiscard]] int size(AxisSet set) const;  // product of the axes' sizes
  [[nodiscard]] std::string str() const;      // "dp=2, tp=4"
};

}  // namespace cad::planner
