// Whole runs on devices that are threads: whatever the plan, losses, evaluations and checkpoints
// are those of one device. Sizes that nothing divides, dropout, micro-batches, clipping, averages.
// Lowered graphs alone: tests/spmd; the command line: tests/commands/run_devices_test.cc.
#include <cmath>

#include "tests/training/device_runs.h"
#include "tests/training/logged_runs.h"
#include "tests/training/training_testing.h"
#include "tests/uneven_model.h"

namespace cad::backend {
namespace {

using testing::TemporaryFolder;

std::string section(const std::string& optimizer, const std::string& more = "") {
  return std::string(kUnevenModel) +
         "train net {\n  data: synthetic(x: i32[B, T], y: i32[B, T])\n"
         "  loss: cross_entropy[V](Net(x), y)\n  optimizer: " +
         optimizer +
         "\n  B: 6, steps: 5, seed: 3\n"
         "  eval { data: synthetic(x: i32[B, T], y: i32[B, T]), every: 2, batches: 2 }\n"
         "  save { to: \"run\", every: 3 }\n" +
         more + "}\n";
}

struct RunResult : LoggedRun {
  std::string folder;
};

class Runs : public ::testing::Test {
 protected:
  // Steps, in the folder `name`; `plan` nullptr: one device.
  RunResult train_on(const ir::TrainSpec& spec, const std::string& name,
                     const std::shared_ptr<const DevicePlan>& plan, bool resume = false,
                     std::optional<int64_t> stop_at = std::nullopt) {
    TrainLoopOptions options;
    options.log.file = folder_.file(name + ".jsonl");
    options.save_folder = folder_.file(name);
    options.resume = resume;
    options.stop_at = stop_at;
    return {logged_run(spec, plan, options), options.save_folder};
  }
  static void expect_close(const std::vector<double>& a, const std::vector<double>& b,
                           const std::string& what, double relative) {
    ASSERT_EQ(a.size(), b.size()) << what;
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], relative * std::abs(b[i])) << what << ", number " << i;
  }
  // Every tensor within 1e-4 of the other's norm.
  static void expect_equal_files(const std::string& a, const std::string& b) {
    auto left = SafetensorsFile::open(a), right = SafetensorsFile::open(b);
    ASSERT_TRUE(left.ok() && right.ok()) << a;
    ASSERT_EQ(left->header().tensors.size(), right->header().tensors.size());
    for (size_t t = 0; t < left->header().tensors.size(); ++t) {
      const StoredTensor& tensor = left->header().tensors[t];
      ASSERT_EQ(tensor.name, right->header().tensors[t].name)
          << "the order does not depend on the mesh";
      std::vector<float> x(static_cast<size_t>(tensor.elements)), y = x;
      ASSERT_TRUE(left->read_f32(tensor, x.data()).ok());
      ASSERT_TRUE(right->read_f32(right->header().tensors[t], y.data()).ok());
      double difference = 0, norm = 1e-30;
      for (size_t i = 0; i < x.size(); ++i) {
        difference += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
        norm += std::pow(static_cast<double>(y[i]), 2);
      }
      EXPECT_LE(std::sqrt(difference), 1e-4 * std::sqrt(norm)) << a << ": " << tensor.name;
    }
  }
  void expect_equal(const RunResult& many, const RunResult& one, const std::string& what) {
    expect_close(many.losses, one.losses, what, 1e-5);
    expect_close(many.norms, one.norms, what + " (norms)", 1e-4);
    expect_close(many.evals, one.evals, what + " (evaluations)", 1e-5);
    for (const char* file : {"model", "optimizer"}) {
      const std::string name = std::string("/step-000005/") + file + ".safetensors";
      expect_equal_files(many.folder + name, one.folder + name);
    }
    EXPECT_GT(many.end.peak_bytes.size(), 1U) << what;
    for (const int64_t peak : many.end.peak_bytes)
      EXPECT_EQ(peak, many.end.predicted_peak_bytes) << what;
  }
  // Plans by name, each on one mesh.
  void compare(const std::string& text,
               const std::vector<std::pair<std::string, std::vector<int>>>& plans) {
    const ir::TrainSpec spec = frontend::Program(text).lowered();
    const RunResult one = train_on(spec, "one", nullptr);
    int runs = 0;
    for (const auto& [name, sizes] : plans) {
      const auto plan = named_plan(spec, name, sizes);
      ASSERT_NE(plan, nullptr) << name;
      const std::string what = name + " on " + plan->train.mesh.str();
      SCOPED_TRACE(what);
      expect_equal(train_on(spec, "run" + std::to_string(runs++), plan), one, what);
    }
    EXPECT_GT(runs, 0);
  }
  TemporaryFolder folder_;
};

TEST_F(Runs, AnyPlanIsOneDevice) {
  compare(section("adamw(lr: cosine(1e-2, warmup: 2))", "clip: 1.0, accumulate: 2\n"),
          {{"dp", {2}}, {"zero1", {3}}, {"zero3", {2}}, {"megatron", {2, 2}}, {"auto", {3}}});
}

TEST_F(Runs, GroupsAndOtherOptimizers) {
  compare(section("(adafactor(lr: 1e-2, of: \"e\"), frozen(of: \"h.1.*\"), "
                  "sgd(lr: 1e-2, momentum: 0.9))",
                  "ema: 0.9\n"),
          {{"zero1", {3}}, {"auto", {2}}});
}

TEST_F(Runs, AnyMeshResumesAny) {
  const ir::TrainSpec spec = frontend::Program(section("adamw(lr: 1e-2)", "ema: 0.9\n")).lowered();
  const RunResult through = train_on(spec, "through", nullptr);
  const std::vector<std::shared_ptr<const DevicePlan>> plans = {
      nullptr, named_plan(spec, "zero1", {2}), named_plan(spec, "zero3", {3}),
      named_plan(spec, "megatron", {4})};
  for (size_t i = 0; i < plans.size(); ++i) {
    const std::string name = "run" + std::to_string(i);
    train_on(spec, name, plans[i], false, 3);
    const RunResult more = train_on(spec, name, plans[(i + 1) % plans.size()], true);
    expect_close(more.losses, through.losses, name, 1e-5);
    expect_equal_files(more.folder + "/step-000005/ema.safetensors",
                       through.folder + "/step-000005/ema.safetensors");
  }
}

TEST_F(Runs, AgainIsBitEqual) {
  const ir::TrainSpec spec = frontend::Program(section("adamw(lr: 1e-2)")).lowered();
  for (const char* name : {"zero1", "megatron"}) {
    const auto plan = named_plan(spec, name, {4});
    ASSERT_NE(plan, nullptr) << name;
    const RunResult a = train_on(spec, std::string(name) + "a", plan);
    train_on(spec, std::string(name) + "b", plan, false, 3);
    const RunResult b = train_on(spec, std::string(name) + "b", plan, true);
    EXPECT_EQ(a.losses, b.losses);
    EXPECT_EQ(folder_.read(std::string(name) + "a/step-000005/model.safetensors"),
              folder_.read(std::string(name) + "b/step-000005/model.safetensors"));
  }
}

}  // namespace
}  // namespace cad::backend
