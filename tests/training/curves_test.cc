// Training curves against PyTorch's (tests/numerics: programs, data and reference numbers; made by
// reference.py). Losses and gradient norms within 1e-5 at each of 20 steps in f32, parameters
// within 1e-4 of their norm at the end; bf16 and f16 within 2e-2.
#include <cmath>
#include <fstream>
#include <map>

#include <nlohmann/json.hpp>

#include "backend/cpu/thread_pool.h"
#include "backend/safetensors.h"
#include "backend/trainer.h"
#include "frontend/module.h"
#include "frontend/parse.h"
#include "tests/training/training_testing.h"

namespace cad::backend {
namespace {

const std::string kFolder = std::string(COLAUTO_SOURCE_DIR) + "/tests/numerics/";

struct DiskReader : frontend::FileReader {
  Result<std::string> read(const std::string& path) override {
    std::ifstream in(path, std::ios::binary);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
  }
};

ir::TrainSpec load(const std::string& program, const std::string& train,
                   std::vector<frontend::Setting> settings = {}) {
  Sources sources;
  DiskReader reader;
  const std::string path = kFolder + program + ".cad";
  auto file = frontend::load_source(sources, path, *reader.read(path));
  EXPECT_TRUE(file.ok());
  frontend::CheckOptions options;
  options.train = train;
  options.settings = std::move(settings);
  Diagnostics diagnostics;
  auto module = frontend::check(sources, *file, reader, options, diagnostics);
  EXPECT_FALSE(diagnostics.has_errors()) << diagnostics.all()[0].message;
  auto spec = frontend::lower_train(*module);
  EXPECT_TRUE(spec.ok()) << spec.error().message;
  return std::move(*spec);
}

std::unique_ptr<Trainer> started(ir::TrainSpec spec) {
  TrainerOptions options;
  options.threads = 2;
  auto trainer = Trainer::create(std::move(spec), options);
  EXPECT_TRUE(trainer.ok()) << trainer.error().message;
  std::vector<Diagnostic> warnings;
  EXPECT_TRUE((*trainer)->start(warnings).ok());
  return std::move(*trainer);
}

void compare_parameters(const Trainer& trainer, const std::string& name, double tolerance) {
  auto reference = SafetensorsFile::open(kFolder + name + ".safetensors");
  ASSERT_TRUE(reference.ok());
  size_t compared = 0;
  const CheckpointContents contents = trainer.contents();
  for (const TensorToWrite& tensor : contents.model) {
    const StoredTensor* expected = reference->find(tensor.name);
    ASSERT_NE(expected, nullptr) << tensor.name;
    ASSERT_EQ(expected->shape, tensor.shape) << tensor.name;
    std::vector<float> values(static_cast<size_t>(expected->elements));
    ASSERT_TRUE(reference->read_f32(*expected, values.data()).ok());
    const auto* ours = static_cast<const float*>(tensor.data);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double d = static_cast<double>(ours[i]) - static_cast<double>(values[i]);
      difference += d * d;
      norm += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(norm)) << tensor.name;
    ++compared;
  }
  EXPECT_EQ(compared, reference->header().tensors.size());
}

void follows(const std::string& program, const std::string& train,
             std::vector<frontend::Setting> settings, double loss_tolerance, double norm_tolerance,
             double parameter_tolerance, const std::string& reference = "") {
  const std::string name = program + "-" + (reference.empty() ? train : reference);
  std::ifstream in(kFolder + name + ".json");
  const nlohmann::json expected = nlohmann::json::parse(in);
  auto trainer = started(load(program, train, std::move(settings)));
  const auto& losses = expected.at("losses");
  for (size_t i = 0; i < losses.size(); ++i) {
    auto report = trainer->step();
    ASSERT_TRUE(report.ok()) << report.error().message;
    const double loss = losses[i], norm = expected.at("norms")[i];
    ASSERT_FALSE(report->skipped);
    EXPECT_NEAR(report->loss, loss, loss_tolerance * loss) << name << " step " << i + 1;
    EXPECT_NEAR(report->grad_norm, norm, norm_tolerance * norm) << name << " step " << i + 1;
  }
  if (parameter_tolerance > 0) compare_parameters(*trainer, name, parameter_tolerance);
  EXPECT_EQ(trainer->touched_bytes(), trainer->memory().total);
}

struct Case {
  const char *program, *train;
};
class Curves : public ::testing::TestWithParam<Case> {};
TEST_P(Curves, FollowPyTorch) {
  follows(GetParam().program, GetParam().train, {}, 1e-5, 1e-5, 1e-4);
}
INSTANTIATE_TEST_SUITE_P(
    All, Curves,
    ::testing::Values(Case{"gpt", "adamw"}, Case{"llama", "adamw"}, Case{"convnet", "sgd"},
                      Case{"mlp", "adamw"}, Case{"mlp", "adam"}, Case{"mlp", "sgd"},
                      Case{"mlp", "lion"}, Case{"mlp", "adafactor"}, Case{"mlp", "micro"}),
    [](const auto& info) { return std::string(info.param.program) + "_" + info.param.train; });

// The same rows a step, cut differently.
TEST(Curves, MicroBatchesEqualOneBatch) {
  follows("gpt", "adamw", {{"B", "1"}, {"accumulate", "4"}}, 1e-5, 1e-5, 1e-4);
  follows("llama", "adamw", {{"B", "4"}, {"accumulate", "1"}}, 1e-5, 1e-5, 1e-4);
  follows("mlp", "adamw", {{"B", "2"}, {"accumulate", "4"}}, 1e-5, 1e-5, 1e-4);
  follows("mlp", "micro", {{"B", "8"}, {"accumulate", "1"}}, 1e-5, 1e-5, 1e-4);
}

TEST(Curves, HalfPrecisionStaysNear) {
  follows("gpt", "adamw", {{"precision", "bf16"}}, 2e-2, 5e-2, 0);
  follows("llama", "adamw", {{"precision", "bf16"}}, 2e-2, 5e-2, 0);
  follows("mlp", "sgd", {{"precision", "bf16"}}, 2e-2, 5e-2, 0);
  follows("gpt", "adamw", {{"precision", "f16"}}, 2e-2, 5e-2, 0);
}

// The order of `shuffled` and the number of threads change nothing that they should not.
TEST(Curves, SeedsAndThreads) {
  auto with = [](const char* seed, int threads) {
    ir::TrainSpec spec = load("gpt", "adamw", {{"seed", seed}, {"order", "shuffled"}});
    TrainerOptions options;
    options.threads = threads;
    auto trainer = Trainer::create(std::move(spec), options);
    std::vector<Diagnostic> warnings;
    EXPECT_TRUE((*trainer)->start(warnings).ok());
    std::vector<double> losses;
    for (int i = 0; i < 3; ++i) losses.push_back((*trainer)->step()->loss);
    return losses;
  };
  const auto one = with("1", 1), again = with("1", 1), three = with("1", 3), other = with("2", 1);
  EXPECT_EQ(one, again);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], three[i], 1e-5);
  EXPECT_NE(one[0], other[0]);
}

}  // namespace
}  // namespace cad::backend
