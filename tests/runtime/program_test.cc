// Whole programs against the interpreter: straight code, loops of every shape, gradients, outputs
// of every kind. The harness also checks the peak, repeatability and thread counts.
#include "ir/autodiff.h"
#include "ir/passes.h"
#include "tests/runtime/program_harness.h"

namespace cad::backend {
namespace {

using ir::DimId;
using ir::DType;
using ir::Op;
using ir::ValueId;
using testing::check_program;
using testing::contract;
using testing::GraphMaker;
using testing::LoopMaker;

ValueId softmax(ir::Builder& b, ValueId x, DimId dim) {
  ir::Attrs attrs;
  attrs.dims = {dim};
  return b.make(Op::kSoftmax, {x}, attrs);
}

ir::ValueId loss_of(GraphMaker& m, ValueId x) {
  return m.b.sum(m.b.mul(x, x), m.graph.type(x).dims);
}

// tanh(x W1 + b) W2, softmax
GraphMaker mlp(int64_t rows, int64_t in, int64_t hidden, DType dtype) {
  GraphMaker m;
  const DimId b = m.dim("B", rows), d = m.dim("D", in), f = m.dim("F", hidden), v = m.dim("V", 7);
  const ValueId x = m.input("x", dtype, {b, d}), w1 = m.input("w1", dtype, {d, f}),
                bias = m.input("b", dtype, {f}), w2 = m.input("w2", dtype, {f, v});
  const ValueId h = m.b.unary(Op::kTanh, m.b.add(contract(m.b, x, w1, {d}), bias));
  m.output("h", h);
  m.output("p", softmax(m.b, contract(m.b, h, w2, {f}), v));
  return m;
}

TEST(Program, Mlp) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t rows : {0, 1, 5, 33}) {
      for (const int64_t hidden : {1, 37})
        check_program(mlp(rows, 19, hidden, dtype).graph, {}, {rows > 0, 2});
    }
  }
}

TEST(Program, ViewsAndCopies) {
  GraphMaker m;
  const DimId b = m.dim("B", 3), h = m.dim("H", 4), k = m.dim("K", 5), d = m.dim("D", 20),
              n = m.dim("N", 3), t = m.dim("T", 6);
  const ValueId x = m.f32("x", {b, d, t});
  ir::Attrs split;
  split.groups = {{{d}, {h, k}}};
  const ValueId y = m.b.make(Op::kReshape, {x}, split);
  ir::Attrs order;
  order.dims = {t, k, h, b};
  const ValueId z = m.b.make(Op::kTranspose, {y}, order);
  ir::Attrs cut;
  cut.dim = t;
  cut.to = n;
  cut.start = ir::Size(2);
  const ValueId w = m.b.make(Op::kSlice, {z}, cut);
  ir::Attrs flip;
  flip.dim = k;
  ir::Attrs merge;
  merge.groups = {{{k, h}, {d}}};
  m.output("slice", w);
  m.output("product", contract(m.b, m.b.make(Op::kFlip, {w}, flip), y, {k, h}));
  m.output("merged", m.b.make(Op::kReshape, {w}, merge));
  m.output("input", x);
  m.output("again", w);
  check_program(m.graph, {}, {false});
}

// Layers over a stacked weight: x = tanh(x W[l]) + x, collecting x and the sums.
GraphMaker layers(int64_t count, bool reverse, DType dtype) {
  GraphMaker m;
  const DimId l = m.dim("L", count), b = m.dim("B", 4), d = m.dim("D", 9), e = m.dim("E", 9);
  const ValueId x = m.input("x", dtype, {b, d}),
                w = m.input("w", dtype, {l, d, e}, ir::InputKind::kParam),
                s = m.input("s", dtype, {d}, ir::InputKind::kParam);
  LoopMaker loop(m.graph, l, {x}, {w}, {s});
  ir::Builder body(m.graph, loop.body);
  const ValueId h = contract(body, loop.arg(0), loop.arg(1), {d});
  ir::Attrs back;
  back.groups = {{{e}, {d}}};
  const ValueId y = body.add(
      loop.arg(0), body.mul(body.unary(Op::kTanh, body.make(Op::kRename, {h}, back)), loop.arg(2)));
  const std::vector<ValueId> made =
      loop.finish(ir::RegionId{0}, {y, loop.arg(0), body.sum(h, {e}), y, loop.number()}, reverse);
  m.output("x", made[0]);
  m.output("inputs", made[1]);
  m.output("sums", made[2]);
  m.output("outputs", made[3]);
  m.output("numbers", made[4]);
  return m;
}

