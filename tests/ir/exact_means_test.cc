// tests/ir/exact_means_test.cc -- a step's loss and gradients are the same as one big batch or as
// micro-batches that add up (language.md, "means are exact").
#include <numeric>

#include "tests/ir/pass_test_util.h"

namespace cad::ir {
namespace {

using Results = std::map<std::string, Tensor>;

std::vector<NodeId> step_totals(const Graph& g) {
  std::vector<NodeId> nodes;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (g.nodes[i].op == Op::kStepTotal) nodes.push_back(NodeId{static_cast<int32_t>(i)});
  }
  return nodes;
}

Tensor rows(const Tensor& t, int64_t from, int64_t count) {
  Tensor out = t;
  const auto row = static_cast<size_t>(
      std::accumulate(t.extents.begin() + 1, t.extents.end(), int64_t{1}, std::multiplies<>()));
  out.extents[0] = count;
  const auto first = t.data.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(from) * row);
  out.data.assign(first, first + static_cast<ptrdiff_t>(static_cast<size_t>(count) * row));
  return out;
}

// Adds loss and gradients over micro-batches of `size` rows; B is symbolic in the graph.
Results over_micro_batches(const Graph& trained, const std::vector<Tensor>& inputs, int64_t total,
                           int64_t size) {
  Graph counts = trained;
  counts.outputs.clear();
  counts.regions[0].results.clear();
  for (NodeId id : step_totals(trained)) {
    counts.outputs.push_back({std::to_string(id.index)});
    counts.regions[0].results.push_back(trained.node(id).operands[0]);
  }
  EvalContext context;
  context.step_rows = total;
  context.bindings = {{"B", size}};
  const auto batch = [&](int64_t from) {
    std::vector<Tensor> part = inputs;
    for (size_t i = 0; i < part.size(); ++i) {
      if (trained.inputs[i].kind == InputKind::kData) part[i] = rows(part[i], from, size);
    }
    return part;
  };
  std::map<int32_t, double> totals;
  for (int64_t from = 0; from < total; from += size) {
    for (const auto& [name, value] : run(counts, batch(from), context))
      totals[std::stoi(name)] += value.data[0];
  }
  Results sums;
  for (int64_t from = 0; from < total; from += size) {
    context.row_offset = from;
    context.totals = totals;
    for (auto& [name, value] : run(trained, batch(from), context)) {
      auto [at, fresh] = sums.emplace(name, value);
      for (size_t i = 0; !fresh && i < value.data.size(); ++i) at->second.data[i] += value.data[i];
    }
  }
  return sums;
}

struct Loss {
  Program p;
  DimId B, T, D;
  ValueId x, w, weight, y;
  Loss() {
    B = p.dim("B", Size::symbol("B")), T = p.dim("T", 3), D = p.dim("D", 2);
    p.g.batch_dim = B;
    x = p.data("x", {B, T, D}), weight = p.data("weight", {B, T}, DType::kBool),
    w = p.input("w", {D});
    y = p.b.unary(Op::kTanh, contract(p.b, x, w, {D}));  // [B, T]
  }
  ValueId mean(ValueId v, std::vector<DimId> dims) {
    return p.b.make(Op::kMean, {v}, dims_attr(std::move(dims)));
  }
  ValueId weighted(ValueId v) { return p.b.make(Op::kMean, {v, weight}, dims_attr({B, T})); }
};

void expect_exact(Loss& loss, ValueId value, const std::string& what) {
  SCOPED_TRACE(what);
  loss.p.output("loss", value);
  EXPECT_TRUE(row_relations(loss.p.g).empty());
  const Graph trained = training_graph(loss.p.g);
  EXPECT_EQ(count_ops(trained, Op::kMean), 0U);
  const std::vector<Tensor> inputs = random_inputs(loss.p.g, {{"B", 8}}, 11);
  EvalContext context;
  context.bindings = {{"B", 8}};
  const double plain = run(loss.p.g, inputs, context).at("loss").data[0];
  const Results whole = over_micro_batches(trained, inputs, 8, 8);
  EXPECT_NEAR(whole.at("loss").data[0], plain, 1e-12);
  check_gradients(loss.p.g, trained, inputs, context);
  for (int64_t size : {4, 2, 1}) {
    const Results parts = over_micro_batches(trained, inputs, 8, size);
    for (const auto& [name, tensor] : whole) expect_near(parts.at(name), tensor, 1e-12, name);
  }
}

TEST(ExactMeans, PlainMean) {
  Loss loss;
  expect_exact(loss, loss.mean(loss.y, {loss.B, loss.T}), "mean");
}

TEST(ExactMeans, WeightedMean) {
  Loss loss;
  expect_exact(loss, loss.weighted(loss.y), "weighted");
}

TEST(ExactMeans, ThroughSumsAndConstants) {
  Loss loss;
  Builder& b = loss.p.b;
  const ValueId rows = loss.mean(loss.mean(loss.y, {loss.T}), {loss.B});
  const ValueId a = b.mul(loss.weighted(b.mul(loss.y, loss.y)), number(b, 0.5));
  const ValueId c = b.div(b.unary(Op::kNeg, loss.mean(loss.y, {loss.B, loss.T})), number(b, 3));
  const ValueId per_dim = b.sum(loss.mean(loss.x, {loss.B, loss.T}), {loss.D});
  expect_exact(loss,
               b.add(b.sub(b.add(rows, a), c), b.add(per_dim, b.sum(loss.y, {loss.B, loss.T}))),
               "sums");
}

