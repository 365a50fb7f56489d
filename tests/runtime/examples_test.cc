// The train step of every example program at tiny sizes, compiled, against the interpreter: loss,
// gradients and states, in f32 and with bf16 inside.
#include <algorithm>

#include "ir/passes.h"
#include "tests/runtime/example_spec.h"
#include "tests/runtime/program_harness.h"

namespace cad::backend {
namespace {

struct Example {
  const char* file;
  std::vector<frontend::Setting> sizes;
};

class Examples : public ::testing::TestWithParam<Example> {};

void check_example(const Example& example, const std::string& precision, double tolerance) {
  std::vector<frontend::Setting> settings = example.sizes;
  settings.push_back({"precision", precision});
  const ir::TrainSpec spec =
      testing::example_spec(example.file, settings, frontend::TrainUsage::kRun);
  ASSERT_FALSE(spec.forward.outputs.empty());
  ir::Graph g = ir::training_graph(spec.forward);
  ir::EvalContext context;
  context.bindings = spec.bindings;
  context.seed = 11;
  context.step = 2;
  context.round = true;
  std::vector<ir::Tensor> inputs = testing::random_inputs(g, spec.bindings, 1, 1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool state = g.inputs[i].kind == ir::InputKind::kState;
    if (!ir::is_float(inputs[i].dtype)) continue;
    for (double& x : inputs[i].data) x = static_cast<float>(state ? 0.5 + std::abs(x) : 0.3 * x);
  }
  const std::vector<ir::Tensor> expected = ir::interpret(g, inputs, context);
  const Program program = compile(g, spec.bindings);
  const int threads = std::min(2, ThreadPool::available_cores());
  const testing::Outcome one = testing::run_program(program, inputs, context, threads);
  const testing::Outcome two = testing::run_program(program, inputs, context, threads);
  EXPECT_EQ(one.bytes, two.bytes);
  EXPECT_EQ(one.touched, program.transient_bytes());
  for (size_t r = 0; r < expected.size(); ++r) {
    EXPECT_LE(testing::difference(one.results[r], expected[r]), tolerance)
        << example.file << " " << g.outputs[r].name;
  }
}

TEST_P(Examples, TrainStepIsTheInterpreters) {
  check_example(GetParam(), "f32", 1e-4);
}
TEST_P(Examples, TrainStepInBf16) {
  check_example(GetParam(), "bf16", 8e-2);
}

INSTANTIATE_TEST_SUITE_P(
    All, Examples,
    ::testing::Values(
        Example{"mlp.cad", {{"B", "3"}, {"F", "5"}}},
        Example{"gpt.cad",
                {{"B", "2"}, {"T", "5"}, {"V", "11"}, {"D", "8"}, {"L", "2"}, {"H", "2"}}},
        Example{"llama.cad",
                {{"B", "2"},
                 {"T", "4"},
                 {"V", "9"},
                 {"D", "16"},
                 {"G", "2"},
                 {"R", "2"},
                 {"L", "2"},
                 {"F", "6"}}},
        Example{"bert.cad",
                {{"B", "2"}, {"T", "5"}, {"V", "12"}, {"D", "8"}, {"H", "2"}, {"L", "2"}}},
        Example{"vit.cad",
                {{"B", "2"},
                 {"Y", "4"},
                 {"X", "4"},
                 {"P", "2"},
                 {"D", "8"},
                 {"H", "2"},
                 {"L", "2"},
                 {"V", "3"}}},
        Example{"convnet.cad",
                {{"B", "2"}, {"Y", "8"}, {"X", "8"}, {"O", "3"}, {"O2", "4"}, {"V", "3"}}},
        Example{"gru.cad", {{"B", "2"}, {"T", "4"}, {"V", "7"}, {"D", "3"}, {"M", "5"}}},
        Example{
            "lora.cad",
            {{"B", "2"}, {"T", "4"}, {"V", "9"}, {"D", "8"}, {"H", "2"}, {"L", "2"}, {"R", "2"}}}),
    [](const ::testing::TestParamInfo<Example>& info) {
      const std::string file = info.param.file;
      return file.substr(0, file.find('.'));
    });

}  // namespace
}  // namespace cad::backend
