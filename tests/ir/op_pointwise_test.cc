// tests/ir/op_pointwise_test.cc -- pointwise ops: constraints (C1)-(C3) of ir/op_pointwise.cc and
// values.
#include <limits>

#include "tests/ir/ir_testing.h"

namespace cad::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// f(x) element by element, of x or pairs (x, y), in the given dtype.
std::vector<double> values(Op op, DType dtype, std::vector<std::vector<double>> operands) {
  Bench t;
  t.bindings = {{"N", static_cast<int64_t>(operands[0].size())}};
  std::vector<ValueId> in;
  for (size_t i = 0; i < operands.size(); ++i) {
    in.push_back(
        t.given(std::string(1, static_cast<char>('a' + i)), t.type(dtype, {"N"}), operands[i]));
  }
  return t.eval(t.b.make(op, in));
}
std::vector<double> floats(Op op, std::vector<std::vector<double>> operands) {
  return values(op, DType::kF32, std::move(operands));
}
using V = std::vector<double>;

TEST(Pointwise, Arithmetic) {
  EXPECT_EQ(floats(Op::kAdd, {{1, 2.5}, {3, -4}}), (V{4, -1.5}));
  EXPECT_EQ(floats(Op::kSub, {{1, 2.5}, {3, -4}}), (V{-2, 6.5}));
  EXPECT_EQ(floats(Op::kMul, {{1, 2.5}, {3, -4}}), (V{3, -10}));
  EXPECT_EQ(floats(Op::kDiv, {{1, 2.5, 1}, {4, -0.5, 0}}), (V{0.25, -5, kInf}));
  EXPECT_EQ(floats(Op::kPow, {{2, 4, 0}, {10, 0.5, 0}}), (V{1024, 2, 1}));
  EXPECT_EQ(floats(Op::kNeg, {{1, -2}}), (V{-1, 2}));
  EXPECT_EQ(floats(Op::kAbs, {{1, -2}}), (V{1, 2}));
}

TEST(Pointwise, FloorDivisionAndMod) {
  EXPECT_EQ(values(Op::kFloorDiv, DType::kI32, {{7, -7, 7, -7, 5}, {2, 2, -2, -2, 0}}),
            (V{3, -4, -4, 3, 0}));
  EXPECT_EQ(values(Op::kMod, DType::kI32, {{7, -7, 7, -7, 5}, {4, 4, -4, -4, 0}}),
            (V{3, 1, -1, -3, 5}));
  EXPECT_EQ(floats(Op::kFloorDiv, {{7.5, -0.5}, {2, 1}}), (V{3, -1}));
  EXPECT_EQ(floats(Op::kMod, {{7.5, -0.5}, {2, 1}}), (V{1.5, 0.5}));
}

TEST(Pointwise, MinMaxKeepNan) {
  EXPECT_EQ(floats(Op::kMax, {{1, 5}, {3, -4}}), (V{3, 5}));
  EXPECT_EQ(floats(Op::kMin, {{1, 5}, {3, -4}}), (V{1, -4}));
  for (Op op : {Op::kMax, Op::kMin}) {
    for (double x : floats(op, {{NAN, 1}, {1, NAN}})) EXPECT_TRUE(std::isnan(x));
  }
}

