// tests/ir/op_other_test.cc -- leaves, contract, random ops, repeat, attention: constraints and
// values.
#include <limits>

#include "ir/random.h"
#include "tests/ir/ir_testing.h"

namespace cad::ir {
namespace {

using V = std::vector<double>;

// --- leaves
// -------------------------------------------------------------------------------------------

TEST(Leaf, IotaAndConst) {
  Bench t;
  t.bindings = {{"N", 3}, {"L", 8}};
  Attrs attrs;
  attrs.dim = t.dim("N");
  ValueId iota = t.b.make(Op::kIota, {}, attrs);
  EXPECT_EQ(type_of(t, iota), "i32[N]");
  EXPECT_EQ(t.eval(iota), (V{0, 1, 2}));
  Scalar half = Scalar::call("div", {1.0, Scalar::size(Size::symbol("L"))});
  EXPECT_EQ(t.eval(t.b.constant(half, DType::kF32)), (V{0.125}));
  EXPECT_EQ(t.eval(t.b.zeros(t.type(DType::kF32, {"N"}))), (V{0, 0, 0}));
}

TEST(Leaf, Const_C1) {
  Bench t;
  Attrs attrs;
  attrs.scalar = 0.5;
  attrs.dtype = DType::kI32;
  EXPECT_EQ(error_of(t, Op::kConst, {}, attrs), "dtype: `0.5` is not whole");
  attrs.dtype = DType::kBool;
  EXPECT_EQ(error_of(t, Op::kConst, {}, attrs), "dtype: `0.5` is no bool");
  attrs.dim = {};
  EXPECT_EQ(error_of(t, Op::kIota, {}, attrs), "other: no dim -1 in the graph");
  EXPECT_EQ(error_of(t, Op::kInput, {}, attrs), "other: no input -1");
}

TEST(Leaf, InputsInOrder) {
  Bench t;
  t.bindings = {{"N", 2}};
  ValueId a = t.given("a", t.type(DType::kF32, {"N"}), {1, 2}),
          b = t.given("b", t.type(DType::kF32, {"N"}), {5, 7});
  EXPECT_EQ(t.g.inputs[1].value, b);
  EXPECT_EQ(t.eval(t.b.sub(b, a)), (V{4, 5}));
  EXPECT_EQ(t.eval(a), (V{1, 2}));
}

TEST(GraphArena, DimNamesAreUnique) {
  Graph g;
  EXPECT_EQ(g.dim(g.add_dim("D", 3)).name, "D");
  EXPECT_EQ(g.dim(g.add_dim("D", 3)).name, "D.1");
  EXPECT_EQ(g.dim(g.add_dim("D.2", 3)).name, "D.2");
  EXPECT_EQ(g.dim(g.add_dim("D", 3)).name, "D.3");
  EXPECT_EQ(g.dim(g.add_dim("DD", 3)).name, "DD");
  EXPECT_EQ(g.find_dim("D.1").index, 1);
  EXPECT_FALSE(g.find_dim("E").valid());
  EXPECT_EQ(g.str(Type{DType::kI32, {DimId{0}}}), "i32[D]");
  EXPECT_EQ(g.str(Type{}), "f32[]");
  EXPECT_EQ(*g.elements(Type{DType::kF32, {DimId{0}, DimId{1}}}).constant(), 9);
}

TEST(GraphArena, TenThousandNodesAreQuick) {
  Bench t;
  ValueId x = t.x("x", {"B", "T", "D"}), w = t.x("w", {"D", "F"});
  for (int i = 0; i < 3000; ++i) {
    ValueId h = t.b.make(Op::kContract, {x, w}, over(t.dims({"D"})));
    x = t.b.add(x, t.b.sum(h, t.dims({"F"})));
  }
  EXPECT_GT(t.g.nodes.size(), 9000U);
  EXPECT_EQ(type_of(t, x), "[B, T, D]");
}

// --- contract
// -----------------------------------------------------------------------------------------

TEST(Contract, MatrixProduct) {
  Bench t;
  t.bindings = {{"M", 2}, {"K", 3}, {"N", 2}, {"Z", 0}};
  ValueId a = t.given("a", t.type(DType::kF32, {"M", "K"}), {1, 2, 3, 4, 5, 6});
  ValueId b = t.given("b", t.type(DType::kF32, {"N", "K"}), {1, 0, 1, 0, 2, 0});
  ValueId r = t.b.make(Op::kContract, {a, b}, over(t.dims({"K"})));
  EXPECT_EQ(type_of(t, r), "[M, N]");
  EXPECT_EQ(t.eval(r), (V{4, 4, 10, 10}));
  ValueId empty = t.given("e", t.type(DType::kF32, {"M", "Z"}), {});
  EXPECT_EQ(t.eval(t.b.make(Op::kContract, {empty, empty}, over(t.dims({"Z"})))), (V{0, 0}));
}

TEST(Contract, SharedDimsAreBatch) {
  Bench t;
  t.bindings = {{"B", 2}, {"K", 2}};
  ValueId a = t.given("a", t.type(DType::kF32, {"B", "K"}), {1, 2, 3, 4});
  ValueId b = t.given("b", t.type(DType::kF32, {"K", "B"}), {10, 20, 30, 40});
  EXPECT_EQ(t.eval(t.b.make(Op::kContract, {a, b}, over(t.dims({"K"})))), (V{70, 220}));
  EXPECT_EQ(t.eval(t.b.make(Op::kContract, {a, b}, over({}))), (V{10, 60, 60, 160}));
}

TEST(Contract, C1_C2_C3) {
  Bench t;
  ValueId a = t.x("a", {"M", "K"}), b = t.x("b", {"K", "N"});
  EXPECT_EQ(error_of(t, Op::kContract, {a, b}, over(t.dims({"M"}))),
            "missing-dim: `M` is not among the dims of [K, N]");
  EXPECT_EQ(error_of(t, Op::kContract, {a, b}, over(t.dims({"K", "K"}))),
            "duplicate-dim: `K` is summed twice");
  EXPECT_EQ(error_of(t, Op::kContract, {a, t.b.cast(b, DType::kBF16)}, over(t.dims({"K"}))),
            "dtype: the operands are `f32` and `bf16`");
  EXPECT_EQ(error_of(t, Op::kContract, {a, t.b.cast(b, DType::kI32)}, over(t.dims({"K"}))),
            "dtype: a float type is wanted, this is `i32`");
}

// --- random
// -------------------------------------------------------------------------------------------

struct RandomOps : ::testing::Test {
  Bench t;
  EvalContext context;
  RandomOps() {
    t.bindings = {{"B", 4}, {"D", 50}};
    context.seed = 7;
    context.step = 3;
  }
  ValueId f(double x) { return t.b.constant(x, DType::kF32); }
  Attrs site(const std::vector<std::string>& dims, double p = 0) {
    Attrs attrs = over(t.dims(dims));
    attrs.site = "h.{}.drop";
    attrs.scalar = p;
    return attrs;
  }
};

TEST_F(RandomOps, DropoutIsTheDocumentedStream) {
  ValueId x = t.given("x", t.type(DType::kF32, {"B", "D"}), V(200, 3));
  ValueId y = t.b.make(Op::kDropout, {x, t.number(5)}, site({}, 0.25));
  const V got = t.eval(y, context);
  const int64_t loops[] = {5};
  const uint64_t key = stream_key(7, site_hash("h.{}.drop"), loops);
  int kept = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool keep = uniform01(philox(key, i, 3)[0]) >= 0.25F;
    ASSERT_EQ(got[i], keep ? 4 : 0);
    kept += keep ? 1 : 0;
  }
  EXPECT_NEAR(kept, 150, 25);
  context.step = 4;
  EXPECT_NE(t.eval(y, context), got);
}

TEST_F(RandomOps, DropoutEnds) {
  ValueId x = t.given("x", t.type(DType::kF32, {"B", "D"}), V(200, 3));
  EXPECT_EQ(t.eval(t.b.make(Op::kDropout, {x}, site({}, 0)), context), V(200, 3));
  EXPECT_EQ(t.eval(t.b.make(Op::kDropout, {x}, site({}, 1)), context), V(200, 0));
  EXPECT_EQ(error_of(t, Op::kDropout, {x}, site({}, 1.5)),
            "other: the probability 1.5 is not in 0 to 1");
  EXPECT_EQ(error_of(t, Op::kDropout, {x, x}, site({}, 0.5)),
            "dtype: `i32[]` is wanted, this is [B, D]");
}

TEST_F(RandomOps, MicroBatchesAreRowsOfTheStep) {
  t.g.batch_dim = t.dim("B");
  ValueId z = t.b.make(Op::kNormal, {f(1)}, site({"D", "B"}));
  t.bindings["B"] = 8;
  const V whole = t.eval(z, context);
  t.bindings["B"] = 4;
  context.step_rows = 8;
  for (int64_t offset : {0, 4}) {
    context.row_offset = offset;
    const V part = t.eval(z, context);
    for (int64_t d = 0; d < 50; ++d) {
      for (int64_t b = 0; b < 4; ++b) {
        ASSERT_EQ(part[static_cast<size_t>(d * 4 + b)],
                  whole[static_cast<size_t>(d * 8 + b + offset)]);
      }
    }
  }
}

TEST_F(RandomOps, Distributions) {
  double sum = 0, squares = 0;
  for (double x : t.eval(t.b.make(Op::kNormal, {f(2)}, site({"B", "D"})), context))
    sum += x, squares += x * x;
  EXPECT_NEAR(sum / 200, 0, 0.6);
  EXPECT_NEAR(squares / 200, 4, 1.5);
  for (double x : t.eval(t.b.make(Op::kUniform, {f(-3), f(-1)}, site({"B", "D"})), context)) {
    ASSERT_TRUE(x >= -3 && x < -1);
  }
  ValueId coin = t.b.make(Op::kBernoulli, {f(0.25)}, site({"B", "D"}));
  EXPECT_EQ(type_of(t, coin), "bool[B, D]");
  double heads = 0;
  for (double x : t.eval(coin, context)) heads += x;
  EXPECT_NEAR(heads, 50, 25);
}

TEST_F(RandomOps, Operands_C1_C3) {
  EXPECT_EQ(error_of(t, Op::kNormal, {t.number(1)}, site({"B"})),
            "dtype: `f32[]` is wanted, this is i32[]");
  EXPECT_EQ(error_of(t, Op::kUniform, {f(1)}, site({"B"})),
            "other: 2 operands are wanted, there are 1");
  EXPECT_EQ(error_of(t, Op::kBernoulli, {t.x("p", {"B"})}, site({"B"})),
            "rank: `f32[]` is wanted, this is [B]");
  EXPECT_EQ(error_of(t, Op::kNormal, {f(1)}, site({"B", "B"})),
            "duplicate-dim: the result would hold `B` twice");
}

// --- repeat
// -------------------------------------------------------------------------------------------

// carry h: h = h * w[i] + k; collects h. Loop dim L.
struct Repeat : ::testing::Test {
  Bench t;
  Loop loop;
  ValueId h, w, k;
  Repeat() {
    t.bindings = {{"L", 3}, {"N", 2}};
    h = t.given("h", t.type(DType::kF32, {"N"}), {1, 2});
    w = t.given("w", t.type(DType::kF32, {"L", "N"}), {1, 1, 2, 3, 4, 5});
    k = t.given("k", t.type(DType::kF32, {}), {10});
    loop.body = t.g.add_region({});
    loop.dim = t.dim("L");
    loop.carries = loop.scanned = loop.invariants = loop.collected = 1;
    const Type row = t.type(DType::kF32, {"N"});
    t.g.add_argument(loop.body, t.type(DType::kI32, {}), "i");
    ValueId ah = t.g.add_argument(loop.body, row), aw = t.g.add_argument(loop.body, row);
    ValueId ak = t.g.add_argument(loop.body, t.type(DType::kF32, {}));
    Builder body(t.g, loop.body);
    ValueId next = body.add(body.mul(ah, aw), ak);
    t.g.region(loop.body).results = {next, ah};
  }
};

TEST_F(Repeat, CarriesScansAndCollects) {
  auto r = t.b.repeat(loop, {h, w, k});
  EXPECT_EQ(type_of(t, r[0]), "[N]");
  EXPECT_EQ(type_of(t, r[1]), "[L, N]");
  EXPECT_EQ(t.eval(r[0]), (V{138, 240}));  // 1, 11, 32, 138 and 2, 12, 46, 240
  EXPECT_EQ(t.eval(r[1]), (V{1, 2, 11, 12, 32, 46}));
  EXPECT_EQ(t.g.region(loop.body).owner, t.g.value(r[0]).def);
}

TEST_F(Repeat, ReversedStillIndexesByTheNumber) {
  loop.reverse = true;
  auto r = t.b.repeat(loop, {h, w, k});
  EXPECT_EQ(t.eval(r[0]), (V{48, 80}));  // 1, 14, 38, 48 and 2, 20, 70, 80
  EXPECT_EQ(t.eval(r[1]), (V{38, 70, 14, 20, 1, 2}));
}

TEST_F(Repeat, NoIterationsIsTheIdentity) {
  t.bindings["L"] = 0;
  auto r = t.b.repeat(loop, {h, w, k});
  EXPECT_EQ(t.eval(r[0]), (V{1, 2}));
  EXPECT_EQ(t.eval(r[1]), V{});
}

TEST_F(Repeat, Nested) {
  // Outer loop of M iterations around it, carrying h.
  t.bindings["M"] = 2;
  Loop outer;
  outer.body = t.g.add_region({});
  outer.dim = t.dim("M");
  outer.carries = 1;
  outer.invariants = 2;
  t.g.add_argument(outer.body, t.type(DType::kI32, {}));
  ValueId ah = t.g.add_argument(outer.body, t.g.type(h)),
          aw = t.g.add_argument(outer.body, t.g.type(w));
  ValueId ak = t.g.add_argument(outer.body, t.g.type(k));
  Builder body(t.g, outer.body);
  auto inner = body.repeat(loop, {ah, aw, ak});
  t.g.region(outer.body).results = {inner[0]};
  auto r = t.b.repeat(outer, {h, w, k});
  EXPECT_EQ(t.eval(r[0]), (V{((138 + 10) * 2 + 10) * 4 + 10, ((240 + 10) * 3 + 10) * 5 + 10}));
}

TEST_F(Repeat, Constraints) {
  auto error = [&](const Loop& l, const std::vector<ValueId>& operands) {
    const auto made = t.b.try_repeat(l, operands);
    return made.ok() ? std::string("fine") : made.shape.errors[0].detail;
  };
  EXPECT_EQ(error(loop, {h, w, k}), "fine");
  EXPECT_NE(error(loop, {h, w}).find("there are 2 operands"), std::string::npos);    // (C1)
  EXPECT_EQ(error(loop, {h, h, k}), "`L` is not the first dim of [N]");              // (C2)
  EXPECT_EQ(error(loop, {h, w, h}), "the body's argument is f32[], [N] is wanted");  // (C2)
  Builder body(t.g, loop.body);
  t.g.region(loop.body).results[0] = body.sum(t.g.region(loop.body).args[1], t.dims({"N"}));
  EXPECT_EQ(error(loop, {h, w, k}),
            "a carried value at the body's end is f32[], [N] is wanted");  // (C3)
  t.g.region(loop.body).results = {
      t.g.region(loop.body).args[1],
      body.broadcast(t.g.region(loop.body).args[1], t.dims({"N", "L"}))};
  EXPECT_EQ(error(loop, {h, w, k}), "the result would hold `L` twice");  // (C4)
  EXPECT_EQ(error_of(t, Op::kRepeat, {h}),
            "other: a `repeat` is checked with its body: repeat_shape");
}

// --- attention
// ----------------------------------------------------------------------------------------

// The fused op against its composition, built from the small ops; and all rows hidden.
TEST(Attention, IsItsComposition) {
  for (int variant = 0; variant < 4; ++variant) {
    Bench t;
    t.bindings = {{"B", 2}, {"T", 3}, {"S", 3}, {"H", 2}, {"K", 2}, {"F", 2}};
    ValueId q = t.x("q", {"B", "T", "H", "K"}), k = t.x("k", {"B", "S", "H", "K"}),
            v = t.x("v", {"B", "S", "H", "F"});
    ValueId mask = t.bools("mask", {"B", "S"});
    Attrs attrs = over(t.dims({"T", "S", "K"}));
    attrs.probs = t.dims({"B", "T", "H", "S"});
    attrs.scalar = 0.5;
    attrs.p = (variant & 1) != 0 ? 0.5 : 0.0;
    attrs.site = "drop";
    attrs.causal = (variant & 2) != 0;
    attrs.masked = true;
    auto fused = t.b.make_all(Op::kAttention, {q, k, v, mask}, attrs);
    EXPECT_EQ(type_of(t, fused[0]), "[B, T, H, F]");
    EXPECT_EQ(type_of(t, fused[1]), "[B, T, H]");

    ValueId hidden = t.b.constant(-std::numeric_limits<double>::infinity(), DType::kF32);
    ValueId s = t.b.mul(t.b.make(Op::kContract, {q, k}, over(t.dims({"K"}))),
                        t.b.constant(0.5, DType::kF32));
    s = t.b.where(mask, s, hidden);
    if (attrs.causal) {
      Attrs it, is;
      it.dim = t.dim("T");
      is.dim = t.dim("S");
      ValueId ge = t.b.make(Op::kGe, {t.b.make(Op::kIota, {}, it), t.b.make(Op::kIota, {}, is)},
                            over(t.dims({"T", "S"})));
      s = t.b.where(ge, s, hidden);
    }
    ValueId p = t.b.make(Op::kSoftmax, {s}, over(t.dims({"S"})));
    Attrs drop;
    drop.scalar = attrs.p;
    drop.site = "drop";
    p = t.b.make(Op::kDropout, {p}, drop);
    ValueId out = t.b.make(Op::kContract, {p, v}, over(t.dims({"S"})));
    ValueId lse = t.b.make(Op::kLogSumExp, {s}, over(t.dims({"S"})));
    for (ValueId value : {fused[0], out, fused[1], lse}) t.output(value);
    const std::vector<Tensor> got = t.run();
    for (size_t pair : {0, 2}) {
      const V &x = got[pair].data, &y = got[pair + 1].data;
      ASSERT_EQ(x.size(), y.size());
      for (size_t i = 0; i < x.size(); ++i) {
        const double difference = x[i] == y[i] ? 0 : x[i] - y[i];  // equal infinities
        ASSERT_NEAR(difference, 0, 1e-12) << variant << " " << i;
      }
    }
  }
}

TEST(Attention, Constraints) {
  Bench t;
  ValueId q = t.x("q", {"T", "K"}), k = t.x("k", {"S", "K"}), v = t.x("v", {"S", "F"});
  Attrs attrs = over(t.dims({"T", "S", "K"}));
  attrs.probs = t.dims({"T", "S"});
  attrs.p = 0.0;
  EXPECT_EQ(error_of(t, Op::kAttention, {q, k, v}, attrs), "fine");
  EXPECT_EQ(error_of(t, Op::kAttention, {q, v, k}, attrs),
            "missing-dim: T, S and K do not stand where attention has them");
  EXPECT_EQ(error_of(t, Op::kAttention, {q, k, t.b.cast(v, DType::kBF16)}, attrs),
            "dtype: q, k and v have different dtypes");
  EXPECT_EQ(error_of(t, Op::kAttention, {q, k, v, q}, attrs), "rank: loop numbers are `i32[]`");
  auto made = t.b.make_all(Op::kAttention, {q, k, v}, attrs);
  EXPECT_EQ(error_of(t, Op::kAttentionGrad, {q, k, v, made[0], made[1], made[0]}, attrs), "fine");
  EXPECT_EQ(error_of(t, Op::kAttentionGrad, {q, k, v, made[0], made[0], made[0]}, attrs),
            "other: out, lse and g are not what attention gives");
  attrs.masked = true;
  EXPECT_EQ(error_of(t, Op::kAttention, {q, k, v, t.bools("m", {"F"})}, attrs),
            "not-subset: the mask has dims of its own");
  attrs.masked = false;
  attrs.probs = t.dims({"T"});
  EXPECT_EQ(error_of(t, Op::kAttention, {q, k, v}, attrs),
            "other: `T` are not the dims of the scores");
}

}  // namespace
}  // namespace cad::ir
