// tests/frontend/section_stdlib_test.cc -- the standard library: every definition of it checks, and
// the ones whose numbers are easy to get wrong are computed and compared with worked values.
#include <cmath>

#include "frontend/lower_train.h"
#include "ir/interpreter.h"
#include "tests/frontend/section_program.h"

namespace cad::frontend {
namespace {

using ir::DType;
using ir::Tensor;

// `body` is a model Net(x: [B, C]) -> [B, C]; gives the loss graph's outputs by name, states too.
std::map<std::string, Tensor> run(const ir::Graph& g, const ir::Bindings& bindings,
                                  const std::map<std::string, Tensor>& by_path) {
  std::vector<Tensor> inputs;
  for (const ir::Input& input : g.inputs) {
    const auto found = by_path.find(input.path);
    EXPECT_NE(found, by_path.end()) << input.path;
    inputs.push_back(found == by_path.end() ? Tensor{} : found->second);
  }
  ir::EvalContext context;
  context.bindings = bindings;
  const auto results = ir::interpret(g, inputs, context);
  std::map<std::string, Tensor> named;
  for (size_t i = 0; i < results.size(); ++i) named[g.outputs[i].name] = results[i];
  return named;
}

ir::TrainSpec spec_of(const std::string& model, const std::string& loss = "mean(Net(x))") {
  return Program("dim B, C = 2, D = 3, E = 4\n" + model +
                 "train {\n  data: synthetic(x: f32[B, C])\n  loss: " + loss +
                 "\n  optimizer: sgd(0.1)\n  B: 2\n  steps: 1\n  eval { data: synthetic() }\n}\n")
      .lowered();
}

TEST(Library, EveryDefinitionChecks) {
  Program program(with_train("  B: 2\n  steps: 1"));
  ASSERT_FALSE(program.diagnostics.has_errors()) << program.errors();
  auto& module = const_cast<Module&>(*program.module);
  EXPECT_GE(module.library_definitions.size(), 30U);
  for (const auto& [name, definition] : module.library_definitions) {
    EXPECT_TRUE(ensure_checked(module, *definition, program.diagnostics)) << name;
  }
  EXPECT_EQ(program.errors(), "");
}

TEST(Library, BatchNormKeepsUnbiasedRunningStatistics) {
  const ir::TrainSpec spec =
      spec_of("model Net(x: [B, C]) -> [B, C] { return BatchNorm[C](x, eps: 0) }\n");
  const std::map<std::string, Tensor> inputs = {
      {"x", {DType::kF32, {2, 2}, {1, 10, 3, 30}}},   {"batch_norm.g", {DType::kF32, {2}, {1, 2}}},
      {"batch_norm.b", {DType::kF32, {2}, {0, 5}}},   {"batch_norm.mu", {DType::kF32, {2}, {1, 1}}},
      {"batch_norm.var", {DType::kF32, {2}, {4, 4}}}, {"row_mask", {DType::kBool, {2}, {1, 1}}}};
  auto out = run(spec.forward, spec.bindings, inputs);
  EXPECT_NEAR(out.at("loss").data[0], 2.5, 1e-12);  // normalised to mean 0, then b
  EXPECT_NEAR(out.at("state:batch_norm.mu").data[0], 0.9 * 1 + 0.1 * 2, 1e-12);
  EXPECT_NEAR(out.at("state:batch_norm.mu").data[1], 0.9 * 1 + 0.1 * 20, 1e-12);
  EXPECT_NEAR(out.at("state:batch_norm.var").data[0], 0.9 * 4 + 0.1 * 2, 1e-12);  // 1 * 2 / (2 - 1)
  EXPECT_NEAR(out.at("state:batch_norm.var").data[1], 0.9 * 4 + 0.1 * 200, 1e-12);
  // evaluation: (x - 1) / 2 * g + b
  out = run(spec.evals.at(0).graph, spec.bindings, inputs);
  const double mean = ((0.0 + 2.0) / 2 + (9.0 + 29.0) / 2 * 2 + 10.0) / 4;
  EXPECT_NEAR(out.at("sum:loss").data[0] / out.at("count:loss").data[0], mean, 1e-12);
  EXPECT_EQ(out.count("state:batch_norm.mu"), 0U);
}

TEST(Library, AParameterThatAConstantSwitchesOffIsNotMade) {
  const ir::TrainSpec spec =
      spec_of("model Net(x: [B, C]) -> [B, D] { return Linear[C -> D](x, bias: false) }\n");
  size_t params = 0;
  for (const ir::Input& input : spec.forward.inputs) params += input.kind == ir::InputKind::kParam;
  EXPECT_EQ(params, 1U);
}

TEST(Library, NormsOfOneRow) {
  const ir::TrainSpec spec = spec_of(
      "model Net(x: [B, C]) -> [B, C] { return RMSNorm[C](x, eps: 0) + 0 * LayerNorm[C](x) }\n");
  auto out = run(spec.forward, spec.bindings,
                 {{"x", {DType::kF32, {2, 2}, {3, 4, 0, 2}}},
                  {"rms_norm.g", {DType::kF32, {2}, {1, 1}}},
                  {"layer_norm.g", {DType::kF32, {2}, {1, 1}}},
                  {"layer_norm.b", {DType::kF32, {2}, {0, 0}}}});
  const double rms = std::sqrt(12.5);
  EXPECT_NEAR(out.at("loss").data[0], (3 / rms + 4 / rms + 0 + 2 / std::sqrt(2)) / 4, 1e-12);
}

TEST(Library, Losses) {
  const std::string net =
      "model Net(x: [B, C]) -> [B, C] {\n  param w : [C] = ones\n  return x * w\n}\n"
      "fn zero(x: [B, C]) -> [B, C] { return 0 * x }\n";
  const std::map<std::string, Tensor> inputs = {{"x", {DType::kF32, {2, 2}, {0.5, -3, 1, 0}}},
                                                {"w", {DType::kF32, {2}, {1, 1}}}};
  const auto loss = [&](const std::string& expr) {
    const ir::TrainSpec spec = spec_of(net, expr);
    return run(spec.forward, spec.bindings, inputs).at("loss").data[0];
  };
  EXPECT_NEAR(loss("mae(Net(x), zero(x))"), 4.5 / 4, 1e-12);
  EXPECT_NEAR(loss("mse(Net(x), zero(x))"), 10.25 / 4, 1e-12);
  EXPECT_NEAR(loss("huber(Net(x), zero(x), delta: 1)"), (0.125 + 2.5 + 0.5) / 4, 1e-12);
  const auto log_p = [](double a, double b) { return a - std::log(std::exp(a) + std::exp(b)); };
  double kl = 0;
  for (const auto& [a, b] : {std::pair{0.5, -3.0}, std::pair{1.0, 0.0}}) {
    kl += std::exp(log_p(a, b)) * (log_p(a, b) - std::log(0.5));
    kl += std::exp(log_p(b, a)) * (log_p(b, a) - std::log(0.5));
  }
  EXPECT_NEAR(loss("kl[C](Net(x), zero(x))"), kl / 2, 1e-12);
}

TEST(Library, RelativeBucketsAreThoseOfT5) {
  // rows: query 0 and 150; columns: keys 0, 1, 7, 8, 20, 200 of a line of 201, picked one by one
  const auto bucket = [](int query, int key, bool two_sided) {
    const std::string program =
        "dim B, C = 2, T = 201, S = T\n"
        "model Net(x: [B, C]) -> [B, C] {\n  param w : [C] = ones\n"
        "  b = f32(rel_bucket[T, S](32, two_sided: " +
        std::string(two_sided ? "true" : "false") +
        ", far: 128))\n  return x * w * 0 + b[T = " + std::to_string(query) +
        ", S = " + std::to_string(key) +
        "]\n}\n"
        "train {\n  data: synthetic(x: f32[B, C])\n  loss: mean(Net(x))\n  optimizer: sgd(0.1)\n  "
        "B: 1\n  steps: 1\n}\n";
    const ir::TrainSpec spec = Program(program).lowered();
    return run(spec.forward, spec.bindings,
               {{"x", {DType::kF32, {1, 2}, {1, 1}}}, {"w", {DType::kF32, {2}, {1, 1}}}})
        .at("loss")
        .data[0];
  };
  EXPECT_EQ(bucket(0, 1, true), 17);  // one ahead
  EXPECT_EQ(bucket(7, 0, true), 7);
  EXPECT_EQ(bucket(20, 0, true), 10);  // 8 + int(log(20/8) / log(16) * 8)
  EXPECT_EQ(bucket(0, 200, true), 31);
  EXPECT_EQ(bucket(0, 5, false), 0);  // the future
  EXPECT_EQ(bucket(15, 0, false), 15);
  EXPECT_EQ(bucket(20, 0, false), 17);  // 16 + int(log(20/16) / log(8) * 16)
  EXPECT_EQ(bucket(200, 0, false), 31);
}

}  // namespace
}  // namespace cad::frontend
