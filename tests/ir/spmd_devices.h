// tests/ir/spmd_devices.h -- one graph run by all devices of its mesh: an interpreter a device,
// each on a thread, that meet at every collective. Members must bring the same node's attributes,
// and all must come: a device that does not ends the test after a few seconds. Also cuts whole
// tensors into devices' parts and puts them together again.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ir/collective.h"
#include "ir/interpreter.h"
#include "ir/op_rules.h"
#include "ir/shard.h"

namespace cad::ir {

using PerDevice = std::vector<std::vector<Tensor>>;  // by device, then by input or result

class SpmdDevices {
 public:
  explicit SpmdDevices(const Graph& g) : g_(g) {}

  // Inputs of every device, in device order -> results of every device.
  PerDevice run(const PerDevice& inputs, const EvalContext& base) {
    PerDevice results(inputs.size());
    std::vector<std::thread> threads;
    for (size_t device = 0; device < inputs.size(); ++device) {
      threads.emplace_back([&, device] {
        EvalContext context = base;
        context.coordinates = coordinates_of(g_, static_cast<int64_t>(device));
        const std::vector<int> at = context.coordinates;
        context.collective = [this, at](const Node& n, const Tensor& x) { return meet(n, x, at); };
        results[device] = interpret(g_, inputs[device], context);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

 private:
  struct Meeting {
    std::vector<Tensor> operands;  // by member
    std::vector<const Node*> nodes;
    size_t arrived = 0, left = 0;
  };

  // The operands of all members are there; when every member has taken its result, the next meeting
  // of the same devices may begin.
  Tensor meet(const Node& node, const Tensor& x, const std::vector<int>& at) {
    const uint32_t axes = node.attrs.axes;
    const auto count = static_cast<size_t>(mesh_size(g_, axes));
    const auto own = static_cast<size_t>(axis_index(g_, axes, at));
    std::vector<int> first = at;
    for (size_t a = 0; a < first.size(); ++a) {
      if ((axes >> a & 1) != 0) first[a] = 0;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    Meeting& m = meetings_[{axes, first}];
    const auto wait = [&](auto&& done) {
      const bool came = changed_.wait_for(lock, std::chrono::seconds(20), done);
      CAD_CHECK(came, "not all devices came to `{}`", op_name(node.op));
    };
    wait([&] { return m.left == 0; });
    m.operands.resize(count);
    m.nodes.resize(count);
    m.operands[own] = x;
    m.nodes[own] = &node;
    ++m.arrived;
    changed_.notify_all();
    wait([&] { return m.arrived == count; });
    std::vector<const Tensor*> members;
    for (size_t i = 0; i < count; ++i) {
      members.push_back(&m.operands[i]);
      CAD_CHECK(m.nodes[i]->op == node.op && m.nodes[i]->attrs == node.attrs,
                "devices meet at `{}` and `{}`", op_name(node.op), op_name(m.nodes[i]->op));
    }
    Tensor result = collective_result(g_, node, members, static_cast<int64_t>(own));
    if (++m.left == count) m.arrived = m.left = 0;
    changed_.notify_all();
    return result;
  }

  const Graph& g_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<uint32_t, std::vector<int>>, Meeting> meetings_;
};

// f(element of the whole, element of the part) for what the device owns of a tensor whose type in
// the graph of all devices is `type`.
template <class F>
void for_own(const Graph& g, const Type& type, const std::vector<int>& at, const Bindings& bindings,
             F&& f) {
  Axes own;
  std::vector<int64_t> offsets, wholes, parts;
  for (DimId d : type.dims) {
    const DimId whole = g.dim(d).whole.valid() ? g.dim(d).whole : d;
    own.dims.push_back(d);
    own.extents.push_back(own_extent(g, d, at, bindings));
    offsets.push_back(shard_offset(g, d, at, bindings));
    wholes.push_back(extent_of(g, whole, bindings));
    parts.push_back(extent_of(g, d, bindings));
  }
  walk(own, [&](const Index& i) {
    int64_t in_whole = 0, in_part = 0;
    for (size_t k = 0; k < i.size(); ++k) {
      in_whole = in_whole * wholes[k] + offsets[k] + i[k];
      in_part = in_part * parts[k] + i[k];
    }
    f(static_cast<size_t>(in_whole), static_cast<size_t>(in_part));
  });
}

// The part of a device. Beyond what it owns stands `tail`.
inline Tensor cut(const Graph& g, const Type& type, const Tensor& whole, const std::vector<int>& at,
                  const Bindings& bindings,
                  double tail = std::numeric_limits<double>::quiet_NaN()) {
  Tensor part = filled(g, type, bindings, tail);
  for_own(g, type, at, bindings, [&](size_t from, size_t to) { part.data[to] = whole.data[from]; });
  return part;
}

// "" when what each device owns of its part is that of the whole.
inline std::string difference(const Graph& g, const Type& type, const std::vector<Tensor>& parts,
                              const Tensor& whole, const Bindings& bindings,
                              double tolerance = 1e-9) {
  std::string fault;
  for (size_t device = 0; device < parts.size(); ++device) {
    const std::vector<int> at = coordinates_of(g, static_cast<int64_t>(device));
    for_own(g, type, at, bindings, [&](size_t in_whole, size_t in_part) {
      const double got = parts[device].data[in_part], want = whole.data[in_whole];
      const bool same = got == want || (std::isnan(got) && std::isnan(want)) ||
                        std::abs(got - want) <= tolerance * (1 + std::abs(want));
      if (!same && fault.empty())
        fault = fmt::format("device {} element {}: {} instead of {}", device, in_whole, got, want);
    });
  }
  return fault;
}

}  // namespace cad::ir
