// tests/runtime/sums_test.cc -- sums whose terms are added where the sum lies
// (backend/schedule_sums.cc): values against the interpreter over one, two and three runs that
// accumulate, and that the terms take no memory of their own.
#include "ir/interpreter.h"
#include "tests/runtime/program_harness.h"

namespace cad::backend {
namespace {

using ir::DimId;
using ir::DType;
using ir::Op;
using ir::ValueId;
using testing::check_program;
using testing::GraphMaker;
using testing::LoopMaker;

constexpr int64_t kWords = 61, kWidth = 40, kRows = 9;
constexpr int64_t kTable = kWords * kWidth * 4;

// What a tied table's gradient is made of. f16 and bf16 tables too.
struct Table : GraphMaker {
  DimId t = dim("T", kRows), v = dim("V", kWords), d = dim("D", kWidth);
  DType dtype;
  int products = 0;
  explicit Table(DType type = DType::kF32) : dtype(type) {}

  ValueId product() {
    const std::string n = std::to_string(products++);
    ir::Attrs attrs;
    attrs.dims = {t};
    return b.make(Op::kContract, {input("g" + n, dtype, {t, v}), input("h" + n, dtype, {t, d})},
                  attrs);
  }
  ValueId by_index() {
    ir::Attrs attrs;
    attrs.dim = v;
    attrs.dims = {v, d};
    return b.make(Op::kScatterAdd, {input("dx", dtype, {t, d}), input("ids", DType::kI32, {t})},
                  attrs);
  }
  // Two stacks of tables, one an iteration, by a loop that makes `second` first; and one by a
  // product.
  struct Stacks {
    ValueId first, second, product;
  };
  Stacks stacks() {
    const DimId l = dim("L", 4);
    const ValueId g = input("lg", dtype, {l, t, v}), h = input("lh", dtype, {l, t, d});
    LoopMaker loop(graph, l, {}, {g, h}, {});
    ir::Builder body(graph, loop.body);
    ir::Attrs attrs;
    attrs.dims = {t};
    const ValueId second = body.make(Op::kContract, {loop.arg(0), loop.arg(1)}, attrs);
    const ValueId half = body.mul(loop.arg(0), body.constant(0.5, dtype));
    const ValueId first = body.make(Op::kContract, {half, loop.arg(1)}, attrs);
    const std::vector<ValueId> made = loop.finish(ir::RegionId{0}, {first, second});
    return {made[0], made[1], b.make(Op::kContract, {g, h}, attrs)};
  }
};

// One run, and runs that add to what the ones before have left. The program that accumulates.
Program check_accumulated(const ir::Graph& g) {
  CompileOptions options;
  for (const ir::Output& output : g.outputs) options.accumulate.push_back(output.name);
  const Program program = compile(g, {}, options);
  const std::vector<ir::Tensor> inputs = testing::random_inputs(g, {}, 1);
  ir::EvalContext context;
  context.round = true;
  const std::vector<ir::Tensor> expected = ir::interpret(g, inputs, context);
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::vector<testing::Memory> in, out;
    backend::Run run;
    for (const ir::Tensor& t : inputs) in.push_back(testing::to_memory(t));
    for (const testing::Memory& x : in) run.inputs.push_back(x.get());
    for (const Port& port : program.outputs()) out.emplace_back(static_cast<size_t>(port.bytes));
    for (const testing::Memory& x : out) run.outputs.push_back(x.get());
    const testing::GuardedArena arena(program.transient_bytes());
    run.arena = arena.get();
    for (const int times : {1, 2, 3}) {
      run.accumulate = times > 1;
      execute(program, pool, run);
      for (size_t r = 0; r < expected.size(); ++r) {
        ir::Tensor want = expected[r];
        for (double& x : want.data) x *= times;
        const ir::Tensor got = testing::from_memory(out[r], want.dtype, want.extents);
        EXPECT_LE(testing::difference(got, want), 4 * testing::tolerance(want.dtype))
            << g.outputs[r].name << " after " << times << "\n"
            << program.str();
      }
    }
    EXPECT_LE(arena.touched(), program.transient_bytes());
  }
  return program;
}

void check(const ir::Graph& g, int64_t most) {
  check_program(g, {}, {false, 4});
  EXPECT_LE(compile(g, {}).transient_bytes(), most) << compile(g, {}).str();
  const Program program = check_accumulated(g);
  EXPECT_LE(program.transient_bytes(), most) << program.str();
}

TEST(Sums, OfAProductAndRowsByIndexGoToTheOutputAtOnce) {
  for (const bool product_first : {true, false}) {
    Table m;
    const ValueId one = product_first ? m.product() : m.by_index();
    const ValueId two = product_first ? m.by_index() : m.product();
    m.output("grad", m.b.add(one, two));
    check(m.graph, 0);
  }
}

TEST(Sums, OfHalves) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    Table m(dtype);
    m.output("grad", m.b.add(m.product(), m.by_index()));
    check(m.graph, kTable + 64);  // rows by index are added up in f32
  }
}

TEST(Sums, OfSums) {
  for (const bool left : {true, false}) {
    Table m;
    const ValueId a = m.product(), b = m.by_index(), c = m.product(), d = m.product();
    const ValueId ab = m.b.add(a, b);
    m.output("grad", left ? m.b.add(m.b.add(ab, c), d) : m.b.add(m.b.add(c, d), ab));
    check(m.graph, 0);
  }
}

