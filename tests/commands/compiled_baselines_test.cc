// tests/commands/compiled_baselines_test.cc -- plans of this host beside the baselines, each asked
// of a process of its own: `auto` is no slower than any that is planned by name, none that is said
// to fit is faster, and what is named as the least budget is the least one that has a plan. On
// models written out, where the planner's bytes and the compiled program's are far apart, and
// random ones.
#include <optional>
#include <random>
#include <regex>

#include <fmt/format.h>

#include "tests/commands/run_devices.h"

namespace cad {
namespace {

std::string trained(const std::string& data, const std::string& loss, const std::string& optimizer,
                    int rows) {
  return fmt::format(
      "train t {{\n  data: synthetic({})\n  loss: {}\n  optimizer: {}(lr: 1e-3)\n"
      "  B: {}\n  steps: 1\n}}\n",
      data, loss, optimizer, rows);
}

std::string one_layer(int width, int rows) {
  return fmt::format(
             "dim B, D = {}\n"
             "model Net(x: [B, D]) -> [B, D] {{\n  return Linear[D -> D](x)\n}}\n",
             width) +
         trained("x: f32[B, D], y: f32[B, D]", "mse(Net(x), y)", "adam", rows);
}

std::string two_layers(int width, int inner, int rows, const std::string& optimizer) {
  return fmt::format(
             "dim B, D = {}, E = {}\nmodel Net(x: [B, D]) -> [B, D] {{\n"
             "  return Linear[E -> D](relu(Linear[D -> E](x)))\n}}\n",
             width, inner) +
         trained("x: f32[B, D], y: f32[B, D]", "mse(Net(x), y)", optimizer, rows);
}

std::string blocks(int width, int inner, int count, int rows) {
  return fmt::format(
             "dim B, D = {}, F = {}, L = {}\nmodel Net(x: [B, D]) -> [B, D] {{\n"
             "  repeat L as l {{ x = x + Linear[F -> D](gelu(Linear[D -> F](x))) }}\n"
             "  return x\n}}\n",
             width, inner, count) +
         trained("x: f32[B, D], y: f32[B, D]", "mse(Net(x), y)", "adamw", rows);
}

std::string transformer(int vocabulary, int width, int tokens, int layers, int rows) {
  return fmt::format(
             "dim B, T = {}, S = T, V = {}, D = {}, H = 1, K = D / H, F = 4 * D, L = {}\n"
             "layer Block(x: [B, T, D]) -> [B, T, D] {{\n"
             "  x = x + Attention[T -> S, D, H, K](LayerNorm[D](x))\n"
             "  return x + MLP[D -> F](LayerNorm[D](x))\n}}\n"
             "model Net(ids: i32[B, T]) -> [B, T, V] {{\n  param e : [V, D] = normal(0.02)\n"
             "  x = e[V = ids]\n  repeat L as h {{ x = Block(x) }}\n"
             "  return LayerNorm[D](x) @[D] e\n}}\n",
             tokens, vocabulary, width, layers) +
         trained("ids: i32[B, T], y: i32[B, T]", "cross_entropy[V](Net(ids), y)", "adamw", rows);
}

constexpr const char* kNames[] = {"single",   "dp",          "zero1",         "zero2", "zero3",
                                  "megatron", "megatron-sp", "megatron-zero", "tp2d",  "tp3d"};

class CompiledBaselines : public RunDevices {
 protected:
  struct Answer {
    bool fits = false;
    double step_s = 0;
    int64_t peak = 0, least = 0;  // the least is named where nothing fits
    json rows;                    // the alternatives of `plan`
  };

  // `command` is `plan` or `run --dry-run`; 0 bytes: as many as there are. None where no mesh suits
  // the baseline.
  std::optional<Answer> ask(const std::string& name, int64_t budget) const {
    const Output out =
        run(fmt::format("{} net.cad --json --devices {} --plan {}{}", command_, devices_, name,
                        budget > 0 ? fmt::format(" --budget {}B", budget) : ""));
    Answer answer;
    if (out.status == 3) {
      if (contains(out.err, "suits the plan")) return std::nullopt;
      std::smatch found;
      EXPECT_TRUE(std::regex_search(out.err, found, std::regex("\\(([0-9]+) bytes\\), .* more")))
          << out.err;
      if (!found.empty()) answer.least = std::stoll(found[1]);
      return answer;
    }
    EXPECT_EQ(out.status, 0) << out.err;
    const json document = json::parse(out.out, nullptr, false);
    if (!document.is_object()) return std::nullopt;
    answer.fits = true;
    const bool plan = document.contains("predicted");
    answer.step_s = plan ? document["predicted"]["step_s"] : document["predicted_step_s"];
    answer.peak = static_cast<int64_t>(plan ? document["predicted"]["peak_bytes"].get<double>()
                                            : document["predicted_peak_bytes"].get<double>());
    if (plan) answer.rows = document["alternatives"];
    return answer;
  }

  Answer ask_auto(int64_t budget) const { return ask("auto", budget).value_or(Answer()); }