TEST(Pointwise, Functions) {
  EXPECT_DOUBLE_EQ(floats(Op::kExp, {{1}})[0], std::exp(1.0));
  EXPECT_DOUBLE_EQ(floats(Op::kLog, {{2}})[0], std::log(2.0));
  EXPECT_DOUBLE_EQ(floats(Op::kSqrt, {{2}})[0], std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(floats(Op::kRsqrt, {{4}})[0], 0.5);
  EXPECT_DOUBLE_EQ(floats(Op::kSin, {{0.5}})[0], 0.479425538604203);
  EXPECT_DOUBLE_EQ(floats(Op::kCos, {{0.5}})[0], 0.8775825618903728);
  EXPECT_DOUBLE_EQ(floats(Op::kTanh, {{0.5}})[0], 0.46211715726000973);
  EXPECT_DOUBLE_EQ(floats(Op::kErf, {{0.5}})[0], 0.5204998778130465);
  EXPECT_DOUBLE_EQ(floats(Op::kSigmoid, {{1}})[0], 0.7310585786300049);
  EXPECT_DOUBLE_EQ(floats(Op::kSoftplus, {{1}})[0], 1.3132616875182228);
}

TEST(Pointwise, NeverOverflows) {
  EXPECT_EQ(floats(Op::kSigmoid, {{1000, -1000}}), (V{1, 0}));
  EXPECT_EQ(floats(Op::kSoftplus, {{1000, -1000}}), (V{1000, 0}));
}

TEST(Pointwise, Comparisons) {
  const std::vector<V> in{{1, 2, 3, NAN}, {2, 2, 2, 2}};
  EXPECT_EQ(floats(Op::kEq, in), (V{0, 1, 0, 0}));
  EXPECT_EQ(floats(Op::kNe, in), (V{1, 0, 1, 1}));
  EXPECT_EQ(floats(Op::kLt, in), (V{1, 0, 0, 0}));
  EXPECT_EQ(floats(Op::kLe, in), (V{1, 1, 0, 0}));
  EXPECT_EQ(floats(Op::kGt, in), (V{0, 0, 1, 0}));
  EXPECT_EQ(floats(Op::kGe, in), (V{0, 1, 1, 0}));
}

TEST(Pointwise, Bools) {
  const std::vector<V> in{{0, 0, 1, 1}, {0, 1, 0, 1}};
  EXPECT_EQ(values(Op::kAnd, DType::kBool, in), (V{0, 0, 0, 1}));
  EXPECT_EQ(values(Op::kOr, DType::kBool, in), (V{0, 1, 1, 1}));
  EXPECT_EQ(values(Op::kNot, DType::kBool, {{0, 1}}), (V{1, 0}));
  EXPECT_EQ(values(Op::kEq, DType::kBool, in), (V{1, 0, 0, 1}));
}

TEST(Pointwise, WhereDoesNotSpreadNan) {
  Bench t;
  t.bindings = {{"N", 2}};
  ValueId c = t.given("c", t.type(DType::kBool, {"N"}), {1, 0});
  ValueId a = t.given("a", t.type(DType::kF32, {"N"}), {1, NAN});
  EXPECT_EQ(t.eval(t.b.where(c, a, t.b.constant(7.0, DType::kF32))), (V{1, 7}));
}

TEST(Pointwise, Casts) {
  Bench t;
  t.bindings = {{"N", 6}};
  ValueId x = t.given("x", t.type(DType::kF32, {"N"}), {2.7, -2.7, 0, NAN, 1e20, -1e20});
  EXPECT_EQ(t.eval(t.b.cast(x, DType::kI32)), (V{2, -2, 0, 0, 2147483647, -2147483648.0}));
  EXPECT_EQ(t.eval(t.b.cast(x, DType::kBool)), (V{1, 1, 0, 1, 1, 1}));
  EXPECT_EQ(t.b.cast(x, DType::kF32), x);  // no node
}

TEST(Pointwise, RoundingToTheDtype) {
  Bench t;
  t.bindings = {{"N", 3}};
  ValueId x = t.given("x", t.type(DType::kF32, {"N"}), {1.0 / 3, 1e5, 1e-7});
  EvalContext context;
  context.round = true;
  EXPECT_EQ(t.eval(t.b.cast(x, DType::kBF16), context), (V{0x1.56p-2, 99840, 0x1.aep-24}));
  const V half = t.eval(t.b.cast(x, DType::kF16), context);
  EXPECT_EQ(half, (V{0.333251953125, kInf, 1.1920928955078125e-07}));
  EXPECT_EQ(t.eval(t.b.unary(Op::kNeg, x), context)[0], -static_cast<double>(1.0F / 3));
}

TEST(Pointwise, StopAndBroadcast) {
  Bench t;
  t.bindings = {{"A", 2}, {"B", 2}};
  ValueId x = t.given("x", t.type(DType::kF32, {"B"}), {1, 2});
  EXPECT_EQ(t.eval(t.b.unary(Op::kStop, x)), (V{1, 2}));
  ValueId wide = t.b.broadcast(x, t.dims({"B", "A"}));
  EXPECT_EQ(type_of(t, wide), "[B, A]");
  EXPECT_EQ(t.eval(wide), (V{1, 1, 2, 2}));
  EXPECT_EQ(t.b.broadcast(x, t.dims({"B"})), x);
  Attrs attrs;
  EXPECT_EQ(error_of(t, Op::kBroadcast, {x}, attrs), "not-subset: the result's dims lack `B`");
}

TEST(Pointwise, ResultHasTheDimsOfTheOperandThatContainsAll_C2) {
  Bench t;
  ValueId big = t.x("big", {"B", "T", "D"}), small = t.x("small", {"D", "B"}),
          same = t.x("same", {"D", "T", "B"});
  EXPECT_EQ(type_of(t, t.b.add(small, big)), "[B, T, D]");
  EXPECT_EQ(type_of(t, t.b.add(same, big)), "[D, T, B]");
  EXPECT_EQ(type_of(t, t.b.mul(t.b.constant(2.0, DType::kF32), small)), "[D, B]");
  EXPECT_EQ(type_of(t, t.b.make(Op::kLt, {small, big})), "bool[B, T, D]");
  EXPECT_EQ(t.g.node(t.g.value(t.b.add(small, big)).def).attrs.dims, t.dims({"B", "T", "D"}));
}

TEST(Pointwise, NeitherContainsTheOther_C2) {
  Bench t;
  ValueId x = t.x("x", {"B", "T", "D"}), h = t.x("h", {"B", "T", "F"});
  const auto made = t.b.try_make(Op::kAdd, {x, h});
  ASSERT_EQ(made.shape.errors.size(), 1U);
  EXPECT_EQ(made.shape.errors[0].code, ShapeError::Code::kNotSubset);
  EXPECT_EQ(made.shape.errors[0].dims, t.dims({"D", "F"}));
  EXPECT_EQ(made.shape.errors[0].detail,
            "one side's dims must contain the other's; `D`, `F` are not on every side");
  ValueId c = t.bools("c", {"T"});
  EXPECT_EQ(
      error_of(t, Op::kWhere, {c, t.x("u", {"B"}), t.x("v", {})}),
      "not-subset: one operand's dims must contain the others'; `T`, `B` are not on every side");
}

TEST(Pointwise, GivenDims_C3) {
  Bench t;
  t.bindings = {{"T", 3}, {"S", 2}};
  Attrs it, is, over;
  it.dim = t.dim("T");
  is.dim = t.dim("S");
  over.dims = t.dims({"S", "T"});
  ValueId a = t.b.make(Op::kIota, {}, it), b = t.b.make(Op::kIota, {}, is);
  ValueId ge = t.b.make(Op::kGe, {a, b}, over);
  EXPECT_EQ(type_of(t, ge), "bool[S, T]");
  EXPECT_EQ(t.eval(ge), (V{1, 1, 1, 0, 1, 1}));
  over.dims = t.dims({"S"});
  EXPECT_EQ(error_of(t, Op::kGe, {a, b}, over), "not-subset: the result's dims lack `T`");
  over.dims = t.dims({"S", "T", "S"});
  EXPECT_EQ(error_of(t, Op::kGe, {a, b}, over), "duplicate-dim: the result would hold `S` twice");
  over.dims = {DimId{99}};
  EXPECT_EQ(error_of(t, Op::kGe, {a, b}, over), "other: no dim 99 in the graph");
}

TEST(Pointwise, DTypes_C1) {
  Bench t;
  ValueId f = t.x("f", {"B"}), c = t.bools("c", {"B"}), i = t.number(3),
          h = t.b.cast(f, DType::kBF16);
  EXPECT_EQ(error_of(t, Op::kAdd, {f, i}), "dtype: the operands are `f32` and `i32`");
  EXPECT_EQ(error_of(t, Op::kAdd, {f, h}), "dtype: the operands are `f32` and `bf16`");
  EXPECT_EQ(error_of(t, Op::kAdd, {c, c}), "dtype: a number type is wanted, this is `bool`");
  EXPECT_EQ(error_of(t, Op::kExp, {i}), "dtype: a float type is wanted, this is `i32`");
  EXPECT_EQ(error_of(t, Op::kAnd, {c, f}), "dtype: `bool` is wanted, this is `f32`");
  EXPECT_EQ(error_of(t, Op::kWhere, {f, f, f}), "dtype: `bool` is wanted, this is `f32`");
  EXPECT_EQ(error_of(t, Op::kWhere, {c, f, i}), "dtype: the branches are `f32` and `i32`");
  EXPECT_EQ(error_of(t, Op::kNeg, {f, f}), "other: 1 operands are wanted, there are 2");
  EXPECT_EQ(type_of(t, t.b.div(i, i)), "f32[]");  // the builder casts
  EXPECT_EQ(type_of(t, t.b.make(Op::kEq, {c, c})), "bool[B]");
}

TEST(Pointwise, FailedMakeLeavesTheGraph) {
  Bench t;
  ValueId x = t.x("x", {"B"}), y = t.x("y", {"T"});
  const size_t nodes = t.g.nodes.size(), all = t.g.values.size();
  EXPECT_FALSE(t.b.try_make(Op::kAdd, {x, y}).ok());
  EXPECT_EQ(t.g.nodes.size(), nodes);
  EXPECT_EQ(t.g.values.size(), all);
}

}  // namespace
}  // namespace cad::ir
