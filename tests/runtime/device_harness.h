// tests/runtime/device_harness.h -- one program on many devices: threads with an arena each, run
// against interpreters that meet at every collective. Graph-building helpers for family `comm`.
#pragma once

#include <vector>

#include "backend/comm/thread_world.h"
#include "backend/device_part.h"
#include "backend/devices.h"
#include "backend/program_impl.h"
#include "ir/shard.h"
#include "tests/ir/spmd_devices.h"
#include "tests/runtime/program_harness.h"

namespace cad::backend::testing {

// By device, then by input or output of the graph.
using DeviceTensors = ir::PerDevice;

inline int device_count(const ir::Graph& g) {
  int64_t n = 1;
  for (const ir::MeshAxis& axis : g.mesh) n *= axis.size;
  return static_cast<int>(n);
}

struct DeviceOutcomes {
  std::vector<Outcome> devices;  // of this process
  DevicesOutcome ended;
};

// `inputs` of all devices of the world, or of this process's in their places.
inline DeviceOutcomes run_on_world(World& world, const Program& program,
                                   const DeviceTensors& inputs, const ir::EvalContext& context,
                                   int threads = 1, int runs = 1) {
  DeviceOutcomes result;
  result.devices.resize(inputs.size());
  result.ended = run_on_devices(world, threads, [&](Device& device) -> Status {
    Run base;
    base.comm = &device.comm;
    base.coordinates = ir::coordinates_of(program.impl().graph, device.number);
    const auto d = static_cast<size_t>(device.number);
    for (int i = 0; i < runs; ++i)
      result.devices[d] = run_program(program, inputs[d], context, device.pool, base);
    return Ok{};
  });
  return result;
}

inline DeviceTensors random_device_inputs(const ir::Graph& g, unsigned seed = 3, int limit = 5) {
  DeviceTensors inputs;
  for (int d = 0; d < device_count(g); ++d)
    inputs.push_back(random_inputs(g, {}, seed + static_cast<unsigned>(d), limit));
  return inputs;
}

// Every device's results against the interpreters; two runs give the same bits.
inline void check_on_devices(const ir::Graph& g, const DeviceTensors& inputs,
                             const CheckOptions& options = {}, int64_t row_offset = 0,
                             int64_t step_rows = 0) {
  ir::EvalContext context;
  context.seed = 11;
  context.step = 5;
  context.round = true;
  context.row_offset = row_offset;
  context.step_rows = step_rows;
  const DeviceTensors expected = ir::SpmdDevices(g).run(inputs, context);
  for (const bool fuse : {true, false}) {
    CompileOptions compile_options;
    compile_options.fuse = fuse;
    compile_options.threads = 2;
    const Program program = compile(g, {}, compile_options);
    for (const int threads : {1, 2}) {
      ThreadWorld world(static_cast<int>(inputs.size()));
      const DeviceOutcomes one = run_on_world(world, program, inputs, context, threads);
      const DeviceOutcomes two = run_on_world(world, program, inputs, context, threads);
      ASSERT_TRUE(one.ended.ok() && two.ended.ok()) << world.failure().value_or("");
      for (size_t d = 0; d < inputs.size(); ++d) {
        EXPECT_EQ(one.devices[d].bytes, two.devices[d].bytes) << "two runs differ";
        EXPECT_LE(one.devices[d].touched, program.transient_bytes());
        for (size_t r = 0; r < expected[d].size(); ++r) {
          EXPECT_LE(difference(one.devices[d].results[r], expected[d][r]),
                    options.looser * tolerance(expected[d][r].dtype))
              << "output " << g.outputs[r].name << " of device " << d << ", threads " << threads
              << ", fuse " << fuse << "\n"
              << program.str();
        }
      }
    }
  }
}

// Graphs of family `comm`.
struct DeviceGraph : GraphMaker {
  explicit DeviceGraph(const std::vector<int64_t>& mesh) {
    for (size_t a = 0; a < mesh.size(); ++a)
      graph.mesh.push_back({std::string(1, static_cast<char>('a' + a)), mesh[a]});
  }
  // One device's part of `whole`, split by these axes.
  ir::DimId part(const std::string& name, ir::DimId whole, std::vector<int8_t> axes) {
    const int64_t size = graph.dim(whole).size.evaluate({}).value;
    const ir::DimId id = graph.add_dim(name, ir::Size(ir::part_extent(graph, size, axes)));
    graph.dims[static_cast<size_t>(id.index)].whole = whole;
    graph.dims[static_cast<size_t>(id.index)].axes = std::move(axes);
    return id;
  }
  [[nodiscard]] int64_t members(uint32_t axes) const { return ir::mesh_size(graph, axes); }
};

inline ir::ValueId all_reduce(ir::Builder& b, ir::ValueId x, uint32_t axes,
                              ir::Reduction reduction = ir::Reduction::kSum) {
  ir::Attrs attrs;
  attrs.axes = axes;
  attrs.reduction = reduction;
  return b.make(ir::Op::kAllReduce, {x}, attrs);
}
inline ir::ValueId all_gather(ir::Builder& b, ir::ValueId x, uint32_t axes, ir::DimId to,
                              ir::DimId before = {}) {
  ir::Attrs attrs;
  attrs.axes = axes;
  attrs.to = to;
  attrs.dim = before;
  return b.make(ir::Op::kAllGather, {x}, attrs);
}
inline ir::ValueId reduce_scatter(ir::Builder& b, ir::ValueId x, uint32_t axes, ir::DimId dim) {
  ir::Attrs attrs;
  attrs.axes = axes;
  attrs.dim = dim;
  return b.make(ir::Op::kReduceScatter, {x}, attrs);
}
inline ir::ValueId all_to_all(ir::Builder& b, ir::ValueId x, uint32_t axes, ir::DimId dim,
                              ir::DimId to, ir::DimId before = {}) {
  ir::Attrs attrs;
  attrs.axes = axes;
  attrs.dim = dim;
  attrs.to = to;
  attrs.window = before;
  return b.make(ir::Op::kAllToAll, {x}, attrs);
}
inline ir::ValueId axis_index(ir::Builder& b, uint32_t axes) {
  ir::Attrs attrs;
  attrs.axes = axes;
  return b.make(ir::Op::kAxisIndex, {}, attrs);
}

// Layers whose weights are stored in parts: gathered in the loop, products summed over the devices,
// and the gradients of all that.
inline DeviceGraph layers(const std::vector<int64_t>& mesh, int64_t count) {
  DeviceGraph m(mesh);
  const uint32_t axes = (1U << mesh.size()) - 1;
  const int64_t n = m.members(axes);
  const ir::DimId l = m.dim("L", count), b = m.dim("B", 6), d = m.dim("D", 4 * n),
                  p = m.dim("P", 4), g = m.dim("G", n), f = m.dim("F", 5);
  const ir::ValueId x = m.f32("x", {b, d});
  const ir::ValueId w1 = m.input("w1", ir::DType::kF32, {l, p, f}, ir::InputKind::kParam),
                    w2 = m.input("w2", ir::DType::kF32, {l, f, d}, ir::InputKind::kParam);
  LoopMaker loop(m.graph, l, {x}, {w1, w2}, {});
  ir::Builder body(m.graph, loop.body);
  ir::Attrs merge;
  merge.groups = {{{g, p}, {d}}};
  const ir::ValueId whole =
      body.make(ir::Op::kReshape, {all_gather(body, loop.arg(1), axes, g, p)}, merge);
  // kept small: what tanh saturates loses its gradient's digits
  const auto scaled = [&](ir::ValueId v, double by) {
    return body.mul(v, body.constant(ir::Scalar(by), ir::DType::kF32));
  };
  const ir::ValueId h =
      body.unary(ir::Op::kTanh, scaled(contract(body, loop.arg(0), whole, {d}), 0.1));
  const ir::ValueId out = all_reduce(body, contract(body, h, loop.arg(2), {f}), axes);
  const ir::ValueId y = loop.finish(
      ir::RegionId{0},
      {body.unary(ir::Op::kTanh,
                  body.add(scaled(out, 0.2 / static_cast<double>(n)), loop.arg(0)))})[0];
  m.output("loss", m.b.sum(m.b.mul(y, y), {b, d}));
  return m;
}

}  // namespace cad::backend::testing
