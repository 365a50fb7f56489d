// The trainer on graphs small enough to work out by hand: steps, micro-batches, clipping, groups,
// resuming, memory. Curves against PyTorch are in curves_test.cc.
#include "backend/trainer.h"
#include "base/path_pattern.h"

#include <cmath>
#include <cstdlib>

#include "backend/cpu/thread_pool.h"
#include "backend/train_loop.h"
#include "ir/builder.h"
#include "tests/training/training_testing.h"

namespace cad::backend {
namespace {

using ir::Builder;
using ir::DType;
using ir::Graph;
using ir::Input;
using ir::InputKind;
using ir::Op;
using ir::ValueId;
using testing::bytes_of;
using testing::TemporaryFolder;

ValueId input(Builder& b, InputKind kind, const std::string& path, DType dtype,
              std::vector<ir::DimId> dims) {
  Input row;
  row.kind = kind;
  row.path = path;
  return b.input(row, ir::Type{dtype, std::move(dims)});
}

void output(Graph& g, const std::string& name, ValueId value) {
  g.outputs.push_back({name});
  g.regions[0].results.push_back(value);
}

// p - lr * g, with momentum 0.5 kept in a state: m = 0.5 m + g, p - lr * m.
ir::OptimizerEntry momentum_entry() {
  ir::OptimizerEntry entry;
  entry.name = "momentum";
  Graph g;
  const ir::DimId n = g.add_dim("n", ir::Size::symbol("n"));
  Builder b(g, ir::RegionId{0});
  const ValueId p = input(b, InputKind::kOther, "p", DType::kF32, {n});
  const ValueId grad = input(b, InputKind::kOther, "g", DType::kF32, {n});
  const ValueId lr = input(b, InputKind::kOther, "lr", DType::kF32, {});
  input(b, InputKind::kOther, "step", DType::kI32, {});
  const ValueId m = input(b, InputKind::kState, "m", DType::kF32, {n});
  const ValueId moved = b.add(b.mul(m, b.constant(0.5, DType::kF32)), grad);
  output(g, "p", b.sub(p, b.mul(moved, lr)));
  output(g, "state:m", moved);
  entry.plain = entry.decayed = g;
  Graph schedule;
  Builder s(schedule, ir::RegionId{0});
  const ValueId t = input(s, InputKind::kOther, "t", DType::kF32, {});
  input(s, InputKind::kOther, "steps", DType::kF32, {});
  output(schedule, "lr", s.div(s.constant(0.1, DType::kF32), t));  // 0.1 / t
  entry.schedule = schedule;
  return entry;
}

// loss = mean over the batch of (x @ w - 1)^2, x from a csv file of `columns` numbers a row.
struct Linear {
  TemporaryFolder folder;
  std::vector<std::vector<float>> rows;
  ir::TrainSpec spec;

  explicit Linear(int64_t batch, int64_t accumulate = 1, int count = 40) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      const float a = static_cast<float>((i * 37 + 11) % 19) / 8.0F - 1.0F,
                  b = static_cast<float>((i * 53 + 5) % 23) / 8.0F - 1.5F;
      rows.push_back({a, b});
      text += std::to_string(a) + "," + std::to_string(b) + "\n";
    }
    folder.write("x.csv", text);
    spec.name = "linear";
    spec.program_path = folder.file("linear.cad");
    ir::DataSource source;
    source.kind = ir::DataSource::Kind::kCsv;
    source.files = {"x.csv"};
    ir::DataName name;
    name.name = "x";
    name.dims = {"B", "D"};
    name.sizes = {ir::Size::symbol("B"), ir::Size::symbol("D")};
    source.names = {name};
    spec.data = {source};
    spec.bindings = {{"B", batch}, {"D", 2}};
    spec.accumulate = accumulate;
    spec.shuffled = false;
    spec.steps = 100;
    spec.seed = 5;
    Graph& g = spec.forward;
    const ir::DimId B = g.add_dim("B", ir::Size::symbol("B")),
                    D = g.add_dim("D", ir::Size::symbol("D"));
    g.batch_dim = B;
    Builder b(g, ir::RegionId{0});
    const ValueId x = input(b, InputKind::kData, "x", DType::kF32, {B, D});
    Input row;
    row.kind = InputKind::kParam;
    row.path = "w";
    row.init = {ir::Init::Kind::kNormal, ir::Scalar(0.5)};
    const ValueId w = b.input(row, ir::Type{DType::kF32, {D}});
    ir::Attrs contract, mean;
    contract.dims = {D};
    mean.dims = {B};
    const ValueId error =
        b.sub(b.make(Op::kContract, {x, w}, contract), b.constant(1.0, DType::kF32));
    output(g, "loss", b.make(Op::kMean, {b.mul(error, error)}, mean));
    spec.optimizers = {momentum_entry()};
  }