// What a kernel or the caller gives is added where the sum's step stands.
TEST(Sums, OfOtherTerms) {
  Table m;
  const ValueId x = m.f32("x", {m.v, m.d});
  const ValueId product = m.product();
  m.output("given", m.b.add(product, x));
  const ValueId scaled = m.b.unary(Op::kTanh, m.b.sum(m.f32("y", {m.t, m.v, m.d}), {m.t}));
  m.output("made", m.b.add(m.b.add(scaled, m.product()), m.by_index()));
  check_program(m.graph, {}, {false, 4});
  check_accumulated(m.graph);
}

TEST(Sums, OfStacksOfALoop) {
  Table m;
  const Table::Stacks stacks = m.stacks();
  m.output("grad", m.b.add(stacks.product, stacks.first));
  m.output("other", stacks.second);
  check_program(m.graph, {}, {false, 4});
  const Program program = check_accumulated(m.graph);
  EXPECT_LT(program.transient_bytes(), kTable) << program.str();
}

// Of two stacks of one loop one is added as it is made: which of them comes first is its body's.
TEST(Sums, OfTwoStacksOfOneLoop) {
  for (const bool swapped : {false, true}) {
    Table m;
    const Table::Stacks stacks = m.stacks();
    m.output("grad", swapped ? m.b.add(stacks.second, stacks.first)
                             : m.b.add(m.b.add(stacks.first, stacks.second), stacks.product));
    check_program(m.graph, {}, {false, 4});
    check_accumulated(m.graph);
  }
}

// A sum that others read has one buffer, from its first term on.
TEST(Sums, InTheArena) {
  Table m;
  const ValueId sum = m.b.add(m.b.add(m.product(), m.by_index()), m.product());
  for (const DimId dim : {m.v, m.d}) {
    ir::Attrs attrs;
    attrs.dims = {dim};
    const std::string n = m.graph.dim(dim).name;
    m.output(n, m.b.make(Op::kContract, {sum, m.f32("w" + n, {dim})}, attrs));
  }
  check_program(m.graph, {}, {false, 10});
  EXPECT_LT(compile(m.graph, {}).transient_bytes(), 2 * kTable) << compile(m.graph, {}).str();
  check_accumulated(m.graph);
}

// A term that something else reads keeps its place; one that is added twice is no term.
TEST(Sums, NotOfValuesThatAreReadElsewhere) {
  Table m;
  const ValueId a = m.product(), b = m.by_index(), c = m.product();
  const ValueId ab = m.b.add(a, b);
  m.output("ab", ab);
  m.output("abc", m.b.add(ab, c));
  m.output("b", b);
  const ValueId d = m.product();
  m.output("dd", m.b.add(d, d));
  const ValueId ef = m.b.add(m.product(), m.by_index());  // in one step with what reads it twice
  m.output("efef", m.b.add(ef, ef));
  check_program(m.graph, {}, {false, 4});
  check_accumulated(m.graph);
}

// Of a state `s` whose next value takes its place; each output may be off by so much.
void check_in_place(const ir::Graph& g, const std::vector<double>& within) {
  CompileOptions options;
  options.in_place = {{"state:s", "s"}};
  const Program program = compile(g, {}, options);
  const std::vector<ir::Tensor> inputs = testing::random_inputs(g, {}, 1);
  ir::EvalContext context;
  const std::vector<ir::Tensor> expected = ir::interpret(g, inputs, context);
  const testing::Outcome got = testing::run_program(program, inputs, context, 2, {{0, 0}});
  for (size_t i = 0; i < within.size(); ++i)
    EXPECT_LE(testing::difference(got.results[i], expected[i]), within[i]) << program.str();
}

// A state in whose memory its next value lies.
TEST(Sums, OfWhatLivesThere) {
  for (const bool twice : {false, true}) {
    Table m;
    const ValueId s = m.f32("s", {m.v, m.d});
    const ValueId more = twice ? m.b.add(m.product(), m.by_index()) : m.product();
    m.output("state:s", m.b.add(s, more));
    check_in_place(m.graph, {1e-4});
  }
}

// A state that something reads after the terms are there: they must not be added over it.
TEST(Sums, NotOverWhatIsStillRead) {
  Table m;
  const ValueId s = m.f32("s", {m.v, m.d});
  const ValueId next = m.b.add(m.b.add(s, m.product()), m.by_index());
  m.output("state:s", next);
  ir::Attrs attrs;
  attrs.dims = {m.v, m.d};
  m.output("seen", m.b.make(Op::kContract, {s, m.product()}, attrs));  // after the sum
  check_in_place(m.graph, {1e-4, 1e-2});
}

// The gradient of a parameter that all iterations share: each adds to what is carried.
TEST(Sums, OfWhatALoopCarries) {
  for (const int64_t count : {0, 1, 5}) {
    Table m;
    const DimId l = m.dim("L", count);
    const ValueId start = m.f32("start", {m.v, m.d});
    const ValueId g = m.f32("lg", {l, m.t, m.v}), h = m.f32("lh", {l, m.t, m.d});
    LoopMaker loop(m.graph, l, {start}, {g, h}, {});
    ir::Builder body(m.graph, loop.body);
    ir::Attrs attrs;
    attrs.dims = {m.t};
    const ValueId product = body.make(Op::kContract, {loop.arg(1), loop.arg(2)}, attrs);
    m.output("grad", loop.finish(ir::RegionId{0}, {body.add(loop.arg(0), product)})[0]);
    check_program(m.graph, {}, {false, 10});
    EXPECT_LE(compile(m.graph, {}).transient_bytes(), 256) << compile(m.graph, {}).str();
    check_accumulated(m.graph);
  }
}

}  // namespace
}  // namespace cad::backend
