// tests/commands/cases_test.cc -- whole runs on small data with answers worked out by hand: labels
// that are missing, sums in bf16, micro-batches of every split, frozen norms, sizes past 32 bits.
#include <cmath>
#include <cstring>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/commands/command_testing.h"
#include "tests/npy_file.h"

namespace cad {
namespace {

using nlohmann::json;

class Cases : public Commands {
 protected:
  template <class T>
  void npy(const std::string& name, const std::vector<int>& shape,
           const std::vector<T>& values) const {
    write(name, npy_file(shape, values));
  }
  // The steps of a run, from its log.
  std::vector<json> steps(const std::string& arguments) const {
    const Output output = run("run " + arguments + " --quiet --json");
    EXPECT_EQ(output.status, 0) << arguments << "\n" << output.err;
    std::vector<json> list;
    std::istringstream lines(output.out);
    for (std::string line; std::getline(lines, line);) {
      const json event = json::parse(line);
      if (event["event"] == "step") list.push_back(event);
    }
    return list;
  }
};

const char* const kClassify = R"(dim B, D = 3, V = 2
model Net(x: [B, D]) -> [B, V] {
  param w : [D, V] = normal(0.5)
  return x @[D] w
}
train {
  data: npy("x.npy", "y.npy", x: f32[B, D], y: i32[B])
  loss: cross_entropy[V](Net(x), y)
  optimizer: sgd(lr: 0.5)
  B: 8, steps: 3, order: sequential
}
)";

// The mean is over the labels that are there, wherever the micro-batches end; of none it is 0.
TEST_F(Cases, MissingLabels) {
  write("net.cad", kClassify);
  std::vector<float> x;
  for (int i = 0; i < 24; ++i) x.push_back(std::sin(static_cast<float>(i)));
  npy("x.npy", {8, 3}, x);
  npy<int>("y.npy", {8}, {0, 1, 1, 0, -1, -1, -1, -1});
  const std::vector<json> whole = steps("net.cad"),
                          parts = steps("net.cad --set B=4 --set accumulate=2");
  ASSERT_EQ(whole.size(), 3U);
  ASSERT_EQ(parts.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(whole[i]["loss"], parts[i]["loss"], 1e-6);
    EXPECT_NEAR(whole[i]["grad_norm"], parts[i]["grad_norm"], 1e-6);
  }
  EXPECT_LT(whole[2]["loss"], whole[0]["loss"]);
  npy<int>("y.npy", {8}, {-1, -1, -1, -1, -1, -1, -1, -1});
  for (const json& step : steps("net.cad")) {
    EXPECT_EQ(step["loss"], 0);
    EXPECT_EQ(step["grad_norm"], 0);
  }
}

// A loss, its gradient norm and what follows do not depend on how a step is cut.
TEST_F(Cases, EverySplitOfABatch) {
  write("net.cad", kClassify);
  std::vector<float> x;
  for (int i = 0; i < 48; ++i) x.push_back(std::cos(static_cast<float>(i)));
  npy("x.npy", {16, 3}, x);
  npy<int>("y.npy", {16}, {0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 0, 1});
  const std::vector<json> whole = steps("net.cad");
  for (const char* split : {"--set B=4 --set accumulate=2", "--set B=2 --set accumulate=4",
                            "--set B=1 --set accumulate=8"}) {
    const std::vector<json> parts = steps(std::string("net.cad ") + split);
    ASSERT_EQ(parts.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_NEAR(whole[i]["loss"], parts[i]["loss"], 1e-6) << split;
      EXPECT_NEAR(whole[i]["grad_norm"], parts[i]["grad_norm"], 1e-6) << split;
    }
  }
}

const char* const kOne = R"(dim B
model Net(x: [B]) -> [B] {
  param w : [] = ones
  return x * w
}
train {
  data: npy("ones.npy", x: f32[B])
  loss: mean(Net(x))
  optimizer: sgd(lr: 0.003)
  B: 1, accumulate: 512, steps: 3
  precision: bf16
}
)";

