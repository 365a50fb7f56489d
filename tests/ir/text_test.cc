// tests/ir/text_test.cc -- printed graphs read back as the same graphs: on programs with loops and
// on random ones; and what the parser refuses.
#include <random>

#include "tests/ir/pass_test_util.h"

namespace cad::ir {
namespace {

// Field by field, with values matched by position in textual order (both graphs compact).
void expect_same(const Graph& a, const Graph& b) {
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  ASSERT_EQ(a.values.size(), b.values.size());
  ASSERT_EQ(a.regions.size(), b.regions.size());
  ASSERT_EQ(a.dims.size(), b.dims.size());
  EXPECT_EQ(a.batch_dim, b.batch_dim);
  for (size_t i = 0; i < a.dims.size(); ++i) {
    EXPECT_EQ(a.dims[i].name, b.dims[i].name);
    EXPECT_TRUE(a.dims[i].size == b.dims[i].size);
    EXPECT_EQ(a.dims[i].pack, b.dims[i].pack);
  }
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    const Node &x = a.nodes[i], &y = b.nodes[i];
    EXPECT_EQ(x.op, y.op);
    EXPECT_TRUE(x.attrs == y.attrs) << op_name(x.op);
    EXPECT_EQ(x.operands, y.operands);
    EXPECT_EQ(x.results, y.results);
    EXPECT_EQ(x.region, y.region);
    EXPECT_EQ(x.scope, y.scope);
    EXPECT_EQ(x.loop.body, y.loop.body);
    EXPECT_EQ(x.loop.dim, y.loop.dim);
    EXPECT_EQ(x.loop.carries, y.loop.carries);
    EXPECT_EQ(x.loop.scanned, y.loop.scanned);
    EXPECT_EQ(x.loop.invariants, y.loop.invariants);
    EXPECT_EQ(x.loop.collected, y.loop.collected);
    EXPECT_EQ(x.loop.reverse, y.loop.reverse);
  }
  for (size_t i = 0; i < a.values.size(); ++i) {
    EXPECT_TRUE(a.values[i].type == b.values[i].type);
    EXPECT_EQ(a.values[i].def, b.values[i].def);
    EXPECT_EQ(a.values[i].result, b.values[i].result);
    EXPECT_EQ(a.values[i].region, b.values[i].region);
    EXPECT_EQ(a.values[i].name, b.values[i].name);
    EXPECT_TRUE(a.values[i].pins == b.values[i].pins);
    EXPECT_EQ(a.values[i].saving, b.values[i].saving);
  }
  for (size_t i = 0; i < a.regions.size(); ++i) {
    EXPECT_EQ(a.regions[i].args, b.regions[i].args);
    EXPECT_EQ(a.regions[i].nodes, b.regions[i].nodes);
    EXPECT_EQ(a.regions[i].results, b.regions[i].results);
    EXPECT_EQ(a.regions[i].owner, b.regions[i].owner);
  }
  ASSERT_EQ(a.inputs.size(), b.inputs.size());
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    const Input &x = a.inputs[i], &y = b.inputs[i];
    EXPECT_EQ(x.kind, y.kind);
    EXPECT_EQ(x.path, y.path);
    EXPECT_EQ(x.value, y.value);
    EXPECT_EQ(x.loop_dims, y.loop_dims);
    EXPECT_EQ(x.init.kind, y.init.kind);
    EXPECT_TRUE(x.init.scale == y.init.scale);
    EXPECT_EQ(x.frozen, y.frozen);
    EXPECT_EQ(x.decay, y.decay);
  }
  ASSERT_EQ(a.outputs.size(), b.outputs.size());
  for (size_t i = 0; i < a.outputs.size(); ++i) EXPECT_EQ(a.outputs[i].name, b.outputs[i].name);
}

void expect_round_trip(const Graph& g) {
  const std::string text = print(g);
  Result<Graph> read = parse_graph(text);
  ASSERT_TRUE(read.ok()) << read.error().message << "\n" << text;
  EXPECT_EQ(print(*read), text);
  expect_same(g, *read);
}

Graph loop_program() {
  Program p;
  const DimId B = p.dim("B", Size::symbol("B")), D = p.dim("D", 6), H = p.dim("H", 3),
              K = p.dim("K", Size(6) / Size(3)), L = p.dim("h", 2),
              F = p.dim("odd name", Size::symbol("B") * Size(2) + Size(1));
  p.g.batch_dim = B;
  const ValueId x = p.data("x", {B, D}), w = p.input("h.{}.w", {L, D, H, K}),
                y = p.data("y", {B}, DType::kI32);
  p.g.inputs[1].loop_dims = 1;
  p.g.inputs[1].init.kind = Init::Kind::kNormal;
  p.g.inputs[1].init.scale =
      Scalar::call("div", {Scalar(0.02), Scalar::call("sqrt", {Scalar::size(Size::symbol("B"))})});
  p.g.inputs[2].init.kind = Init::Kind::kUniform;
  p.g.inputs[2].init.scale = Scalar::call(
      "div", {Scalar(1.0), Scalar::size(Size(3) * Size::symbol("B") * Size::symbol("B"))});
  p.g.inputs[1].frozen = true;
  p.g.inputs[1].decay = Input::Decay::kNever;
  Body body(p.g, L);
  const ValueId h = body.carry(x), wi = body.scan(w), yi = body.invariant(y);
  Builder b = body.builder();
  b.scope = "h.{}.block \"quoted\"";
  ValueId z = contract(b, h, wi, {D});
  Attrs merge;
  merge.groups = {DimGroup{{H, K}, {D}}};
  z = b.make(Op::kReshape, {z}, merge);
  z = b.add(z, b.cast(yi, DType::kF32));
  Attrs drop;
  drop.scalar = Scalar(0.1);
  drop.site = "h.{}.dropout";
  z = b.make(Op::kDropout, {z, body.number}, drop);
  const std::vector<ValueId> out = body.close(p.b, {z, b.sum(z, {D})});
  const ValueId lowest = p.b.broadcast(p.b.add(number(p.b, -INFINITY), number(p.b, 1e-30)), {F});
  p.output("loss", p.b.sum(out[0], {B, D}));
  p.output("state:a.b", out[1]);
  p.output("lowest", lowest);
  return p.g;
}

