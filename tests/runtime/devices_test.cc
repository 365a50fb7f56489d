// Programs with collectives on devices that are threads, against interpreters that meet: every kind
// over every set of axes of several meshes, dtypes, places of the moved dims, loops, in place,
// gradients; what fails ends all devices with the reason.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/program_verify.h"
#include "backend/trace_file.h"
#include "ir/autodiff.h"
#include "ir/passes.h"
#include "tests/runtime/device_harness.h"

namespace cad::backend {
namespace {

using ir::DimId;
using ir::DType;
using ir::Op;
using ir::ValueId;
using testing::all_gather;
using testing::all_reduce;
using testing::all_to_all;
using testing::axis_index;
using testing::check_on_devices;
using testing::contract;
using testing::DeviceGraph;
using testing::DeviceTensors;
using testing::layers;
using testing::LoopMaker;
using testing::random_device_inputs;
using testing::reduce_scatter;

class Meshes : public ::testing::TestWithParam<std::vector<int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Meshes,
                         ::testing::Values(std::vector<int64_t>{1}, std::vector<int64_t>{2},
                                           std::vector<int64_t>{3}, std::vector<int64_t>{8},
                                           std::vector<int64_t>{2, 2}, std::vector<int64_t>{2, 3},
                                           std::vector<int64_t>{2, 2, 2}));

TEST_P(Meshes, AllReduce) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI32}) {
    DeviceGraph m(GetParam());
    const DimId i = m.dim("I", 5), j = m.dim("J", 7);
    const ValueId x = m.input("x", dtype, {i, j});
    const uint32_t all = (1U << GetParam().size()) - 1;
    for (uint32_t axes = dtype == DType::kF32 ? 1 : all; axes <= all; ++axes) {
      for (const ir::Reduction r :
           {ir::Reduction::kSum, ir::Reduction::kMax, ir::Reduction::kMin}) {
        const ValueId y = all_reduce(m.b, m.b.add(x, x), axes, r);
        m.output("y" + std::to_string(m.graph.outputs.size()), m.b.mul(y, x));
      }
    }
    check_on_devices(m.graph, random_device_inputs(m.graph));
  }
}

TEST_P(Meshes, GatherScatterAndExchangeAtEveryPlace) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI32, DType::kBool}) {
    const uint32_t all = (1U << GetParam().size()) - 1;
    for (uint32_t axes = dtype == DType::kF32 ? 1 : all; axes <= all; ++axes) {
      DeviceGraph m(GetParam());
      const DimId i = m.dim("I", 3), j = m.dim("J", 5), n = m.dim("N", m.members(axes)),
                  k = m.dim("K", m.members(axes));
      const ValueId x = m.input("x", dtype, {i, j});
      const auto output = [&](ValueId y) {
        m.output("y" + std::to_string(m.graph.outputs.size()), y);
      };
      for (const DimId before : {DimId{}, i, j}) output(all_gather(m.b, x, axes, n, before));
      for (const std::vector<DimId>& dims :
           {std::vector<DimId>{n, i, j}, std::vector<DimId>{i, n, j},
            std::vector<DimId>{i, j, n}}) {
        const ValueId z = m.input("z" + std::to_string(m.graph.inputs.size()), dtype, dims);
        if (dtype != DType::kBool) output(reduce_scatter(m.b, z, axes, n));
        for (const DimId before : {DimId{}, i, j}) output(all_to_all(m.b, z, axes, n, k, before));
      }
      check_on_devices(m.graph, random_device_inputs(m.graph));
    }
  }
}

TEST_P(Meshes, AxisIndexInKernelsLoopsAndResults) {
  DeviceGraph m(GetParam());
  const DimId l = m.dim("L", 3), i = m.dim("I", 4);
  const ValueId x = m.f32("x", {i});
  const uint32_t all = (1U << GetParam().size()) - 1;
  const ValueId first = axis_index(m.b, 1), whole = axis_index(m.b, all);
  m.output("index", whole);
  m.output("sum", m.b.add(x, m.b.cast(m.b.mul(whole, first), DType::kF32)));
  LoopMaker loop(m.graph, l, {whole, x}, {}, {first});
  ir::Builder body(m.graph, loop.body);
  const ValueId inner = axis_index(body, all);
  const ValueId carried = body.add(loop.arg(0), body.add(inner, loop.arg(2)));
  const ValueId y = body.mul(loop.arg(1), body.cast(carried, DType::kF32));
  const std::vector<ValueId> results =
      loop.finish(ir::RegionId{0}, {carried, y, loop.arg(0), inner});
  for (const ValueId v : results) m.output("r" + std::to_string(m.graph.outputs.size()), v);
  check_on_devices(m.graph, random_device_inputs(m.graph));
}