// In bf16 a sum of ones stops at 256, and 1 - 0.003 is 1: sums and weights are f32.
TEST_F(Cases, HalfPrecisionSumsAndMoves) {
  write("one.cad", kOne);
  npy("ones.npy", {10000}, std::vector<float>(10000, 1.0F));
  const std::vector<json> many = steps("one.cad");
  ASSERT_EQ(many.size(), 3U);
  EXPECT_EQ(many[0]["loss"], 1);
  EXPECT_EQ(many[0]["grad_norm"], 1);
  const std::vector<json> batch = steps("one.cad --set B=10000 --set accumulate=1 --set steps=1");
  EXPECT_EQ(batch[0]["loss"], 1);
  EXPECT_NEAR(batch[0]["grad_norm"], 1, 0.004);  // 1 / 10000 in bf16, 10000 times
  const std::vector<json> moved = steps("one.cad --set accumulate=1 --set steps=101");
  EXPECT_NEAR(moved[100]["loss"], 1 - 100 * 0.003, 0.005);
}

// The norm is that of the unscaled gradient in every precision, and no step holds an earlier one's.
TEST_F(Cases, NormsInEveryPrecision) {
  std::string program = kClassify;
  write("net.cad", program);
  std::vector<float> x;
  for (int i = 0; i < 24; ++i) x.push_back(std::sin(static_cast<float>(3 * i)));
  npy("x.npy", {8, 3}, x);
  npy<int>("y.npy", {8}, {0, 1, 1, 0, 1, 1, 0, 0});
  const std::vector<json> exact = steps("net.cad");
  for (const char* precision : {"bf16", "f16"}) {
    const std::vector<json> half = steps(std::string("net.cad --set precision=") + precision);
    ASSERT_EQ(half.size(), exact.size());
    for (size_t i = 0; i < exact.size(); ++i) {
      const double norm = exact[i]["grad_norm"];
      EXPECT_NEAR(half[i]["grad_norm"], norm, 0.06 * norm) << precision << " step " << i + 1;
    }
  }
}

// Frozen weight, frozen bias, both, and all but one parameter of the model.
TEST_F(Cases, FrozenNorms) {
  for (const char* weight : {"", " @frozen"}) {
    for (const char* bias : {"", " @frozen"}) {
      write("net.cad", std::string("dim B, D = 3\nmodel Net(x: [B, D]) -> [B] {\n"
                                   "  param g : [D] = ones") +
                           weight + "\n  param b : [D] = zeros" + bias +
                           "\n  param w : [D] = normal(1)\n"
                           "  h = x - mean[D](x)\n  h = h * rsqrt(mean[D](h ^ 2) + 1e-5)\n"
                           "  return (h * g + b) @[D] w\n}\n"
                           "train {\n  data: synthetic(x: f32[B, D])\n  loss: mean(Net(x) ^ 2)\n"
                           "  optimizer: adamw(lr: 0.01)\n  B: 4, steps: 3\n}\n");
      const std::vector<json> list = steps("net.cad");
      ASSERT_EQ(list.size(), 3U) << weight << bias;
      const json plan = json::parse(run("run net.cad --dry-run --json").out);
      // Two f32 moments for each trained element (in 64-byte lines): none for the frozen ones.
      const int trained = 1 + (*weight == '\0') + (*bias == '\0');
      EXPECT_EQ(plan["optimizer_bytes"], trained * 2 * 64) << weight << bias;
      EXPECT_EQ(plan["gradient_bytes"], trained * 64) << weight << bias;
    }
  }
}

