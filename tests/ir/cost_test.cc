// tests/ir/cost_test.cc -- FLOPs and bytes of single ops and of their gradients, by hand; amounts
// as polynomials and as numbers.
#include "ir/cost.h"

#include <algorithm>

#include "tests/ir/pass_test_util.h"

namespace cad::ir {
namespace {

std::string text(const Graph& g, const Amount& amount) {
  return amount.size(g).str();
}
int64_t value(const Graph& g, const Amount& amount, const Bindings& bindings = {}) {
  const Size::Evaluated size = amount.size(g).evaluate(bindings);
  EXPECT_TRUE(size.ok()) << text(g, amount) << ": " << size.detail;
  return size.value;
}
NodeId def(const Graph& g, ValueId v) {
  return g.value(v).def;
}

TEST(Amount, AddsLikeProductsAndEvaluatesBothWays) {
  Program p;
  const DimId B = p.dim("B", Size::symbol("B")), T = p.dim("T", Size::symbol("T"));
  Amount a(2, {B, T});
  a.add(3, {T, B});
  a.add(7, {});
  a.add(1, {T, T});
  EXPECT_EQ(a.terms().size(), 3U);
  EXPECT_EQ(text(p.g, a), "5*B*T + T^2 + 7");
  EXPECT_EQ(value(p.g, a, {{"B", 4}, {"T", 10}}), 5 * 40 + 100 + 7);
  const std::vector<double> local = {4, 5};
  EXPECT_DOUBLE_EQ(a.at(local), 5 * 20 + 25 + 7);
  EXPECT_EQ(text(p.g, a.repeated(B)), "5*B^2*T + B*T^2 + 7*B");
}

// One product three ways: contraction, a linear layer, a batched one with a batch of one. The bias
// is apart.
TEST(OpCost, TheSameProductCostsTheSame) {
  Program p;
  const DimId N = p.dim("N", 64), K = p.dim("K", 32), M = p.dim("M", 16), One = p.dim("One", 1);
  const ValueId x = p.data("x", {N, K}), w = p.input("w", {K, M}), bias = p.input("bias", {M});
  const ValueId product = contract(p.b, x, w, {K});
  EXPECT_EQ(value(p.g, op_cost(p.g, def(p.g, product)).matmul), 65'536);
  EXPECT_EQ(value(p.g, op_cost(p.g, def(p.g, product)).other), 0);
  const ValueId turned = contract(p.b, w, x, {K});
  EXPECT_EQ(value(p.g, op_cost(p.g, def(p.g, turned)).flops()), 65'536);
  const ValueId batched = contract(p.b, p.data("y", {One, N, K}), p.data("v", {One, K, M}), {K});
  EXPECT_EQ(value(p.g, op_cost(p.g, def(p.g, batched)).flops()), 65'536);
  const ValueId sum = p.b.add(product, bias);
  const OpCost added = op_cost(p.g, def(p.g, sum));
  EXPECT_EQ(value(p.g, added.matmul), 0);
  EXPECT_EQ(value(p.g, added.other), 1'024);
  const OpCost cost = op_cost(p.g, def(p.g, product));
  EXPECT_EQ(value(p.g, cost.read), 4 * (64 * 32 + 32 * 16));
  EXPECT_EQ(value(p.g, cost.written), 4 * 64 * 16);
}

TEST(OpCost, ViewsMoveNothing) {
  Program p;
  const DimId N = p.dim("N", 6), A = p.dim("A", 2), B = p.dim("B", 3), M = p.dim("M", 6);
  const ValueId x = p.data("x", {N});
  Attrs split;
  split.groups = {DimGroup{{N}, {A, B}}};
  for (ValueId view :
       {renamed(p.b, x, N, M), p.b.make(Op::kReshape, {x}, split), p.b.broadcast(x, {B, N})}) {
    const OpCost cost = op_cost(p.g, def(p.g, view));
    EXPECT_TRUE(cost.bytes().terms().empty() && cost.flops().terms().empty());
  }
}

TEST(OpCost, GatherReadsTheRowsItPicks) {
  Program p;
  const DimId V = p.dim("V", 50'000), D = p.dim("D", 8), T = p.dim("T", 5);
  Attrs rows;
  rows.dim = V;
  const ValueId out =
      p.b.make(Op::kGather, {p.input("w", {V, D}), p.data("ids", {T}, DType::kI32)}, rows);
  const OpCost cost = op_cost(p.g, def(p.g, out));
  EXPECT_EQ(value(p.g, cost.read), 4 * 5 * 8 + 4 * 5);
  EXPECT_EQ(value(p.g, cost.written), 4 * 5 * 8);
}

TEST(OpCost, ARepeatIsItsBodyOnceAnIteration) {
  Program p;
  const DimId L = p.dim("L", Size::symbol("L")), D = p.dim("D", Size::symbol("D")),
              F = p.dim("F", Size::symbol("D")), B = p.dim("B", Size::symbol("B"));
  Body body(p.g, L);
  const ValueId x = body.carry(p.data("x", {B, D})), w = body.scan(p.input("w", {L, D, F}));
  Builder b = body.builder();
  const ValueId out = body.close(p.b, {renamed(b, contract(b, x, w, {D}), F, D)})[0];
  EXPECT_EQ(text(p.g, op_cost(p.g, def(p.g, out)).matmul), "2*B*D^2*L");
}

// A layer's gradients are two products of its size; an input that needs none leaves one.
TEST(BackwardCost, OfAProductIsTwice) {
  Program p;
  const DimId N = p.dim("N", Size::symbol("N")), K = p.dim("K", Size::symbol("K")),
              M = p.dim("M", Size::symbol("M"));
  const ValueId x = p.data("x", {N, K}), w = p.input("w", {K, M});
  const BackwardCost cost = backward_cost(p.g, def(p.g, contract(p.b, x, w, {K})));
  ASSERT_EQ(cost.gradients.size(), 2U);
  EXPECT_EQ(text(p.g, cost.total.matmul), "4*K*M*N");
  EXPECT_EQ(text(p.g, cost.gradients[0].cost.matmul), "2*K*M*N");
  EXPECT_EQ(text(p.g, cost.gradients[1].cost.matmul), "2*K*M*N");
  EXPECT_EQ(cost.gradients[0].reads, std::vector<ValueId>{w});
  EXPECT_EQ(cost.gradients[1].reads, std::vector<ValueId>{x});
  EXPECT_EQ(cost.reads, (std::vector<ValueId>{x, w}));
}

TEST(BackwardCost, SaysWhatIsRead) {
  Program p;
  const DimId N = p.dim("N", 4), V = p.dim("V", 7);
  const ValueId x = p.data("x", {N, V}), y = p.data("y", {N, V}),
                ids = p.data("ids", {N}, DType::kI32);
  const auto reads = [&](ValueId result) { return backward_cost(p.g, def(p.g, result)).reads; };
  EXPECT_TRUE(reads(p.b.add(x, y)).empty());
  EXPECT_TRUE(reads(p.b.sum(x, {V})).empty());
  EXPECT_EQ(reads(p.b.mul(x, y)), (std::vector<ValueId>{x, y}));
  EXPECT_TRUE(reads(p.b.mul(x, number(p.b, 3))).empty()) << "constants are not saved";
  const ValueId e = p.b.unary(Op::kExp, x);
  EXPECT_EQ(reads(e), std::vector<ValueId>{e});
  const ValueId soft = p.b.make(Op::kSoftmax, {x}, dims_attr({V}));
  EXPECT_EQ(reads(soft), std::vector<ValueId>{soft});
  Attrs pick;
  pick.dim = V;
  EXPECT_EQ(reads(p.b.make(Op::kGather, {x, ids}, pick)), std::vector<ValueId>{ids});
  const BackwardCost none = backward_cost(p.g, def(p.g, p.b.make(Op::kGt, {x, y})));
  EXPECT_FALSE(none.gradients[0].exists);
}

struct AttentionCase {
  Program p;
  DimId B = p.dim("B", 1), H = p.dim("H", 3), T = p.dim("T", 128), S = p.dim("S", 128),
        K = p.dim("K", 64), K2 = p.dim("K2", 64);
  ValueId q = p.data("q", {B, T, H, K}), k = p.data("k", {B, S, H, K}),
          v = p.data("v", {B, S, H, K2});
};

// Forward two products; backward four with the probabilities at hand (2 times), five when they are
// computed again (2.5 times).
TEST(BackwardCost, OfAttention) {
  AttentionCase c;
  Builder& b = c.p.b;
  const ValueId s = contract(b, c.q, c.k, {c.K});
  const ValueId probs = b.make(Op::kSoftmax, {s}, dims_attr({c.S}));
  const ValueId out = contract(b, probs, c.v, {c.S});
  const Graph& g = c.p.g;
  const int64_t forward =
      value(g, op_cost(g, def(g, s)).matmul) + value(g, op_cost(g, def(g, out)).matmul);
  EXPECT_EQ(forward, 12'582'912);
  const int64_t stored = value(g, backward_cost(g, def(g, s)).total.matmul) +
                         value(g, backward_cost(g, def(g, out)).total.matmul);
  EXPECT_EQ(stored, 25'165'824);

  Attrs attrs;
  attrs.dims = {c.T, c.S, c.K};
  attrs.probs = {c.B, c.T, c.H, c.S};
  attrs.scalar = 1.0;
  attrs.p = 0.0;
  const std::vector<ValueId> fused = b.make_all(Op::kAttention, {c.q, c.k, c.v}, attrs);
  EXPECT_EQ(value(g, op_cost(g, def(g, fused[0])).matmul), forward);
  const BackwardCost again = backward_cost(g, def(g, fused[0]));
  EXPECT_EQ(value(g, again.total.matmul), 31'457'280);
  // q, k, v, the result and the log-sum-exp; no probabilities
  EXPECT_EQ(again.reads.size(), 5U);
}

TEST(BackwardCosts, OneScratchServesManyNodes) {
  AttentionCase c;
  const ValueId s = contract(c.p.b, c.q, c.k, {c.K});
  const ValueId t = c.p.b.unary(Op::kTanh, s);
  BackwardCosts costs(c.p.g);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(value(c.p.g, costs.of(def(c.p.g, s)).total.matmul), 4 * 3 * 128 * 128 * 64);
    EXPECT_EQ(costs.of(def(c.p.g, t)).reads, std::vector<ValueId>{t});
  }
}

}  // namespace
}  // namespace cad::ir
