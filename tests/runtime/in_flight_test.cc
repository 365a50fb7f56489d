// tests/runtime/in_flight_test.cc -- what a collective still reads while other steps run is nobody
// else's place: not of an update of the same state, of a result that takes over its operand's
// buffer, of a loop's carry, of a sum. Every program here has a step that could write there, and
// compile() checks that none does (backend/program_verify.h); values are the interpreters'.
#include "backend/program_verify.h"
#include "tests/runtime/device_harness.h"

namespace cad::backend {
namespace {

using ir::DimId;
using ir::Op;
using ir::ValueId;
using testing::all_reduce;
using testing::contract;
using testing::DeviceGraph;
using testing::DeviceTensors;

// Small tensors that devices sum, and large ones whose products take long enough to hide that.
struct Beside : DeviceGraph {
  Beside() : DeviceGraph({2}) {}
  DimId d = dim("D", 16), e = dim("E", 8), k = dim("K", 96), n = dim("N", 96);
  ValueId small() {  // [D, E]
    const std::string name = std::to_string(graph.inputs.size());
    return contract(b, f32("s" + name, {d, k}), f32("t" + name, {k, e}), {k});
  }
  void large() { output("large", contract(b, f32("x", {n, k}), f32("y", {k, e}), {k})); }
  // Reads the sum after all that was made before.
  void read(ValueId sum) { output("read", contract(b, sum, f32("z", {e, n}), {e})); }
};

// `beside`: a step between the start of the sum and its await.
void check(Beside& m, const std::string& beside, const std::string& in_place = "") {
  CompileOptions options;
  std::map<int, int> shared;
  if (!in_place.empty()) {
    options.in_place = {{in_place, in_place}};
    for (size_t o = 0; o < m.graph.outputs.size(); ++o) {
      for (size_t i = 0; i < m.graph.inputs.size(); ++i) {
        if (m.graph.outputs[o].name == in_place && m.graph.inputs[i].path == in_place)
          shared[static_cast<int>(o)] = static_cast<int>(i);
      }
    }
    ASSERT_EQ(shared.size(), 1U);
  }
  const Program program = compile(m.graph, {}, options);
  const std::string text = program.str();
  const size_t start = text.find("start 0"), await = text.find("await 0");
  ASSERT_TRUE(start != std::string::npos && await != std::string::npos) << text;
  EXPECT_NE(text.substr(start, await - start).find(beside), std::string::npos) << text;
  const DeviceTensors inputs = testing::random_device_inputs(m.graph);
  ir::EvalContext context;
  context.round = true;
  const DeviceTensors expected = ir::SpmdDevices(m.graph).run(inputs, context);
  ThreadWorld world(2);
  const DevicesOutcome ended = run_on_devices(world, 1, [&](Device& device) -> Status {
    Run base;
    base.comm = &device.comm;
    base.coordinates = ir::coordinates_of(m.graph, device.number);
    const auto number = static_cast<size_t>(device.number);
    const testing::Outcome got =
        testing::run_program(program, inputs[number], context, device.pool, base, shared);
    for (size_t r = 0; r < expected[number].size(); ++r)
      EXPECT_LE(testing::difference(got.results[r], expected[number][r]), 1e-4)
          << m.graph.outputs[r].name << "\n"
          << text;
    return Ok{};
  });
  EXPECT_TRUE(ended.ok());
}

TEST(InFlight, AStateIsNotUpdatedInPlace) {
  Beside m;
  const ValueId w = m.f32("w", {m.d, m.e});
  const ValueId sum = all_reduce(m.b, w, 1);
  m.output("w", m.b.unary(Op::kTanh, w));
  m.large();
  m.read(sum);
  check(m, "tanh", "w");
}

TEST(InFlight, AStateIsNotUpdatedInPlaceByASum) {
  Beside m;
  const ValueId w = m.f32("w", {m.d, m.e});
  const ValueId sum = all_reduce(m.b, w, 1);
  m.output("w", m.b.add(m.small(), m.small()));
  m.read(sum);
  check(m, "contract", "w");
}

TEST(InFlight, AResultDoesNotTakeOverTheOperand) {
  Beside m;
  const ValueId x = m.small();
  const ValueId sum = all_reduce(m.b, x, 1);
  const ValueId y = m.b.unary(Op::kTanh, x);
  m.large();
  m.read(sum);
  m.output("other", contract(m.b, y, m.f32("u", {m.e, m.n}), {m.e}));
  check(m, "tanh");
}

TEST(InFlight, ALoopDoesNotCarryOnInTheOperand) {
  Beside m;
  const ValueId x = m.small();
  const ValueId sum = all_reduce(m.b, x, 1);
  testing::LoopMaker loop(m.graph, m.dim("L", 3), {x}, {}, {});
  ir::Builder body(m.graph, loop.body);
  const ValueId y = loop.finish(ir::RegionId{0}, {body.unary(Op::kTanh, loop.arg(0))})[0];
  m.read(sum);
  m.output("other", contract(m.b, y, m.f32("u", {m.e, m.n}), {m.e}));
  check(m, "loop");
}

// An output that lies in its input's memory is that memory.
TEST(InFlight, TheVerifierKnowsWhatIsInPlace) {
  Beside m;
  const ValueId w = m.f32("w", {m.d, m.e});
  const ValueId sum = all_reduce(m.b, w, 1);
  m.large();
  m.read(sum);
  m.output("w", m.b.unary(Op::kTanh, w));
  CompileOptions options;
  options.in_place = {{"w", "w"}};
  const Program good = compile(m.graph, {}, options);
  EXPECT_EQ(verify(good), std::vector<std::string>{});
  auto impl = std::make_shared<ProgramImpl>(good.impl());
  std::vector<Instruction>& all = impl->blocks[0].instructions;
  const auto of = [&](Instruction::Kind kind) {
    return std::find_if(all.begin(), all.end(),
                        [&](const Instruction& i) { return i.kind == kind; });
  };
  // the update before the await
  ASSERT_EQ(all.back().kind, Instruction::Kind::kKernel) << good.str();
  std::rotate(of(Instruction::Kind::kAwait), all.end() - 1, all.end());
  ASSERT_EQ(verify(Program(impl)).size(), 1U);
  EXPECT_NE(verify(Program(impl))[0].find("still works on"), std::string::npos);
}

}  // namespace
}  // namespace cad::backend