TEST_F(Cases, SizesPast32Bits) {
  write("wide.cad",
        "dim B, D = 70000, E = 70000\nmodel Net(x: [B, D]) -> [B, E] {\n"
        "  param w : [D, E] = normal(0.01)\n  return x @[D] w\n}\n");
  const json params = json::parse(run("params wide.cad --json").out);
  EXPECT_EQ(params["params"], 4'900'000'000);
  EXPECT_EQ(params["tensors"][0]["shape"], json::array({70000, 70000}));
  // A tensor whose size does not fit 64 bits is an error, not a wrap.
  const Output over = run("params wide.cad --set D=9000000000 --set E=9000000000");
  EXPECT_NE(over.status, 0);
  EXPECT_NE(over.status, 70) << over.err;
  EXPECT_TRUE(contains(over.err, "error[E")) << over.err;
}

// Dropout and shuffling continue as if the run had never stopped.
TEST_F(Cases, ResumedRandomness) {
  std::string program = kClassify;
  program.replace(program.find("x @[D] w"), 8, "dropout(x, 0.5) @[D] w");
  program.replace(program.find("order: sequential"), 17, "order: shuffled");
  write("net.cad", program);
  std::vector<float> x;
  for (int i = 0; i < 60; ++i) x.push_back(std::cos(static_cast<float>(i)));
  npy("x.npy", {20, 3}, x);
  npy<int>("y.npy", {20}, {0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 0, 1, 0, 1, 1, 0});
  const std::vector<json> whole = steps("net.cad --set steps=9");
  steps("net.cad --set steps=9 --steps 5 --save half");
  const std::vector<json> rest = steps("net.cad --set steps=9 --resume half");
  ASSERT_EQ(rest.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rest[i]["step"], whole[i + 5]["step"]);
    EXPECT_EQ(rest[i]["loss"], whole[i + 5]["loss"]);
    EXPECT_EQ(rest[i]["grad_norm"], whole[i + 5]["grad_norm"]);
  }
}

// f32 is f32: factors of 17 bits, which 10-bit mantissas would round (errors near 1e-3).
TEST_F(Cases, ProductsInFullPrecision) {
  constexpr int kRows = 8, kInner = 4096, kColumns = 16;
  write("net.cad", R"(dim B, K = 4096, E = 16
model Net(x: [B, K]) -> [B, E] {
  n: i32[K, E] = (iota[K] * 3701 + iota[E] * 101) % 100_003
  return x @[K] (f32(n) / 131_072)
}
)");
  std::vector<float> x;
  for (int i = 0; i < kRows * kInner; ++i)
    x.push_back(static_cast<float>(i * 53 % 100'003) / 131'072);
  npy("x.npy", {8, 4096}, x);
  const Output output = run("predict net.cad --in x=x.npy --out y.npy --quiet");
  ASSERT_EQ(output.status, 0) << output.err;
  const std::string file = read("y.npy");
  ASSERT_EQ(file.size(), 128 + kRows * kColumns * sizeof(float));
  std::vector<float> y(kRows * kColumns);
  std::memcpy(y.data(), file.data() + 128, y.size() * sizeof(float));
  for (int b = 0; b < kRows; ++b) {
    for (int e = 0; e < kColumns; ++e) {
      double expected = 0;
      for (int k = 0; k < kInner; ++k)
        expected += double{x[b * kInner + k]} * ((k * 3701 + e * 101) % 100'003 / 131'072.0);
      EXPECT_NEAR(y[b * kColumns + e], expected, 2e-6 * expected) << b << ' ' << e;
    }
  }
  write("eye.cad", R"(dim B, D = 4, E = D
model Net(x: [B, D]) -> [B, E] {
  same: bool[D, E] = iota[D] == iota[E]
  return x @[D] f32(same)
}
)");
  npy("x.npy", {3, 4}, std::vector<float>(12, 1024.5F));
  ASSERT_EQ(run("predict eye.cad --in x=x.npy --out y.npy --quiet").status, 0);
  EXPECT_EQ(read("y.npy").substr(128), read("x.npy").substr(128));
}

// Whoever reads the output may leave.
TEST_F(Cases, ABrokenPipe) {
  write("net.cad", kSmallProgram);
  write("go.sh", "set -o pipefail\n'" COLAUTO_BINARY "' explain | true\necho $? > status\n");
  EXPECT_EQ(std::system(("cd '" + folder_.string() + "' && bash go.sh 2>/dev/null").c_str()), 0);
  const int status = std::stoi(read("status"));
  EXPECT_TRUE(status == 0 || status == 1 || status == 128 + 13) << status;
}

}  // namespace
}  // namespace cad
