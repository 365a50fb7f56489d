// tests/ir/op_index_test.cc -- indexing ops: constraints (C1)-(C7) of ir/op_index.cc and values.
#include "tests/ir/ir_testing.h"

namespace cad::ir {
namespace {

using V = std::vector<double>;

struct IndexOps : ::testing::Test {
  Bench t;
  Attrs along(const std::string& dim, const std::string& to = "", const std::string& window = "") {
    Attrs attrs;
    attrs.dim = t.dim(dim);
    if (!to.empty()) attrs.to = t.dim(to);
    if (!window.empty()) attrs.window = t.dim(window);
    return attrs;
  }
  ValueId f(const std::string& name, const std::vector<std::string>& dims, V data) {
    return t.given(name, t.type(DType::kF32, dims), std::move(data));
  }
  ValueId i(const std::string& name, const std::vector<std::string>& dims, V data) {
    return t.given(name, t.type(DType::kI32, dims), std::move(data));
  }
};

TEST_F(IndexOps, GatherOutsideGivesZeros) {
  t.bindings = {{"V", 3}, {"D", 2}, {"B", 4}};
  ValueId w = f("w", {"V", "D"}, {0, 1, 10, 11, 20, 21}), ids = i("ids", {"B"}, {2, -1, 0, 3});
  ValueId r = t.b.make(Op::kGather, {w, ids}, along("V"));
  EXPECT_EQ(type_of(t, r), "[B, D]");
  EXPECT_EQ(t.eval(r), (V{20, 21, 0, 0, 0, 1, 0, 0}));
}

TEST_F(IndexOps, GatherAlignsSharedDims) {
  t.bindings = {{"V", 3}, {"B", 2}};
  ValueId lp = f("lp", {"B", "V"}, {0, 1, 2, 10, 11, 12}), y = i("y", {"B"}, {2, 1});
  ValueId r = t.b.make(Op::kGather, {lp, y}, along("V"));
  EXPECT_EQ(type_of(t, r), "[B]");
  EXPECT_EQ(t.eval(r), (V{2, 11}));
  // An index over V itself stays: a permutation.
  ValueId order = i("order", {"V"}, {2, 0, 1});
  ValueId p = t.b.make(Op::kGather, {lp, order}, along("V"));
  EXPECT_EQ(type_of(t, p), "[B, V]");
  EXPECT_EQ(t.eval(p), (V{2, 0, 1, 12, 10, 11}));
}

TEST_F(IndexOps, Gather_C1_C2) {
  ValueId w = t.x("w", {"V", "D"});
  EXPECT_EQ(error_of(t, Op::kGather, {w, t.number(1)}, along("V")),
            "rank: indices of rank at least 1 are wanted");
  EXPECT_EQ(error_of(t, Op::kGather, {w, w}, along("V")), "dtype: `i32` is wanted, this is `f32`");
  EXPECT_EQ(error_of(t, Op::kGather, {w, i("ids", {"B"}, {})}, along("Q")),
            "missing-dim: `Q` is not among the dims of [V, D]");
}

TEST_F(IndexOps, ScatterAddSumsAndDropsTheOutside) {
  t.bindings = {{"V", 3}, {"D", 2}, {"B", 4}};
  ValueId g = f("g", {"B", "D"}, {1, 2, 3, 4, 5, 6, 7, 8}), ids = i("ids", {"B"}, {2, -1, 2, 3});
  Attrs attrs = along("V");
  attrs.dims = t.dims({"D", "V"});
  EXPECT_EQ(t.eval(t.b.make(Op::kScatterAdd, {g, ids}, attrs)), (V{0, 0, 6, 0, 0, 8}));
  attrs.dims = t.dims({"V", "Q"});
  EXPECT_EQ(error_of(t, Op::kScatterAdd, {g, ids}, attrs),
            "missing-dim: [B, D] is not what a gather along `V` by i32[B] gives");
}

TEST_F(IndexOps, SelectAndUnselect) {
  t.bindings = {{"A", 2}, {"B", 3}};
  ValueId x = f("x", {"A", "B"}, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(t.eval(t.b.make(Op::kSelect, {x, t.number(1)}, along("B"))), (V{1, 4}));
  EXPECT_EQ(t.eval(t.b.make(Op::kSelect, {x, t.number(3)}, along("B"))), (V{0, 0}));
  EXPECT_EQ(t.eval(t.b.make(Op::kSelect, {x, t.number(-1)}, along("B"))), (V{0, 0}));
  Attrs attrs = along("B");
  attrs.dims = t.dims({"A", "B"});
  ValueId g = f("g", {"A"}, {7, 8});
  EXPECT_EQ(t.eval(t.b.make(Op::kUnselect, {g, t.number(1)}, attrs)), (V{0, 7, 0, 0, 8, 0}));
  EXPECT_EQ(t.eval(t.b.make(Op::kUnselect, {g, t.number(5)}, attrs)), (V{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(error_of(t, Op::kSelect, {x, i("v", {"A"}, {})}, along("B")),
            "rank: an index of rank 0 is wanted, this is i32[A]");
  attrs.dims = t.dims({"B"});
  EXPECT_EQ(error_of(t, Op::kUnselect, {g, t.number(1)}, attrs),
            "missing-dim: [A] is not what a select along `B` gives");
}

TEST_F(IndexOps, WindowPadsStridesAndDilates) {
  t.bindings = {{"Y", 5}, {"Y2", 3}, {"K", 3}, {"Y3", 1}};
  ValueId x = f("x", {"Y"}, {1, 2, 3, 4, 5});
  Attrs attrs = along("Y", "Y2", "K");
  attrs.stride = 2;
  attrs.pad = 1;
  attrs.scalar = -9.0;
  ValueId r = t.b.make(Op::kWindow, {x}, attrs);
  EXPECT_EQ(type_of(t, r), "[Y2, K]");
  EXPECT_EQ(t.eval(r), (V{-9, 1, 2, 2, 3, 4, 4, 5, -9}));
  attrs = along("Y", "Y3", "K");
  attrs.dilation = 2;
  EXPECT_EQ(t.eval(t.b.make(Op::kWindow, {x}, attrs)), (V{1, 3, 5}));
}

TEST_F(IndexOps, UnwindowSumsOverlaps) {
  t.bindings = {{"Y", 5}, {"Y2", 3}, {"K", 3}};
  Attrs attrs = along("Y", "Y2", "K");
  ValueId g = f("g", {"Y2", "K"}, V(9, 1));
  EXPECT_EQ(t.eval(t.b.make(Op::kUnwindow, {g}, attrs)), (V{1, 2, 3, 2, 1}));
}

TEST_F(IndexOps, Windows_C5) {
  const DimId y = t.g.add_dim("Y", 28), k = t.g.add_dim("K", 3), y2 = t.g.add_dim("Y2", 13),
              right = t.g.add_dim("R", 14);
  ValueId x = t.b.zeros({DType::kF32, {y}});
  Attrs attrs;
  attrs.dim = y;
  attrs.to = y2;
  attrs.window = k;
  attrs.stride = 2;
  attrs.pad = 1;
  EXPECT_EQ(error_of(t, Op::kWindow, {x}, attrs),
            "size-mismatch: windows of `Y` and `Y2`: 14 is not 13");
  attrs.to = right;
  EXPECT_EQ(error_of(t, Op::kWindow, {x}, attrs), "fine");
  attrs.to = y;  // Y -> Y: the same dim again
  attrs.stride = 1;
  EXPECT_EQ(error_of(t, Op::kWindow, {x}, attrs), "fine");
  attrs.stride = 0;
  EXPECT_EQ(error_of(t, Op::kWindow, {x}, attrs),
            "other: stride 0, dilation 1, pad 1: at least 1, 1 and 0 are wanted");
  // Symbolic: half the rows, decided by the algebra alone.
  const DimId n = t.g.add_dim("N", Size::symbol("N")),
              m = t.g.add_dim("M", Size::floor_div(Size::symbol("N") + 1, 2));
  attrs.dim = n;
  attrs.to = m;
  attrs.stride = 2;
  auto made = t.b.try_make(Op::kWindow, {t.b.zeros({DType::kF32, {n}})}, attrs);
  EXPECT_TRUE(made.ok());
  EXPECT_TRUE(made.shape.conditions.empty());
}

TEST_F(IndexOps, TopKIsDescendingTiesLowest) {
  t.bindings = {{"B", 2}, {"E", 4}, {"A", 3}};
  ValueId x = f("x", {"B", "E"}, {1, 3, 3, 2, -1, -1, 5, -2});
  auto results = t.b.make_all(Op::kTopK, {x}, along("E", "A"));
  EXPECT_EQ(type_of(t, results[1]), "i32[B, A]");
  EXPECT_EQ(t.eval(results[0]), (V{3, 3, 2, 5, -1, -1}));
  EXPECT_EQ(t.eval(results[1]), (V{1, 2, 3, 2, 0, 1}));
}

TEST_F(IndexOps, TopKOfNanComesFirst) {
  t.bindings = {{"E", 5}, {"A", 3}};
  ValueId x = f("x", {"E"}, {1, NAN, 3, NAN, 2});
  EXPECT_EQ(t.eval(t.b.make_all(Op::kTopK, {x}, along("E", "A"))[1]), (V{1, 3, 2}));
}

TEST_F(IndexOps, TopK_C6) {
  const DimId e = t.g.add_dim("E", 4), a = t.g.add_dim("A", 5);
  Attrs attrs;
  attrs.dim = e;
  attrs.to = a;
  EXPECT_EQ(error_of(t, Op::kTopK, {t.b.zeros({DType::kF32, {e}})}, attrs),
            "size-mismatch: the top `A` of `E`: 5 is more than 4");
}

TEST_F(IndexOps, SlotsInOrderOfArrival) {
  t.bindings = {{"N", 3}, {"A", 2}, {"E", 3}, {"M", 2}};
  ValueId expert = i("expert", {"N", "A"}, {0, 2, 0, 1, 0, 7});
  ValueId r = t.b.make(Op::kSlots, {expert}, along("E", "M", "A"));
  EXPECT_EQ(t.eval(r),
            (V{0, 4, 1, 2, -1, -1}));  // the third 0 finds M = 2 slots taken; 7 is no expert
  EXPECT_EQ(error_of(t, Op::kSlots, {expert}, along("E", "M", "Q")),
            "missing-dim: `Q` is not among the dims of i32[N, A]");
}

}  // namespace
}  // namespace cad::ir