TEST_P(Meshes, LoopsWithCollectivesInTheBody) {
  for (const int64_t count : {0, 1, 4}) {
    const ir::Graph forward = layers(GetParam(), count).graph;
    const ir::Graph g = ir::differentiate(forward, forward.region(ir::RegionId{0}).results[0]);
    check_on_devices(g, random_device_inputs(g), {true, 10});  // four layers of sums
  }
}

// The result takes the operand's place, and a result that is bound to an input's memory too.
TEST(Devices, AllReduceInPlace) {
  DeviceGraph m({4});
  const DimId i = m.dim("I", 1000);
  const ValueId x = m.f32("x", {i});
  const ValueId y = all_reduce(m.b, m.b.unary(Op::kTanh, x), 1);
  m.output("y", m.b.unary(Op::kExp, m.b.sum(m.b.mul(y, y), {i})));
  CompileOptions options;
  options.threads = 1;
  const Program program = compile(m.graph, {}, options);
  EXPECT_LE(program.transient_bytes(), 4096 + 256) << program.str();
  check_on_devices(m.graph, random_device_inputs(m.graph));
}

// Random numbers and dropout of a part are those of the whole at the same places.
TEST_P(Meshes, RandomNumbersAreThoseOfTheWhole) {
  for (const bool rows_first : {true, false}) {
    const std::vector<int64_t>& mesh = GetParam();
    const auto last = static_cast<int8_t>(mesh.size() - 1);
    const auto make = [&](bool parts) {
      auto m = std::make_unique<DeviceGraph>(parts ? mesh : std::vector<int64_t>{});
      const DimId b = m->dim("B", 7), d = m->dim("D", 11), c = m->dim("C", 3);
      m->graph.batch_dim = b;
      const DimId lb = parts ? m->part("Bp", b, {0}) : b;
      const DimId ld = parts && last > 0 ? m->part("Dp", d, {last}) : d;
      const std::vector<DimId> dims =
          rows_first ? std::vector<DimId>{lb, c, ld} : std::vector<DimId>{ld, c, lb};
      ir::Attrs attrs;
      attrs.site = "noise";
      attrs.dims = dims;
      const ValueId one = m->b.constant(ir::Scalar(1.0), DType::kF32);
      m->output("normal", m->b.make(Op::kNormal, {one}, attrs));
      ir::Attrs drop;
      drop.site = "drop";
      drop.scalar = ir::Scalar(0.4);
      m->output("dropout", m->b.make(Op::kDropout, {m->b.broadcast(one, dims)}, drop));
      return m;
    };
    const auto whole = make(false), part = make(true);
    for (const int64_t offset : {0, 14}) {
      ir::EvalContext context;
      context.seed = 3;
      context.step = 2;
      context.round = true;
      context.row_offset = offset;
      context.step_rows = offset == 0 ? 0 : 35;
      const std::vector<ir::Tensor> all = ir::interpret(whole->graph, {}, context);
      const DeviceTensors none(static_cast<size_t>(testing::device_count(part->graph)));
      const Program program = compile(part->graph, {});
      ThreadWorld world(static_cast<int>(none.size()));
      const testing::DeviceOutcomes got = testing::run_on_world(world, program, none, context);
      ASSERT_TRUE(got.ended.ok());
      const ir::Graph& g = part->graph;
      const ir::Type& type = g.type(g.region(ir::RegionId{0}).results[0]);
      for (size_t dev = 0; dev < none.size(); ++dev) {
        const std::vector<int> at = ir::coordinates_of(g, static_cast<int64_t>(dev));
        std::vector<int64_t> first, own, extents;
        for (const DimId dim : type.dims) {
          first.push_back(ir::shard_offset(g, dim, at, {}));
          own.push_back(ir::own_extent(g, dim, at, {}));
          extents.push_back(g.dim(dim).size.evaluate({}).value);
        }
        const std::vector<int64_t>& wide = all[0].extents;
        for (size_t r = 0; r < 2; ++r)
          for (int64_t x = 0; x < own[0]; ++x)
            for (int64_t y = 0; y < own[1]; ++y)
              for (int64_t z = 0; z < own[2]; ++z) {
                const auto here = static_cast<size_t>((x * extents[1] + y) * extents[2] + z);
                const auto there = static_cast<size_t>(
                    ((first[0] + x) * wide[1] + first[1] + y) * wide[2] + first[2] + z);
                ASSERT_NEAR(got.devices[dev].results[r].data[here], all[r].data[there], 2e-6)
                    << "device " << dev << ", " << g.outputs[r].name << "\n"
                    << program.str();
              }
      }
    }
  }
}