TEST(Program, Repeat) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t count : {0, 1, 2, 5}) {
      for (const bool reverse : {false, true})
        check_program(layers(count, reverse, dtype).graph, {}, {false, 6});
    }
  }
}

TEST(Program, CompilesALoopOnce) {
  const Program few = compile(layers(2, false, DType::kF32).graph, {}),
                many = compile(layers(1000, false, DType::kF32).graph, {});
  EXPECT_EQ(few.steps().size(), many.steps().size());
  EXPECT_EQ(few.transient_bytes(), many.transient_bytes());
}

TEST(Program, SwappedAndUntouchedCarries) {
  for (const int64_t count : {0, 1, 2, 3}) {
    GraphMaker m;
    const DimId l = m.dim("L", count), d = m.dim("D", 50);
    const ValueId a = m.f32("a", {d}), b = m.f32("b", {d}), c = m.f32("c", {d});
    LoopMaker loop(m.graph, l, {a, b, c, a}, {}, {});
    ir::Builder body(m.graph, loop.body);
    const std::vector<ValueId> made = loop.finish(
        ir::RegionId{0},
        {loop.arg(1), loop.arg(0), loop.arg(2), body.add(loop.arg(3), loop.arg(0)), loop.arg(2)});
    for (size_t i = 0; i < made.size(); ++i) m.output("r" + std::to_string(i), made[i]);
    m.output("sum", m.b.add(made[0], made[3]));
    check_program(m.graph, {}, {false});
  }
}

TEST(Program, NestedRepeat) {
  for (const int64_t inner_count : {0, 1, 3}) {
    GraphMaker m;
    const DimId l = m.dim("L", 2), k = m.dim("K", inner_count), d = m.dim("D", 11);
    const ValueId x = m.f32("x", {d}), w = m.f32("w", {l, k, d});
    LoopMaker outer(m.graph, l, {x}, {w}, {});
    LoopMaker inner(m.graph, k, {outer.arg(0)}, {outer.arg(1)}, {outer.number()});
    ir::Builder body(m.graph, inner.body);
    const ValueId number = body.cast(body.add(inner.number(), inner.arg(2)), DType::kF32);
    const ValueId y = body.add(body.mul(inner.arg(0), inner.arg(1)), number);
    const std::vector<ValueId> in = inner.finish(outer.body, {y, y});
    const std::vector<ValueId> out = outer.finish(ir::RegionId{0}, {in[0], in[1], in[0]});
    for (size_t i = 0; i < out.size(); ++i) m.output("r" + std::to_string(i), out[i]);
    check_program(m.graph, {}, {false});
  }
}

TEST(Program, Gradients) {
  for (const int64_t count : {1, 3}) {
    GraphMaker m = layers(count, false, DType::kF32);
    const ValueId loss = loss_of(m, m.graph.region(ir::RegionId{0}).results[0]);
    m.graph.region(ir::RegionId{0}).results = {loss};
    m.graph.outputs = {{"loss"}};
    ir::Graph g = ir::differentiate(m.graph, loss);
    ASSERT_EQ(g.outputs.size(), 3U);
    check_program(g, {}, {false, 5});
    check_program(ir::run_passes(g, ir::passes_after_autodiff()), {}, {false, 5});
  }
}