TEST(ExactMeans, TermsWithoutTheBatchAreAveraged) {
  Loss loss;
  Builder& b = loss.p.b;
  const ValueId decay = b.sum(b.mul(loss.w, loss.w), {loss.D});
  expect_exact(loss, b.add(loss.weighted(loss.y), b.add(decay, number(b, 0.25))), "decay");
}

TEST(ExactMeans, MeanOverMergedBatch) {
  Loss loss;
  const DimId N = loss.p.dim("N", Size::symbol("B") * Size(3));
  Attrs merge;
  merge.groups = {DimGroup{{loss.B, loss.T}, {N}}};
  expect_exact(loss, loss.mean(loss.p.b.make(Op::kReshape, {loss.y}, merge), {N}), "merged");
}

// A product of means relates rows: each micro-batch has its own, and they are averaged.
TEST(ExactMeans, ProductsAreAveraged) {
  Loss loss;
  const ValueId mean = loss.mean(loss.y, {loss.B, loss.T});
  loss.p.output("loss", loss.p.b.mul(mean, mean));
  const std::vector<NodeId> relations = row_relations(loss.p.g);
  ASSERT_EQ(relations.size(), 1U);
  EXPECT_EQ(loss.p.g.node(relations[0]).op, Op::kMean);
  const Graph trained = training_graph(loss.p.g);
  const std::vector<Tensor> inputs = random_inputs(loss.p.g, {{"B", 8}}, 11);
  double expected = 0;
  for (int64_t from = 0; from < 8; from += 2) {
    std::vector<Tensor> part = inputs;
    part[0] = rows(part[0], from, 2);
    part[1] = rows(part[1], from, 2);
    EvalContext context;
    context.bindings = {{"B", 2}};
    expected += run(loss.p.g, part, context).at("loss").data[0] / 4;
  }
  EXPECT_NEAR(over_micro_batches(trained, inputs, 8, 2).at("loss").data[0], expected, 1e-12);
}

// What of a row depends on others, by whatever op.
TEST(ExactMeans, RowsThatMeet) {
  const auto found = [](const std::function<ValueId(Loss&, Builder&)>& make) {
    Loss loss;
    Builder& b = loss.p.b;
    loss.p.output("loss", b.make(Op::kMean, {make(loss, b)}, dims_attr({loss.B, loss.T})));
    std::string names;
    for (const NodeId id : row_relations(loss.p.g))
      names += std::string(names.empty() ? "" : " ") + op_name(loss.p.g.node(id).op);
    return names;
  };
  EXPECT_EQ(found([](Loss& l, Builder& b) {  // batch norm
              return b.sub(l.y, b.broadcast(l.mean(l.y, {l.B}), {l.B, l.T}));
            }),
            "mean");
  EXPECT_EQ(
      found([](Loss& l, Builder& b) { return b.make(Op::kSoftmax, {l.y}, dims_attr({l.B})); }),
      "softmax");
  EXPECT_EQ(
      found([](Loss& l, Builder& b) { return b.make(Op::kSoftmax, {l.y}, dims_attr({l.T})); }), "");
  EXPECT_EQ(found([](Loss& l, Builder& b) {
              Attrs attrs;
              attrs.dim = l.B;
              return b.make(Op::kCumSum, {l.y}, attrs);
            }),
            "cumsum");
}

// 2 tokens of loss 1 in one micro-batch, 8 of loss 3 in the other: 2.6, not 2.
TEST(ExactMeans, UnevenCounts) {
  Program p;
  const DimId B = p.dim("B", Size::symbol("B")), T = p.dim("T", 8);
  p.g.batch_dim = B;
  const ValueId x = p.data("x", {B, T}), keep = p.data("keep", {B, T}, DType::kBool),
                w = p.input("w", {});
  p.output("loss", p.b.make(Op::kMean, {p.b.mul(x, w), keep}, dims_attr({B, T})));
  const Graph trained = training_graph(p.g);
  std::vector<Tensor> inputs = random_inputs(p.g, {{"B", 2}}, 1);
  for (size_t i = 0; i < 16; ++i) {
    inputs[0].data[i] = i < 8 ? 1 : 3;
    inputs[1].data[i] = i < 2 || i >= 8 ? 1 : 0;
  }
  inputs[2].data = {1};
  EXPECT_NEAR(over_micro_batches(trained, inputs, 2, 1).at("loss").data[0], 2.6, 1e-12);
  EXPECT_NEAR(over_micro_batches(trained, inputs, 2, 2).at("loss").data[0], 2.6, 1e-12);
  // One micro-batch without labels adds nothing; none at all gives 0 and gradient 0.
  for (size_t i = 0; i < 8; ++i) inputs[1].data[i] = 0;
  EXPECT_NEAR(over_micro_batches(trained, inputs, 2, 1).at("loss").data[0], 3, 1e-12);
  for (double& kept : inputs[1].data) kept = 0;
  const Results none = over_micro_batches(trained, inputs, 2, 1);
  EXPECT_EQ(none.at("loss").data[0], 0);
  EXPECT_EQ(none.at("grad:w").data[0], 0);
}

}  // namespace
}  // namespace cad::ir