// Attention of a device's part of the queries, heads or rows: causality and dropout count in the
// whole sequence. Uneven parts, and the second of two micro-batches.
TEST_P(Meshes, AttentionCountsInTheWhole) {
  const std::vector<int64_t>& mesh = GetParam();
  const auto last = static_cast<int8_t>(mesh.size() - 1);
  for (const bool queries : {true, false}) {
    for (const bool causal : {true, false}) {
      DeviceGraph m(mesh);
      const DimId b = m.dim("B", 4), t = m.dim("T", 19), s = m.dim("S", 19), h = m.dim("H", 3),
                  k = m.dim("K", 4), f = m.dim("F", 5);
      m.graph.batch_dim = b;
      const DimId lb = m.part("Bp", b, {last});
      const DimId lt = queries ? m.part("Tp", t, {0}) : t, lh = queries ? h : m.part("Hp", h, {0});
      std::vector<ValueId> in{m.f32("q", {lb, lt, lh, k}), m.f32("k", {lb, s, lh, k}),
                              m.f32("v", {lb, s, lh, f})};
      ir::Attrs attrs;
      attrs.dims = {lt, s, k};
      attrs.probs = {lh, lb, lt, s};
      attrs.scalar = ir::Scalar(0.7);
      attrs.causal = causal;
      attrs.p = ir::Scalar(0.3);
      attrs.site = "drop";
      const std::vector<ValueId> made = m.b.make_all(Op::kAttention, in, attrs);
      in.insert(in.end(), made.begin(), made.end());
      in.push_back(m.f32("g", {lb, lt, lh, f}));
      const std::vector<ValueId> grads = m.b.make_all(Op::kAttentionGrad, in, attrs);
      m.output("out", made[0]);
      for (const ValueId v : grads) m.output("d" + std::to_string(m.graph.outputs.size()), v);
      check_on_devices(m.graph, random_device_inputs(m.graph));
      if (queries == causal) check_on_devices(m.graph, random_device_inputs(m.graph), {}, 4, 12);
    }
  }
}

// Collectives run beside steps that neither make nor need their tensors; the arena does not grow.
TEST(Devices, CollectivesStartEarlyAndAreAwaitedLate) {
  DeviceGraph m({4});
  const DimId d = m.dim("D", 64), f = m.dim("F", 48), e = m.dim("E", 64);
  const ValueId x = m.f32("x", {d, f}), w = m.f32("w", {f, e}), u = m.f32("u", {d, e});
  const ValueId first = contract(m.b, x, w, {f});  // [D, E]
  const ValueId sum = all_reduce(m.b, first, 1);   // beside the next product
  const ValueId second = contract(m.b, u, w, {e});
  m.output("second", second);
  m.output("sum", m.b.unary(Op::kTanh, sum));
  const Program early = compile(m.graph, {});
  CompileOptions options;
  options.overlap = false;
  const Program in_order = compile(m.graph, {}, options);
  EXPECT_LE(early.transient_bytes(), in_order.transient_bytes());
  const std::string text = early.str();
  const size_t start = text.find("start 0"), await = text.find("await 0");
  ASSERT_NE(start, std::string::npos) << text;
  EXPECT_NE(text.substr(start, await - start).find("contract"), std::string::npos) << text;
  EXPECT_EQ(in_order.str().find("contract", in_order.str().find("start 0")) <
                in_order.str().find("await 0"),
            false)
      << in_order.str();
  check_on_devices(m.graph, random_device_inputs(m.graph));
}