// p -> p in place, reading p elsewhere too.
TEST(Program, UpdatesInPlace) {
  GraphMaker m;
  const DimId n = m.dim("n", 5000);
  const ValueId p = m.f32("p", {n}), g = m.f32("g", {n}), mm = m.f32("m", {n});
  const ValueId next = m.b.add(m.b.mul(mm, m.b.constant(0.9, DType::kF32)), g);
  m.output("p", m.b.sub(p, m.b.mul(next, m.b.constant(0.1, DType::kF32))));
  m.output("m", next);
  m.output("norm", m.b.sum(m.b.mul(p, p), {n}));
  CompileOptions options;
  options.in_place = {{"p", "p"}, {"m", "m"}};
  const Program program = compile(m.graph, {}, options);
  const std::vector<ir::Tensor> inputs = testing::random_inputs(m.graph, {}, 1);
  ir::EvalContext context;
  const std::vector<ir::Tensor> expected = ir::interpret(m.graph, inputs, context);
  for (const int threads : {1, 3}) {
    const testing::Outcome got =
        testing::run_program(program, inputs, context, threads, {{0, 0}, {1, 2}});
    for (size_t r = 0; r < expected.size(); ++r)
      EXPECT_LE(testing::difference(got.results[r], expected[r]), 2e-5);
  }
  EXPECT_LT(program.transient_bytes(), 4 * 5000) << program.str();
}

// A result under other names is what it shows; a transposed one is not.
TEST(Program, UpdatesInPlaceUnderOtherNames) {
  for (const bool swapped : {false, true}) {
    GraphMaker m;
    const DimId r = m.dim("R", 40), c = m.dim("C", 40), rows = m.dim("Rows", 40);
    const ValueId p = m.f32("p", {r, c}), g = m.f32("g", {r, c});
    ir::Attrs names;
    names.groups = {{{r}, {swapped ? c : rows}}};
    if (swapped) names.groups.push_back({{c}, {r}});
    m.output("p", m.b.make(Op::kRename, {m.b.add(m.b.mul(p, p), g)}, names));
    CompileOptions options;
    options.in_place = {{"p", "p"}};
    const Program program = compile(m.graph, {}, options);
    const std::vector<ir::Tensor> inputs = testing::random_inputs(m.graph, {}, 1);
    ir::EvalContext context;
    const std::vector<ir::Tensor> expected = ir::interpret(m.graph, inputs, context);
    const testing::Outcome got = testing::run_program(program, inputs, context, 2, {{0, 0}});
    EXPECT_LE(testing::difference(got.results[0], expected[0]), 2e-5) << program.str();
    EXPECT_EQ(program.transient_bytes(), 0) << program.str();
  }
}

// The second run adds to what the first left, through loops and contractions too.
TEST(Program, Accumulates) {
  GraphMaker m = layers(3, false, DType::kF32);
  const ValueId loss = loss_of(m, m.graph.region(ir::RegionId{0}).results[0]);
  m.graph.region(ir::RegionId{0}).results = {loss};
  m.graph.outputs = {{"loss"}};
  const ir::Graph g = ir::differentiate(m.graph, loss);
  CompileOptions options;
  options.accumulate = {"grad:w", "grad:s", "loss"};
  const Program program = compile(g, {}, options);
  const std::vector<ir::Tensor> inputs = testing::random_inputs(g, {}, 1);
  ir::EvalContext context;
  const std::vector<ir::Tensor> expected = ir::interpret(g, inputs, context);
  ThreadPool pool(2);
  std::vector<testing::Memory> in, out;
  backend::Run run;
  for (const ir::Tensor& t : inputs) in.push_back(testing::to_memory(t));
  for (const testing::Memory& x : in) run.inputs.push_back(x.get());
  for (const Port& port : program.outputs()) out.emplace_back(static_cast<size_t>(port.bytes));
  for (const testing::Memory& x : out) run.outputs.push_back(x.get());
  const testing::Memory arena(static_cast<size_t>(program.transient_bytes()));
  run.arena = arena.get();
  for (const int times : {1, 2, 3}) {
    run.accumulate = times > 1;
    execute(program, pool, run);
    for (size_t r = 0; r < expected.size(); ++r) {
      ir::Tensor want = expected[r];
      for (double& x : want.data) x *= times;
      const ir::Tensor got = testing::from_memory(out[r], want.dtype, want.extents);
      EXPECT_LE(testing::difference(got, want), 1e-4)
          << program.outputs()[r].name << " after " << times;
    }
  }
}

