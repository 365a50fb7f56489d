// tests/planner/strategy_test.cc -- strategies in particular: what the classic mistakes of sharded
// programs compute here (means of uneven parts, a bias added once a device, indices of a part, a
// softmax normalised a part at a time), which splits are offered, and the collectives inside ops.
#include <set>

#include "tests/planner/op_cases.h"
#include "tests/planner/spmd_op.h"

namespace cad::planner {
namespace {

using ir::Bench;
using ir::DType;
using ir::Op;
using ir::ValueId;

struct Whole {
  std::vector<ir::Tensor> operands, results;
  ir::NodeId node;
};

Whole run_whole(Bench& t, ValueId result) {
  Whole whole;
  whole.node = t.g.value(result).def;
  const ir::Node node = t.g.node(whole.node);
  t.g.outputs.clear();
  t.g.regions[0].results.clear();
  for (ValueId x : node.operands) t.output(x, "operand");
  for (ValueId y : node.results) t.output(y);
  auto all = t.run();
  const auto middle = all.begin() + static_cast<ptrdiff_t>(node.operands.size());
  whole.operands.assign(all.begin(), middle);
  whole.results.assign(middle, all.end());
  return whole;
}

std::vector<Strategy> all_of(const Bench& t, ValueId result, const Mesh& mesh,
                             bool products = true) {
  return strategies(t.g, t.g.value(result).def, mesh, dim_extents(t.g, t.bindings),
                    {.partial_products = products});
}

// The result in every strategy, put together; all strategies must agree with `wanted`.
void expect_everywhere(Bench& t, ValueId result, const std::vector<double>& wanted,
                       const std::vector<std::vector<int>>& meshes) {
  const Whole whole = run_whole(t, result);
  ASSERT_EQ(whole.results[0].data.size(), wanted.size());
  for (size_t k = 0; k < wanted.size(); ++k) EXPECT_NEAR(whole.results[0].data[k], wanted[k], 1e-6);
  ir::EvalContext context;
  context.bindings = t.bindings;
  for (const auto& axes : meshes) {
    const Mesh mesh = mesh_of(axes);
    SpmdOp op(t.g, whole.node, mesh, context);
    for (const Strategy& s : all_of(t, result, mesh)) {
      const auto parts = op.run(s, whole.operands);
      EXPECT_EQ(difference(parts[0], whole.results[0], s.results[0], mesh), "") << mesh.str();
    }
  }
}

bool splits(const Bench& t, ValueId result, const Mesh& mesh, const std::string& dim) {
  for (const Strategy& s : all_of(t, result, mesh)) {
    const ir::Node& n = t.g.node(t.g.value(result).def);
    for (size_t i = 0; i < s.operands.size(); ++i) {
      const int at = t.g.type(n.operands[i]).position(t.g.find_dim(dim));
      if (at >= 0 && axes_of(s.operands[i], at).count > 0) return true;
    }
  }
  return false;
}

ValueId numbers(Bench& t, const std::string& name, const std::vector<std::string>& dims,
                std::vector<double> data) {
  return t.given(name, t.type(DType::kF32, dims), std::move(data));
}

TEST(Strategy, MeanOfUnevenParts) {
  std::vector<double> twelve;
  for (int i = 0; i < 12; ++i) twelve.push_back(i);
  Bench t;
  t.bindings = {{"A", 3}, {"C", 4}};
  expect_everywhere(
      t, t.b.make(Op::kMean, {numbers(t, "x", {"A", "C"}, twelve)}, over(t.dims({"A", "C"}))),
      {5.5}, {{2}, {3}, {2, 2}});
  Bench u;
  u.bindings = {{"A", 1}, {"C", 4}};
  ValueId x = numbers(u, "x", {"A", "C"}, {0, 1, 2, 3});
  ValueId m = u.b.make(Op::kMean, {x}, over(u.dims({"A", "C"})));
  expect_everywhere(u, m, {1.5}, {{2}, {3}, {2, 2}});
  EXPECT_FALSE(splits(u, m, mesh_of({2}), "A"));  // one row is not split over two
  for (const auto& [rows, devices] : {std::pair{5, 2}, {7, 3}, {10, 4}}) {
    Bench v;
    v.bindings = {{"B", rows}};
    std::vector<double> data;
    double sum = 0;
    for (int i = 0; i < rows; ++i) {
      data.push_back(i * i);
      sum += i * i;
    }
    expect_everywhere(v, v.b.make(Op::kMean, {numbers(v, "x", {"B"}, data)}, over(v.dims({"B"}))),
                      {sum / rows}, {{devices}});
  }
}

// Partial values flow through linear ops and no others.
TEST(Strategy, PartialFlowsOnlyThroughLinearOps) {
  const auto flows = [](Op op, bool two) {
    Bench t;
    t.bindings = {{"B", 4}};
    std::vector<ValueId> operands{t.x("x", {"B"}, 1, 2)};
    if (two) operands.push_back(t.x("y", {"B"}, 1, 2));
    ValueId result = t.b.make(op, operands);
    std::set<std::string> found;
    for (const Strategy& s : all_of(t, result, mesh_of({2}))) {
      std::string which;
      for (const Layout& layout : s.operands) which += layout.axis[0] == kPartial ? 'P' : '-';
      if (s.results[0].axis[0] == kPartial) found.insert(which);
    }
    return found;
  };
  using Set = std::set<std::string>;
  EXPECT_EQ(flows(Op::kAdd, true), Set{"PP"});
  EXPECT_EQ(flows(Op::kSub, true), Set{"PP"});
  EXPECT_EQ(flows(Op::kMul, true), (Set{"P-", "-P"}));
  EXPECT_EQ(flows(Op::kDiv, true), Set{"P-"});
  EXPECT_EQ(flows(Op::kNeg, false), Set{"P"});
  for (Op op : {Op::kPow, Op::kMax, Op::kMin, Op::kMod})
    EXPECT_EQ(flows(op, true), Set{}) << op_name(op);
  for (Op op : {Op::kExp, Op::kAbs, Op::kSqrt, Op::kTanh, Op::kSigmoid})
    EXPECT_EQ(flows(op, false), Set{}) << op_name(op);

  Bench t;  // x * x wants x both ways
  t.bindings = {{"B", 4}};
  ValueId x = t.x("x", {"B"});
  for (const Strategy& s : all_of(t, t.b.mul(x, x), mesh_of({2})))
    EXPECT_NE(s.results[0].axis[0], kPartial);
}

// sum(0..9), left as summands of the devices, then + 10, * 2, ^ 2, max(.., 0).
TEST(Strategy, OpsOnASumThatIsNotReducedYet) {
  for (const auto& axes : {std::vector<int>{2}, {3}, {2, 2}}) {
    const Mesh mesh = mesh_of(axes);
    for (const auto& [op, other, wanted] : {std::tuple{Op::kAdd, 10.0, 55.0},
                                            {Op::kMul, 2.0, 90.0},
                                            {Op::kPow, 2.0, 2025.0},
                                            {Op::kMax, 0.0, 45.0}}) {
      Bench t;
      t.bindings = {{"N", 10}};
      std::vector<double> data;
      for (int i = 0; i < 10; ++i) data.push_back(i);
      ValueId sum = t.b.sum(numbers(t, "x", {"N"}, data), t.dims({"N"}));
      ValueId result = t.b.make(op, {sum, t.b.constant(other, DType::kF32)});
      const Whole first = run_whole(t, sum);
      const Whole second = run_whole(t, result);
      EXPECT_EQ(second.results[0].data[0], wanted);
      ir::EvalContext context;
      context.bindings = t.bindings;
      Strategy split;
      for (const Strategy& s : all_of(t, sum, mesh)) {
        if (axes_with(s.results[0], mesh, kPartial) == (1U << axes.size()) - 1) split = s;
      }
      ASSERT_FALSE(split.operands.empty());
      SpmdOp summing(t.g, first.node, mesh, context);
      const Parts summands = summing.run(split, first.operands)[0];
      // What the planner puts between: the conversion to what a strategy of the op takes.
      for (const Strategy& s : all_of(t, result, mesh)) {
        Parts parts = summands;
        const ConversionTable table(mesh, {}, 4, true);
        for (const Step& step : table.path(split.results[0], s.operands[0]))
          parts = apply(step, parts, {}, mesh);
        SpmdOp use(t.g, second.node, mesh, context);
        EXPECT_EQ(difference(parts, first.results[0], s.operands[0], mesh), "");
        EXPECT_EQ(difference(use.run(s, {first.results[0], second.operands[1]})[0],
                             second.results[0], s.results[0], mesh),
                  "");
      }
    }
  }
}

TEST(Strategy, PicksKeepTheirDimWhole) {
  for (const auto& data : {std::vector<double>{10, 5, 3, 8}, {1, 7, 7, 1}}) {
    Bench t;
    t.bindings = {{"N", 4}, {"A", 2}};
    ValueId x = numbers(t, "x", {"N"}, data);
    ValueId first = t.b.make(Op::kArgmax, {x}, over(t.dims({"N"})));
    EXPECT_FALSE(splits(t, first, mesh_of({2}), "N"));
    expect_everywhere(t, first, {data[0] == 10 ? 0.0 : 1.0}, {{2}, {4}, {2, 2}});
    EXPECT_FALSE(splits(t, t.b.make_all(Op::kTopK, {x}, along(t.dim("N"), t.dim("A")))[0],
                        mesh_of({2}), "N"));
    ValueId running = t.b.make(Op::kCumSum, {x}, along(t.dim("N")));
    EXPECT_FALSE(splits(t, running, mesh_of({2}), "N"));
  }
}

// x W^T + b with the inner dim split: b is added to the reduced product, or as one device's
// summand.
TEST(Strategy, ABiasIsAddedOnce) {
  for (const auto& axes : {std::vector<int>{2}, {4}, {2, 2}}) {
    const Mesh mesh = mesh_of(axes);
    Bench t;
    t.bindings = {{"B", 2}, {"I", 4}, {"O", 3}};
    ValueId x = numbers(t, "x", {"B", "I"}, {1, 2, 3, 4, 5, 6, 7, 8});
    ValueId w = numbers(t, "w", {"O", "I"}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
    ValueId b = numbers(t, "b", {"O"}, {100, 200, 300});
    ValueId y = t.b.make(Op::kContract, {x, w}, over(t.dims({"I"})));
    ValueId z = t.b.add(y, b);
    const Whole product = run_whole(t, y), sum = run_whole(t, z);
    EXPECT_EQ(sum.results[0].data, (std::vector<double>{130, 270, 410, 170, 374, 578}));
    ir::EvalContext context;
    context.bindings = t.bindings;
    const auto extents = product.results[0].extents;
    for (const Strategy& s : all_of(t, y, mesh)) {
      if (axes_with(s.results[0], mesh, kPartial) == 0) continue;
      SpmdOp multiply(t.g, product.node, mesh, context);
      const Parts summands = multiply.run(s, product.operands)[0];
      const ConversionTable products(mesh, extents, 4, true), biases(mesh, {3}, 4, true);
      for (const Strategy& add : all_of(t, z, mesh)) {
        Parts left = summands;
        for (const Step& step : products.path(s.results[0], add.operands[0]))
          left = apply(step, left, extents, mesh);
        EXPECT_EQ(difference(left, product.results[0], add.operands[0], mesh), "");
        SpmdOp plus(t.g, sum.node, mesh, context);
        EXPECT_EQ(difference(plus.run(add, sum.operands)[0], sum.results[0], add.results[0], mesh),
                  "");
      }
    }
  }
}

TEST(Strategy, JoinsOfOneElementADevice) {
  Bench t;
  t.bindings = {{"N", 4}, {"A", 1}, {"C", 3}};
  ValueId x = numbers(t, "x", {"N"}, {0, 1, 2, 3});
  const auto rolled = [&](int64_t at, const std::string& head, const std::string& tail) {
    ir::Attrs first = along(t.dim("N"), t.dim(head)), second = along(t.dim("N"), t.dim(tail));
    first.start = at;
    ir::Attrs join;
    join.dims = t.dims({head, tail});
    join.to = t.dim("N");
    return t.b.make(Op::kConcat,
                    {t.b.make(Op::kSlice, {x}, first), t.b.make(Op::kSlice, {x}, second)}, join);
  };
  ValueId a = rolled(3, "A", "C"), b = rolled(1, "C", "A");
  for (ValueId joined : {a, b}) {
    EXPECT_FALSE(splits(t, joined, mesh_of({2}), "A"));
    EXPECT_FALSE(splits(t, joined, mesh_of({2}), "C"));
  }
  expect_everywhere(t, a, {3, 0, 1, 2}, {{2}, {3}, {4}});
  expect_everywhere(t, b, {1, 2, 3, 0}, {{2}, {3}, {4}});
  expect_everywhere(t, t.b.add(a, b), {4, 2, 4, 2}, {{2}, {3}, {4}});
}

TEST(Strategy, SoftmaxOverASplitDim) {
  Bench t;
  t.bindings = {{"V", 4}};
  ValueId z = numbers(t, "z", {"V"}, {1000, 1001, 1002, 1003});
  expect_everywhere(t, t.b.make(Op::kSoftmax, {z}, over(t.dims({"V"}))),
                    {0.032059, 0.087144, 0.236883, 0.643914}, {{2}, {4}, {2, 2}});
  ValueId lse = t.b.make(Op::kLogSumExp, {z}, over(t.dims({"V"})));
  expect_everywhere(t, lse, {1003.440190}, {{2}, {4}, {2, 2}});
}

// A maximum and a sum of [B, T] in f32; B is split as well.
TEST(Strategy, StatisticsArePricedByTheirOwnSize) {
  Bench t;
  t.dtype = DType::kBF16;
  t.bindings = {{"B", 6}, {"T", 5}, {"S", 8}};
  ValueId y = t.b.make(Op::kSoftmax, {t.x("x", {"B", "T", "S"})}, over(t.dims({"S"})));
  const OpSharding sharding(t.g, t.g.value(y).def, dim_extents(t.g, t.bindings));
  const int b = sharding.factor_of_result(0, t.dim("B")),
            s = sharding.factor_of_result(0, t.dim("S"));
  const Mesh mesh = mesh_of({4, 2});
  const auto strategy = sharding.strategy({static_cast<int8_t>(b), static_cast<int8_t>(s)}, mesh);
  ASSERT_TRUE(strategy);
  ASSERT_EQ(strategy->forward.size(), 2U);
  ASSERT_EQ(strategy->backward.size(), 1U);
  EXPECT_EQ(strategy->forward[0].kind, Collective::kAllReduce);
  EXPECT_EQ(strategy->forward[0].axes, 2);
  EXPECT_EQ(strategy->forward[0].bytes, 2.0 * 5 * 4);  // ceil(6 / 4) rows
  EXPECT_DOUBLE_EQ(strategy->share, 2.0 / 6 * 4 / 8);
  EXPECT_EQ(sharding.str(strategy->assignment, mesh), "B over a, S over b");
}

TEST(Strategy, IntegersAreReducedInTheOp) {
  Bench t;
  t.bindings = {{"B", 6}, {"T", 4}};
  ValueId n = t.b.sum(t.bools("x", {"B", "T"}), t.dims({"B"}));
  bool found = false;
  for (const Strategy& s : all_of(t, n, mesh_of({2}))) {
    EXPECT_NE(s.results[0].axis[0], kPartial);
    if (s.operands[0].axis[0] != 0) continue;
    found = true;
    ASSERT_EQ(s.forward.size(), 1U);
    EXPECT_EQ(s.forward[0].bytes, 16);
  }
  EXPECT_TRUE(found);
}

// 6 heads of 2 do not line up with 4 equal parts of 12; 12 heads do, with 3 each.
TEST(Strategy, HeadsThatDoNotDivide) {
  const auto heads = [](int64_t h, int devices) {
    Bench t;
    t.bindings = {{"B", 8}, {"D", 2 * h}, {"H", h}, {"K", 2}};
    ir::Attrs attrs;
    attrs.groups = {{t.dims({"D"}), t.dims({"H", "K"})}};
    ValueId y = t.b.make(Op::kReshape, {t.x("x", {"B", "D"})}, attrs);
    const Mesh mesh = mesh_of({devices});
    int64_t extent = 0;
    for (const Strategy& s : all_of(t, y, mesh)) {
      if (s.results[0].axis[0] == 1) extent = local_extent(s.results[0], 1, h, mesh);
    }
    return extent;
  };
  EXPECT_EQ(heads(6, 4), 0);
  EXPECT_EQ(heads(3, 4), 0);
  EXPECT_EQ(heads(12, 4), 3);
  EXPECT_EQ(heads(6, 3), 2);
  // As a dim of its own, 6 heads over 4 are 2, 2, 2, 0, and what is over is counted for nothing.
  Bench t;
  t.bindings = {{"B", 2}, {"T", 2}, {"H", 6}, {"K", 2}, {"D", 4}};
  ValueId y = t.b.make(Op::kContract, {t.x("x", {"B", "T", "H", "K"}), t.x("w", {"H", "K", "D"})},
                       over(t.dims({"H", "K"})));
  EXPECT_TRUE(splits(t, y, mesh_of({4}), "H"));
  EXPECT_EQ(local_range(6, std::vector<int>{4}, std::vector<int>{3}), (Range{6, 0}));
}

// Five classes, equal logits: the loss is ln 5 however V is split, never ln 6 or ln 8.
TEST(Strategy, AVocabularyThatDoesNotDivide) {
  for (int devices : {2, 3, 4}) {
    Bench t;
    t.bindings = {{"B", 2}, {"V", 5}};
    ValueId z = numbers(t, "z", {"B", "V"}, std::vector<double>(10, 0.0));
    ValueId lse = t.b.make(Op::kLogSumExp, {z}, over(t.dims({"V"})));
    EXPECT_TRUE(splits(t, lse, mesh_of({devices}), "V"));
    expect_everywhere(t, lse, {1.609438, 1.609438}, {{devices}});
  }
  for (int64_t target = 0; target < 6; ++target) {  // two each for three devices, none for the last
    Bench t;
    t.bindings = {{"B", 1}, {"V", 6}};
    std::vector<double> logits(6, -1e4);
    logits[static_cast<size_t>(target)] = 1e4;
    ValueId z = numbers(t, "z", {"B", "V"}, logits);
    ValueId ids = t.given("ids", t.type(DType::kI32, {"B"}), {static_cast<double>(target)});
    expect_everywhere(t, t.b.make(Op::kGather, {z, ids}, along(t.dim("V"))), {1e4}, {{4}});
  }
}

// A dim shorter than its axis is not split by it; several axes nest.
TEST(Strategy, SizesDecide) {
  Bench t;
  t.bindings = {{"B", 3}, {"T", 8}};
  ValueId y = t.b.unary(Op::kExp, t.x("x", {"B", "T"}));
  EXPECT_EQ(all_of(t, y, mesh_of({2})).size(), 3U);
  EXPECT_EQ(all_of(t, y, mesh_of({4})).size(), 2U);
  EXPECT_EQ(all_of(t, y, mesh_of({1})).size(), 1U);
  EXPECT_EQ(all_of(t, y, mesh_of({2, 2})).size(), 9U);  // B over both: 2, 1 then 1, 1, 1, 0
  EXPECT_EQ(all_of(t, y, mesh_of({2, 4})).size(), 6U);  // B over b: 3 < 4
  EXPECT_EQ(all_of(t, y, mesh_of({16})).size(), 1U);
}

// `@shard` leaves only the strategies whose results honour it.
TEST(Strategy, PinsAreObeyed) {
  Bench t;
  t.bindings = {{"B", 8}, {"H", 8}};
  const Mesh mesh = mesh_of({2, 4});  // axes a and b
  const auto left = [&](std::vector<std::pair<std::string, std::string>> pins, bool obey = true) {
    ValueId y = t.b.unary(Op::kExp, t.x(fmt::format("x{}", t.g.inputs.size()), {"B", "H"}));
    for (const auto& [dim, axis] : pins) t.g.value(y).pins.push_back({t.dim(dim), axis, {}});
    std::set<std::string> found;
    for (const Strategy& s :
         strategies(t.g, t.g.value(y).def, mesh, dim_extents(t.g, t.bindings), {.obey_pins = obey}))
      found.insert(str(s.results[0], t.g, t.g.type(y), mesh));
    return found;
  };
  using Set = std::set<std::string>;
  EXPECT_EQ(left({}).size(), 9U);
  EXPECT_EQ(left({{"H", "b"}}), (Set{"[B, H:b]", "[B:a, H:b]"}));
  EXPECT_EQ(left({{"H", ""}}), (Set{"[B, H]", "[B:a, H]", "[B:b, H]", "[B:a:b, H]"}));
  EXPECT_EQ(left({{"H", "a"}, {"H", "b"}}), Set{"[B, H:a:b]"});
  EXPECT_EQ(left({{"H", "a"}, {"B", ""}}), Set{"[B, H:a]"});
  EXPECT_EQ(left({{"H", "a"}, {"B", "a"}}), Set{});
  EXPECT_EQ(left({{"H", "a"}, {"H", ""}}), Set{});
  EXPECT_EQ(left({{"H", "a"}, {"B", "a"}}, false).size(), 9U);
}

// The check itself: layouts that a rule must not give are found out.
TEST(Strategy, WrongRulesAreCaught) {
  const Mesh mesh = mesh_of({2});
  const auto fault = [&](Bench& t, ValueId result, int8_t operand, int8_t given) {
    const Whole whole = run_whole(t, result);
    ir::EvalContext context;
    context.bindings = t.bindings;
    Strategy s = all_of(t, result, mesh)[0];
    s.operands[0].axis[0] = operand;
    s.results[0].axis[0] = given;
    SpmdOp op(t.g, whole.node, mesh, context);
    return difference(op.run(s, whole.operands)[0], whole.results[0], s.results[0], mesh);
  };
  Bench t;
  t.bindings = {{"N", 4}};
  ValueId x = numbers(t, "x", {"N"}, {10, 5, 3, 8});
  EXPECT_EQ(fault(t, t.b.unary(Op::kNeg, x), kPartial, kPartial), "");
  EXPECT_NE(fault(t, t.b.unary(Op::kAbs, x), kPartial, kPartial), "");
  EXPECT_NE(fault(t, t.b.unary(Op::kExp, x), kPartial, kReplicated), "");
  EXPECT_NE(fault(t, t.b.make(Op::kArgmax, {x}, over(t.dims({"N"}))), 0, kPartial), "");
  EXPECT_NE(fault(t, t.b.make(Op::kLogSumExp, {x}, over(t.dims({"N"}))), 0, kReplicated), "");
  EXPECT_NE(fault(t, t.b.make(Op::kCumSum, {x}, along(t.dim("N"))), 0, 0), "");
  EXPECT_NE(fault(t, t.b.make(Op::kFlip, {x}, along(t.dim("N"))), 0, 0), "");
}

}  // namespace
}  // namespace cad::planner
