// tests/ir/op_move_test.cc -- rearranging ops: constraints (C1)-(C4) of ir/op_move.cc and values.
#include "tests/ir/ir_testing.h"

namespace cad::ir {
namespace {

using V = std::vector<double>;
using Groups = std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>>;

struct Move : ::testing::Test {
  Bench t;
  ValueId x;  // [A, B] = 0 .. 5
  Move() {
    t.bindings = {{"A", 2}, {"B", 3}, {"C", 6}, {"N", 2}, {"S", 3}, {"U", 1}, {"P", 5}};
    x = t.given("x", t.type(DType::kF32, {"A", "B"}), {0, 1, 2, 3, 4, 5});
  }
  Attrs grouped(const Groups& groups) {
    Attrs attrs;
    for (const auto& [from, to] : groups) attrs.groups.push_back({t.dims(from), t.dims(to)});
    return attrs;
  }
  Attrs along(const std::string& dim, const std::string& to) {
    Attrs attrs;
    attrs.dim = t.dim(dim);
    attrs.to = t.dim(to);
    return attrs;
  }
};

TEST_F(Move, Rename) {
  ValueId r = t.b.make(Op::kRename, {x}, grouped({{{"B"}, {"S"}}}));
  EXPECT_EQ(type_of(t, r), "[A, S]");
  EXPECT_EQ(t.eval(r), (V{0, 1, 2, 3, 4, 5}));
}

TEST_F(Move, RenameSwapsAtOnce) {
  ValueId y = t.given("y", t.type(DType::kF32, {"B", "S"}), {0, 1, 2, 3, 4, 5, 6, 7, 8});
  ValueId r = t.b.make(Op::kRename, {y}, grouped({{{"B"}, {"S"}}, {{"S"}, {"B"}}}));
  EXPECT_EQ(type_of(t, r), "[S, B]");
  EXPECT_EQ(t.eval(r), (V{0, 1, 2, 3, 4, 5, 6, 7, 8}));  // names change, storage does not
  EXPECT_EQ(t.eval(t.b.ordered(r, t.dims({"B", "S"}))), (V{0, 3, 6, 1, 4, 7, 2, 5, 8}));
}

TEST_F(Move, SplitAndMerge) {
  ValueId merged = t.b.make(Op::kReshape, {x}, grouped({{{"A", "B"}, {"C"}}}));
  EXPECT_EQ(type_of(t, merged), "[C]");
  EXPECT_EQ(t.eval(merged), (V{0, 1, 2, 3, 4, 5}));
  ValueId turned = t.b.make(Op::kReshape, {x}, grouped({{{"B", "A"}, {"C"}}}));
  EXPECT_EQ(t.eval(turned), (V{0, 3, 1, 4, 2, 5}));
  ValueId split = t.b.make(Op::kReshape, {merged}, grouped({{{"C"}, {"S", "N"}}}));
  EXPECT_EQ(type_of(t, split), "[S, N]");
  EXPECT_EQ(t.eval(split), (V{0, 1, 2, 3, 4, 5}));
}

TEST_F(Move, NewDimsStandWhereTheFirstOldOneStood) {
  ValueId y = t.x("y", {"A", "Q", "B", "R"});
  EXPECT_EQ(type_of(t, t.b.make(Op::kReshape, {y}, grouped({{{"B", "A"}, {"C"}}}))), "[C, Q, R]");
  EXPECT_EQ(type_of(t, t.b.make(Op::kReshape, {y}, grouped({{{"Q"}, {"X", "Y"}}, {{}, {"U"}}}))),
            "[A, X, Y, B, R, U]");
}

TEST_F(Move, UnitDims) {
  ValueId more = t.b.make(Op::kReshape, {x}, grouped({{{}, {"U"}}}));
  EXPECT_EQ(type_of(t, more), "[A, B, U]");
  ValueId back = t.b.make(Op::kReshape, {more}, grouped({{{"U"}, {}}}));
  EXPECT_EQ(t.eval(back), (V{0, 1, 2, 3, 4, 5}));
}

TEST_F(Move, GroupsFit_C2) {
  EXPECT_EQ(error_of(t, Op::kRename, {x}, grouped({{{"Q"}, {"S"}}})),
            "missing-dim: `Q` is not among the dims of [A, B]");
  EXPECT_EQ(error_of(t, Op::kRename, {x}, grouped({{{"B"}, {"A"}}})),
            "duplicate-dim: the result would hold `A` twice");
  EXPECT_EQ(error_of(t, Op::kRename, {x}, grouped({{{"B"}, {"S"}}, {{"B"}, {"N"}}})),
            "duplicate-dim: `B` is taken twice");
  EXPECT_EQ(error_of(t, Op::kReshape, {x}, grouped({{{"A", "B"}, {"S", "N"}}})),
            "other: 2 dims cannot become 2 at once");
  EXPECT_EQ(error_of(t, Op::kRename, {x}, grouped({{{"A", "B"}, {"C"}}})),
            "other: 2 dims cannot become 1 at once");
}

TEST_F(Move, Sizes_C3) {
  Graph& g = t.g;
  const DimId four = g.add_dim("four", 4), five = g.add_dim("five", 5), two = g.add_dim("two", 2);
  const DimId d = g.add_dim("D", Size::symbol("D")), h = g.add_dim("H", Size::symbol("H"));
  const DimId k = g.add_dim("K", Size::symbol("D") / Size::symbol("H"));
  ValueId y = t.b.zeros({DType::kF32, {four, d}});
  Attrs attrs;
  attrs.groups = {{{four}, {five}}};
  EXPECT_EQ(error_of(t, Op::kRename, {y}, attrs),
            "size-mismatch: rename of `four`, `five`: 4 is not 5");
  attrs.groups = {{{d}, {h, k}}};  // equal as rational functions: nothing left to check
  auto made = t.b.try_make(Op::kReshape, {y}, attrs);
  EXPECT_TRUE(made.ok());
  EXPECT_TRUE(made.shape.conditions.empty());
  attrs.groups = {{{d}, {h, two}}};
  made = t.b.try_make(Op::kReshape, {y}, attrs);
  ASSERT_TRUE(made.ok());
  ASSERT_EQ(made.shape.conditions.size(), 1U);
  EXPECT_EQ(made.shape.conditions[0].left.str(), "D");
  EXPECT_EQ(made.shape.conditions[0].right.str(), "2*H");
  EXPECT_EQ(made.shape.conditions[0].what, "sizes of `D`, `H`, `two`");
  // A constant difference decides, whatever the symbols are.
  const DimId more = g.add_dim("more", Size::symbol("D") + 1);
  attrs.groups = {{{d}, {more}}};
  EXPECT_EQ(error_of(t, Op::kRename, {y}, attrs),
            "size-mismatch: rename of `D`, `more`: D is not D + 1");
}

TEST_F(Move, Slice) {
  Attrs attrs = along("B", "N");
  attrs.start = 1;
  ValueId r = t.b.make(Op::kSlice, {x}, attrs);
  EXPECT_EQ(type_of(t, r), "[A, N]");
  EXPECT_EQ(t.eval(r), (V{1, 2, 4, 5}));
  const DimId four = t.g.add_dim("four", 4), two = t.g.add_dim("two", 2);
  ValueId y = t.b.zeros({DType::kF32, {four}});
  attrs.dim = four;
  attrs.to = two;
  attrs.start = 3;
  EXPECT_EQ(error_of(t, Op::kSlice, {y}, attrs),
            "size-mismatch: end of the slice of `four`: 5 is more than 4");
  attrs.start = Size::symbol("S");
  auto made = t.b.try_make(Op::kSlice, {y}, attrs);
  ASSERT_EQ(made.shape.conditions.size(), 1U);
  EXPECT_TRUE(made.shape.conditions[0].at_most);
  EXPECT_EQ(error_of(t, Op::kSlice, {x}, along("Q", "N")),
            "missing-dim: `Q` is not among the dims of [A, B]");
  EXPECT_EQ(error_of(t, Op::kSlice, {x}, along("B", "A")),
            "duplicate-dim: the result would hold `A` twice");
}

TEST_F(Move, Pad) {
  Attrs attrs = along("B", "P");
  attrs.start = 1;
  attrs.scalar = 9.0;
  EXPECT_EQ(t.eval(t.b.make(Op::kPad, {x}, attrs)), (V{9, 0, 1, 2, 9, 9, 3, 4, 5, 9}));
}

TEST_F(Move, Concat) {
  ValueId y = t.given("y", t.type(DType::kF32, {"N", "A"}), {10, 11, 12, 13});
  Attrs attrs;
  attrs.dims = t.dims({"B", "N"});
  attrs.to = t.dim("P");
  ValueId r = t.b.make(Op::kConcat, {x, y}, attrs);
  EXPECT_EQ(type_of(t, r), "[A, P]");
  EXPECT_EQ(t.eval(r), (V{0, 1, 2, 10, 12, 3, 4, 5, 11, 13}));
}

TEST_F(Move, ConcatOperandsAgree_C4) {
  Attrs attrs;
  attrs.dims = t.dims({"B", "N"});
  attrs.to = t.dim("P");
  EXPECT_EQ(error_of(t, Op::kConcat, {x, t.x("y", {"N"})}, attrs),
            "not-subset: [A, B] and [N] differ in `A`");
  EXPECT_EQ(error_of(t, Op::kConcat, {x}, attrs), "other: 2 dims for 1 operands");
  ValueId whole = t.b.make(Op::kCast, {x}, [] {
    Attrs a;
    a.dtype = DType::kI32;
    return a;
  }());
  attrs.dims = t.dims({"B", "B"});
  EXPECT_EQ(error_of(t, Op::kConcat, {x, whole}, attrs), "dtype: the operands are `f32` and `i32`");
}

TEST_F(Move, Stack) {
  ValueId y = t.given("y", t.type(DType::kF32, {"B", "A"}), {10, 11, 12, 13, 14, 15});
  Attrs attrs;
  attrs.to = t.dim("N");
  ValueId r = t.b.make(Op::kStack, {x, y}, attrs);
  EXPECT_EQ(type_of(t, r), "[N, A, B]");
  EXPECT_EQ(t.eval(r), (V{0, 1, 2, 3, 4, 5, 10, 12, 14, 11, 13, 15}));
  attrs.to = t.g.add_dim("three", 3);
  EXPECT_EQ(error_of(t, Op::kStack, {x, y}, attrs),
            "size-mismatch: `three` and the number of operands: 3 is not 2");
}

TEST_F(Move, FlipAndTranspose) {
  Attrs attrs;
  attrs.dim = t.dim("B");
  EXPECT_EQ(t.eval(t.b.make(Op::kFlip, {x}, attrs)), (V{2, 1, 0, 5, 4, 3}));
  attrs.dims = t.dims({"B", "A"});
  EXPECT_EQ(t.eval(t.b.make(Op::kTranspose, {x}, attrs)), (V{0, 3, 1, 4, 2, 5}));
  attrs.dims = t.dims({"B"});
  EXPECT_EQ(error_of(t, Op::kTranspose, {x}, attrs), "missing-dim: `B` are not the dims of [A, B]");
}

}  // namespace
}  // namespace cad::ir
