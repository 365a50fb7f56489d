// tests/ir/parts_test.cc -- one device's part of a dim: its offset and extent, and ops whose values
// depend on the place in the whole tensor: draws, dropout, attention. Every device's result is its
// part of the whole's.
#include <numeric>

#include "ir/rewrite.h"
#include "tests/ir/ir_testing.h"
#include "tests/ir/split_graph.h"
#include "tests/ir/spmd_devices.h"

namespace cad::ir {
namespace {

TEST(Parts, StretchesOfADim) {
  struct Case {
    int64_t whole;
    std::vector<int64_t> mesh;
    std::vector<int8_t> axes;
    std::vector<int64_t> offsets, owns;  // by device
    bool uneven;
  };
  const std::vector<Case> cases{
      {6, {2}, {0}, {0, 3}, {3, 3}, false},
      {5, {2}, {0}, {0, 3}, {3, 2}, true},
      {5, {4}, {0}, {0, 2, 4, 5}, {2, 2, 1, 0}, true},
      {5, {2, 2}, {0, 1}, {0, 2, 3, 5}, {2, 1, 2, 0}, true},
      {5, {2, 2}, {1, 0}, {0, 3, 2, 5}, {2, 2, 1, 0}, true},
      {8, {2, 2}, {1}, {0, 4, 0, 4}, {4, 4, 4, 4}, false},
      {1, {3}, {0}, {0, 1, 1}, {1, 0, 0}, true},
      {0, {2}, {0}, {0, 0}, {0, 0}, false},
      {7, {2}, {}, {0, 0}, {7, 7}, false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("{} on {} axes", c.whole, c.axes.size()));
    Graph g;
    g.mesh = mesh_axes(c.mesh);
    const DimId B = g.add_dim("B", Size::symbol("B"));
    const Bindings bindings{{"B", c.whole}};
    const DimId part = add_part(g, B, c.axes, bindings);
    EXPECT_EQ(is_uneven(g, part, bindings), c.uneven);
    EXPECT_FALSE(is_uneven(g, B, bindings));
    for (size_t device = 0; device < c.offsets.size(); ++device) {
      const std::vector<int> at = coordinates_of(g, static_cast<int64_t>(device));
      EXPECT_EQ(shard_offset(g, part, at, bindings), c.offsets[device]) << device;
      EXPECT_EQ(own_extent(g, part, at, bindings), c.owns[device]) << device;
      EXPECT_EQ(own_extent(g, B, at, bindings), c.whole);
    }
  }
}

struct SplitCase {
  std::vector<int64_t> mesh;
  Splits splits;
};

// Every result of the whole graph against those of all devices. Results that lack a dim split by
// some axes are summed over these first, where `summed` says that they are summands.
void compare(Bench& t, const SplitCase& c, EvalContext context,
             const std::vector<bool>& summed = {}) {
  context.bindings = t.bindings;
  const std::vector<Tensor> whole = t.run(context);
  Graph g = split_graph(t.g, c.mesh, c.splits, t.bindings);
  Builder b(g, RegionId{0});
  std::vector<ValueId>& results = g.regions[0].results;
  for (size_t i = 0; i < results.size() && i < summed.size(); ++i) {
    Attrs attrs;
    for (const auto& [name, axes] : c.splits) {
      const DimId dim = t.g.find_dim(name);
      if (t.g.type(t.g.regions[0].results[i]).has(dim) || !summed[i]) continue;
      for (const int8_t a : axes) attrs.axes |= 1U << a;
    }
    if (attrs.axes != 0) results[i] = b.make(Op::kAllReduce, {results[i]}, attrs);
  }
  ASSERT_TRUE(verify(g).empty()) << verify(g)[0];
  PerDevice inputs(static_cast<size_t>(mesh_size(g, (1U << g.mesh.size()) - 1)));
  for (size_t device = 0; device < inputs.size(); ++device) {
    const std::vector<int> at = coordinates_of(g, static_cast<int64_t>(device));
    for (size_t i = 0; i < g.inputs.size(); ++i)
      inputs[device].push_back(cut(g, g.type(g.inputs[i].value), t.values[i], at, t.bindings));
  }
  const PerDevice got = SpmdDevices(g).run(inputs, context);
  for (size_t i = 0; i < results.size(); ++i) {
    std::vector<Tensor> parts;
    for (const auto& list : got) parts.push_back(list[i]);
    EXPECT_EQ(difference(g, g.type(results[i]), parts, whole[i], t.bindings), "")
        << g.outputs[i].name;
  }
}

// Rows in front and behind, whole steps and the second of two micro-batches.
TEST(Parts, DrawsAreThoseOfTheWhole) {
  const std::vector<SplitCase> splits{{{2}, {{"B", {0}}}},
                                      {{2}, {{"T", {0}}}},
                                      {{4}, {{"B", {0}}}},
                                      {{2, 2}, {{"B", {0}}, {"D", {1}}}},
                                      {{2, 2}, {{"T", {1, 0}}}},
                                      {{2, 2}, {{"B", {0, 1}}}},
                                      {{2, 3}, {{"T", {0}}, {"D", {1}}}}};
  for (const SplitCase& c : splits) {
    for (const std::vector<std::string>& order :
         {std::vector<std::string>{"B", "T", "D"}, {"T", "B", "D"}, {"D", "T", "B"}}) {
      for (const bool micro : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", c.splits.begin()->first, order[0], micro));
        Bench t;
        t.bindings = {{"B", 5}, {"T", 7}, {"D", 3}};
        t.g.batch_dim = t.dim("B");
        Attrs attrs;
        attrs.site = "place";
        attrs.scalar = 0.4;
        attrs.dims = t.dims(order);
        const ValueId p = t.b.constant(0.3, DType::kF32), one = t.b.constant(1.0, DType::kF32);
        t.output(t.b.make(Op::kNormal, {one, t.number(2)}, attrs), "normal");
        t.output(t.b.make(Op::kUniform, {p, one}, attrs), "uniform");
        t.output(t.b.make(Op::kBernoulli, {p}, attrs), "bernoulli");
        attrs.dims = {};
        t.output(t.b.make(Op::kDropout, {t.x("x", order), t.number(2)}, attrs), "dropout");
        EvalContext context;
        context.seed = 7;
        context.step = 3;
        if (micro) {
          context.row_offset = 5;
          context.step_rows = 10;
        }
        compare(t, c, context);
      }
    }
  }
}

// Queries of a later device see more keys; every device's dropout is its part of the whole's.
// k's and v's gradients are sums over the queries.
TEST(Parts, AttentionOfPartsOfTheQueries) {
  const std::vector<SplitCase> splits{
      {{2}, {{"T", {0}}}},       {{2}, {{"B", {0}}}},
      {{3}, {{"H", {0}}}},       {{2, 2}, {{"B", {0}}, {"T", {1}}}},
      {{2, 2}, {{"T", {0, 1}}}}, {{2, 3, 2}, {{"R", {2}}, {"H", {1}}, {"T", {0}}}}};
  for (const SplitCase& c : splits) {
    for (int variant = 0; variant < 8; ++variant) {
      for (const bool micro : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", c.splits.begin()->first, variant, micro));
        Bench t;
        t.bindings = {{"B", 2}, {"T", 4}, {"S", 4}, {"H", 3}, {"R", 2}, {"K", 2}, {"F", 3}};
        t.g.batch_dim = t.dim("B");
        Attrs attrs;
        attrs.dims = t.dims({"T", "S", "K"});
        attrs.probs = t.dims({"H", "B", "R", "T", "S"});
        attrs.scalar = 0.7;
        attrs.causal = (variant & 1) != 0;
        attrs.masked = (variant & 2) != 0;
        attrs.p = (variant & 4) != 0 ? 0.3 : 0.0;
        attrs.site = "drop";
        std::vector<ValueId> in{t.x("q", {"B", "T", "H", "R", "K"}), t.x("k", {"B", "S", "H", "K"}),
                                t.x("v", {"B", "S", "H", "F"})};
        std::vector<ValueId> rest;
        if (attrs.masked) rest.push_back(t.bools("mask", {"B", "T", "S"}));
        rest.push_back(t.number(1));
        std::vector<ValueId> forward = in;
        forward.insert(forward.end(), rest.begin(), rest.end());
        const std::vector<ValueId> made = t.b.make_all(Op::kAttention, forward, attrs);
        in.insert(in.end(), made.begin(), made.end());
        in.push_back(t.x("g", {"B", "T", "H", "R", "F"}));
        in.insert(in.end(), rest.begin(), rest.end());
        const std::vector<ValueId> grads = t.b.make_all(Op::kAttentionGrad, in, attrs);
        t.output(made[0], "out");
        t.output(made[1], "lse");
        for (size_t i = 0; i < 3; ++i) t.output(grads[i], fmt::format("d{}", i));
        EvalContext context;
        context.seed = 11;
        context.step = 2;
        if (micro) {
          context.row_offset = 2;
          context.step_rows = 6;
        }
        compare(t, c, context, {false, false, true, true, true});
      }
    }
  }
}

// A part that begins elsewhere is something else: what the offsets above are for.
TEST(Parts, CountingIsWithinThePart) {
  Bench t;
  t.bindings = {{"B", 5}};
  Attrs attrs;
  attrs.dim = t.dim("B");
  t.output(t.b.make(Op::kIota, {}, attrs), "i");
  const Graph g = split_graph(t.g, {2}, {{"B", {0}}}, t.bindings);
  EvalContext context;
  context.bindings = t.bindings;
  for (const auto& device : SpmdDevices(g).run({{}, {}}, context))
    EXPECT_EQ(device[0].data, (std::vector<double>{0, 1, 2}));
}

}  // namespace
}  // namespace cad::ir
