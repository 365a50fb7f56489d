// tests/frontend/section_train_test.cc -- train sections: errors of their keys and values, and the
// TrainSpec that a sound one becomes.
#include "base/path_pattern.h"
#include "tests/frontend/section_program.h"

#include <algorithm>
#include <cmath>

#include "frontend/lower_train.h"
#include "ir/interpreter.h"

namespace cad::frontend {
namespace {

std::string only_error(const std::string& text) {
  const Program program(text);
  EXPECT_EQ(program.diagnostics.errors(), 1U) << program.errors();
  if (!program.diagnostics.has_errors()) return "";
  const Diagnostic& d = program.diagnostics.all()[0];
  return std::string(diag_name(d.id)) + " " + d.message +
         (d.helps.empty() ? "" : " | " + d.helps[0].text);
}

std::vector<std::string> output_names(const ir::Graph& g) {
  std::vector<std::string> names;
  for (const ir::Output& output : g.outputs) names.push_back(output.name);
  return names;
}

// Runs a small graph; inputs by path.
std::map<std::string, ir::Tensor> run(const ir::Graph& g,
                                      const std::map<std::string, ir::Tensor>& by_path,
                                      const ir::Bindings& bindings) {
  std::vector<ir::Tensor> inputs;
  for (const ir::Input& input : g.inputs) inputs.push_back(by_path.at(input.path));
  ir::EvalContext context;
  context.bindings = bindings;
  const auto results = ir::interpret(g, inputs, context);
  std::map<std::string, ir::Tensor> named;
  for (size_t i = 0; i < results.size(); ++i) named[g.outputs[i].name] = results[i];
  return named;
}

ir::Tensor number(double x, ir::DType dtype = ir::DType::kF32) {
  return {dtype, {}, {x}};
}
ir::Tensor vector(std::vector<double> x) {
  const auto n = static_cast<int64_t>(x.size());
  return {ir::DType::kF32, {n}, std::move(x)};
}

TEST(TrainSection, UnknownKeysAndWrongValues) {
  EXPECT_EQ(only_error(with_train("  B: 2\n  steps: 1\n  cilp: 1.0")),
            "E0301 `train` has no key `cilp` | did you mean `clip`?");
  EXPECT_EQ(only_error(with_train("  B: 2\n  steps: 1\n  keep: 3")),
            "E0301 `train` has no key `keep` | `keep` is a key of `save`");
  EXPECT_EQ(only_error(with_train("  B: 2\n  steps: 1\n  clip: 0")),
            "E0304 `clip` wants a number above 0");
  EXPECT_EQ(only_error(with_train("  B: 2\n  steps: 1\n  clip: inf")),
            "E0304 `clip` wants a number above 0, not inf");
  EXPECT_EQ(only_error(with_train("  B: 2\n  steps: 1.5")),
            "E0304 `steps` wants a whole number, at least 1");
  EXPECT_EQ(only_error(with_train("  B: 2\n  steps: 1\n  ema: 1")),
            "E0304 `ema` wants a number above 0 and below 1");
  EXPECT_EQ(only_error(with_train("  B: 2\n  steps: 1\n  precision: fp16")),
            "E0303 `precision` cannot be `fp16`: it wants one of `f32`, `bf16`, `f16` | did you "
            "mean `f16`?");
  EXPECT_EQ(only_error(with_train("  B: 2")),
            "E0306 `train` lacks `steps` or `epochs` | add a line such as `steps: 500`");
}

TEST(TrainSection, LossMustBeOneNumber) {
  const std::string text = with_model(
      "train { data: synthetic(x: i32[B, T], y: i32[B, T]), loss: nll[V](Net(x), y), optimizer: "
      "sgd(0.1), B: 2, steps: 1 }\n");
  EXPECT_EQ(only_error(text),
            "E0322 a loss is one number, not [B, T] | take a mean over all dims: `mean(..)`");
}

TEST(TrainSection, SpecHoldsTheNumbers) {
  const ir::TrainSpec spec =
      Program(
          with_train(
              "  B: 4\n  accumulate: 2\n  clip: 1.0\n  steps: 300\n  seed: 1337\n  dropout: off\n"
              "  init: (\"a.safetensors\", load(\"b.safetensors\", under: \"h\"))\n"
              "  save { to: \"runs/a\", every: 100, keep: 2, frozen: off }"))
          .lowered();
  EXPECT_EQ(spec.accumulate, 2);
  EXPECT_EQ(spec.clip, 1.0);
  EXPECT_EQ(spec.steps, 300);
  EXPECT_EQ(spec.seed, 1337U);
  EXPECT_FALSE(spec.dropout);
  ASSERT_EQ(spec.init.size(), 2U);
  EXPECT_EQ(spec.init[1].file, "b.safetensors");
  EXPECT_EQ(spec.init[1].under, "h");
  EXPECT_EQ(spec.save.to, "runs/a");
  EXPECT_EQ(spec.save.every, 100);
  EXPECT_EQ(spec.save.keep, 2);
  EXPECT_FALSE(spec.save.frozen);
}

TEST(TrainSection, ForwardGraphAndIds) {
  const ir::TrainSpec spec = Program(with_train("  B: 4\n  steps: 3")).lowered();
  EXPECT_EQ(output_names(spec.forward), std::vector<std::string>{"loss"});
  std::vector<std::string> paths;
  for (const ir::Input& input : spec.forward.inputs) {
    if (input.kind == ir::InputKind::kParam) paths.push_back(input.path);
  }
  std::sort(paths.begin(), paths.end());
  EXPECT_EQ(paths, (std::vector<std::string>{"h.{}.layer_norm.b", "h.{}.layer_norm.g",
                                             "h.{}.linear.W", "h.{}.linear.b", "wte"}));
  ASSERT_EQ(spec.data.size(), 1U);
  for (const ir::DataName& name : spec.data[0].names) {
    ASSERT_EQ(name.id_limits.size(), 1U) << name.name;
    EXPECT_EQ(name.id_limits[0].evaluate(spec.bindings).value, 256);
  }
}

TEST(TrainSection, EntriesAndParametersMustMatch) {
  EXPECT_EQ(only_error(with_train("  B: 2\n  steps: 1",
                                  "(adamw(lr: 1e-3, of: \"h.*\"), adamw(lr: 1e-3, of: \"wtf\"))"))
                .substr(0, 5),
            "E0316");
  EXPECT_EQ(only_error(with_train("  B: 2\n  steps: 1",
                                  "(adamw(lr: 1e-3, of: \"h.1.*\"), frozen(of: \"h.*\"))")),
            "E0317 no optimizer entry takes `wte` | end the list with an entry without `of`, or "
            "with `frozen()`");
  EXPECT_EQ(only_error(with_train("  B: 2\n  steps: 1", "frozen()")),
            "E0318 no parameter to train");
  EXPECT_EQ(only_error(with_train("  B: 2\n  steps: 1", "adamw(lr: 1e-3, beta: 1)")),
            "E0315 `adamw` takes no `beta` | did you mean `betas`?");
  EXPECT_EQ(only_error(with_train("  B: 2\n  steps: 1", "adamw(lr: cosinus(1e-3))")),
            "E0313 there is no schedule `cosinus` | did you mean `cosine`?");
}

TEST(TrainSection, Patterns) {
  EXPECT_TRUE(path_matches("*.lora*", "h.3.attention.lora_1.a"));
  EXPECT_TRUE(path_matches("h.*", "h.3.W"));
  EXPECT_FALSE(path_matches("h.*", "wte"));
  EXPECT_TRUE(path_matches("*", ""));
  EXPECT_FALSE(path_matches("wte", "wte2"));
}

// ------------------------------------------------------------------ optimizers and schedules

TEST(Optimizer, AdamWFollowsItsFormula) {
  const ir::TrainSpec spec =
      Program(with_train("  B: 2\n  steps: 1", "adamw(lr: 1e-2, betas: (0.9, 0.95), decay: 0.1)"))
          .lowered();
  const ir::OptimizerEntry& entry = spec.optimizers.at(0);
  EXPECT_EQ(output_names(entry.decayed), (std::vector<std::string>{"p", "state:m", "state:v"}));
  std::vector<double> p = {1.0, -2.0}, m = {0, 0}, v = {0, 0};
  const std::vector<double> g = {0.5, 1e-3};
  std::vector<double> have_p = p, have_m = m, have_v = v;
  for (int step = 1; step <= 3; ++step) {
    for (size_t i = 0; i < p.size(); ++i) {
      p[i] *= 1 - 1e-2 * 0.1;
      m[i] = 0.9 * m[i] + 0.1 * g[i];
      v[i] = 0.95 * v[i] + 0.05 * g[i] * g[i];
      const double d = std::sqrt(v[i]) / std::sqrt(1 - std::pow(0.95, step)) + 1e-8;
      p[i] -= 1e-2 / (1 - std::pow(0.9, step)) * m[i] / d;
    }
    auto out = run(entry.decayed,
                   {{"p", vector(have_p)},
                    {"g", vector(g)},
                    {"lr", number(1e-2)},
                    {"step", number(step, ir::DType::kI32)},
                    {"m", vector(have_m)},
                    {"v", vector(have_v)}},
                   {{"n", 2}});
    have_p = out.at("p").data;
    have_m = out.at("state:m").data;
    have_v = out.at("state:v").data;
    for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(have_p[i], p[i], 1e-12);
  }
}

TEST(Optimizer, SgdKeepsAStateOnlyWithMomentum) {
  const ir::TrainSpec plain = Program(with_train("  B: 2\n  steps: 1", "sgd(0.1)")).lowered();
  EXPECT_EQ(output_names(plain.optimizers.at(0).decayed), std::vector<std::string>{"p"});
  EXPECT_TRUE(plain.optimizers.at(0).elementwise);
  const ir::TrainSpec nesterov =
      Program(with_train("  B: 2\n  steps: 1",
                         "sgd(lr: 0.1, momentum: 0.9, nesterov: true, decay: 0.5)"))
          .lowered();
  const ir::OptimizerEntry& entry = nesterov.optimizers.at(0);
  ASSERT_EQ(output_names(entry.decayed), (std::vector<std::string>{"p", "state:m"}));
  auto out = run(entry.decayed,
                 {{"p", vector({2})},
                  {"g", vector({1})},
                  {"lr", number(0.1)},
                  {"step", number(2, ir::DType::kI32)},
                  {"m", vector({3})}},
                 {{"n", 1}});
  const double g = 1 + 0.5 * 2, m = 0.9 * 3 + g;
  EXPECT_NEAR(out.at("state:m").data[0], m, 1e-12);
  EXPECT_NEAR(out.at("p").data[0], 2 - 0.1 * (g + 0.9 * m), 1e-12);
  out = run(entry.plain,
            {{"p", vector({2})},
             {"g", vector({1})},
             {"lr", number(0.1)},
             {"step", number(2, ir::DType::kI32)},
             {"m", vector({3})}},
            {{"n", 1}});
  EXPECT_NEAR(out.at("state:m").data[0], 0.9 * 3 + 1, 1e-12);
}

TEST(Optimizer, OneOfYourOwn) {
  const std::string text =
      "layer half(p: [..], g: [..], lr: f32[], step: i32[], by: f32 = 2.0) -> [..] { return p - lr "
      "* g / by }\n" +
      with_train("  B: 2\n  steps: 1", "half(lr: 1.0, by: 4.0)");
  const ir::TrainSpec spec = Program(text).lowered();
  auto out = run(spec.optimizers.at(0).decayed,
                 {{"p", vector({1})},
                  {"g", vector({2})},
                  {"lr", number(1)},
                  {"step", number(1, ir::DType::kI32)}},
                 {{"n", 1}});
  EXPECT_NEAR(out.at("p").data[0], 0.5, 1e-12);
}

double rate(const std::string& lr, double t, double steps) {
  const ir::TrainSpec spec =
      Program(with_train("  B: 2\n  steps: 100", "sgd(lr: " + lr + ")")).lowered();
  return run(spec.optimizers.at(0).schedule, {{"t", number(t)}, {"steps", number(steps)}}, {})
      .at("lr")
      .data[0];
}

TEST(Schedule, Formulas) {
  const double pi = std::acos(-1.0);
  EXPECT_NEAR(rate("0.25", 7, 100), 0.25, 1e-12);
  EXPECT_NEAR(rate("constant(0.5)", 7, 100), 0.5, 1e-12);
  EXPECT_NEAR(rate("cosine(1.0, warmup: 10, to: 0.1)", 4, 100), 0.4, 1e-12);
  EXPECT_NEAR(rate("cosine(1.0, warmup: 10, to: 0.1)", 10, 100), 1.0, 1e-12);
  EXPECT_NEAR(rate("cosine(1.0, warmup: 10, to: 0.1)", 40, 100),
              0.1 + 0.9 * (1 + std::cos(pi * 30 / 90)) / 2, 1e-12);
  EXPECT_NEAR(rate("cosine(1.0, warmup: 10, to: 0.1)", 100, 100), 0.1, 1e-12);
  EXPECT_NEAR(rate("cosine(1.0)", 1, 100), (1 + std::cos(pi / 100)) / 2, 1e-12);
  EXPECT_NEAR(rate("linear(1.0, warmup: 10)", 55, 100), 0.5, 1e-12);
  EXPECT_NEAR(rate("inverse_sqrt(1.0, warmup: 4)", 2, 100), 0.5, 1e-12);
  EXPECT_NEAR(rate("inverse_sqrt(1.0, warmup: 4)", 16, 100), 0.5, 1e-12);
  EXPECT_NEAR(rate("step(1.0, every: 30, by: 0.1)", 30, 100), 1.0, 1e-12);
  EXPECT_NEAR(rate("step(1.0, every: 30, by: 0.1)", 31, 100), 0.1, 1e-12);
}

// ------------------------------------------------------------------ evaluation

TEST(Evaluation, ExactMeansBecomePairs) {
  const std::string text =
      "dim B, D = 2\n"
      "model Net(x: [B, D]) -> [B] {\n  param w : [D] = ones\n  return x @[D] w\n}\n"
      "train {\n  data: synthetic(x: f32[B, D], y: f32[B])\n  loss: mse(Net(x), y)\n  optimizer: "
      "sgd(0.1)\n  B: 3\n  steps: 1\n"
      "  eval { data: synthetic(), metrics: (twice: 2 * mean(Net(x)) + 1, top: max(Net(x)), both: "
      "mean(y) + max(y), w: mean(x, weight: abs(x))) }\n}\n";
  const ir::TrainSpec spec = Program(text).lowered();
  const ir::Graph& g = spec.evals.at(0).graph;
  EXPECT_EQ(spec.evals[0].metrics, (std::vector<std::string>{"loss", "twice", "top", "both", "w"}));
  std::vector<ir::Tensor> inputs;
  for (const ir::Input& input : g.inputs) {
    if (input.path == "x") inputs.push_back({ir::DType::kF32, {3, 2}, {1, 2, 3, 4, 100, 100}});
    if (input.path == "y") inputs.push_back(vector({3, 5, 9}));
    if (input.path == "w") inputs.push_back(vector({1, 1}));
    if (input.path == "row_mask") inputs.push_back({ir::DType::kBool, {3}, {1, 1, 0}});
  }
  ASSERT_EQ(inputs.size(), g.inputs.size());
  ir::EvalContext context;
  context.bindings = spec.bindings;
  const auto results = ir::interpret(g, inputs, context);
  std::map<std::string, double> value;
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string& name = g.outputs[i].name;
    if (name.rfind("value:", 0) == 0) value[name.substr(6)] += results[i].data[0];
    if (name.rfind("sum:", 0) != 0) continue;
    ASSERT_EQ(g.outputs[i + 1].name, "count:" + name.substr(4));
    const std::string metric = name.substr(4, name.find('#') - 4);
    value[metric] += results[i].data[0] / results[i + 1].data[0];
  }
  EXPECT_NEAR(value.at("loss"), (0.0 + 4.0) / 2,
              1e-12);  // rows 3 - 3 and 7 - 5; the third is masked
  EXPECT_NEAR(value.at("twice"), 2 * 5.0 + 1, 1e-12);
  EXPECT_NEAR(value.at("top"), 200, 1e-12);  // no mean: sees the whole batch
  EXPECT_NEAR(value.at("both"), 4.0 + 9.0, 1e-12);
  EXPECT_NEAR(value.at("w"), 30.0 / 10.0, 1e-12);
}

}  // namespace
}  // namespace cad::frontend
