// tests/ir/op_reduce_test.cc -- reductions: constraints (C1)-(C5) of ir/op_reduce.cc and values.
#include <limits>

#include "tests/ir/ir_testing.h"

namespace cad::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
using V = std::vector<double>;

struct Reduce : ::testing::Test {
  Bench t;
  ValueId x, empty, hidden;
  Reduce() {
    t.bindings = {{"A", 2}, {"B", 3}, {"Z", 0}};
    x = t.given("x", t.type(DType::kF32, {"A", "B"}), {1, 5, 2, 7, 7, -3});
    empty = t.given("empty", t.type(DType::kF32, {"A", "Z"}), {});
    hidden = t.given("hidden", t.type(DType::kF32, {"A", "B"}), {-kInf, -kInf, -kInf, 0, -kInf, 0});
  }
  V of(Op op, ValueId value, const std::vector<std::string>& dims) {
    Attrs attrs;
    attrs.dims = t.dims(dims);
    return t.eval(t.b.make(op, {value}, attrs));
  }
};

TEST_F(Reduce, Sum) {
  EXPECT_EQ(of(Op::kSum, x, {"B"}), (V{8, 11}));
  EXPECT_EQ(of(Op::kSum, x, {"A"}), (V{8, 12, -1}));
  EXPECT_EQ(of(Op::kSum, x, {"B", "A"}), (V{19}));
  EXPECT_EQ(of(Op::kSum, x, {}), (V{1, 5, 2, 7, 7, -3}));
  EXPECT_EQ(of(Op::kSum, empty, {"Z"}), (V{0, 0}));
}

TEST_F(Reduce, SumOfBoolIsI32) {
  ValueId c = t.given("c", t.type(DType::kBool, {"B"}), {1, 0, 1});
  ValueId n = t.b.sum(c, t.dims({"B"}));
  EXPECT_EQ(type_of(t, n), "i32[]");
  EXPECT_EQ(t.eval(n), (V{2}));
}

TEST_F(Reduce, Mean) {
  EXPECT_EQ(of(Op::kMean, x, {"A"}), (V{4, 6, -0.5}));
  EXPECT_EQ(of(Op::kMean, empty, {"Z"}), (V{0, 0}));
  Attrs attrs;
  attrs.dims = t.dims({"B"});
  ValueId c = t.given("c", t.type(DType::kBool, {"B"}), {1, 0, 1});
  ValueId mean = t.b.make(Op::kMean, {c}, attrs);
  EXPECT_EQ(type_of(t, mean), "f32[]");
  EXPECT_DOUBLE_EQ(t.eval(mean)[0], 2.0 / 3);
  // Weighted: 0 where no weight is, and a weightless NaN does not spread.
  ValueId w = t.given("w", t.type(DType::kF32, {"A", "B"}), {1, 1, 2, 0, 0, 0});
  EXPECT_EQ(t.eval(t.b.make(Op::kMean, {x, w}, attrs)), (V{2.5, 0}));
  EXPECT_EQ(t.eval(t.b.make(Op::kMean, {x, c}, attrs)), (V{1.5, 2}));
}

TEST_F(Reduce, MeanWeight_C4) {
  Attrs attrs;
  attrs.dims = t.dims({"B"});
  ValueId w = t.x("w", {"Q", "B"}), half = t.b.cast(x, DType::kBF16);
  EXPECT_EQ(error_of(t, Op::kMean, {x, w}, attrs),
            "not-subset: one side's dims must contain the other's; `A`, `Q` are not on both");
  EXPECT_EQ(error_of(t, Op::kMean, {x, half}, attrs),
            "dtype: the values are `f32`, the weight `bf16`");
}

TEST_F(Reduce, MaxAndMin) {
  EXPECT_EQ(of(Op::kReduceMax, x, {"B"}), (V{5, 7}));
  EXPECT_EQ(of(Op::kReduceMin, x, {"B"}), (V{1, -3}));
  EXPECT_EQ(of(Op::kReduceMax, empty, {"Z"}), (V{-kInf, -kInf}));
  EXPECT_EQ(of(Op::kReduceMin, empty, {"Z"}), (V{kInf, kInf}));
  ValueId whole = t.b.cast(empty, DType::kI32);
  EXPECT_EQ(of(Op::kReduceMax, whole, {"Z"}), (V{-2147483648.0, -2147483648.0}));
  EXPECT_EQ(of(Op::kReduceMax, hidden, {"B"}), (V{-kInf, 0}));
}