  // The same run in double.
  struct Reference {
    double w[2], m[2] = {0, 0}, loss = 0, norm = 0;
  };
  void step(Reference& r, int64_t t, int64_t per_step, double clip = 0) const {
    double g[2] = {0, 0};
    r.loss = 0;
    for (int64_t i = 0; i < per_step; ++i) {
      const auto& x =
          rows[static_cast<size_t>(((t - 1) * per_step + i) % static_cast<int64_t>(rows.size()))];
      const double e = static_cast<double>(x[0]) * r.w[0] + static_cast<double>(x[1]) * r.w[1] - 1;
      r.loss += e * e / static_cast<double>(per_step);
      for (int d = 0; d < 2; ++d)
        g[d] +=
            2 * e * static_cast<double>(x[static_cast<size_t>(d)]) / static_cast<double>(per_step);
    }
    r.norm = std::sqrt(g[0] * g[0] + g[1] * g[1]);
    const double scale = clip > 0 ? std::min(1.0, clip / (r.norm + 1e-6)) : 1;
    for (int d = 0; d < 2; ++d) {
      r.m[d] = 0.5 * r.m[d] + scale * g[d];
      r.w[d] -= 0.1 / static_cast<double>(t) * r.m[d];
    }
  }
};

std::unique_ptr<Trainer> started(const ir::TrainSpec& spec) {
  TrainerOptions options;
  options.threads = 2;
  auto trainer = Trainer::create(spec, options);
  EXPECT_TRUE(trainer.ok()) << trainer.error().message;
  std::vector<Diagnostic> warnings;
  auto status = (*trainer)->start(warnings);
  EXPECT_TRUE(status.ok()) << status.error().message;
  EXPECT_TRUE(warnings.empty());
  return std::move(*trainer);
}

const float* values(Trainer& trainer, const std::string& path = "w") {
  return reinterpret_cast<const float*>(
      trainer.parameters().all()[static_cast<size_t>(trainer.parameters().find(path))].data);
}

void follows_reference(int64_t batch, int64_t accumulate, double clip) {
  Linear problem(batch, accumulate);
  if (clip > 0) problem.spec.clip = clip;
  auto trainer = started(problem.spec);
  Linear::Reference r{
      {static_cast<double>(values(*trainer)[0]), static_cast<double>(values(*trainer)[1])}};
  EXPECT_NE(r.w[0], 0);
  for (int64_t t = 1; t <= 12; ++t) {
    auto report = trainer->step();
    ASSERT_TRUE(report.ok()) << report.error().message;
    problem.step(r, t, batch * accumulate, clip);
    EXPECT_EQ(report->step, t);
    EXPECT_NEAR(report->loss, r.loss, 1e-5 * (1 + r.loss)) << t;
    EXPECT_NEAR(report->grad_norm, r.norm, 1e-5 * (1 + r.norm)) << t;
    EXPECT_NEAR(report->rates.at(0), 0.1 / static_cast<double>(t), 1e-9);
    for (int d = 0; d < 2; ++d)
      EXPECT_NEAR(static_cast<double>(values(*trainer)[d]), r.w[d], 1e-5) << t;
  }
  EXPECT_EQ(trainer->touched_bytes(), trainer->memory().total);
}

TEST(Trainer, FollowsTheReference) {
  follows_reference(8, 1, 0);
}
TEST(Trainer, MicroBatchesAreOneBatch) {
  follows_reference(2, 4, 0);
}
TEST(Trainer, ClipsByTheGlobalNorm) {
  follows_reference(8, 1, 0.25);
}
TEST(Trainer, ClipsTheSumOfMicroBatches) {
  follows_reference(2, 4, 0.25);
}

