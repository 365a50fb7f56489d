// tests/kernels/models_test.cc -- the training graphs of the example programs, made small: fused
// kernels against the interpreter (library steps are the interpreter's own). Kernel counts are
// bounded, so that a fusion that stops working on real graphs is seen.
#include <fstream>
#include <sstream>

#include "frontend/module.h"
#include "frontend/parse.h"
#include "ir/passes.h"
#include "tests/kernels/kernel_runner.h"

namespace cad::backend {
namespace {

struct DiskReader : frontend::FileReader {
  Result<std::string> read(const std::string& path) override {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
};

struct Model {
  const char* file;
  std::vector<frontend::Setting> settings;
  size_t most_kernels;  // distinct ones
};

ir::Tensor random_input(const ir::Graph& g, const ir::Input& input, const ir::Bindings& bindings,
                        std::mt19937& random) {
  const ir::Type& type = g.type(input.value);
  ir::Tensor t{type.dtype, ir::extents_of(g, type, bindings), {}};
  size_t n = 1;
  for (int64_t e : t.extents) n *= static_cast<size_t>(e);
  const auto ids = static_cast<int>(bindings.count("V") != 0 ? bindings.at("V") : 2);
  for (size_t i = 0; i < n; ++i) {
    double x = 0;
    if (type.dtype == ir::DType::kI32)
      x = std::uniform_int_distribution<int>(-1, ids - 1)(random);
    else if (type.dtype == ir::DType::kBool)
      x = static_cast<double>(random() & 1);
    else
      x = std::normal_distribution<double>(0, 0.4)(random);
    if (input.kind == ir::InputKind::kState) x = 1 + std::abs(x);
    t.data.push_back(ir::round_to(x, type.dtype));
  }
  return t;
}

void compare(const ir::Graph& g, const std::vector<ir::Tensor>& got,
             const std::vector<ir::Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t r = 0; r < got.size(); ++r) {
    double scale = 0, worst = 0;
    for (double e : want[r].data) scale = std::max(scale, std::abs(e));
    for (size_t i = 0; i < want[r].data.size(); ++i) {
      const double d = std::abs(got[r].data[i] - want[r].data[i]);
      worst = d <= worst ? worst : d;  // NaN stays
    }
    EXPECT_LE(worst, 2e-4 * scale + 1e-7) << g.outputs[r].name << ", which is up to " << scale;
  }
}

TEST(Models, TrainingGraphsAgreeWithTheInterpreter) {
  const Model models[] = {
      {"gpt", {{"B", "2"}, {"T", "5"}, {"D", "12"}, {"H", "3"}, {"V", "17"}, {"L", "2"}}, 20},
      {"llama",
       {{"B", "2"},
        {"T", "4"},
        {"D", "16"},
        {"G", "2"},
        {"R", "2"},
        {"F", "10"},
        {"V", "11"},
        {"L", "2"}},
       30},
      {"bert", {{"B", "2"}, {"T", "5"}, {"D", "8"}, {"H", "2"}, {"V", "13"}, {"L", "1"}}, 30},
      {"mlp", {{"B", "9"}, {"F", "7"}}, 12},
      {"convnet", {{"B", "2"}, {"Y", "8"}, {"X", "8"}, {"O", "3"}, {"O2", "2"}}, 40},
      {"vit", {{"B", "2"}, {"D", "8"}, {"H", "2"}, {"L", "1"}}, 40},
      {"gru", {{"B", "3"}, {"T", "4"}, {"D", "6"}, {"M", "5"}, {"V", "9"}}, 30},
  };
  for (const Model& model : models) {
    SCOPED_TRACE(model.file);
    Sources sources;
    Diagnostics diagnostics;
    DiskReader reader;
    const std::string path = std::string(COLAUTO_SOURCE_DIR) + "/examples/" + model.file + ".cad";
    FileId file = sources.add(path, *reader.read(path));
    frontend::CheckOptions options;
    options.settings = model.settings;
    auto module = frontend::check(sources, file, reader, options, diagnostics);
    auto spec = frontend::lower_train(*module);
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    ir::Graph g = ir::training_graph(spec->forward);
    std::mt19937 random{11};
    std::vector<ir::Tensor> inputs;
    for (const ir::Input& input : g.inputs)
      inputs.push_back(random_input(g, input, spec->bindings, random));
    ir::EvalContext context;
    context.bindings = spec->bindings;
    context.seed = 99;
    context.step = 3;
    ir::EvalContext reference = context;
    const std::vector<ir::Tensor> want = ir::interpret(g, inputs, reference);
    KernelRunner runner(g, spec->bindings);
    compare(g, runner.run(inputs, context, 2), want);
    EXPECT_LE(runner.cut().kernels.size(), model.most_kernels);
    RecordProperty(model.file, static_cast<int>(runner.cut().kernels.size()));
  }
}

}  // namespace
}  // namespace cad::backend
