// tests/training/split_rows_test.cc -- micro-batches read in parts (ir/split_rows.h): losses,
// norms, evaluations and weights are those of whole ones, on one device and on two, dropout on; and
// programs whose rows depend on each other are known. When parts are chosen:
// tests/commands/micro_batches_test.cc.
#include "ir/split_rows.h"

#include <cmath>

#include "tests/frontend/section_program.h"
#include "tests/training/device_runs.h"
#include "tests/uneven_model.h"

namespace cad::backend {
namespace {

// Two micro-batches of 12 rows. `extra`: more of the train section.
ir::TrainSpec uneven(const std::string& extra = "",
                     const std::string& loss = "cross_entropy[V](Net(x), y)") {
  return frontend::Program(std::string(kUnevenModel) +
                           "train net {\n  data: synthetic(x: i32[B, T], y: i32[B, T])\n"
                           "  loss: " +
                           loss +
                           "\n  optimizer: adamw(lr: 1e-2)\n  clip: 1.0\n"
                           "  B: 12, steps: 3, seed: 3, accumulate: 2\n"
                           "  eval { data: synthetic(x: i32[B, T], y: i32[B, T]),\n"
                           "    metrics: (hit: mean(f32(argmax[V](Net(x)) == y))) }\n" +
                           extra + "}\n")
      .lowered();
}

void expect_equal(const DeviceRun& run, const DeviceRun& whole, const std::string& what) {
  SCOPED_TRACE(what);
  ASSERT_EQ(run.error, "");
  ASSERT_EQ(run.losses.size(), whole.losses.size());
  for (size_t i = 0; i < run.losses.size(); ++i) {
    EXPECT_NEAR(run.losses[i], whole.losses[i], 1e-5 * std::abs(whole.losses[i])) << i;
    EXPECT_NEAR(run.norms[i], whole.norms[i], 1e-5 * whole.norms[i]) << i;
  }
  ASSERT_EQ(run.evals.size(), whole.evals.size());
  for (size_t e = 0; e < run.evals.size(); ++e) {
    EXPECT_EQ(run.evals[e].rows, whole.evals[e].rows);
    for (size_t v = 0; v < run.evals[e].values.size(); ++v) {
      const double value = whole.evals[e].values[v].second;
      EXPECT_NEAR(run.evals[e].values[v].second, value, 1e-5 * std::abs(value)) << e << " " << v;
    }
  }
  ASSERT_EQ(run.weights.size(), whole.weights.size());
  for (const auto& [name, values] : whole.weights) {
    const std::vector<float>& got = run.weights.at(name);
    double squares = 0, off = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      squares += std::pow(values[i], 2);
      off += std::pow(values[i] - got[i], 2);
    }
    EXPECT_LE(std::sqrt(off), 1e-4 * std::sqrt(squares)) << name;
  }
}

// The gradient of a tied table, and its update, need no second table.
TEST(SplitRows, TablesAreAddedToInPlace) {
  for (const char* optimizer :
       {"adamw(lr: 1e-2)", "adam(lr: 1e-2)", "sgd(lr: 1e-2, momentum: 0.9)"}) {
    const ir::TrainSpec spec =
        frontend::Program(std::string("dim B, T = 4, V = 4001, D = 64\n"
                                      "model Net(x: i32[B, T]) -> [B, T, V] {\n"
                                      "  param emb : [V, D] = normal(0.02)\n"
                                      "  return tanh(emb[V = x]) @[D] emb\n}\n"
                                      "train net {\n"
                                      "  data: synthetic(x: i32[B, T], y: i32[B, T])\n"
                                      "  loss: cross_entropy[V](Net(x), y)\n"
                                      "  B: 4, steps: 3, seed: 3, optimizer: ") +
                          optimizer + "\n}\n")
            .lowered();
    const ir::TrainSpec parted = ir::split_rows(spec, 2);
    constexpr int64_t kTable = 4001 * 64 * 4, kLogits = 2 * 4 * 4001 * 4;
    auto trainer = Trainer::create(parted, {});
    ASSERT_TRUE(trainer.ok());
    EXPECT_LT((*trainer)->memory().region, 2 * kLogits) << optimizer;
    static_assert(2 * kLogits < kTable);
    expect_equal(run_on(parted, nullptr, 3), run_on(spec, nullptr, 3), optimizer);
  }
}

TEST(SplitRows, ResultsAreThoseOfTheWhole) {
  const ir::TrainSpec spec = uneven();
  ASSERT_EQ(ir::against_split(spec), "");
  const DeviceRun whole = run_on(spec, nullptr, 3);
  ASSERT_EQ(whole.error, "");
  for (const int64_t parts : ir::possible_parts(12)) {
    const ir::TrainSpec parted = ir::split_rows(spec, parts);
    EXPECT_EQ(parted.accumulate, 2 * parts);
    EXPECT_EQ(ir::micro_batch_rows(parted), 12 / parts);
    const std::string what = std::to_string(parts) + " parts";
    expect_equal(run_on(parted, nullptr, 3), whole, what);
    for (const char* plan : {"dp", "megatron"})
      expect_equal(run_on(parted, named_plan(parted, plan, {2}), 3), whole, what + ", " + plan);
  }
}

// Of a model that the loss mentions twice, its evaluation as often or once more; and the other way
// round: only the evaluation mentions it twice, and must find the parameters where the step has
// them.
TEST(SplitRows, LoopsThatAreMentionedTwice) {
  const std::string once = "cross_entropy[V](Net(x), y)",
                    twice = once + " + 1e-2 * mean(Net(x) ^ 2)";
  const std::string more =
      "  eval more { data: synthetic(x: i32[B, T], y: i32[B, T]),\n"
      "    metrics: (size: mean(Net(x) ^ 2) + mean(abs(Net(x)))) }\n";
  for (const std::string& loss : {once, twice}) {
    const ir::TrainSpec spec = uneven(more, loss);
    const DeviceRun whole = run_on(spec, nullptr, 3);
    ASSERT_EQ(whole.error, "");
    for (const char* plan : {"dp", "zero3", "megatron"})
      expect_equal(run_on(spec, named_plan(spec, plan, {2}), 3), whole, plan);
    const ir::TrainSpec parted = ir::split_rows(spec, 4);
    expect_equal(run_on(parted, nullptr, 3), whole, "parts");
    expect_equal(run_on(parted, named_plan(parted, "zero3", {3}), 3), whole, "parts on devices");
  }
}

TEST(SplitRows, MemoryShrinksAndSettingsStay) {
  const ir::TrainSpec spec = uneven();
  const auto trainer = [](const ir::TrainSpec& of) {
    TrainerOptions options;
    options.threads = 1;
    return std::move(*Trainer::create(of, options));
  };
  const auto whole = trainer(spec), parts = trainer(ir::split_rows(spec, 4));
  EXPECT_LT(parts->memory().region, 0.4 * static_cast<double>(whole->memory().region));
  EXPECT_EQ(parts->rows_per_step(), whole->rows_per_step());
  EXPECT_EQ(parts->config_hash(), whole->config_hash());  // a checkpoint does not tell
  ir::TrainSpec other = spec;
  other.accumulate = 8;
  EXPECT_NE(trainer(other)->config_hash(), whole->config_hash());
}

// `B` as a number stays what the program says.
TEST(SplitRows, SizesInExpressionsStay) {
  const ir::TrainSpec spec =
      frontend::Program(
          "dim B, D = 5\nmodel Net(x: [B, D]) -> [B, D] { return Linear[D -> D](x) }\n"
          "train net {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n"
          "  loss: sum((Net(x) - y) * (Net(x) - y)) / (B * D)\n"
          "  optimizer: sgd(lr: 1e-1)\n  B: 6, steps: 3, seed: 3\n}\n")
          .lowered();
  ASSERT_EQ(ir::against_split(spec), "");
  expect_equal(run_on(ir::split_rows(spec, 3), nullptr, 3), run_on(spec, nullptr, 3), "sums");
}

TEST(SplitRows, PartsAreDivisors) {
  using List = std::vector<int64_t>;
  EXPECT_EQ(ir::possible_parts(8), (List{2, 4, 8}));
  EXPECT_EQ(ir::possible_parts(12), (List{2, 4, 12}));
  EXPECT_EQ(ir::possible_parts(15), (List{3, 15}));
  EXPECT_EQ(ir::possible_parts(7), (List{7}));
  EXPECT_EQ(ir::possible_parts(1), List{});
  EXPECT_EQ(ir::possible_parts(0), List{});
}

// What each says, of x [B, D] and the model's result.
TEST(SplitRows, RowsThatMeet) {
  const auto against = [](const std::string& model, const std::string& loss) {
    return ir::against_split(
        frontend::Program("dim B, D = 4\nmodel Net(x: [B, D]) -> [B, D] {\n" + model +
                          "}\ntrain net {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n"
                          "  loss: " +
                          loss + "\n  optimizer: sgd(lr: 0.1)\n  B: 8, steps: 1\n}\n")
            .lowered());
  };
  const std::string linear = "  return Linear[D -> D](x)\n", loss = "mse(Net(x), y)";
  EXPECT_EQ(against(linear, loss), "");
  EXPECT_EQ(against(linear, loss + " + 0.5 * mean(Net(x))"), "");
  const auto says = [&](const std::string& model, const std::string& of, const std::string& part) {
    EXPECT_NE(against(model, of).find(part), std::string::npos)
        << model << of << ": " << against(model, of);
  };
  says("  return BatchNorm[D](Linear[D -> D](x))\n", loss, "state");
  says("  h = Linear[D -> D](x)\n  return h - mean[B](h)\n", loss, "relates rows");
  says(linear, "mean(Net(x)) * mean(Net(x))", "relates rows");
  says("  param w : [B, D] = ones\n  return x * w\n", loss, "for each row");
  says("  return Linear[D -> D](x) * f32(iota[B])\n", loss, "number of rows");
  // a number of weights for every column: columns are divided by what the micro-batch has
  says(linear, "sum(mean[B](Net(x), weight: y * y))", "relates rows");
}

}  // namespace
}  // namespace cad::backend