TEST(Trainer, TheSameRunTwiceIsBitEqual) {
  Linear problem(4);
  auto first = started(problem.spec), second = started(problem.spec);
  for (int i = 0; i < 5; ++i) {
    auto a = first->step(), b = second->step();
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->loss, b->loss);
    EXPECT_EQ(a->grad_norm, b->grad_norm);
  }
}

TEST(Trainer, ResumingIsBitEqual) {
  Linear problem(3);  // 40 rows: the fourteenth step wraps in its middle
  problem.spec.shuffled = true;
  problem.spec.ema = 0.9;
  auto through = started(problem.spec);
  CheckpointFolder::Mode fresh = CheckpointFolder::Mode::kFresh;
  auto folder = CheckpointFolder::open(problem.folder.file("run"), fresh, 0, 0);
  ASSERT_TRUE(folder.ok());
  for (int i = 0; i < 11; ++i) ASSERT_TRUE(through->step().ok());
  ASSERT_TRUE(folder->save(through->contents()).ok());
  auto resumed = started(problem.spec);
  auto checkpoint = find_checkpoint(problem.folder.file("run"));
  ASSERT_TRUE(checkpoint.ok());
  ASSERT_TRUE(resumed->restore(*checkpoint).ok());
  EXPECT_EQ(resumed->config_hash(), checkpoint->state.config);
  for (int i = 0; i < 10; ++i) {
    auto a = through->step(), b = resumed->step();
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->step, b->step);
    EXPECT_EQ(a->loss, b->loss);
    EXPECT_EQ(a->grad_norm, b->grad_norm);
    EXPECT_EQ(a->rates, b->rates);
  }
  EXPECT_EQ(0, std::memcmp(values(*through), values(*resumed), 8));
}

TEST(Trainer, RestoringAnotherProgramIsAnError) {
  Linear problem(3), other(3);
  other.spec.forward.inputs[1].path = "v";
  auto a = started(problem.spec), b = started(other.spec);
  auto folder =
      CheckpointFolder::open(problem.folder.file("run"), CheckpointFolder::Mode::kFresh, 0, 0);
  ASSERT_TRUE(folder->save(a->contents()).ok());
  auto status = b->restore(*find_checkpoint(problem.folder.file("run")));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().id, DiagId::E0615);
  EXPECT_NE(status.error().message.find("has no tensor `v`"), std::string::npos);
}

TEST(Trainer, NotFiniteStopsBeforeTheUpdate) {
  Linear problem(4);
  ir::OptimizerEntry& entry = problem.spec.optimizers[0];
  for (ir::Node& node : entry.schedule.nodes) {
    if (node.op == Op::kConst) node.attrs.scalar = ir::Scalar(1e18);
  }
  auto trainer = started(problem.spec);
  Result<StepReport> report = trainer->step();
  ASSERT_TRUE(report.ok());
  float before[2];
  do {
    std::memcpy(before, values(*trainer), 8);
    report = trainer->step();
  } while (report.ok() && trainer->steps_done() < 50);
  ASSERT_FALSE(report.ok());
  const Diagnostic& error = report.error();
  EXPECT_TRUE(error.id == DiagId::E0701 || error.id == DiagId::E0702);
  EXPECT_EQ(error.exit_code, kExitRunFailed);
  EXPECT_NE(error.message.find("at step " + std::to_string(trainer->steps_done() + 1)),
            std::string::npos)
      << error.message;
  EXPECT_NE(error.notes.at(0).find("the first value that is not finite comes from"),
            std::string::npos);
  EXPECT_EQ(0, std::memcmp(before, values(*trainer), 8));
}

