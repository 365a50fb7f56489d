// tests/frontend/lower_test.cc -- lowering by its results: paths of parameters, generic definitions
// called with equal dims, tuples and `()`, loops, states, instances; values by the interpreter.
#include "tests/frontend/frontend_testing.h"

namespace cad::frontend {
namespace {

using Paths = std::vector<std::string>;

Paths params(const std::string& text, bool training = true) {
  auto p = checked(text);
  return input_paths(lowered(*p, training), ir::InputKind::kParam);
}

// ---------------------------------------------------------------------------------------- paths

TEST(Paths, NumberedInSourceOrderWithinTheirScope) {
  const std::string text =
      "dim B, D = 4, F = 8\n"
      "layer RMSBlock(x: [B, D]) -> [B, D] { return Linear[F -> D](Linear[D -> F](x)) }\n"
      "model Net(x: [B, D]) -> [B, D] {\n"
      "  x = RMSBlock(x)\n"
      "  repeat 2 as h { x = RMSBlock(x) + RMSBlock(x) }\n"
      "  repeat 3 { x = x + Linear[D -> D](x, bias: false) }\n"
      "  repeat 3 { x = x + Linear[D -> D](x, bias: false) }\n"
      "  use linear_1 = Linear[D -> D]\n"
      "  return linear_1(Linear[D -> D](Linear[D -> D](x, bias: false), bias: false))\n}\n";
  const Paths wanted = {// The outer Linear of a body stands first in the source, so it is `linear`.
                        "rms_block.linear_1.W",
                        "rms_block.linear_1.b",
                        "rms_block.linear.W",
                        "rms_block.linear.b",
                        "h.{}.rms_block.linear_1.W",
                        "h.{}.rms_block.linear_1.b",
                        "h.{}.rms_block.linear.W",
                        "h.{}.rms_block.linear.b",
                        "h.{}.rms_block_1.linear_1.W",
                        "h.{}.rms_block_1.linear_1.b",
                        "h.{}.rms_block_1.linear.W",
                        "h.{}.rms_block_1.linear.b",
                        "repeat.{}.linear.W",
                        "repeat_1.{}.linear.W",
                        "linear_2.W",
                        "linear.W",
                        "linear_1.W",
                        "linear_1.b"};
  Paths got = params(text);
  EXPECT_EQ(got, wanted);
}

TEST(Paths, InstancesOutsideLoopsAreShared) {
  const std::string text =
      "dim B, D = 4\n"
      "layer Inner(x: [B, D]) -> [B, D] {\n  repeat 3 as inner { x = x + Linear[D -> D](x, bias: "
      "false) }\n  return x\n}\n"
      "model Net(x: [B, D]) -> [B, D] {\n"
      "  use ln = RMSNorm[D]\n  use shared = Inner\n"
      "  repeat 2 as outer {\n    x = shared(ln(x))\n    x = Inner(ln(x))\n  }\n"
      "  return ln(x)\n}\n";
  auto p = checked(text);
  const ir::Graph g = lowered(*p);
  EXPECT_EQ(input_paths(g, ir::InputKind::kParam),
            (Paths{"ln.g", "shared.inner.{}.linear.W", "outer.{}.inner.inner.{}.linear.W"}));
  EXPECT_EQ(g.inputs[3].loop_dims, 2);
  EXPECT_EQ(g.str(g.type(g.inputs[3].value)), "[outer, inner.1, D, D.1]");
}

TEST(Paths, ModelsAndFns) {
  EXPECT_EQ(
      params(
          "dim B, D = 4\nmodel Ref(x: [B, D]) -> [B, D] { return Linear[D -> D](x, bias: false) }\n"
          "model Net(x: [B, D]) -> [B, D] {\n  use ref = Ref\n  return ref(x) + Ref(x)\n}\n"),
      (Paths{"ref.linear.W", "ref_1.linear.W"}));
}

TEST(Paths, MembersOfInstances) {
  const ir::Tensor r = result_of(
      "dim B, V = 3, D = 2\nmodel Net(ids: i32[B]) -> [B, V] {\n  use emb = Embedding[V -> D]\n  "
      "return emb(ids) @[D] emb.W\n}\n",
      {{"ids", {2, 0}}, {"emb.W", {1, 2, 3, 4, 5, 6}}}, {{"B", 2}});
  expect_values(r, {17, 39, 61, 5, 11, 17});
  EXPECT_EQ(checked("dim B, D = 2, E = D\nmodel Net(x: [B, D]) -> [B, E] {\n  use l = Linear[D -> "
                    "D]\n  w = l.W\n  return x[D -> E]\n}\n")
                ->ids(),
            "E0204:4");
}

TEST(Paths, UnusedParametersAreNoInputs) {
  EXPECT_EQ(params("dim B, D = 4\nmodel Net(x: [B, D]) -> [B, D] { return Linear[D -> D](x, bias: "
                   "false) }\n"),
            (Paths{"linear.W"}));
}

// ------------------------------------------------------------------------------------- generics

TEST(Generics, TheSameDimTwice) {
  expect_values(
      result_of("dim B, D = 2\nmodel Net(x: [B, D]) -> [B, D] { return Linear[D -> D](x) }\n",
                {{"x", {1, 10}}, {"linear.W", {1, 2, 3, 4}}, {"linear.b", {0.5, 0}}}, {{"B", 1}}),
      {31.5, 42});
}

TEST(Generics, TuplesAndNothing) {
  expect_values(result_of("dim B, D = 2, H = 2, K = 1\nmodel Net(x: [B, D]) -> [B, H, K] { return "
                          "Linear[D -> (H, K)](x, bias: false) }\n",
                          {{"x", {1, 10}}, {"linear.W", {1, 2, 3, 4}}}, {{"B", 1}}),
                {31, 42});
  expect_values(
      result_of("dim B, D = 2\nmodel Net(x: [B, D]) -> [B] { return Linear[D -> ()](x) }\n",
                {{"x", {1, 10}}, {"linear.W", {1, 2}}, {"linear.b", {7}}}, {{"B", 1}}),
      {28});
}

TEST(Generics, DotsMayHoldTheOutputsDim) {
  // Inside Lin, M is bound to T while `..` holds T: distinct there, twice in the result.
  const std::string lin =
      "layer Lin[N -> M](x: [.., N]) -> [..] {\n  param W : [N, M] = normal(0.02)\n  return "
      "sum[M](x @[N] W)\n}\n";
  expect_values(result_of("dim B, T = 2, D = 2\n" + lin +
                              "model Net(x: [B, T, D]) -> [B, T] { return Lin[D -> T](x) }\n",
                          {{"x", {1, 2, 3, 4}}, {"lin.W", {1, 2, 3, 4}}}, {{"B", 1}}),
                {17, 37});
}

TEST(Generics, DimsOfTheFileStayApartFromDots) {
  // `..` holds T, and the body uses the file's T as well.
  const std::string f = "fn rows[N](x: [.., N]) -> [..] { return sum[N](x) + sum(f32(iota[T])) }\n";
  expect_values(result_of("dim B, T = 3, D = 2\n" + f +
                              "model Net(x: [B, T, D]) -> [B, T] { return rows[D](x) }\n",
                          {{"x", {1, 1, 2, 2, 3, 3}}}, {{"B", 1}}),
                {5, 7, 9});
}

TEST(Generics, ReductionsOverTuples) {
  expect_values(
      result_of(
          "dim B, H = 2, K = 2\nfn f[N](x: [.., N]) -> [.., N] { return x - mean[N](x) + N }\n"
          "model Net(x: [B, H, K]) -> [B, H, K] { return f[(H, K)](x) }\n",
          {{"x", {1, 2, 3, 6}}}, {{"B", 1}}),
      {2, 3, 4, 7});
}

TEST(Generics, DefaultsNameEarlierConstants) {
  expect_values(
      result_of(
          "dim B\nfn f(x: [B], a: int = 3, b: int = (a - 1) // 2) -> [B] { return x * a + b }\n"
          "model Net(x: [B]) -> [B] { return f(x) + f(x, 5) }\n",
          {{"x", {1}}}, {{"B", 1}}),
      {11});
}

// ---------------------------------------------------------------------------------------- loops

TEST(Loops, CarriesNumbersAndConstants) {
  expect_values(result_of("dim B\nmodel Net(x: [B]) -> [B] {\n  n = 0.0\n  repeat 4 as i {\n    x "
                          "= x + f32(i)\n    n = n + 1\n  }\n  return x * n\n}\n",
                          {{"x", {1, 2}}}, {{"B", 2}}),
                {28, 32});
}

TEST(Loops, CountZeroIsTheIdentity) {
  expect_values(result_of("dim B, D = 1, L = 0\nmodel Net(x: [B, D]) -> [B, D] {\n  repeat L as h "
                          "{ x = Linear[D -> D](x) * 100 }\n  return x\n}\n",
                          {{"x", {3}}}, {{"B", 1}}),
                {3});
}

TEST(Loops, EachIterationHasItsOwnParameters) {
  expect_values(result_of("dim B\nmodel Net(x: [B]) -> [B] {\n  repeat 3 as h {\n    param g : "
                          "f32[] = ones\n    x = x * g + 1\n  }\n  return x\n}\n",
                          {{"x", {1}}, {"h.{}.g", {2, 3, 4}}}, {{"B", 1}}),
                {(((1 * 2 + 1) * 3 + 1) * 4 + 1)});
}

TEST(Loops, NestedLoopsStackParametersOutermostFirst) {
  const std::string text =
      "dim B\nmodel Net(x: [B]) -> [B] {\n  repeat 2 as i {\n    repeat 3 as j {\n      param g : "
      "f32[] = ones\n      x = x * 10 + g\n    }\n  }\n  return x\n}\n";
  expect_values(result_of(text, {{"x", {0}}, {"i.{}.j.{}.g", {1, 2, 3, 4, 5, 6}}}, {{"B", 1}}),
                {123456});
}

TEST(Loops, ScanOverTimeWithCollect) {
  const std::string text =
      "dim B, T = 4\nmodel Net(x: [B, T]) -> [B, T] {\n  h: [B] = 0\n  repeat T as t {\n    h = h "
      "* 2 + x[T = t]\n    hs = collect[T](h)\n  }\n  return hs\n}\n";
  expect_values(result_of(text, {{"x", {1, 2, 3, 4}}}, {{"B", 1}}), {1, 4, 11, 26});
}

TEST(Loops, CarriedTypesAreUnchanged) {
  EXPECT_EQ(checked("dim B, D = 2, F = 3\nmodel Net(x: [B, D]) -> [B, D] {\n  repeat 2 { x = "
                    "Linear[D -> F](x) }\n  return x\n}\n")
                ->ids(),
            "E0210:3");
}

TEST(Loops, NamesOfTheBodyEndThere) {
  EXPECT_EQ(checked("dim B\nfn f(x: [B]) -> [B] {\n  repeat 2 {\n    y = x + 1\n    x = y\n  }\n  "
                    "return y\n}\n")
                ->ids(),
            "E0101:7");
}

TEST(Loops, LoweringDoesNotGrowWithTheCount) {
  auto nodes = [](const std::string& count) {
    auto p = checked("dim B, D = 4\nmodel Net(x: [B, D]) -> [B, D] {\n  repeat " + count +
                     " { x = Linear[D -> D](x) }\n  return x\n}\n");
    return lowered(*p).nodes.size();
  };
  EXPECT_EQ(nodes("2"), nodes("1200"));
}

// --------------------------------------------------------------------------------------- states

TEST(States, LaterReadsSeeTheAssignedValueWhichLeavesTheGraph) {
  auto p = checked(
      "dim B\nmodel Net(x: [B]) -> [B] {\n  state n : f32[] = zeros\n  n = n + 1\n  y = x * n\n  n "
      "= n * 10\n  return y\n}\n");
  ir::Graph g = lowered(*p);
  auto out = run(*p, g, {{"x", {3}}, {"n", {4}}}, {{"B", 1}});
  expect_values(out.at("result:0"), {15});
  expect_values(out.at("state:n"), {50});
  g = lowered(*p, false);
  out = run(*p, g, {{"x", {3}}, {"n", {4}}}, {{"B", 1}});
  expect_values(out.at("result:0"), {12});
  EXPECT_EQ(out.count("state:n"), 0U);
}

TEST(States, InLoopsScannedInAndCollectedOut) {
  auto p = checked(
      "dim B\nlayer C(x: [B]) -> [B] {\n  state n : f32[] = zeros\n  n = n + 1\n  return x + n\n}\n"
      "model Net(x: [B]) -> [B] {\n  repeat 3 as h { x = C(x) }\n  return x\n}\n");
  const auto out = run(*p, lowered(*p), {{"x", {0}}, {"h.{}.c.n", {10, 20, 30}}}, {{"B", 1}});
  expect_values(out.at("result:0"), {63});
  expect_values(out.at("state:h.{}.c.n"), {11, 21, 31});
}

TEST(States, OfASharedInstanceAreCarriedThroughTheLoop) {
  auto p = checked(
      "dim B\nlayer C(x: [B]) -> [B] {\n  state n : f32[] = zeros\n  n = n + 1\n  return x + n\n}\n"
      "model Net(x: [B]) -> [B] {\n  use c = C\n  x = c(x)\n  repeat 3 as h { x = c(x) }\n  return "
      "c(x)\n}\n");
  const auto out = run(*p, lowered(*p), {{"x", {0}}, {"c.n", {10}}}, {{"B", 1}});
  expect_values(out.at("result:0"), {11 + 12 + 13 + 14 + 15});
  expect_values(out.at("state:c.n"), {15});
}

TEST(States, BatchNorm) {
  auto p =
      checked("dim B, C = 1\nmodel Net(x: [B, C]) -> [B, C] { return BatchNorm[C](x, eps: 0) }\n");
  const Values values = {{"x", {1, 3}},
                         {"batch_norm.g", {1}},
                         {"batch_norm.b", {0}},
                         {"batch_norm.mu", {0}},
                         {"batch_norm.var", {1}}};
  auto out = run(*p, lowered(*p), values, {{"B", 2}});
  expect_values(out.at("result:0"), {-1, 1});
  expect_values(out.at("state:batch_norm.mu"), {0.2});
  expect_values(out.at("state:batch_norm.var"), {0.9 + 0.1 * 2});  // unbiased
  expect_values(run(*p, lowered(*p, false), values, {{"B", 2}}).at("result:0"), {1, 3});
}

// ------------------------------------------------------------------------------------ the rest

TEST(Lower, ResultsHaveTheirDeclaredOrder) {
  auto p = checked("dim B, T = 2, D = 3\nmodel Net(x: [B, T, D]) -> [D, T, B] { return x }\n");
  const ir::Graph g = lowered(*p);
  EXPECT_EQ(g.str(g.type(g.regions[0].results[0])), "[D, T, B]");
}

TEST(Lower, RandomSitesAreKeyedByPathAndCall) {
  auto p = checked(
      "dim B, D = 64\nlayer L(x: [B, D]) -> [B, D] { return dropout(dropout(x, 0.5), 0.5) }\n"
      "model Net(x: [B, D]) -> [B, D] {\n  use s = L\n  repeat 2 as h { x = L(x) }\n  return "
      "s(s(x))\n}\n");
  const ir::Graph g = lowered(*p);
  std::set<std::string> sites;
  for (const ir::Node& n : g.nodes) {
    if (n.op != ir::Op::kDropout) continue;
    sites.insert(n.attrs.site);
    EXPECT_EQ(n.operands.size(), n.region.index == 0 ? 1U : 2U);
  }
  EXPECT_EQ(sites, (std::set<std::string>{"h.{}.l.dropout", "h.{}.l.dropout_1", "s.dropout",
                                          "s.dropout_1", "s_1.dropout", "s_1.dropout_1"}));
  for (const ir::Node& n : lowered(*p, false).nodes) EXPECT_NE(n.op, ir::Op::kDropout);
}

TEST(Lower, ReducedPrecisionCastsParametersAndKeepsReductionsWide) {
  auto p = checked(
      "dim B, D = 4\nmodel Net(x: [B, D]) -> f32[] {\n  h = Linear[D -> D](x)\n  return mean(h * "
      "h)\n}\n");
  const ir::Graph g = lowered(*p, true, ir::DType::kBF16);
  for (const ir::Input& in : g.inputs)
    EXPECT_EQ(g.type(in.value).dtype, ir::DType::kF32) << in.path;
  bool contracted = false;
  for (const ir::Node& n : g.nodes) {
    if (n.op == ir::Op::kContract) contracted = g.type(n.results[0]).dtype == ir::DType::kBF16;
    if (n.op == ir::Op::kMean) {
      EXPECT_EQ(g.type(n.results[0]).dtype, ir::DType::kF32);
    }
  }
  EXPECT_TRUE(contracted);
}

TEST(Lower, AnnotationsOfParameters) {
  auto p = checked(
      "dim B\nmodel Net(x: [B]) -> [B] {\n  param a : f32[] = ones @frozen\n  param b : f32[] = "
      "ones @decay\n  param c : f32[] = ones @no_decay\n  return x * a * b * c\n}\n");
  const ir::Graph g = lowered(*p);
  EXPECT_TRUE(g.inputs[1].frozen);
  EXPECT_EQ(g.inputs[2].decay, ir::Input::Decay::kAlways);
  EXPECT_EQ(g.inputs[3].decay, ir::Input::Decay::kNever);
}

TEST(Lower, SourcePlacesAndScopesOfNodes) {
  auto p = checked("dim B, D = 4\nmodel Net(x: [B, D]) -> [B, D] { return MLP[D -> D](x) }\n");
  for (const ir::Node& n : lowered(*p).nodes) {
    EXPECT_TRUE(n.span.valid()) << ir::op_name(n.op);
    if (n.op == ir::Op::kContract) {
      EXPECT_EQ(n.scope.rfind("mlp.linear", 0), 0U);
    }
  }
}

}  // namespace
}  // namespace cad::frontend
