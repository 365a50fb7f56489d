// tests/ir/verify_test.cc -- every numbered rule of ir/verify.cc is broken once and must be
// reported; big graphs are checked fast.
#include <chrono>

#include "tests/ir/pass_test_util.h"

namespace cad::ir {
namespace {

struct Sample {
  Program p;
  DimId B, D, L;
  ValueId x, w, y;
  NodeId loop;
  Sample() {
    B = p.dim("B", 2), D = p.dim("D", 3), L = p.dim("h", 2);
    x = p.data("x", {B, D}), w = p.input("w", {L, D});
    Body body(p.g, L);
    const ValueId h = body.carry(x), wi = body.scan(w);
    Builder b = body.builder();
    y = p.b.unary(Op::kTanh, body.close(p.b, {b.mul(h, wi)})[0]);
    loop = p.g.value(p.g.node(p.g.value(y).def).operands[0]).def;
    p.output("loss", p.b.sum(y, {B, D}));
  }
  Graph& g() { return p.g; }
  Region& body() { return p.g.region(p.g.node(loop).loop.body); }
};

void expect_fault(Sample& sample, const std::string& rule) {
  const std::vector<std::string> faults = verify(sample.g());
  ASSERT_FALSE(faults.empty()) << "expected " << rule;
  bool found = false;
  for (const std::string& fault : faults)
    found = found || fault.find(rule + ":") != std::string::npos;
  EXPECT_TRUE(found) << rule << " not among: " << faults[0];
}

TEST(Verify, AcceptsTheSample) {
  Sample s;
  EXPECT_EQ(verify(s.g()), std::vector<std::string>());
}

TEST(Verify, IdsInRange) {
  Sample s;
  s.g().node(s.g().value(s.y).def).operands[0] = ValueId{1000};
  expect_fault(s, "V1");
  Sample t;
  t.g().regions[0].nodes.push_back(NodeId{99});
  expect_fault(t, "V1");
  Sample u;
  u.g().node(u.loop).loop.body = RegionId{7};
  expect_fault(u, "V1");
}

TEST(Verify, DefinitionsAgree) {
  Sample s;
  s.g().value(s.y).result = 1;
  expect_fault(s, "V2");
  Sample t;
  t.g().regions[0].nodes.push_back(t.g().regions[0].nodes[0]);
  expect_fault(t, "V2");
  Sample u;
  u.body().owner = NodeId{0};
  expect_fault(u, "V2");
}

TEST(Verify, OrderAndIsolation) {
  Sample s;
  std::swap(s.g().regions[0].nodes[0], s.g().regions[0].nodes.back());
  expect_fault(s, "V3");
  Sample t;
  t.g().node(t.body().nodes[0]).operands[1] = t.w;  // from outside the body
  expect_fault(t, "V3");
  Sample u;
  u.g().regions[0].results[0] = u.body().args[1];
  expect_fault(u, "V3");
}

TEST(Verify, TypesFollowTheShapeRule) {
  Sample s;
  s.g().value(s.y).type.dims = {s.D, s.B};
  expect_fault(s, "V4");
  Sample t;
  t.g().value(t.y).type.dtype = DType::kI32;
  expect_fault(t, "V4");
  Sample u;
  u.g().node(u.g().value(u.g().regions[0].results[0]).def).attrs.dims = {u.L};
  expect_fault(u, "V4");
}

TEST(Verify, Loops) {
  Sample s;
  s.g().node(s.loop).loop.carries = 2;
  expect_fault(s, "V5");
  Sample t;
  t.g().value(t.body().args[2]).type.dims = {t.B};
  expect_fault(t, "V5");
  Sample u;
  u.g().value(u.body().args[0]).type.dtype = DType::kF32;
  expect_fault(u, "V5");
  Sample v;
  v.g().node(v.loop).operands.pop_back();
  expect_fault(v, "V5");
}

TEST(Verify, OutputsInputsAndDims) {
  Sample s;
  s.g().outputs.push_back({"more"});
  expect_fault(s, "V6");
  Sample t;
  t.p.output("loss", t.y);
  expect_fault(t, "V6");
  Sample u;
  u.g().inputs[0].value = u.y;
  expect_fault(u, "V7");
  Sample v;
  v.g().dims[0].pack = true;
  expect_fault(v, "V8");
  Sample w;
  w.g().dims[1].name = "B";
  expect_fault(w, "V8");
}

// Long sums in the loss and long recomputed chains in a body need no deep stack.
TEST(Passes, LongChains) {
  Program p;
  const DimId D = p.dim("D", 2), L = p.dim("h", 1);
  const ValueId x = p.input("x", {D});
  Body body(p.g, L);
  ValueId y = body.carry(x);
  Builder b = body.builder();
  for (int i = 0; i < 8000; ++i) y = b.mul(y, number(b, 1.0 + 1e-6 * i));
  y = body.close(p.b, {b.unary(Op::kTanh, y)})[0];
  ValueId loss = p.b.sum(y, {D});
  for (int i = 0; i < 8000; ++i) loss = p.b.add(loss, p.b.sum(p.b.mul(x, number(p.b, i)), {D}));
  p.output("loss", loss);
  EXPECT_GT(training_graph(p.g).nodes.size(), 16000U);
}

// Verification and every pass are linear: 10,000 nodes take milliseconds.
TEST(Verify, TenThousandNodes) {
  Program p;
  const DimId B = p.dim("B", 2), D = p.dim("D", 3);
  const ValueId x = p.input("x", {B, D});
  ValueId y = x;
  for (int i = 0; i < 5000; ++i) y = p.b.unary(Op::kTanh, p.b.add(y, number(p.b, 1.0 / (i + 1))));
  p.output("loss", p.b.sum(y, {B, D}));
  using Clock = std::chrono::steady_clock;
  auto start = Clock::now();
  expect_valid(p.g);
  const double verified = std::chrono::duration<double>(Clock::now() - start).count();
  start = Clock::now();
  const Graph trained = training_graph(p.g);
  const double passed = std::chrono::duration<double>(Clock::now() - start).count();
  EXPECT_GT(trained.nodes.size(), 20000U);
  EXPECT_LT(verified, 0.5);
  EXPECT_LT(passed, 10.0);
  RecordProperty("verify_ms", std::to_string(verified * 1e3));
  RecordProperty("passes_ms", std::to_string(passed * 1e3));
  std::printf("verify %.1f ms, all passes %.1f ms\n", verified * 1e3, passed * 1e3);
}

}  // namespace
}  // namespace cad::ir