  // Returns how many baselines have a plan.
  int no_slower_than_baselines(int64_t budget) const {
    const Answer own = ask_auto(budget);
    if (own.fits && budget > 0) {
      EXPECT_LE(own.peak, budget);
    }
    int planned = 0;
    for (const char* const name : kNames) {
      const auto baseline = ask(name, budget);
      if (!baseline || !baseline->fits) continue;
      ++planned;
      EXPECT_TRUE(own.fits) << name << " has a plan for " << budget << " bytes";
      EXPECT_LE(own.step_s, baseline->step_s) << name << ", " << budget << " bytes";
    }
    for (const json& row : own.rows) {
      if (!row["feasible"].get<bool>()) continue;
      EXPECT_GE(row["step_s"].get<double>(), own.step_s) << row << ", " << budget << " bytes";
    }
    return planned;
  }

  // Returns the least budget, which is the same whatever too little is asked for.
  int64_t names_the_least(const std::string& name) const {
    const auto none = ask(name, 1);
    if (!none) return 0;
    const int64_t least = none->least;
    EXPECT_GT(least, 2) << name;
    for (const int64_t budget : {least / 3, least / 10 * 9, least - 1}) {
      const Answer answer = ask(name, budget).value_or(Answer());
      EXPECT_FALSE(answer.fits) << name << ", " << budget << " bytes of " << least;
      EXPECT_EQ(answer.least, least) << name << ", " << budget << " bytes";
    }
    const Answer there = ask(name, least).value_or(Answer());
    EXPECT_TRUE(there.fits) << name << ", " << least << " bytes";
    EXPECT_LE(there.peak, least) << name;
    return least;
  }

  void model(const std::string& program, int devices, const std::string& command = "plan") {
    write("net.cad", program);
    devices_ = devices;
    command_ = command;
  }

  int devices_ = 1;
  std::string command_;
};

// Most baselines fit by the model, none when it is compiled, and all are faster than the plan,
// which reads micro-batches row by row.
TEST_F(CompiledBaselines, AreMarkedByTheirPrograms) {
  model(two_layers(509, 509, 101, "sgd"), 2);
  no_slower_than_baselines(3'120'832);
  const Answer own = ask_auto(3'120'832);
  ASSERT_TRUE(own.fits);
  bool compiled = false;
  for (const json& row : own.rows)
    compiled = compiled || (!row["feasible"].get<bool>() && row["step_s"] < own.step_s);
  EXPECT_TRUE(compiled) << "there is something to tell";
}

// On one device, the rest idle, where what is between two plans is nearly nothing.
TEST_F(CompiledBaselines, AreTakenWhereTheyFit) {
  for (const int devices : {2, 5}) {
    model(transformer(1, 1, 1, 1, 1), devices);
    for (const int64_t budget : {16'832, 17'024, 17'088, 20'000})
      EXPECT_GT(no_slower_than_baselines(budget), 0) << budget;
  }
}

// The plan that needs least by the model needs more than others when it is compiled.
TEST_F(CompiledBaselines, CountForTheLeastBudget) {
  for (const int devices : {2, 5}) {
    for (const std::string& program : {one_layer(1, 1), two_layers(1, 1, 8, "adam")}) {
      model(program, devices);
      no_slower_than_baselines(names_the_least("auto"));
    }
  }
  model(transformer(1, 1, 1, 1, 2), 2);  // in parts, too
  names_the_least("auto");
}

// By name the variant that runs again in the backward pass is tried as well.
TEST_F(CompiledBaselines, ByNameRunAgainWhereMemoryIsShort) {
  model(transformer(1, 1, 1, 1, 1), 2);
  for (const std::string name : {"single", "zero3", "megatron"}) {
    const int64_t least = names_the_least(name);
    const Answer ample = ask(name, 0).value_or(Answer());
    EXPECT_LT(least, ample.peak) << name;
    // between the two there is a plan, too, and none is faster
    const Answer between = ask(name, (least + ample.peak) / 2).value_or(Answer());
    EXPECT_TRUE(between.fits) << name;
    EXPECT_GE(between.step_s, ample.step_s) << name;
  }
}

// Random models, numbers of devices and budgets, from the least to ample.
class RandomBaselines : public CompiledBaselines {
 protected:
  int pick(std::initializer_list<int> of) { return *(of.begin() + random_() % of.size()); }

  // A number a statement: compilers order arguments as they like.
  std::string program(int family) {
    const int width = pick({8, 31, 64}), inner = pick({16, 64, 99});
    const int rows = pick({6, 12, 16}), count = pick({2, 3, 5});
    if (family == 0) return two_layers(width, inner, rows, "adam");
    return blocks(width, inner, count, rows);
  }

  void check(int family, int count, const std::string& command) {
    int planned = 0;
    for (int i = 0; i < count; ++i) {
      const std::string text = program(family);
      model(text, pick({2, 3, 4}), command);
      const int64_t least = names_the_least("auto"), most = ask_auto(0).peak;
      for (const double part : {0.0, 0.1 * pick({1, 2, 3, 5, 8}), 2.0})
        planned += no_slower_than_baselines(
            least + static_cast<int64_t>(part * static_cast<double>(most - least)));
      names_the_least(kNames[random_() % std::size(kNames)]);
    }
    EXPECT_GT(planned, 0);
  }

  std::mt19937 random_{11};
};

TEST_F(RandomBaselines, OfLayers) {
  check(0, 2, "plan");
}
TEST_F(RandomBaselines, OfBlocks) {
  check(1, 2, "plan");
}
TEST_F(RandomBaselines, OfRuns) {
  check(0, 1, "run --dry-run");
  check(1, 1, "run --dry-run");
}

}  // namespace
}  // namespace cad
