// tests/planner/spmd_check.h -- simulated devices: tensors cut up by layout, conversion steps
// carried out by groups of devices, and ops run on each device's part by their own reference
// semantics. Ground truth for layouts, conversions and sharding rules. Naive on purpose; knows
// nothing of costs, and of planner/ only what a layout says about where elements lie.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ir/interpreter.h"
#include "planner/conversion.h"
#include "planner/strategy.h"

namespace cad::planner {

using Parts = std::vector<ir::Tensor>;  // one a device, in device order

inline Mesh mesh_of(const std::vector<int>& sizes, double latency = 1e-5, double bandwidth = 1e9) {
  static const char* const kNames[] = {"a", "b", "c"};
  Mesh mesh;
  for (size_t i = 0; i < sizes.size(); ++i) mesh.axes.push_back({kNames[i], sizes[i]});
  for (unsigned set = 0; set < 1U << sizes.size(); ++set) {
    mesh.levels.emplace_back();
    const int size = mesh.size(static_cast<AxisSet>(set));
    if (size > 1) mesh.levels.back().push_back({size, {bandwidth, latency}});
  }
  return mesh;
}

// Where each device's part lies, and a tensor of that shape.
inline std::vector<Range> ranges_of(const Layout& layout, const std::vector<int64_t>& extents,
                                    const Mesh& mesh, int device) {
  const std::vector<int> at = coordinates_of(mesh, device);
  return local_ranges(layout, extents, mesh, at);
}

inline ir::Tensor blank(ir::DType dtype, const std::vector<Range>& ranges, double value = 0) {
  ir::Tensor t;
  t.dtype = dtype;
  size_t count = 1;
  for (const Range& r : ranges) {
    t.extents.push_back(r.extent);
    count *= static_cast<size_t>(r.extent);
  }
  t.data.assign(count, value);
  return t;
}

// f(element of `to`, element of `from`) for every place that both ranges hold.
template <class F>
void for_overlap(const std::vector<Range>& to, const std::vector<Range>& from, F&& f) {
  std::vector<int64_t> low, high;
  for (size_t i = 0; i < to.size(); ++i) {
    low.push_back(std::max(to[i].offset, from[i].offset));
    high.push_back(std::min(to[i].offset + to[i].extent, from[i].offset + from[i].extent));
    if (low.back() >= high.back()) return;
  }
  std::vector<int64_t> at = low;
  while (true) {
    size_t in_to = 0, in_from = 0;
    for (size_t i = 0; i < to.size(); ++i) {
      in_to = in_to * static_cast<size_t>(to[i].extent) + static_cast<size_t>(at[i] - to[i].offset);
      in_from = in_from * static_cast<size_t>(from[i].extent) +
                static_cast<size_t>(at[i] - from[i].offset);
    }
    f(in_to, in_from);
    size_t i = at.size();
    while (i > 0 && ++at[i - 1] == high[i - 1]) {
      at[i - 1] = low[i - 1];
      --i;
    }
    if (i == 0) return;
  }
}

inline std::vector<Range> everywhere(const std::vector<int64_t>& extents) {
  std::vector<Range> ranges;
  for (int64_t e : extents) ranges.push_back({0, e});
  return ranges;
}

// Devices that differ from `device` along the axes of `set` only, itself among them.
inline std::vector<int> group_of(const Mesh& mesh, AxisSet set, int device) {
  const std::vector<int> own = coordinates_of(mesh, device);
  std::vector<int> group;
  for (int other = 0; other < mesh.devices(); ++other) {
    const std::vector<int> at = coordinates_of(mesh, other);
    bool inside = true;
    for (size_t i = 0; i < at.size(); ++i) inside &= at[i] == own[i] || (set >> i & 1) != 0;
    if (inside) group.push_back(other);
  }
  return group;
}

// Cut up by layout. Partial: all devices of a group but the first get noise, the first the rest.
inline Parts shard(const ir::Tensor& whole, const Layout& layout, const Mesh& mesh,
                   uint32_t seed = 1) {
  Parts parts;
  uint32_t state = seed;
  const auto noise = [&] {
    state = state * 1664525U + 1013904223U;
    return static_cast<double>(state >> 16) / 1024.0 - 32;
  };
  for (int device = 0; device < mesh.devices(); ++device) {
    const std::vector<Range> own = ranges_of(layout, whole.extents, mesh, device);
    parts.push_back(blank(whole.dtype, own));
    for_overlap(own, everywhere(whole.extents),
                [&](size_t to, size_t from) { parts.back().data[to] = whole.data[from]; });
  }
  const AxisSet partial = axes_with(layout, mesh, kPartial);
  if (partial == 0) return parts;
  // Replicas must get equal noise: it is drawn for the whole tensor, once a group member.
  for (int device = 0; device < mesh.devices(); ++device) {
    const std::vector<int> group = group_of(mesh, partial, device);
    if (group[0] != device) continue;
    for (size_t k = 0; k < parts[static_cast<size_t>(device)].data.size(); ++k) {
      const double value = parts[static_cast<size_t>(device)].data[k];
      double rest = value;
      for (size_t m = 1; m < group.size(); ++m) {
        state = seed + static_cast<uint32_t>(1000 * m + k % 97);
        const double part = noise();
        parts[static_cast<size_t>(group[m])].data[k] = part;
        rest -= part;
      }
      parts[static_cast<size_t>(device)].data[k] = rest;
    }
  }
  return parts;
}

inline bool same(double a, double b, double tolerance) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return true;
  return std::abs(a - b) <= tolerance * (1 + std::abs(b));
}

