// tests/ir/gradient_edge_test.cc -- gradients where central differences say nothing: ties, rows of
// -inf, weights of zero, poles. Exact values, as the language defines them.
#include <limits>

#include "ir/autodiff.h"
#include "tests/ir/ir_testing.h"

namespace cad::ir {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
using V = std::vector<double>;

// A bench whose loss is sum(f(x)) of one parameter x[A, B] with the values given.
struct Edge {
  Bench t;
  ValueId x;
  V data;
  Edge(std::vector<std::string> dims, V values) : data(std::move(values)) {
    t.bindings = {{"A", 2}, {"B", 3}};
    x = t.x("x", dims);
  }
  Attrs over(const std::vector<std::string>& dims) {
    Attrs attrs;
    attrs.dims = t.dims(dims);
    return attrs;
  }
  ValueId constant(double value) { return t.b.constant(value, DType::kF32); }
  V gradient(ValueId result, const std::vector<V>& others = {}) {
    ValueId loss = t.b.sum(result, Dims(t.g.type(result).dims));
    t.output(loss, "loss");
    t.fill();
    t.values[0].data = data;
    for (size_t i = 0; i < others.size(); ++i) t.values[i + 1].data = others[i];
    EvalContext context;
    context.bindings = t.bindings;
    return interpret(differentiate(t.g, loss), t.values, context)[1].data;
  }
};

TEST(GradientEdge, AbsAtZero) {
  Edge e({"B"}, {-1, 0, 2});
  EXPECT_EQ(e.gradient(e.t.b.unary(Op::kAbs, e.x)), (V{-1, 0, 1}));
}

TEST(GradientEdge, MinMaxTiesGoToTheFirst) {
  for (Op op : {Op::kMax, Op::kMin}) {
    Edge first({"B"}, {0, 0, 0}), second({"B"}, {0, 0, 0});
    EXPECT_EQ(first.gradient(first.t.b.make(op, {first.x, first.constant(0)})), (V{1, 1, 1}));
    EXPECT_EQ(second.gradient(second.t.b.make(op, {second.constant(0), second.x})), (V{0, 0, 0}));
  }
}

TEST(GradientEdge, ReduceMaxTiesGoToTheFirstInStorageOrder) {
  for (Op op : {Op::kReduceMax, Op::kReduceMin}) {
    Edge one({"A", "B"}, {7, 7, 7, 7, 7, 7});
    EXPECT_EQ(one.gradient(one.t.b.make(op, {one.x}, one.over({"B"}))), (V{1, 0, 0, 1, 0, 0}));
  }
  Edge all({"A", "B"}, {1, 7, 2, 7, 0, 7});
  EXPECT_EQ(all.gradient(all.t.b.make(Op::kReduceMax, {all.x}, all.over({"A", "B"}))),
            (V{0, 1, 0, 0, 0, 0}));
  Edge hidden({"A", "B"}, V(6, -kInf));
  EXPECT_EQ(hidden.gradient(hidden.t.b.make(Op::kReduceMax, {hidden.x}, hidden.over({"B"}))),
            (V{1, 0, 0, 1, 0, 0}));
}

TEST(GradientEdge, RowsOfMinusInfinity) {
  const V rows{-kInf, -kInf, -kInf, 0, -kInf, 0};
  Edge lse({"A", "B"}, rows);
  EXPECT_EQ(lse.gradient(lse.t.b.make(Op::kLogSumExp, {lse.x}, lse.over({"B"}))),
            (V{0, 0, 0, 0.5, 0, 0.5}));
  Edge soft({"A", "B"}, rows);
  ValueId p = soft.t.b.make(Op::kSoftmax, {soft.x}, soft.over({"B"}));
  EXPECT_EQ(soft.gradient(soft.t.b.mul(p, p)), V(6, 0));
}

TEST(GradientEdge, MeanOfNoWeight) {
  Edge e({"A", "B"}, {1, 2, 3, 4, 5, NAN});
  ValueId w = e.t.x("w", {"A", "B"});
  ValueId mean = e.t.b.make(Op::kMean, {e.x, w}, e.over({"B"}));
  EXPECT_EQ(e.gradient(mean, {{0, 0, 0, 1, 3, 0}}), (V{0, 0, 0, 0.25, 0.75, 0}));
}

TEST(GradientEdge, PowAtZero) {
  Edge square({"B"}, {0, -1, 2});
  EXPECT_EQ(square.gradient(square.t.b.make(Op::kPow, {square.x, square.constant(2)})),
            (V{0, -2, 4}));
  Edge base({"B"}, {0, 1, 2});
  ValueId y = base.t.x("y", {"B"});
  EXPECT_EQ(base.gradient(base.t.b.make(Op::kPow, {base.x, y}), {{0, 0, 1}}), (V{0, 0, 1}));
  Edge exponent({"B"}, {2, 3, 1});
  ValueId zero = exponent.t.x("zero", {"B"});
  EXPECT_EQ(exponent.gradient(exponent.t.b.make(Op::kPow, {zero, exponent.x}), {{0, -2, 1}}),
            (V{0, 0, 0}));
}

TEST(GradientEdge, WhereKeepsNanAway) {
  Edge e({"B"}, {0, 4, 0});
  ValueId positive = e.t.b.make(Op::kGt, {e.x, e.constant(0)});
  ValueId safe = e.t.b.where(positive, e.x, e.constant(1));
  EXPECT_EQ(e.gradient(e.t.b.where(positive, e.t.b.unary(Op::kSqrt, safe), e.constant(0))),
            (V{0, 0.25, 0}));
}

TEST(GradientEdge, IndicesOutsideGetNone) {
  Edge e({"B"}, {1, 2, 3});
  Attrs attrs;
  attrs.dim = e.t.dim("B");
  ValueId ids = e.t.given("ids", e.t.type(DType::kI32, {"A"}), {0, 0});
  EXPECT_EQ(e.gradient(e.t.b.make(Op::kGather, {e.x, ids}, attrs), {{-1, 1}}), (V{0, 1, 0}));
}

TEST(GradientEdge, StopAndIntegersPassNothing) {
  Edge e({"B"}, {1, 2, 3});
  ValueId stopped = e.t.b.unary(Op::kStop, e.x);
  EXPECT_EQ(e.gradient(e.t.b.mul(e.x, stopped)), (V{1, 2, 3}));
  Edge cast({"B"}, {1, 2, 3});
  ValueId whole = cast.t.b.cast(cast.t.b.cast(cast.x, DType::kI32), DType::kF32);
  EXPECT_EQ(cast.gradient(cast.t.b.add(whole, cast.x)), (V{1, 1, 1}));
}

TEST(GradientEdge, DropoutDrawsTheSameMask) {
  Edge e({"A", "B"}, V(6, 1));
  Attrs attrs;
  attrs.site = "d";
  attrs.scalar = 0.5;
  ValueId y = e.t.b.make(Op::kDropout, {e.x}, attrs);
  const V mask = [&] {
    Bench copy = e.t;
    copy.output(y);
    copy.values = {filled(copy.g, copy.g.type(e.x), copy.bindings, 1)};
    EvalContext context;
    context.bindings = copy.bindings;
    return interpret(copy.g, copy.values, context)[0].data;
  }();
  EXPECT_EQ(e.gradient(y), mask);
}

}  // namespace
}  // namespace cad::ir