// Small ones that nothing in between needs start together: gradients of gains, say.
TEST(Devices, SmallCollectivesGoTogether) {
  DeviceGraph m({2, 2});
  const DimId d = m.dim("D", 24), f = m.dim("F", 10);
  const ValueId x = m.f32("x", {d, f});
  std::vector<ValueId> sums;
  ValueId y = x;
  for (int i = 0; i < 5; ++i) {
    y = m.b.unary(Op::kTanh, contract(m.b, y, m.f32("w" + std::to_string(i), {f, d}), {f}));
    y = contract(m.b, y, x, {d});
    sums.push_back(all_reduce(m.b, m.b.sum(y, {f}), i == 3 ? 1 : 3));
  }
  m.output("y", y);
  for (const ValueId sum : sums)
    m.output("g" + std::to_string(m.graph.outputs.size()), m.b.mul(sum, sum));
  const Program program = compile(m.graph, {});
  const std::string text = program.str();
  size_t joined = 0;
  for (size_t at = text.find("with the next"); at != std::string::npos;
       at = text.find("with the next", at + 1))
    ++joined;
  EXPECT_EQ(joined, 3U) << text;  // four over both axes
  check_on_devices(m.graph, random_device_inputs(m.graph), {true, 10});
}

// A trace has every device's steps, its collectives beside them, and its waits.
TEST(Devices, TracesShowCollectivesBesideSteps) {
  const ir::Graph g = layers({2}, 3).graph;
  const Program program = compile(g, {});
  const DeviceTensors inputs = random_device_inputs(g);
  ThreadWorld world(2);
  std::vector<DeviceTrace> traces{{0, {}, {}}, {1, {}, {}}};
  const DevicesOutcome outcome = run_on_devices(world, 1, [&](Device& device) -> Status {
    backend::Run run;
    run.comm = &device.comm;
    run.coordinates = ir::coordinates_of(g, device.number);
    const auto d = static_cast<size_t>(device.number);
    run.trace = &traces[d].events;
    testing::run_program(program, inputs[d], {}, device.pool, run);
    return Ok{};
  });
  ASSERT_TRUE(outcome.ok());
  const std::string path = ::testing::TempDir() + "devices_trace.json";
  ASSERT_TRUE(write_trace(path, program, traces).ok());
  std::ifstream file(path);
  const nlohmann::json events = nlohmann::json::parse(file)["traceEvents"];
  for (int d = 0; d < 2; ++d) {
    std::map<std::string, int> count;
    for (const auto& e : events) {
      if (e["pid"] != d || e["ph"] != "X") continue;
      ++count[e["cat"].get<std::string>()];
      EXPECT_GE(e["dur"].get<double>(), 0);
      EXPECT_GE(e["ts"].get<double>(), 0);
      EXPECT_EQ(e["tid"], e["cat"] == "communication" ? 1 : 0);
    }
    EXPECT_EQ(count["communication"], 6) << "an all-gather and an all-reduce a layer";
    EXPECT_EQ(count["wait"], 6);
    EXPECT_GE(count["compute"], 9);
  }
}

// What a collective still works on is nobody else's, and every start has its await.
TEST(Devices, TheVerifierFindsBrokenPrograms) {
  const ir::Graph forward = layers({2, 2}, 3).graph;
  const ir::Graph g = ir::differentiate(forward, forward.region(ir::RegionId{0}).results[0]);
  const Program good = compile(g, {});
  EXPECT_EQ(verify(good), std::vector<std::string>{});
  const auto broken = [&](const std::function<void(ProgramImpl&)>& change) {
    auto impl = std::make_shared<ProgramImpl>(good.impl());
    change(*impl);
    return fmt::format("{}", fmt::join(verify(Program(impl)), "\n"));
  };
  const auto first = [](ProgramImpl& p, Instruction::Kind kind) {
    for (Block& block : p.blocks)
      for (auto i = block.instructions.begin(); i != block.instructions.end(); ++i)
        if (i->kind == kind) return std::pair(&block, i);
    CAD_CHECK(false, "no such instruction");
  };
  EXPECT_NE(broken([&](ProgramImpl& p) {
              const auto [block, await] = first(p, Instruction::Kind::kAwait);
              block->instructions.erase(await);
            }).find("is not awaited in its block"),
            std::string::npos);
  EXPECT_NE(broken([&](ProgramImpl& p) {
              const auto [block, start] = first(p, Instruction::Kind::kCollective);
              block->instructions.erase(start);
            }).find("was not started in its block"),
            std::string::npos);
  EXPECT_NE(broken([&](ProgramImpl& p) { p.collectives[0].call.inner *= 2; }).find("elements"),
            std::string::npos);
  EXPECT_NE(broken([&](ProgramImpl& p) {
              for (Block& block : p.blocks)
                for (ArenaBuffer& buffer : block.buffers) buffer.offset = 0;
            }).find("overlap while both live"),
            std::string::npos);
  EXPECT_NE(broken([&](ProgramImpl& p) {  // a step beside the collective writes its result
              const auto [block, start] = first(p, Instruction::Kind::kCollective);
              Instruction copy;
              copy.kind = Instruction::Kind::kCopy;
              copy.operands = {start->operands[0], start->operands[1]};
              copy.writes = {0, 1};
              copy.info = start->info;
              copy.step = start->step;
              block->instructions.insert(start + 1, copy);
            })
                .find("still works on"),
            std::string::npos);
  EXPECT_NE(collective_sequence(good).find("all-gather over `a,b`"), std::string::npos)
      << collective_sequence(good);
}

