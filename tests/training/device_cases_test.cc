// Small programs that went wrong elsewhere when they were split, on devices that are threads:
// values worked out by hand, then losses, norms, gradients (as steps of SGD) and weights of one
// device, under random legal plans and baselines, even and uneven. Larger models: devices_test.cc;
// the same by the interpreter in double: tests/spmd.
#include "tests/training/device_cases.h"

namespace cad::backend {
namespace {

// E1: a mean of parts of unlike sizes is no mean of means.
TEST_F(DeviceCases, MeansOfUnevenParts) {
  EXPECT_NEAR(compare(of_parameters(12, "mean[N](x)")).losses[0], 5.5, 1e-6);
  EXPECT_NEAR(compare(of_parameters(4, "mean[N](x)"), 3, 2, {{2}, {3}}).losses[0], 1.5, 1e-6);
  for (const int rows : {5, 7, 10}) {
    std::vector<float> x;
    for (int i = 0; i < rows; ++i) x.push_back(static_cast<float>(i));
    const DeviceRun one = compare(
        "dim B\nmodel Net(x: [B]) -> [B] {\n  param w : [] = ones\n  return x * w\n}\n"
        "train t {\n  data: npy(" +
            npy("x.npy", {rows}, x) +
            ", x: f32[B])\n  loss: mean(Net(x))\n  optimizer: sgd(lr: 1e-3)\n  B: " +
            std::to_string(rows) + ", steps: 1\n}\n",
        1, 2, {{2}, {3}, {4}, {2, 2}});
    EXPECT_NEAR(one.losses[0], (rows - 1) / 2.0, 1e-5);
    EXPECT_NEAR(one.norms[0], (rows - 1) / 2.0, 1e-5);
  }
}

// E2: what is not linear, and constants, wait for the sum.
TEST_F(DeviceCases, SumsThatAreNotReducedYet) {
  const std::pair<const char*, double> cases[] = {{"s + 10", 55},
                                                  {"s * 2", 90},
                                                  {"s ^ 2 * 1e-2", 20.25},
                                                  {"relu(s)", 45},
                                                  {"max(s, 3) - s / 5", 36}};
  for (const auto& [loss, value] : cases)
    EXPECT_NEAR(compare(of_parameters(10, loss), 2, 2).losses[0], value, 1e-4) << loss;
}

// E3: picks and running sums over a dim that is split.
TEST_F(DeviceCases, PicksAndRunningSums) {
  const std::string x = npy<float>("x.npy", {2, 4}, {10, 5, 3, 8, 1, 7, 7, 1});
  const auto program = [&](const std::string& value) {
    return "dim B, N = 4, A = 2\nmodel Net(x: [B, N]) -> f32[] {\n  param w : [N] = ones\n"
           "  y = x * w\n  v, i = topk[N -> A](y)\n  return " +
           value + "\n}\ntrain t {\n  data: npy(" + x +
           ", x: f32[B, N])\n  loss: Net(x)\n  optimizer: sgd(lr: 1e-3)\n  B: 2, steps: 1, order: "
           "sequential\n}\n";
  };
  EXPECT_EQ(compare(program("mean(f32(argmax[N](y))) + 0 * mean(y)"), 1, 3).losses[0], 0.5);
  EXPECT_EQ(compare(program("mean(v)"), 1, 3).losses[0], (10 + 8 + 7 + 7) / 4.0);
  EXPECT_EQ(compare(program("mean(f32(i)) + 0 * mean(y)"), 1, 3).losses[0], (0 + 3 + 1 + 2) / 4.0);
  EXPECT_EQ(compare(program("mean(cumsum[N](y))"), 1, 3).losses[0],
            (10 + 15 + 18 + 26 + 1 + 8 + 15 + 16) / 8.0);
}

// E4: a bias is added once, however the inner dim is split.
TEST_F(DeviceCases, ABiasIsAddedOnce) {
  const std::string x = npy<float>("x.npy", {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const DeviceRun one = compare(
      "dim B, K = 4, O = 3\nmodel Net(x: [B, K]) -> [B, O] {\n"
      "  param w : [O, K] = ones\n  param b : [O] = ones\n"
      "  count: f32[O, K] = f32(iota[O]) * 4 + f32(iota[K]) + 1\n"
      "  return x @[K] (w * count) + b * (f32(iota[O]) + 1) * 100\n}\n"
      "train t {\n  data: npy(" +
          x +
          ", x: f32[B, K])\n  loss: mean(Net(x))\n  optimizer: sgd(lr: 1e-3)\n  B: 2, steps: 1, "
          "order: sequential\n}\n",
      1, 4, {{2}, {3}, {4}, {2, 2}});
  EXPECT_NEAR(one.losses[0], (130 + 270 + 410 + 170 + 374 + 578) / 6.0, 1e-3);
}

// E6: gradients of a norm's weights are sums over all tokens; every device keeps the same bits.
TEST_F(DeviceCases, NormsOverSplitTokens) {
  for (const char* norm : {"LayerNorm", "RMSNorm"}) {
    compare(
        std::string("dim B, T = 5, D = 6\nmodel Net(x: [B, T, D]) -> [B, T, D] {\n  return ") +
            norm + "[D](" + norm +
            "[D](x) * 2 + x)\n}\ntrain t {\n  data: synthetic(x: f32[B, T, D], y: f32[B, T, D])\n"
            "  loss: mse(Net(x), y)\n  optimizer: adam(lr: 1e-2)\n  B: 4, steps: 10\n}\n",
        10, 2);
  }
}

// E8: a vocabulary that does not divide: padding is in no sum, no gradient and no norm.
TEST_F(DeviceCases, AVocabularyThatDoesNotDivide) {
  const std::string y = npy<int>("y.npy", {6}, {0, 1, 2, 3, 4, 2});
  const DeviceRun zero = compare(
      "dim B, V = 5, D = 2\nmodel Net(y: i32[B]) -> [B, V] {\n  param e : [V, D] = zeros\n"
      "  return e[V = y] @[D] e\n}\ntrain t {\n  data: npy(" +
          y +
          ", y: i32[B])\n  loss: cross_entropy[V](Net(y), y)\n  optimizer: sgd(lr: 1)\n  B: 6, "
          "steps: 1\n}\n",
      1, 2, {{2}, {3}, {4}});
  EXPECT_NEAR(zero.losses[0], std::log(5.0), 1e-6);
  compare(
      "dim B, T = 3, V = 11, D = 8\nmodel Net(x: i32[B, T]) -> [B, T, V] {\n"
      "  param e : [V, D] = normal(0.5)\n  return e[V = x] @[D] e\n}\n"
      "train t {\n  data: synthetic(x: i32[B, T], y: i32[B, T])\n"
      "  loss: cross_entropy[V](Net(x), y)\n  optimizer: adamw(lr: 1e-2)\n  clip: 1.0\n"
      "  B: 4, steps: 200\n}\n",
      200, 1, {{2}, {3}, {4}});
}

// E9: targets on every part in turn, logits as large as they get.
TEST_F(DeviceCases, LargeLogitsAndEveryTarget) {
  const std::string y = npy<int>("y.npy", {6}, {0, 1, 2, 3, 4, 5});
  for (const char* scale : {"1e4", "-1e4"}) {
    const DeviceRun one = compare(
        std::string("dim B, V = 6\nmodel Net(y: i32[B]) -> [B, V] {\n  param w : [V] = ones\n"
                    "  z: f32[B, V] = f32(y) * 0 + w * f32(iota[V] % 2) * ") +
            scale + "\n  return z\n}\ntrain t {\n  data: npy(" + y +
            ", y: i32[B])\n  loss: cross_entropy[V](Net(y), y)\n  optimizer: sgd(lr: 1e-6)\n"
            "  B: 6, steps: 1, order: sequential\n}\n",
        1, 3, {{2}, {3}, {4}});
    EXPECT_TRUE(std::isfinite(one.losses[0]));
    EXPECT_NEAR(one.losses[0], 5000 + std::log(3.0), 1e-2) << scale;
  }
}

// E11: slices and joins of a dim with one element a device.
TEST_F(DeviceCases, RollsOfADim) {
  const DeviceRun one = compare(
      of_parameters(4,
                    "mean[N](((concat[One, Three -> N](x[N = 3 : N -> One], x[N = 0 : 3 -> Three]) "
                    "+ concat[Three, One -> N](x[N = 1 : N -> Three], x[N = 0 : 1 -> One]))) "
                    "* (i + 1))",
                    ", One = 1, Three = 3"),
      2, 4, {{2}, {3}, {4}});
  // [3,0,1,2] + [1,2,3,0] = [4,2,4,2], weighted 1..4
  EXPECT_NEAR(one.losses[0], (4 + 4 + 12 + 8) / 4.0, 1e-5);
}

// E27: a softmax over a split dim shares its maximum; the gradient of a row sums to 0. In halves
// with logits that a half holds exactly, so large that exp() of them is infinite.
TEST_F(DeviceCases, SoftmaxOverASplitDim) {
  const std::string y = npy<int>("y.npy", {2}, {3, 3});
  for (const char* precision : {"f32", "bf16"}) {
    const bool exact = precision[0] == 'f';
    const std::string first = exact ? "1000" : "200";
    const DeviceRun one = compare(
        "dim B, V = 4\nmodel Net(y: i32[B]) -> [B, V] {\n  param w : [V] = zeros\n"
        "  z: f32[B, V] = f32(y) * 0 + w + f32(iota[V]) + " +
            first + "\n  return z\n}\ntrain t {\n  data: npy(" + y +
            ", y: i32[B])\n  loss: cross_entropy[V](Net(y), y)\n  optimizer: sgd(lr: 1)\n"
            "  B: 2, steps: 1, precision: " +
            precision + "\n}\n",
        1, 3, {{2}, {4}, {2, 2}});
    EXPECT_NEAR(one.losses[0], 0.440190, exact ? 1e-4 : 4e-3) << precision;
    const std::vector<float>& w = one.weights.at("w");
    const double p[] = {0.032059, 0.087144, 0.236883, 0.643914};
    double sum = 0;
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(w[i], (i == 3 ? 1 : 0) - p[i], exact ? 1e-4 : 4e-3) << precision << i;
      sum += double{w[i]};
    }
    EXPECT_NEAR(sum, 0, exact ? 1e-5 : 8e-3) << precision;
  }
}

// E18: any number of devices; one device in a mesh is the plain program, bit for bit.
TEST_F(DeviceCases, OneTwoThreeFiveSevenDevices) {
  const std::string text =
      "dim B, D = 6, E = 5\nmodel Net(x: [B, D]) -> [B, E] {\n  return Linear[D -> "
      "E](relu(Linear[D "
      "-> D](x)))\n}\ntrain t {\n  data: synthetic(x: f32[B, D], y: f32[B, E])\n"
      "  loss: mse(Net(x), y)\n  optimizer: adam(lr: 1e-2)\n  B: 7, steps: 3\n}\n";
  const WholeModel m = whole_model(text, {});
  const DeviceRun one = run_on(m.spec, nullptr, 3);
  for (const std::vector<int>& sizes : Sizes{{1}, {1, 1}}) {
    const PlanOfDevices plan = named_plan(m.spec, sizes.size() == 1 ? "single" : "auto", sizes);
    ASSERT_NE(plan, nullptr);
    const DeviceRun same = run_on(m.spec, plan, 3);
    EXPECT_EQ(same.losses, one.losses);
    EXPECT_EQ(same.weights, one.weights);
  }
  for (const std::vector<int>& sizes : Sizes{{2}, {1, 2}, {3}, {6}, {2, 3}, {5}, {7}}) {
    for (const char* name : {"dp", "auto"}) {
      const PlanOfDevices plan = named_plan(m.spec, name, sizes);
      if (plan == nullptr) continue;
      expect_equal(run_on(m.spec, plan, 3), one, std::string(name) + plan->train.mesh.str());
    }
  }
}

// E15: operands that come in unlike layouts by the program's own wish.
TEST_F(DeviceCases, OperandsSplitByDifferentAxes) {
  const std::string text =
      "dim B, D = 6\nmodel Net(x: [B, D]) -> [B, D] {\n"
      "  a = Linear[D -> D](x) @shard(B: x)\n  b = Linear[D -> D](x) @shard(B: y)\n"
      "  c = Linear[D -> D](x) @shard(D: x)\n  return (a + b) * c\n}\n"
      "train t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n"
      "  loss: mse(Net(x), y)\n  optimizer: adam(lr: 1e-2)\n  B: 5, steps: 3\n}\n";
  const WholeModel m = whole_model(text, {});
  const PlanOfDevices plan = named_plan(m.spec, "auto", {2, 2});
  ASSERT_NE(plan, nullptr);
  expect_equal(run_on(m.spec, plan, 3), run_on(m.spec, nullptr, 3), "pins");
}

// B2, B3, B5, B7: sizes 0 and 1, rank 0, merged dims that are split unevenly.
TEST_F(DeviceCases, OddShapes) {
  const auto net = [](const std::string& dims, const std::string& body, int rows) {
    return "dim B, " + dims + "\nmodel Net(x: [B, D]) -> f32[] {\n" + body +
           "}\ntrain t {\n  data: synthetic(x: f32[B, D])\n  loss: Net(x)\n"
           "  optimizer: sgd(lr: 1e-2)\n  B: " +
           std::to_string(rows) + ", steps: 2\n}\n";
  };
  // all rows equal the bias: 0.1 .. 0.4, each of its gradients is 1
  const DeviceRun empty =
      compare(net("D = 4, Z = 0, E = 4",
                  "  param w : [Z, E] = ones\n  param b : [E] = ones\n  param v : [D, Z] = ones\n"
                  "  y = (x @[D] v) @[Z] w + b * (f32(iota[E]) + 1) * 0.1\n"
                  "  return mean(sum[E](y))\n",
                  12),
              1, 2, {{2}, {3}});
  EXPECT_NEAR(empty.losses[0], 1.0, 1e-6);
  EXPECT_NEAR(empty.norms[0], std::sqrt(0.01 + 0.04 + 0.09 + 0.16), 1e-6);
  compare(net("D = 5",
              "  param g : [] = ones\n  param w : [D] = normal(1)\n"
              "  return mean((g * (x * w)) ^ 2)\n",
              4));
  for (const auto& [rows, columns] : {std::pair<int, int>{6, 8}, {5, 3}, {7, 2}}) {
    compare(net("D = " + std::to_string(columns) + ", M = B * D",
                "  param w : [D] = normal(1)\n  y = (x * w)[(B, D) -> M]\n"
                "  return mean((y * 2) ^ 2)\n",
                rows),
            2, 2, {{2}, {3}, {4}});
  }
  // more devices than rows, and than columns
  compare(net("D = 6", "  param w : [D] = normal(1)\n  return mean((x * w) ^ 2)\n", 4), 2, 2,
          {{8}, {4, 2}});
  compare(net("D = 6", "  return mean(RMSNorm[D](x) ^ 4)\n", 1), 2, 2, {{2}, {2, 2}});
}

// C1: gradients of what is broadcast, with every dim of the partner split.
TEST_F(DeviceCases, BroadcastOperands) {
  for (const char* op : {"x * w + a - b / c", "(x + a) * (w - b) / (c + 2)"}) {
    compare(std::string("dim B, D = 3\nmodel Net(x: [B, D]) -> f32[] {\n  param a : [D] = ones\n"
                        "  param b : [] = ones\n  param c : [D] = constant(2)\n"
                        "  param w : [D] = normal(1)\n  return mean((") +
                op +
                ") ^ 2)\n}\ntrain t {\n  data: synthetic(x: f32[B, D])\n  loss: Net(x)\n"
                "  optimizer: sgd(lr: 1e-2)\n  B: 4, steps: 2\n}\n",
            2, 2, {{2}, {2, 2}});
  }
}

// C3: one layer three times a step.
TEST_F(DeviceCases, OneLayerThreeTimes) {
  const std::string text =
      "dim B, D = 8\nlayer Part(x: [B, D]) -> [B, D] {\n  param w : [D, D2] = normal(0.4)\n"
      "  return relu(x @[D] w)[D2 -> D]\n}\ndim D2 = D\n"
      "model Net(x: [B, D]) -> [B, D] {\n  use part = Part\n  h = part(x)\n"
      "  h = part(h) @checkpoint\n  return part(h)\n}\n"
      "train t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
      "  optimizer: adamw(lr: 1e-2)\n  B: 4, steps: 4\n}\n";
  const DeviceRun one = compare(text, 4, 2);
  const WholeModel m = whole_model(text, {});
  for (const char* name : {"zero1", "zero3"}) {
    const PlanOfDevices plan = named_plan(m.spec, name, {2});
    ASSERT_NE(plan, nullptr) << name;
    expect_equal(run_on(m.spec, plan, 4), one, name);
  }
}

// C5, H1: means are over the labels that are there, wherever a step is cut.
TEST_F(DeviceCases, LabelsOfOneShardOnly) {
  const auto program = [&](const std::string& labels, int rows, int accumulate) {
    return "dim B, V = 2\nmodel Net(y: i32[B]) -> [B, V] {\n  param w : [V] = zeros\n"
           // a loss of 1 and of 3 for target 1
           "  low: f32[B] = where(y == 0, -log(exp(3.0) - 1), -log(exp(1.0) - 1))\n"
           "  z: f32[B, V] = low * f32(iota[V]) + w\n  return z\n}\n"
           "fn Target(y: i32[B]) -> i32[B] { return where(y < 0, y, 1) }\n"
           "train t {\n  data: npy(" +
           labels +
           ", y: i32[B])\n  loss: cross_entropy[V](Net(y), Target(y))\n"
           "  optimizer: sgd(lr: 0.1)\n  B: " +
           std::to_string(rows) + ", accumulate: " + std::to_string(accumulate) +
           ", steps: 1, order: sequential\n}\n";
  };
  // two of loss 1 (y = 1), eight of loss 3 (y = 0): the first half has two, the second eight
  std::vector<int> y(16, -1);
  y[2] = y[5] = 1;
  for (int i = 8; i < 16; ++i) y[static_cast<size_t>(i)] = 0;
  const std::string labels = npy("y.npy", {16}, y);
  EXPECT_NEAR(compare(program(labels, 16, 1), 1, 2).losses[0], 2.6, 1e-5);
  EXPECT_NEAR(compare(program(labels, 8, 2), 1, 2).losses[0], 2.6, 1e-5);
  EXPECT_NEAR(compare(program(labels, 4, 4), 1, 2, {{2}, {4}}).losses[0], 2.6, 1e-5);
  const std::string none = npy("n.npy", {16}, std::vector<int>(16, -1));
  const DeviceRun nothing = compare(program(none, 16, 1), 1, 2);
  EXPECT_EQ(nothing.losses[0], 0);
  EXPECT_EQ(nothing.norms[0], 0);
}

// C6: a row of which everything is masked, and one part of a row, with the keys split.
TEST_F(DeviceCases, MaskedRowsOfAttention) {
  compare(
      "dim B, T = 4, S = T, D = 4\nmodel Net(x: [B, T, D]) -> [B, T, D] {\n"
      "  param q : [D, K] = normal(0.5)\n  param k : [D, K] = normal(0.5)\n"
      "  a = x @[D] q\n  b = (x @[D] k)[T -> S]\n  s = a @[K] b\n"
      "  seen: bool[T, S] = not (iota[T] == 2) and (iota[S] >= 2 or not (iota[T] == 1))\n"
      "  p = softmax[S](where(seen, s, -inf))\n  return p @[S] (x[T -> S])\n}\ndim K = 4\n"
      "train t {\n  data: synthetic(x: f32[B, T, D])\n  loss: mean(Net(x) ^ 2)\n"
      "  optimizer: sgd(lr: 1e-1)\n  B: 3, steps: 2\n}\n",
      2, 3, {{2}, {3}, {4}});
}

// C8, C9: in halves too the norm is that of the gradient, wherever states lie.
TEST_F(DeviceCases, HalfPrecisionOnDevices) {
  const auto program = [](const std::string& precision) {
    return "dim B, D = 8, E = 8\nmodel Net(x: [B, D]) -> [B, E] {\n"
           "  return Linear[D -> E](relu(Linear[D -> D](x)))\n}\n"
           "train t {\n  data: synthetic(x: f32[B, D], y: f32[B, E])\n  loss: mse(Net(x), y)\n"
           "  optimizer: adamw(lr: 1e-3)\n  B: 8, steps: 3, precision: " +
           precision + "\n}\n";
  };
  const DeviceRun exact = run_on(whole_model(program("f32"), {}).spec, nullptr, 3);
  for (const char* precision : {"bf16", "f16"}) {
    const WholeModel m = whole_model(program(precision), {});
    for (const char* name : {"dp", "zero1", "zero2", "zero3"}) {
      const PlanOfDevices plan = named_plan(m.spec, name, {2});
      ASSERT_NE(plan, nullptr) << name;
      const DeviceRun half = run_on(m.spec, plan, 3);
      ASSERT_EQ(half.error, "");
      expect_near(half.losses, exact.losses, std::string(name) + precision, 2e-2);
      expect_near(half.norms, exact.norms, std::string(name) + precision, 6e-2);
    }
  }
}

// C10: norms of which some or all is frozen.
TEST_F(DeviceCases, FrozenNorms) {
  for (const char* weight : {"", " @frozen"}) {
    for (const char* bias : {"", " @frozen"}) {
      compare(std::string("dim B, D = 3\nmodel Net(x: [B, D]) -> [B] {\n  param g : [D] = ones") +
                  weight + "\n  param b : [D] = zeros" + bias +
                  "\n  param w : [D] = normal(1)\n  h = x - mean[D](x)\n"
                  "  h = h * rsqrt(mean[D](h ^ 2) + 1e-5)\n  return (h * g + b) @[D] w\n}\n"
                  "train t {\n  data: synthetic(x: f32[B, D])\n  loss: mean(Net(x) ^ 2)\n"
                  "  optimizer: adamw(lr: 0.01)\n  B: 4, steps: 3\n}\n",
              3, 1, {{2}, {2, 2}});
    }
  }
}

// F1, F6: what runs again draws the same values, and it is the right block that runs again.
TEST_F(DeviceCases, WhatRunsAgainIsTheSame) {
  const std::string text =
      "dim B, D = 8, L = 3\nlayer Block(x: [B, D]) -> [B, D] {\n"
      "  a = LayerNorm[D](x)\n  x = x + dropout(relu(Linear[D -> D](a)), 0.5)\n"
      "  b = LayerNorm[D](x)\n  return x + dropout(Linear[D -> D](b), 0.3)\n}\n"
      "model Net(x: [B, D]) -> [B, D] {\n  repeat L as h { x = Block(x) }\n  return x\n}\n"
      "train t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
      "  optimizer: sgd(lr: 1e-1)\n  B: 8, steps: 4\n}\n";
  const WholeModel m = whole_model(text, {});
  const DeviceRun one = run_on(m.spec, nullptr, 4);
  for (const std::vector<int>& sizes : Sizes{{2}, {2, 2}}) {
    const planner::Mesh mesh = test_mesh(sizes);
    for (const uint32_t seed : {5U, 6U}) {
      const planner::Placement placement = RandomPlacement(m.forward, m.extents, mesh, seed).make();
      std::vector<DeviceRun> runs;
      for (const ir::Saving saving : {ir::Saving::kKeep, ir::Saving::kRecompute}) {
        runs.push_back(run_on(m.spec, plan_from("saved", all_saved(placement, saving)), 4));
        expect_equal(runs.back(), one, mesh.str());
      }
      expect_near(runs[0].losses, runs[1].losses, "kept and again", 1e-7);
    }
  }
}

// G1, G2: the norm counts every element once, is the same everywhere, and what it clips is clipped.
TEST_F(DeviceCases, TheGlobalNormClips) {
  const std::string text =
      "dim B, N = 4\nmodel Net(z: [B]) -> f32[] {\n  param w : [N] = ones\n  param b : [N] = ones\n"
      "  return 3 * sum[N](w) + 4 * sum[N](b)\n}\ntrain t {\n  data: synthetic(z: f32[B])\n"
      "  loss: Net(z)\n  optimizer: sgd(lr: 1.0)\n  clip: 5.0\n  B: 4, steps: 1\n}\n";
  const WholeModel m = whole_model(text, {});
  std::vector<std::pair<std::string, PlanOfDevices>> plans = {{"one", nullptr}};
  for (const std::vector<int>& sizes : Sizes{{2}, {4}, {2, 2}, {3}}) {
    for (const char* name : {"dp", "zero1", "zero3"}) {
      if (const auto plan = named_plan(m.spec, name, sizes)) plans.emplace_back(name, plan);
    }
    plans.emplace_back(
        "random",
        plan_from("random", RandomPlacement(m.forward, m.extents, test_mesh(sizes), 3).make()));
  }
  EXPECT_GT(plans.size(), 8U);
  for (const auto& [name, plan] : plans) {
    const DeviceRun run = run_on(m.spec, plan, 1);
    ASSERT_EQ(run.error, "") << name;
    EXPECT_NEAR(run.norms[0], 10, 1e-5) << name;
    for (const float w : run.weights.at("w")) EXPECT_NEAR(w, -0.5, 1e-5) << name;
    for (const float b : run.weights.at("b")) EXPECT_NEAR(b, -1, 1e-5) << name;
  }
}

// G3, H2: no micro-batch is lost and none counts twice, however states lie.
TEST_F(DeviceCases, EveryMicroBatchCounts) {
  const std::string x = npy<float>("x.npy", {8}, {1, 1, 10, 10, 100, 100, 1000, 1000});
  const auto program = [&](int rows) {
    return "dim B, N = 3\nmodel Net(x: [B]) -> f32[] {\n  param w : [N] = ones\n"
           "  return mean(x * mean[N](w))\n}\ntrain t {\n  data: npy(" +
           x + ", x: f32[B])\n  loss: Net(x)\n  optimizer: sgd(lr: 1e-3)\n  B: " +
           std::to_string(rows) + ", accumulate: " + std::to_string(8 / rows) +
           ", steps: 1, order: sequential\n}\n";
  };
  for (const int rows : {8, 4, 2, 1}) {
    const WholeModel m = whole_model(program(rows), {});
    std::vector<PlanOfDevices> plans = {nullptr};
    for (const char* name : {"dp", "zero1", "zero2", "zero3"}) {
      if (auto plan = named_plan(m.spec, name, {2})) plans.push_back(plan);
    }
    EXPECT_GT(plans.size(), rows == 1 ? 0U : 3U);
    for (const PlanOfDevices& plan : plans) {
      const DeviceRun run = run_on(m.spec, plan, 1);
      ASSERT_EQ(run.error, "");
      EXPECT_NEAR(run.losses[0], 277.75, 1e-3) << rows;
      EXPECT_NEAR(run.norms[0], 277.75 / std::sqrt(3.0), 1e-3) << rows;
      for (const float w : run.weights.at("w")) EXPECT_NEAR(w, 1 - 0.27775 / 3, 1e-6) << rows;
    }
  }
}

// G5: first values are those of one device, bit for bit, on every mesh.
TEST_F(DeviceCases, FirstValuesDoNotDependOnTheMesh) {
  const std::string text =
      "dim B, D = 5, E = 7, L = 3\nmodel Net(x: [B, D]) -> [B, E] {\n"
      "  repeat L as h { x = x + Linear[D -> D](x) }\n  return Linear[D -> E](x)\n}\n"
      "train t {\n  data: synthetic(x: f32[B, D])\n  loss: mean(Net(x))\n"
      "  optimizer: sgd(lr: 1e-2)\n  B: 4, steps: 1\n}\n";
  const WholeModel m = whole_model(text, {});
  const DeviceRun one = run_on(m.spec, nullptr, 0);
  for (const std::vector<int>& sizes : Sizes{{2}, {3}, {2, 2}}) {
    for (uint32_t seed = 1; seed < 3; ++seed) {
      const DeviceRun many = run_on(
          m.spec,
          plan_from("random", RandomPlacement(m.forward, m.extents, test_mesh(sizes), seed).make()),
          0);
      ASSERT_EQ(many.error, "");
      EXPECT_EQ(many.weights, one.weights);
    }
  }
}

// H9, H10: what any mesh saved any other reads, weights, moments and place in the data, bit for
// bit; sizes of which some devices get nothing.
TEST_F(DeviceCases, CheckpointsMoveExactly) {
  std::vector<float> x;
  for (int i = 0; i < 40; ++i) x.push_back(std::sin(static_cast<float>(i)));
  const std::string text =
      "dim B, A = 6, C = 5, D = 2, E = 1, Z = 0\nmodel Net(x: [B]) -> f32[] {\n"
      "  param a : [A] = normal(1)\n  param c : [C, A] = normal(1)\n  param d : [D] = normal(1)\n"
      "  param e : [E] = normal(1)\n  param f : [] = ones\n  param g : [Z] = normal(1)\n"
      "  param h : [D, Z] = normal(1)\n"
      "  y = sum[A](a ^ 2) + mean(c ^ 2) + sum[D](d ^ 2) + sum[E](e ^ 2) * f\n"
      "  y = y + sum[Z](g ^ 2) + sum[D, Z](h ^ 2)\n"
      "  return mean(dropout(x, 0.3) * y)\n}\ntrain t {\n  data: npy(" +
      npy("x.npy", {40}, x) +
      ", x: f32[B])\n  loss: Net(x)\n  optimizer: adamw(lr: 1e-2)\n  ema: 0.9\n  B: 4, steps: "
      "6, accumulate: 2\n}\n";
  const WholeModel m = whole_model(text, {});
  const DeviceRun through = run_on(m.spec, nullptr, 6);
  std::vector<PlanOfDevices> plans = {nullptr};
  for (const std::vector<int>& sizes : Sizes{{4}, {2}, {3}, {2, 2}})
    plans.push_back(plan_from(
        "random", RandomPlacement(m.forward, m.extents, test_mesh(sizes), seed_++).make()));
  for (size_t from = 0; from < plans.size(); ++from) {
    const std::string folder = folder_.file("from" + std::to_string(from));
    const DeviceRun first = run_on(m.spec, plans[from], 3, {"", folder});
    ASSERT_EQ(first.error, "");
    for (size_t to = 0; to < plans.size(); ++to) {
      if (from != 0 && from != 1 && to != 0 && to != 1) continue;
      const DeviceRun moved = run_on(m.spec, plans[to], 0, {folder, ""});
      ASSERT_EQ(moved.error, "");
      EXPECT_EQ(moved.weights, first.weights) << from << " to " << to;
      EXPECT_EQ(moved.moments, first.moments) << from << " to " << to;
      const DeviceRun rest = run_on(m.spec, plans[to], 3, {folder, ""});
      std::vector<double> losses = first.losses;
      losses.insert(losses.end(), rest.losses.begin(), rest.losses.end());
      expect_near(losses, through.losses, "resumed", 1e-5);
    }
  }
}

// F8: an evaluation neither keeps nor computes again what a backward pass would need.
TEST_F(DeviceCases, EvaluationsKeepNothing) {
  const std::string text =
      "dim B, D = 8, L = 6\nlayer Block(x: [B, D]) -> [B, D] {\n"
      "  return x + relu(Linear[D -> D](LayerNorm[D](x)))\n}\n"
      "model Net(x: [B, D]) -> [B, D] {\n  repeat L as h { x = Block(x) }\n  return x\n}\n"
      "train t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: mse(Net(x), y)\n"
      "  optimizer: sgd(lr: 1e-1)\n  B: 64, steps: 4\n"
      "  eval { data: synthetic(x: f32[B, D], y: f32[B, D]), batches: 2 }\n}\n";
  const WholeModel m = whole_model(text, {});
  std::vector<int64_t> training, evaluation;
  for (const ir::Saving saving : {ir::Saving::kKeep, ir::Saving::kRecompute}) {
    const PlanOfDevices dp = named_plan(m.spec, "dp", {2});
    ASSERT_NE(dp, nullptr);
    planner::Placement placement = dp->train;
    for (auto& [node, runs] : placement.top.loops) {
      for (planner::RunPlacement& run : runs) {
        for (planner::BodyPlacement& body : run.pattern) {
          for (const ir::NodeId id :
               m.forward.region(m.forward.node(ir::NodeId{node}).loop.body).nodes) {
            for (const ir::ValueId v : m.forward.node(id).results) body.saving[v.index] = saving;
          }
        }
      }
    }
    for (const bool evaluate_only : {false, true}) {
      TrainerOptions options;
      options.plan = plan_from("saved", placement);
      options.threads = 1;
      options.evaluate_only = evaluate_only;
      const auto trainer = Trainer::create(m.spec, options);
      ASSERT_TRUE(trainer.ok());
      (evaluate_only ? evaluation : training).push_back((*trainer)->memory().region);
    }
  }
  EXPECT_LT(training[1], training[0]);
  EXPECT_EQ(evaluation[1], evaluation[0]);
  EXPECT_LT(evaluation[0], training[1]);
}

// G13: old values of what is updated in place, states that are read before and after.
TEST_F(DeviceCases, StatesAreReadBeforeTheyChange) {
  compare(
      "dim B, D = 6\nmodel Net(x: [B, D]) -> f32[] {\n  param w : [D] = ones\n"
      "  state count : [] = ones\n  state mean_of : [D] = zeros\n  old = mean_of\n"
      "  count = count + 1\n  mean_of = 0.5 * mean_of + 0.5 * mean[B](x)\n"
      "  return mean((x * w - old + mean_of) ^ 2) * count\n}\n"
      "train t {\n  data: synthetic(x: f32[B, D])\n  loss: Net(x)\n  optimizer: sgd(lr: 1e-2)\n"
      "  B: 6, steps: 4\n}\n",
      4, 2);
}

}  // namespace
}  // namespace cad::backend
