// tests/frontend/examples_gradients_test.cc -- every example program through the graph passes at
// tiny sizes: the text form reads back, attention is raised where there is attention, the passes
// keep the loss, and the gradients of all parameters agree with central differences (a few elements
// each).
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

#include "ir/interpreter.h"
#include "ir/passes.h"
#include "ir/text.h"
#include "tests/frontend/section_program.h"

namespace cad::frontend {
namespace {

struct Example {
  const char* file;
  std::vector<Setting> sizes;
  size_t attentions;
};

struct Folder : FileReader {
  Result<std::string> read(const std::string& path) override {
    std::ifstream in(path);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
};

ir::TrainSpec lowered(const Example& example) {
  const std::string path = std::string(COLAUTO_SOURCE_DIR) + "/examples/" + example.file;
  Folder folder;
  Sources sources;
  Diagnostics diagnostics;
  auto text = folder.read(path);
  auto file = load_source(sources, path, *text);
  EXPECT_TRUE(file.ok());
  CheckOptions options;
  options.settings = example.sizes;
  const auto module = check(sources, *file, folder, options, diagnostics);
  EXPECT_FALSE(diagnostics.has_errors()) << render_short(diagnostics, sources);
  if (diagnostics.has_errors()) return {};
  auto spec = lower_train(*module);
  EXPECT_TRUE(spec.ok()) << (spec.ok() ? "" : spec.error().message);
  return spec.ok() ? std::move(*spec) : ir::TrainSpec{};
}

std::vector<ir::Tensor> inputs_of(const ir::Graph& g, const ir::Bindings& bindings) {
  std::mt19937 engine(1);
  std::vector<ir::Tensor> tensors;
  for (const ir::Input& input : g.inputs) {
    ir::Tensor t;
    t.dtype = g.type(input.value).dtype;
    t.extents = ir::extents_of(g, g.type(input.value), bindings);
    size_t count = 1;
    for (int64_t e : t.extents) count *= static_cast<size_t>(e);
    const bool positive = input.kind == ir::InputKind::kState;  // a running variance may be one
    for (size_t i = 0; i < count; ++i) {
      const double u = static_cast<double>(engine()) / 4294967296.0;
      t.data.push_back(ir::is_float(t.dtype)         ? (positive ? 0.5 + u : u - 0.5)
                       : t.dtype == ir::DType::kBool ? std::floor(2 * u)
                                                     : std::floor(2 * u));
    }
    tensors.push_back(std::move(t));
  }
  return tensors;
}

double loss_of(const ir::Graph& g, const std::vector<ir::Tensor>& inputs,
               const ir::Bindings& bindings) {
  ir::EvalContext context;
  context.bindings = bindings;
  context.seed = 5;
  const std::vector<ir::Tensor> results = ir::interpret(g, inputs, context);
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    if (g.outputs[i].name == "loss") return results[i].data[0];
  }
  ADD_FAILURE() << "no loss";
  return NAN;
}

void check_gradients(const ir::Graph& forward, const ir::Graph& trained,
                     const ir::Bindings& bindings) {
  const std::vector<ir::Tensor> inputs = inputs_of(forward, bindings);
  ir::EvalContext context;
  context.bindings = bindings;
  context.seed = 5;
  const std::vector<ir::Tensor> results = ir::interpret(trained, inputs, context);
  EXPECT_NEAR(loss_of(forward, inputs, bindings), loss_of(trained, inputs, bindings), 1e-9);
  size_t gradients = 0;
  for (size_t i = 0; i < trained.outputs.size(); ++i) {
    if (trained.outputs[i].name.compare(0, 5, "grad:") != 0) continue;
    ++gradients;
    size_t at = 0;
    while (forward.inputs[at].path != trained.outputs[i].name.substr(5)) ++at;
    const size_t count = inputs[at].data.size();
    for (size_t element : {size_t{0}, count / 2, count - 1}) {
      std::vector<ir::Tensor> moved = inputs;
      const double h = 1e-5;
      moved[at].data[element] += h;
      const double up = loss_of(forward, moved, bindings);
      moved[at].data[element] -= 2 * h;
      const double expected = (up - loss_of(forward, moved, bindings)) / (2 * h);
      EXPECT_NEAR(results[i].data[element], expected, 1e-5 * (1 + std::abs(expected)))
          << forward.inputs[at].path << "[" << element << "]";
    }
  }
  EXPECT_GT(gradients, 0U);
}

TEST(Examples, GradientsAgreeWithCentralDifferences) {
  const std::vector<Example> examples = {
      {"mlp.cad", {{"B", "3"}, {"F", "4"}}, 0},
      {"gpt.cad", {{"B", "2"}, {"T", "3"}, {"V", "4"}, {"D", "4"}, {"H", "2"}, {"L", "2"}}, 1},
      {"llama.cad",
       {{"B", "2"}, {"T", "3"}, {"V", "4"}, {"D", "8"}, {"G", "2"}, {"F", "3"}, {"L", "2"}},
       1},
      {"bert.cad", {{"B", "2"}, {"T", "3"}, {"V", "4"}, {"D", "4"}, {"H", "2"}, {"L", "2"}}, 1},
      {"vit.cad",
       {{"B", "2"},
        {"Y", "4"},
        {"X", "4"},
        {"P", "2"},
        {"D", "4"},
        {"H", "2"},
        {"V", "3"},
        {"L", "2"}},
       1},
      {"gru.cad", {{"B", "2"}, {"T", "4"}, {"V", "4"}, {"D", "3"}, {"M", "3"}}, 0},
      {"convnet.cad", {{"B", "2"}, {"Y", "8"}, {"X", "8"}, {"O", "2"}, {"O2", "3"}, {"V", "3"}}, 0},
      {"lora.cad",
       {{"B", "2"}, {"T", "3"}, {"V", "4"}, {"D", "4"}, {"H", "2"}, {"R", "2"}, {"L", "2"}},
       1},
  };
  for (const Example& example : examples) {
    SCOPED_TRACE(example.file);
    const ir::TrainSpec spec = lowered(example);
    if (spec.forward.outputs.empty()) continue;
    EXPECT_EQ(ir::verify(spec.forward), std::vector<std::string>());
    const ir::Graph trained = ir::training_graph(spec.forward);
    size_t attentions = 0, softmaxes = 0;
    for (const ir::Node& node : trained.nodes) {
      attentions += node.op == ir::Op::kAttention ? 1 : 0;
      softmaxes += node.op == ir::Op::kSoftmax ? 1 : 0;
    }
    EXPECT_EQ(attentions, example.attentions);
    EXPECT_EQ(softmaxes, 0U);
    for (const ir::Graph* g : {&spec.forward, &trained}) {
      const std::string text = ir::print(*g);
      Result<ir::Graph> read = ir::parse_graph(text);
      ASSERT_TRUE(read.ok()) << read.error().message;
      EXPECT_EQ(ir::print(*read), text);
    }
    check_gradients(spec.forward, trained, spec.bindings);
  }
}

}  // namespace
}  // namespace cad::frontend