// "" when the parts make up the whole: every element where the layout puts it, replicas alike,
// summands adding up.
inline std::string difference(const Parts& parts, const ir::Tensor& whole, const Layout& layout,
                              const Mesh& mesh, double tolerance = 1e-9) {
  const AxisSet partial = axes_with(layout, mesh, kPartial);
  for (int device = 0; device < mesh.devices(); ++device) {
    const std::vector<Range> own = ranges_of(layout, whole.extents, mesh, device);
    ir::Tensor sum = blank(whole.dtype, own);
    for (int member : group_of(mesh, partial, device)) {
      const ir::Tensor& part = parts[static_cast<size_t>(member)];
      if (part.extents != sum.extents) return fmt::format("device {}: other extents", member);
      for (size_t k = 0; k < sum.data.size(); ++k) sum.data[k] += part.data[k];
    }
    std::string fault;
    for_overlap(own, everywhere(whole.extents), [&](size_t to, size_t from) {
      if (!same(sum.data[to], whole.data[from], tolerance)) {
        fault = fmt::format("device {} element {}: {} instead of {}", device, from, sum.data[to],
                            whole.data[from]);
      }
    });
    if (!fault.empty()) return fault;
  }
  return "";
}

// One conversion step, each device hearing from its group along the step's axes only.
inline Parts apply(const Step& step, const Parts& parts, const std::vector<int64_t>& extents,
                   const Mesh& mesh) {
  Parts result;
  for (int device = 0; device < mesh.devices(); ++device) {
    const std::vector<Range> own = ranges_of(step.to, extents, mesh, device);
    ir::Tensor out = blank(parts[0].dtype, own);
    std::vector<int> heard(out.data.size(), 0);
    const bool alone = is_free(step.kind);
    const std::vector<int> group =
        alone ? std::vector<int>{device} : group_of(mesh, step.axes, device);
    size_t senders = 0;
    for (int member : group) {
      const ir::Tensor& part = parts[static_cast<size_t>(member)];
      bool sends = false;
      for_overlap(own, ranges_of(step.from, extents, mesh, member), [&](size_t to, size_t from) {
        out.data[to] += part.data[from];
        ++heard[to];
        sends = true;
      });
      senders += sends ? 1 : 0;
    }
    int wanted = 1;
    if (step.kind == Step::Kind::kAllReduce || step.kind == Step::Kind::kReduceScatter)
      wanted = static_cast<int>(group.size());
    if (step.kind != Step::Kind::kPad) {
      for (int count : heard) EXPECT_EQ(count, wanted) << step_name(step.kind);
    }
    if (step.kind == Step::Kind::kPermute) {
      EXPECT_LE(senders, 1U);
    }
    if (step.kind == Step::Kind::kKeepOne && group_of(mesh, step.axes, device)[0] != device)
      std::fill(out.data.begin(), out.data.end(), 0.0);
    result.push_back(std::move(out));
  }
  return result;
}

}  // namespace cad::planner
