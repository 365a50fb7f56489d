// tests/frontend/builtins_test.cc -- builtin functions by value, against numbers worked out by hand
// or by naive loops in the test.
#include <cmath>
#include <limits>

#include "tests/frontend/frontend_testing.h"

namespace cad::frontend {
namespace {

ir::Tensor unary(const std::string& body, const std::vector<double>& x) {
  return result_of("dim B\nmodel Net(x: [B]) -> [B] { return " + body + " }\n", {{"x", x}},
                   {{"B", static_cast<int64_t>(x.size())}});
}

TEST(Builtins, Pointwise) {
  expect_values(unary("relu(x)", {-1, 0, 2}), {0, 0, 2});
  expect_values(unary("clamp(x, -1, 1.5)", {-3, 0.5, 2}), {-1, 0.5, 1.5});
  expect_values(unary("silu(x)", {1}), {1 / (1 + std::exp(-1.0))});
  expect_values(unary("gelu(x)", {1}), {0.5 * (1 + std::erf(std::sqrt(0.5)))});
  expect_values(unary("gelu(x, tanh: true)", {1}), {0.8411919906082768});
  expect_values(unary("max(x, 0.5) + min(x, 0)", {-1, 2}), {-0.5, 2});
  expect_values(unary("x ^ 2 + x ^ 3 + 2 ^ x + x ^ 0.5", {4}), {16 + 64 + 16 + 2});
  expect_values(unary("-x ^ 2", {3}), {-9});
  expect_values(unary("x // 2 + x % 3", {-1, 7}), {-1 + 2, 3 + 1});
  expect_values(unary("f32(x > 1 and not x > 5 or x == 0)", {0, 1, 3, 9}), {1, 0, 1, 0});
}

TEST(Builtins, IntegersAndCasts) {
  const auto ints = [](const std::string& type, const std::string& body) {
    return result_of("dim B\nmodel Net(n: i32[B]) -> " + type + " { return " + body + " }\n",
                     {{"n", {-7, 7}}}, {{"B", 2}});
  };
  expect_values(ints("[B]", "n / 2"), {-3.5, 3.5});
  expect_values(ints("i32[B]", "n // 2"), {-4, 3});
  expect_values(ints("i32[B]", "n % 4"), {1, 3});
  expect_values(ints("i32[B]", "i32(f32(n) / 2)"), {-3, 3});
  expect_values(ints("f32[]", "mean(n == 7)"), {0.5});
  expect_values(ints("i32[]", "sum(n > 0)"), {1});
}

TEST(Builtins, Reductions) {
  const auto of = [](const std::string& type, const std::string& body) {
    return result_of("dim B, D = 3\nmodel Net(x: [B, D]) -> " + type + " { return " + body + " }\n",
                     {{"x", {1, 2, 3, 6, 5, 4}}}, {{"B", 2}});
  };
  expect_values(of("[B]", "sum[D](x)"), {6, 15});
  expect_values(of("f32[]", "mean(x)"), {3.5});
  expect_values(of("[D]", "max[B](x)"), {6, 5, 4});
  expect_values(of("i32[B]", "argmax[D](x)"), {2, 0});
  expect_values(of("[B]", "logsumexp[D](x * 0)"), {std::log(3), std::log(3)});
  expect_values(of("[B, D]", "cumsum[D](x)"), {1, 3, 6, 6, 11, 15});
  expect_values(of("[B]", "mean[D](x, weight: f32(x > 2))"), {3, 5});
  expect_values(of("[B]", "mean[D](x, weight: x * 0)"), {0, 0});
  expect_values(of("[B, D]", "flip[D](x)"), {3, 2, 1, 4, 5, 6});
}

// C6: a row of which everything is masked gives zeros.
TEST(Builtins, SoftmaxOfAMaskedRow) {
  const double inf = std::numeric_limits<double>::infinity();
  expect_values(result_of("dim B, S = 2\nmodel Net(x: [B, S]) -> [B, S] { return softmax[S](x) }\n",
                          {{"x", {-inf, -inf, 0, 0}}}, {{"B", 2}}),
                {0, 0, 0.5, 0.5});
}

TEST(Builtins, CausalKeepsThePast) {
  const double inf = std::numeric_limits<double>::infinity();
  const ir::Tensor r = result_of(
      "dim B, T = 2, S = T\nmodel Net(x: [B, T, S]) -> [B, T, S] { return causal[T, S](x) }\n",
      {{"x", {1, 2, 3, 4}}}, {{"B", 1}});
  EXPECT_EQ(r.data, (std::vector<double>{1, -inf, 3, 4}));
}

TEST(Builtins, CrossEntropyLeavesOutMinusOne) {
  const std::string text =
      "dim B, V = 2\nmodel Net(z: [B, V], y: i32[B]) -> f32[] { return cross_entropy[V](z, y) }\n";
  const double l0 = std::log(1 + std::exp(1.0)), l1 = std::log(1 + std::exp(-1.0));
  expect_values(result_of(text, {{"z", {0, 1, 0, 1, 5, 5}}, {"y", {0, 1, -1}}}, {{"B", 3}}),
                {(l0 + l1) / 2});
  expect_values(result_of(text, {{"z", {0, 1}}, {"y", {-1}}}, {{"B", 1}}), {0});
  expect_values(
      result_of("dim B, V = 2\nmodel Net(z: [B, V], y: i32[B]) -> [B] { return nll[V](z, y) }\n",
                {{"z", {0, 1, 5, 5}}, {"y", {0, -1}}}, {{"B", 2}}),
      {l0, 0});
}

TEST(Builtins, Losses) {
  expect_values(result_of("dim B\nmodel Net(a: [B], b: [B]) -> f32[] { return mse(a, b) }\n",
                          {{"a", {1, 2}}, {"b", {3, 2}}}, {{"B", 2}}),
                {2});
  expect_values(result_of("dim B\nmodel Net(a: [B], y: [B]) -> f32[] { return bce(a, y) }\n",
                          {{"a", {0, 100}}, {"y", {1, 1}}}, {{"B", 2}}),
                {std::log(2) / 2});
}

TEST(Builtins, RopeTurnsPairsOfHalves) {
  const ir::Tensor r = result_of(
      "dim B, T = 2, K = 4\nmodel Net(x: [B, T, K]) -> [B, T, K] { return rope[T, K](x, base: 100) "
      "}\n",
      {{"x", {1, 2, 3, 4, 1, 2, 3, 4}}}, {{"B", 1}});
  const double c0 = std::cos(1), s0 = std::sin(1), c1 = std::cos(0.1), s1 = std::sin(0.1);
  expect_values(r, {1, 2, 3, 4, 1 * c0 - 3 * s0, 2 * c1 - 4 * s1, 3 * c0 + 1 * s0, 4 * c1 + 2 * s1},
                1e-6);
  // Before or after the rename alike.
  const std::string head =
      "dim B, T = 2, S = T, K = 4\nmodel Net(x: [B, T, K]) -> [B, S, K] { return ";
  const Values x = {{"x", {1, 2, 3, 4, 1, 2, 3, 4}}};
  EXPECT_EQ(result_of(head + "rope[T, K](x)[T -> S] }\n", x, {{"B", 1}}).data,
            result_of(head + "rope[S, K](x[T -> S]) }\n", x, {{"B", 1}}).data);
}

TEST(Builtins, MovingDims) {
  const Values x = {{"x", {0, 1, 2, 3, 4, 5}}};
  expect_values(result_of("dim B, D = 6, H = 2, K = 3\nmodel Net(x: [B, D]) -> [B, D] { return x[D "
                          "-> (H, K)][(K, H) -> D] }\n",
                          x, {{"B", 1}}),
                {0, 3, 1, 4, 2, 5});
  expect_values(result_of("dim B, T = 2, S = 3\nmodel Net(x: [B, T, S]) -> [B, T, S] {\n  y: [B, "
                          "T, S] = x[T = 0]\n  return y\n}\n",
                          x, {{"B", 1}}),
                {0, 1, 2, 0, 1, 2});
  expect_values(
      result_of(
          "dim B, T = 6, N = 2\nmodel Net(x: [B, T]) -> [B, N] { return x[T = 3 : 5 -> N] }\n", x,
          {{"B", 1}}),
      {3, 4});
  expect_values(result_of("dim B, N = 6, T = 8\nmodel Net(x: [B, N]) -> [B, T] { return pad[N -> "
                          "T](x, before: 1, value: 9) }\n",
                          x, {{"B", 1}}),
                {9, 0, 1, 2, 3, 4, 5, 9});
  expect_values(result_of("dim B, T = 6, C = 12\nmodel Net(x: [B, T]) -> [B, C] { return concat[T, "
                          "T -> C](x, x + 10) }\n",
                          x, {{"B", 1}}),
                {0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15});
  expect_values(
      result_of(
          "dim B, T = 6, N = 2\nmodel Net(x: [B, T]) -> [N, B, T] { return stack[N](x, -x) }\n", x,
          {{"B", 1}}),
      {0, 1, 2, 3, 4, 5, 0, -1, -2, -3, -4, -5});
  expect_values(result_of("dim B, T = 2, S = T\nmodel Net(x: [B, T, S]) -> [B, T, S] { return x[T "
                          "-> S, S -> T] }\n",
                          {{"x", {1, 2, 3, 4}}}, {{"B", 1}}),
                {1, 3, 2, 4});
}

TEST(Builtins, GatherAlignsSharedDims) {
  const Values v = {{"x", {1, 2, 3, 4, 5, 6}}, {"i", {2, 0}}};
  expect_values(
      result_of("dim B, T = 3\nmodel Net(x: [B, T], i: i32[B]) -> [B] { return x[T = i] }\n", v,
                {{"B", 2}}),
      {3, 4});
  expect_values(
      result_of("dim B, T = 3\nmodel Net(x: [B, T], i: i32[T]) -> [B, T] { return x[T = i] }\n",
                {{"x", {1, 2, 3, 4, 5, 6}}, {"i", {2, 0, 7}}}, {{"B", 2}}),
      {3, 1, 0, 6, 4, 0});
  expect_values(result_of("dim B, V = 2, T = 2\nmodel Net(w: [V, T], i: i32[B], j: i32[B]) -> [B] "
                          "{ return w[V = i, T = j] }\n",
                          {{"w", {1, 2, 3, 4}}, {"i", {1, 0}}, {"j", {0, 1}}}, {{"B", 2}}),
                {3, 2});
}

TEST(Builtins, TopKOneHotTril) {
  expect_values(result_of("dim B, E = 4, A = 2\nmodel Net(x: [B, E]) -> i32[B, A] {\n  v, i = "
                          "topk[E -> A](x)\n  return i\n}\n",
                          {{"x", {1, 3, 3, 0}}}, {{"B", 1}}),
                {1, 2});
  expect_values(result_of("dim B, V = 3\nmodel Net(i: i32[B]) -> [B, V] { return one_hot[V](i) }\n",
                          {{"i", {2, -1}}}, {{"B", 2}}),
                {0, 0, 1, 0, 0, 0});
  expect_values(result_of("dim B, N = 3, M = N, F = N * (N - 1) / 2\nmodel Net(x: [B, N, M]) -> "
                          "[B, F] { return tril[N, M -> F](x) }\n",
                          {{"x", {0, 1, 2, 3, 4, 5, 6, 7, 8}}}, {{"B", 1}}),
                {3, 6, 7});
}

// Two experts of two slots: the third row that asks for expert 0 is dropped.
TEST(Builtins, DispatchAndCombine) {
  const std::string head =
      "dim B, E = 2, M = 2, A = 1\nmodel Net(x: [B], e: i32[B, A], g: [B, A]) -> ";
  const Values v = {{"x", {1, 2, 3, 4}}, {"e", {0, 0, 1, 0}}, {"g", {1, 0.5, 1, 1}}};
  expect_values(result_of(head + "[E, M] { return dispatch[E, M, A](x, e) }\n", v, {{"B", 4}}),
                {1, 2, 3, 0});
  expect_values(
      result_of(head + "[B] { return combine[E, M, A](dispatch[E, M, A](x, e) * 10, e, g) }\n", v,
                {{"B", 4}}),
      {10, 10, 30, 0});
}

double at(const std::vector<double>& x, int64_t c, int64_t y, int64_t n, int64_t size) {
  return y < 0 || y >= n ? 0 : x[static_cast<size_t>(c * size + y)];
}

TEST(Builtins, ConvolutionAgainstLoops) {
  const std::string text =
      "dim B, C = 2, O = 3, Y = 5, Y2 = 3, KY = 3\nmodel Net(x: [B, C, Y], w: [O, C, KY]) -> [B, "
      "O, Y2] { return conv[C -> O, (Y, KY) -> Y2](x, w, stride: 2) }\n";
  std::vector<double> x, w, wanted;
  for (int i = 0; i < 10; ++i) x.push_back(0.3 * i - 1);
  for (int i = 0; i < 18; ++i) w.push_back(0.1 * (i % 5) - 0.2);
  for (int o = 0; o < 3; ++o) {
    for (int y2 = 0; y2 < 3; ++y2) {
      double sum = 0;
      for (int c = 0; c < 2; ++c) {
        for (int k = 0; k < 3; ++k)
          sum += at(x, c, y2 * 2 + k - 1, 5, 5) * w[static_cast<size_t>((o * 2 + c) * 3 + k)];
      }
      wanted.push_back(sum);
    }
  }
  expect_values(result_of(text, {{"x", x}, {"w", w}}, {{"B", 1}}), wanted);
}

TEST(Builtins, DepthwiseAndPointwiseConvolution) {
  const Values v = {{"x", {1, 2, 3, 10, 20, 30}}, {"w", {1, 1, 1, 2, 0, 0}}};
  expect_values(
      result_of("dim B, C = 2, One = 1, Y = 3, KY = 3\nmodel Net(x: [B, C, Y], w: [C, One, KY]) -> "
                "[B, C, Y] { return conv[C -> C, (Y, KY) -> Y](x, w, groups: 2) }\n",
                v, {{"B", 1}}),
      {3, 6, 5, 0, 20, 40});
  expect_values(result_of("dim B, C = 2, O = 1, Y = 3, KY = 1\nmodel Net(x: [B, C, Y], w: [O, C, "
                          "KY]) -> [B, O, Y] { return conv[C -> O, (Y, KY) -> Y](x, w) }\n",
                          {{"x", {1, 2, 3, 10, 20, 30}}, {"w", {1, 0.1}}}, {{"B", 1}}),
                {2, 4, 6});
}

TEST(Builtins, Pooling) {
  const Values v = {{"x", {1, 5, 2, 4, 3}}};
  expect_values(result_of("dim B, Y = 5, Y2 = 2\nmodel Net(x: [B, Y]) -> [B, Y2] { return "
                          "max_pool[Y -> Y2](x, 2) }\n",
                          v, {{"B", 1}}),
                {5, 4});
  expect_values(result_of("dim B, Y = 5, Y2 = 3\nmodel Net(x: [B, Y]) -> [B, Y2] { return "
                          "max_pool[Y -> Y2](-x, 3, stride: 2, pad: 1) }\n",
                          v, {{"B", 1}}),
                {-1, -2, -3});
  expect_values(result_of("dim B, Y = 5\nmodel Net(x: [B, Y]) -> [B, Y] { return avg_pool[Y -> "
                          "Y](x, 3, stride: 1, pad: 1) }\n",
                          v, {{"B", 1}}),
                {2, 8.0 / 3, 11.0 / 3, 3, 7.0 / 3});
  expect_values(
      result_of(
          "dim B, Y = 2, Y2 = 4\nmodel Net(x: [B, Y]) -> [B, Y2] { return upsample[Y -> Y2](x) }\n",
          {{"x", {1, 2}}}, {{"B", 1}}),
      {1, 1, 2, 2});
}

TEST(Builtins, WhereOfAConstantTakesABranchWithAllDims) {
  expect_values(result_of("dim B, D = 2\nmodel Net(x: [B, D]) -> [B, D] { return where(training, x "
                          "* 100, where(D > 1, x[D = 0], x)) }\n",
                          {{"x", {3, 4}}}, {{"B", 1}}),
                {3, 3});
}

TEST(Builtins, RandomValuesFollowTheirLaws) {
  const ir::Tensor u = result_of(
      "dim B, D = 1000\nmodel Net(x: [B, D]) -> [B, D] { return uniform[B, D](2, 3) + 0 * x }\n",
      {}, {{"B", 1}});
  double sum = 0;
  for (double v : u.data) {
    EXPECT_GE(v, 2);
    EXPECT_LT(v, 3);
    sum += v;
  }
  EXPECT_NEAR(sum / 1000, 2.5, 0.05);
  const ir::Tensor d = result_of(
      "dim B, D = 1000\nmodel Net(x: [B, D]) -> [B, D] { return dropout(x * 0 + 1, 0.25) }\n", {},
      {{"B", 1}}, true);
  sum = 0;
  for (double v : d.data) {
    EXPECT_TRUE(v == 0 || std::abs(v - 1 / 0.75) < 1e-6) << v;
    sum += v;
  }
  EXPECT_NEAR(sum / 1000, 1, 0.1);
}

}  // namespace
}  // namespace cad::frontend