// Failures. A program of one all-reduce over all devices.
DeviceGraph one_all_reduce(int64_t devices, int64_t elements) {
  DeviceGraph m({devices});
  const DimId i = m.dim("I", elements);
  m.output("y", all_reduce(m.b, m.f32("x", {i}), 1));
  return m;
}

Status run_once(Device& device, const Program& program, const std::vector<ir::Tensor>& inputs) {
  Run run;
  run.comm = &device.comm;
  run.coordinates = ir::coordinates_of(program.impl().graph, device.number);
  testing::run_program(program, inputs, {}, device.pool, run);
  return Ok{};
}

TEST(DeviceFailures, ADeviceThatThrowsEndsAll) {
  const DeviceGraph m = one_all_reduce(4, 100);
  const Program program = compile(m.graph, {});
  const DeviceTensors inputs = random_device_inputs(m.graph);
  ThreadWorld world(4, 60);
  const auto begin = std::chrono::steady_clock::now();
  const auto run = [&] {
    run_on_devices(world, 1, [&](Device& device) -> Status {
      if (device.number == 2) throw std::runtime_error("out of paper");
      for (int i = 0; i < 3; ++i)
        CAD_TRY_VOID(run_once(device, program, inputs[static_cast<size_t>(device.number)]));
      return Ok{};
    });
  };
  EXPECT_THROW(run(), std::runtime_error);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(world.failure(), "device 2: internal error: out of paper");
}

TEST(DeviceFailures, AnErrorOfOneIsTheOutcome) {
  const DeviceGraph m = one_all_reduce(2, 10);
  const Program program = compile(m.graph, {});
  const DeviceTensors inputs = random_device_inputs(m.graph);
  ThreadWorld world(2, 60);
  const DevicesOutcome outcome = run_on_devices(world, 1, [&](Device& device) -> Status {
    CAD_TRY_VOID(run_once(device, program, inputs[static_cast<size_t>(device.number)]));
    if (device.number == 1) return make_error(DiagId::E0701, "the loss is nan", kExitProgram);
    return run_once(device, program, inputs[static_cast<size_t>(device.number)]);
  });
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->message, "the loss is nan");
  EXPECT_EQ(outcome.device, 1);
  EXPECT_EQ(outcome.failure, "device 1: the loss is nan");
}

TEST(DeviceFailures, ADeviceThatLeavesIsMissedInTime) {
  const DeviceGraph m = one_all_reduce(3, 10);
  const Program program = compile(m.graph, {});
  const DeviceTensors inputs = random_device_inputs(m.graph);
  ThreadWorld world(3, 0.3);
  const DevicesOutcome outcome = run_on_devices(world, 1, [&](Device& device) -> Status {
    if (device.number == 0) return Ok{};
    return run_once(device, program, inputs[static_cast<size_t>(device.number)]);
  });
  EXPECT_NE(outcome.failure.value_or("").find("no sign of device 0"), std::string::npos);
}

TEST(DeviceFailures, OtherProgramsAreNamed) {
  const DeviceGraph m = one_all_reduce(2, 100), n = one_all_reduce(2, 200);
  const Program programs[2] = {compile(m.graph, {}), compile(n.graph, {})};
  const DeviceTensors inputs[2] = {random_device_inputs(m.graph), random_device_inputs(n.graph)};
  ThreadWorld world(2, 60);
  const DevicesOutcome outcome = run_on_devices(world, 1, [&](Device& device) -> Status {
    const auto d = static_cast<size_t>(device.number);
    return run_once(device, programs[d], inputs[d][d]);
  });
  const std::string why = outcome.failure.value_or("");
  EXPECT_NE(why.find("400 bytes"), std::string::npos) << why;
  EXPECT_NE(why.find("800 bytes"), std::string::npos) << why;
}

}  // namespace
}  // namespace cad::backend