TEST(Trainer, LoopRunsSavesAndStops) {
  Linear problem(4);
  TrainLoopOptions options;
  options.log.file = problem.folder.file("log.jsonl");
  options.log.quiet = true;
  options.save_folder = problem.folder.file("runs/linear");
  options.stop_at = 7;
  problem.spec.save.every = 3;
  problem.spec.save.keep = 2;
  auto outcome = train(problem.spec, options, [](const std::vector<Diagnostic>& warnings) {
    EXPECT_TRUE(warnings.empty());
  });
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_EQ(outcome->end.steps, 7);
  EXPECT_EQ(outcome->end.peak_bytes, std::vector<int64_t>{outcome->end.predicted_peak_bytes});
  EXPECT_FALSE(std::filesystem::exists(options.save_folder + "/step-000003"));
  EXPECT_TRUE(std::filesystem::exists(options.save_folder + "/step-000006"));
  EXPECT_TRUE(std::filesystem::exists(options.save_folder + "/step-000007/optimizer.safetensors"));
  const std::string whole = problem.folder.read("log.jsonl");
  // Resumed from step 7 to 9: the same losses as not having stopped.
  options.resume = true;
  options.stop_at = 9;
  ASSERT_TRUE(train(problem.spec, options, [](const auto&) {}).ok());
  const std::string resumed = problem.folder.read("log.jsonl").substr(whole.size());
  TrainLoopOptions through;
  through.log.file = problem.folder.file("through.jsonl");
  through.log.quiet = true;
  through.stop_at = 9;
  ASSERT_TRUE(train(problem.spec, through, [](const auto&) {}).ok());
  const std::string all = problem.folder.read("through.jsonl");
  for (const char* step : {"\"step\":8,", "\"step\":9,"}) {
    const auto line = [&](const std::string& text) {
      const size_t at = text.find(step);
      EXPECT_NE(at, std::string::npos);
      return text.substr(at, text.find("\"ms\"", at) - at);
    };
    EXPECT_EQ(line(all), line(resumed));
  }
  options.resume = false;
  auto again = train(problem.spec, options, [](const auto&) {});
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().id, DiagId::E0613);
}

TEST(Optimizer, PathPatterns) {
  EXPECT_TRUE(path_matches("*", "anything"));
  EXPECT_TRUE(path_matches("h.*", "h.3.block.Wq"));
  EXPECT_TRUE(path_matches("*.Wq", "h.3.block.Wq"));
  EXPECT_TRUE(path_matches("h.*.Wq", "h.3.block.Wq"));
  EXPECT_FALSE(path_matches("h.*", "head.W"));
  EXPECT_FALSE(path_matches("wte", "wte2"));
  EXPECT_TRUE(path_matches("a*b*c", "aXbbYc"));
  EXPECT_FALSE(path_matches("a*b*c", "aXbbY"));
}

TEST(Optimizer, EntriesAndParametersMatchUp) {
  Linear problem(4);
  problem.spec.optimizers[0].of = {"nothing.*"};
  auto none = Trainer::create(problem.spec, {});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().id, DiagId::E0317);
  problem.spec.optimizers.push_back(momentum_entry());
  auto unused = Trainer::create(problem.spec, {});
  ASSERT_FALSE(unused.ok());
  EXPECT_EQ(unused.error().id, DiagId::E0316);
}

TEST(Optimizer, Adafactor) {
  Linear problem(8);
  ir::OptimizerEntry& entry = problem.spec.optimizers[0];
  entry.special = "adafactor";
  entry.elementwise = false;
  auto trainer = started(problem.spec);
  const double w0 = static_cast<double>(values(*trainer)[0]),
               w1 = static_cast<double>(values(*trainer)[1]);
  auto report = trainer->step();
  ASSERT_TRUE(report.ok());
  // Step 1: the second moment is g^2 itself, so the update is sign(g), clipped to rms 1 (it is 1).
  const double alpha = std::max(1e-3, std::sqrt((w0 * w0 + w1 * w1) / 2)) * std::min(0.1, 1.0);
  const float* g = trainer->gradient("w");
  EXPECT_NEAR(static_cast<double>(values(*trainer)[0]), w0 - alpha * (g[0] > 0 ? 1 : -1), 1e-5);
  EXPECT_NEAR(static_cast<double>(values(*trainer)[1]), w1 - alpha * (g[1] > 0 ? 1 : -1), 1e-5);
}

}  // namespace
}  // namespace cad::backend