TEST_F(Reduce, ArgmaxTiesToTheLowest) {
  EXPECT_EQ(of(Op::kArgmax, x, {"B"}), (V{1, 0}));
  EXPECT_EQ(of(Op::kArgmax, x, {"A"}), (V{1, 1, 0}));
  EXPECT_EQ(of(Op::kArgmax, hidden, {"B"}), (V{0, 0}));
  Attrs attrs;
  attrs.dims = t.dims({"A", "B"});
  EXPECT_EQ(error_of(t, Op::kArgmax, {x}, attrs), "other: `argmax` is over one dim, not 2");
}

TEST_F(Reduce, LogSumExp) {
  const V lse = of(Op::kLogSumExp, x, {"B"});
  EXPECT_DOUBLE_EQ(lse[0], std::log(std::exp(1.0) + std::exp(5.0) + std::exp(2.0)));
  EXPECT_EQ(of(Op::kLogSumExp, hidden, {"B"})[0], -kInf);
  EXPECT_DOUBLE_EQ(of(Op::kLogSumExp, hidden, {"B"})[1], std::log(2.0));
  EXPECT_EQ(of(Op::kLogSumExp, empty, {"Z"}), (V{-kInf, -kInf}));
  ValueId large = t.given("large", t.type(DType::kF32, {"B"}), {1000, 1000, 1000});
  EXPECT_DOUBLE_EQ(of(Op::kLogSumExp, large, {"B"})[0], 1000 + std::log(3.0));
}

TEST_F(Reduce, Softmax) {
  const V all = of(Op::kSoftmax, hidden, {"B"});
  EXPECT_EQ(all, (V{0, 0, 0, 0.5, 0, 0.5}));
  const V p = of(Op::kSoftmax, x, {"A", "B"});
  double sum = 0;
  for (double q : p) sum += q;
  EXPECT_DOUBLE_EQ(sum, 1);
  EXPECT_DOUBLE_EQ(p[3] / p[1], std::exp(2.0));
}

TEST_F(Reduce, CumSum) {
  Attrs attrs;
  attrs.dim = t.dim("B");
  EXPECT_EQ(t.eval(t.b.make(Op::kCumSum, {x}, attrs)), (V{1, 6, 8, 7, 14, 11}));
  attrs.reverse = true;
  EXPECT_EQ(t.eval(t.b.make(Op::kCumSum, {x}, attrs)), (V{8, 7, 2, 11, 4, -3}));
}

TEST_F(Reduce, StepTotal_C5) {
  ValueId total = t.b.make(Op::kStepTotal, {t.b.constant(3.0, DType::kF32)});
  EXPECT_EQ(t.eval(total), (V{3}));
  EvalContext context;
  context.totals[t.g.value(total).def.index] = 12;
  EXPECT_EQ(t.eval(total, context), (V{12}));
  EXPECT_EQ(error_of(t, Op::kStepTotal, {x}), "rank: rank 0 is wanted, this is [A, B]");
}

TEST_F(Reduce, Dims_C2) {
  Attrs attrs;
  attrs.dims = t.dims({"B", "Q"});
  EXPECT_EQ(error_of(t, Op::kSum, {x}, attrs), "missing-dim: `Q` is not among the dims of [A, B]");
  attrs.dims = t.dims({"B", "B"});
  EXPECT_EQ(error_of(t, Op::kSoftmax, {x}, attrs), "duplicate-dim: `B` is listed twice");
  attrs.dim = t.dim("Q");
  EXPECT_EQ(error_of(t, Op::kCumSum, {x}, attrs),
            "missing-dim: `Q` is not among the dims of [A, B]");
}

TEST_F(Reduce, DTypes_C1) {
  Attrs attrs;
  attrs.dims = t.dims({"B"});
  ValueId c = t.bools("c", {"B"}), i = t.b.cast(x, DType::kI32);
  EXPECT_EQ(error_of(t, Op::kReduceMax, {c}, attrs),
            "dtype: a number type is wanted, this is `bool`");
  EXPECT_EQ(error_of(t, Op::kSoftmax, {i}, attrs), "dtype: a float type is wanted, this is `i32`");
  EXPECT_EQ(error_of(t, Op::kLogSumExp, {i}, attrs),
            "dtype: a float type is wanted, this is `i32`");
}

}  // namespace
}  // namespace cad::ir