TEST(Program, StepTotals) {
  GraphMaker m;
  const DimId b = m.dim("B", 6);
  const ValueId x = m.f32("x", {b}), y = m.f32("y", {b});
  const ValueId total = m.b.make(Op::kStepTotal, {m.b.sum(y, {b})});
  m.output("mean", m.b.div(m.b.sum(m.b.mul(x, y), {b}), total));
  check_program(m.graph);
  const ir::Graph counts = step_total_graph(m.graph);
  ASSERT_EQ(counts.outputs.size(), 1U);
  EXPECT_EQ(counts.outputs[0].name, "step_total:0");
  ASSERT_EQ(counts.inputs.size(), 1U);
  EXPECT_EQ(counts.inputs[0].path, "y");
  check_program(counts);
  const ir::Graph supplied = supply_step_totals(m.graph);
  ASSERT_EQ(supplied.inputs.size(), 3U);
  EXPECT_EQ(supplied.inputs[2].path, "step_total:0");
  check_program(supplied);
}

TEST(Program, NamesTheFirstOpThatIsNotFinite) {
  GraphMaker m;
  const DimId b = m.dim("B", 300);
  const ValueId x = m.f32("x", {b});
  m.b.scope = "a.log";
  const ValueId y = m.b.unary(Op::kLog, x);
  m.b.scope = "b.mul";
  m.output("out", m.b.mul(y, m.b.constant(0.0, DType::kF32)));
  CompileOptions options;
  options.fuse = false;
  const Program program = compile(m.graph, {}, options);
  ThreadPool pool(2);
  std::vector<float> in(300, 1.0F), out(300);
  const testing::Memory arena(static_cast<size_t>(program.transient_bytes()));
  backend::Run run;
  run.inputs = {in.data()};
  run.outputs = {out.data()};
  run.arena = arena.get();
  run.debug_nan = true;
  EXPECT_FALSE(execute(program, pool, run));
  in[123] = 0;
  const std::optional<NonFinite> bad = execute(program, pool, run);
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->op, "log");
  EXPECT_EQ(bad->scope, "a.log");
}

TEST(Program, TracesEveryStep) {
  const GraphMaker m = layers(3, false, DType::kF32);
  const Program program = compile(m.graph, {});
  const std::vector<ir::Tensor> inputs = testing::random_inputs(m.graph, {}, 1);
  std::vector<testing::Memory> in, out;
  backend::Run run;
  for (const ir::Tensor& t : inputs) in.push_back(testing::to_memory(t));
  for (const testing::Memory& x : in) run.inputs.push_back(x.get());
  for (const Port& port : program.outputs()) out.emplace_back(static_cast<size_t>(port.bytes));
  for (const testing::Memory& x : out) run.outputs.push_back(x.get());
  const testing::Memory arena(static_cast<size_t>(program.transient_bytes()));
  run.arena = arena.get();
  std::vector<TraceEvent> events;
  run.trace = &events;
  ThreadPool pool(2);
  execute(program, pool, run);
  std::map<int32_t, int> times;
  for (const TraceEvent& e : events) {
    EXPECT_LE(e.start_ns, e.end_ns);
    ++times[e.step];
  }
  for (const auto& [step, count] : times) {
    const StepInfo& info = program.steps()[static_cast<size_t>(step)];
    EXPECT_EQ(count % static_cast<int>(info.times), 0) << info.name;
  }
  double flops = 0;
  for (const StepInfo& info : program.steps())
    flops += info.name == "contract" ? info.flops * info.times : 0;
  EXPECT_EQ(flops, 3.0 * 2 * 4 * 9 * 9);
}

}  // namespace
}  // namespace cad::backend