TEST(Text, LoopsAndInputs) {
  const Graph g = eliminate_dead(loop_program());
  expect_valid(g);
  expect_round_trip(g);
}

TEST(Text, AfterAutodiff) {
  Graph g = loop_program();
  g.inputs[1].frozen = false;
  const Graph trained = training_graph(g);
  expect_round_trip(trained);
}

// Random straight-line and looping graphs over a few dims.
Graph random_graph(uint32_t seed) {
  std::mt19937 engine(seed);
  const auto pick = [&](size_t n) { return static_cast<size_t>(engine() % n); };
  Program p;
  std::vector<DimId> dims = {p.dim("B", Size::symbol("B")), p.dim("T", 4),
                             p.dim("D", Size::symbol("B") + Size(3))};
  const DimId alias = p.dim("S", 4), loop = p.dim("loop", 3);
  std::vector<ValueId> values = {p.input("a", dims), p.input("b", {dims[1]})};
  const auto grow = [&](Builder& b, std::vector<ValueId>& pool, int count) {
    static const Op kUnary[] = {Op::kExp, Op::kTanh, Op::kNeg, Op::kSigmoid, Op::kStop, Op::kAbs};
    static const Op kBinary[] = {Op::kAdd, Op::kMul, Op::kSub, Op::kMin};
    for (int i = 0; i < count; ++i) {
      const ValueId x = pool[pick(pool.size())];
      const Type type = p.g.type(x);
      const size_t kind = pick(6);
      ValueId made = b.unary(kUnary[pick(6)], x);
      if (kind == 1) {
        const double y = static_cast<double>(engine()) / 7919 - 1e4;
        made = b.make(kBinary[pick(4)], {x, number(b, y)});
      }
      if (kind == 2 && type.rank() > 0)
        made = b.make(Op::kReduceMax, {x}, dims_attr({type.dims[pick(type.rank())]}));
      if (kind == 3 && type.has(dims[1]) && !type.has(alias)) made = renamed(b, x, dims[1], alias);
      if (kind == 4) made = b.where(b.make(Op::kGt, {x, number(b, 0.5)}), x, made);
      if (kind == 5 && type.rank() > 1) {
        std::vector<DimId> order = type.dims;
        std::rotate(order.begin(), order.begin() + 1, order.end());
        made = b.make(Op::kTranspose, {x}, dims_attr(order));
      }
      p.g.value(made).name = pick(3) == 0 ? "v" + std::to_string(pick(9)) : "";
      pool.push_back(made);
    }
  };
  grow(p.b, values, 8);
  Body body(p.g, loop);
  std::vector<ValueId> inner = {body.carry(values.back()),
                                body.invariant(values[pick(values.size())])};
  Builder b = body.builder();
  grow(b, inner, 6);
  const ValueId next = b.make(Op::kStop, {inner[0]});
  for (ValueId result : body.close(p.b, {next, inner.back()})) values.push_back(result);
  grow(p.b, values, 4);
  for (size_t i = 0; i < 3; ++i)
    p.output("out:" + std::to_string(i), values[values.size() - 1 - i]);
  return p.g;
}

TEST(Text, RandomGraphs) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const Graph g = eliminate_dead(random_graph(seed));
    expect_valid(g, "seed " + std::to_string(seed));
    expect_round_trip(g);
    expect_round_trip(eliminate_dead(eliminate_common(simplify(g))));
  }
}

// Passes keep the meaning of random graphs.
TEST(Passes, KeepTheMeaningOfRandomGraphs) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const Graph g = random_graph(seed);
    EvalContext context;
    context.bindings = {{"B", 2}};
    const std::vector<Tensor> inputs = random_inputs(g, context.bindings, seed);
    const auto before = run(g, inputs, context);
    const auto after = run(run_passes(g, passes_before_autodiff()), inputs, context);
    for (const auto& [name, tensor] : before) expect_near(after.at(name), tensor, 1e-12, name);
  }
}

TEST(Text, Refusals) {
  const struct {
    const char* text;
    const char* message;
  } kCases[] = {
      {"", "expected `graph`"},
      {"graph\nbegin\n  %0: [Z] = iota() dim=Z\n", "line 3: no dim `Z`"},
      {"graph\ndim Z = \"2\"\nbegin\n  %0: [Z] = frobnicate()\n", "line 4: no op `frobnicate`"},
      {"graph\nbegin\n  %0: [] = neg(%1)\n", "no value `%1`"},
      {"graph\nbegin\n  %0: [] = const() scalar=x\n", "`x` is not a number"},
      {"graph\ndim Z = \"2\"\ndim Z = \"3\"\nbegin\n", "declared twice"},
      {"graph\nbegin\noutput \"loss\" %3\n", "no value `%3`"},
      {"graph\ninput 1 param \"w\"\nbegin\n", "numbered in order"},
      {"graph\nbegin\n  %0: f99[] = const() scalar=1\n", "`f99` is not a dtype"},
  };
  for (const auto& item : kCases) {
    Result<Graph> read = parse_graph(item.text);
    ASSERT_FALSE(read.ok()) << item.text;
    EXPECT_NE(read.error().message.find(item.message), std::string::npos) << read.error().message;
  }
}

}  // namespace
}  // namespace cad::ir
