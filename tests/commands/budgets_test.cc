// tests/commands/budgets_test.cc -- budgets of compiled programs, from ample to too small, each
// asked of a process of its own: a smaller one never predicts a faster step, what is planned fits,
// and the least that is named where nothing fits is planned, and trains, when it is asked for.
#include <cmath>
#include <random>
#include <regex>

#include "tests/commands/run_devices.h"

namespace cad {
namespace {

// Two blocks of two heads; `more` stands in the train section.
std::string transformer(const std::string& more = "") {
  return "dim B, T = 16, S = T, V = 96, D = 16, F = 64, H = 2, K = 8, L = 2\n"
         "layer Att(x: [B, T, D]) -> [B, T, D] {\n"
         "  param Wq, Wk, Wv : [D, H, K] = normal(0.1)\n  param Wo : [H, K, D] = normal(0.1)\n"
         "  q = x @[D] Wq\n  k = (x @[D] Wk)[T -> S]\n  v = (x @[D] Wv)[T -> S]\n"
         "  p = softmax[S](causal[T, S]((q @[K] k) / sqrt(K)))\n"
         "  return (p @[S] v) @[H, K] Wo\n}\n"
         "model Net(ids: i32[B, T]) -> [B, T, V] {\n  param emb : [V, D] = normal(0.1)\n"
         "  x = emb[V = ids]\n  repeat L as l {\n    x = x + Att(LayerNorm[D](x))\n"
         "    x = x + Linear[F -> D](gelu(Linear[D -> F](LayerNorm[D](x))))\n  }\n"
         "  return LayerNorm[D](x) @[D] emb\n}\n"
         "train t {\n  data: synthetic(ids: i32[B, T], y: i32[B, T])\n"
         "  loss: cross_entropy[V](Net(ids), y)\n  optimizer: adam(lr: 1e-3)\n"
         "  B: 24, steps: 2\n" +
         more + "}\n";
}

class Budgets : public RunDevices {
 protected:
  struct Answer {
    bool fits = false;
    double step_s = 0;
    int64_t peak = 0;
    int64_t least = 0;  // named, where nothing fits
  };

  // Of `command` with --json, for so many bytes; 0: as many as there are.
  Answer ask(const std::string& command, int64_t budget) const {
    const std::string flags = budget > 0 ? " --budget " + std::to_string(budget) + "B" : "";
    const Output out = run(command + " --json" + flags);
    Answer answer;
    if (out.status == 3) {
      answer.least = named(out.err, budget);
      return answer;
    }
    EXPECT_EQ(out.status, 0) << out.err;
    const json document = json::parse(out.out, nullptr, false);
    if (!document.is_object()) return answer;
    answer.fits = true;
    const bool plan = document.contains("predicted");
    answer.step_s = plan ? document["predicted"]["step_s"] : document["predicted_step_s"];
    answer.peak = static_cast<int64_t>(plan ? document["predicted"]["peak_bytes"].get<double>()
                                            : document["predicted_peak_bytes"].get<double>());
    return answer;
  }

  // What a message that no plan fits says besides: the least there is, by how much it is more, of
  // what it is made, and what may be changed.
  static int64_t named(const std::string& message, int64_t budget) {
    std::smatch found;
    if (!std::regex_search(message, found, std::regex("\\(([0-9]+) bytes\\), .* more"))) {
      ADD_FAILURE() << message;
      return 0;
    }
    const int64_t least = std::stoll(found[1]);
    EXPECT_GT(least, budget) << message;
    EXPECT_TRUE(contains(message, "most of it: ")) << message;
    EXPECT_TRUE(contains(message, "--budget " + std::to_string(least) + "B")) << message;
    EXPECT_TRUE(contains(message, "more devices")) << message;
    EXPECT_TRUE(contains(message, "smaller batch")) << message;
    return least;
  }

  // `count` budgets from ample down to the least and two below it. Returns the least.
  int64_t descend(const std::string& command, int count) {
    const Answer ample = ask(command, 0), none = ask(command, 1000);
    EXPECT_TRUE(ample.fits);
    EXPECT_FALSE(none.fits);
    std::mt19937 random(7);
    std::vector<int64_t> budgets = {none.least};
    for (int i = 1; i < count; ++i) {
      // half of them are next to others
      const double part = static_cast<double>(random() % 1000) / 1000;
      budgets.push_back(i % 2 == 0
                            ? static_cast<int64_t>(0.99 * static_cast<double>(budgets.back()))
                            : static_cast<int64_t>(static_cast<double>(none.least) *
                                                   std::pow(static_cast<double>(ample.peak) /
                                                                static_cast<double>(none.least),
                                                            part)));
      budgets.back() = std::max(budgets.back(), none.least);
    }
    std::sort(budgets.rbegin(), budgets.rend());
    double before = ample.step_s;
    for (const int64_t budget : budgets) {
      const Answer answer = ask(command, budget);
      EXPECT_TRUE(answer.fits) << command << ", " << budget << " bytes, " << none.least
                               << " are enough";
      EXPECT_LE(answer.peak, budget) << command;
      EXPECT_GE(answer.step_s, before * (1 - 1e-6)) << command << ", " << budget << " bytes";
      before = std::max(before, answer.step_s);
    }
    EXPECT_GT(before, ample.step_s * 1.01) << "memory has a price";
    for (const int64_t budget : {none.least - 1, none.least / 2}) {
      const Answer answer = ask(command, budget);
      EXPECT_FALSE(answer.fits) << budget;
      EXPECT_EQ(answer.least, none.least) << "the same whatever was asked for";
    }
    return none.least;
  }

  void trains(const std::string& devices, int64_t budget) {
    std::filesystem::remove(folder_ / "log.jsonl");
    const Output out = run("run net.cad --quiet --log log.jsonl --devices " + devices +
                           " --budget " + std::to_string(budget) + "B");
    ASSERT_EQ(out.status, 0) << out.err;
    const json end = events("log.jsonl", "end").at(0);
    for (const json& peak : end["peak_bytes"]) EXPECT_LE(peak, budget) << devices;
    EXPECT_EQ(losses("log.jsonl").size(), 2U);
  }
};

TEST_F(Budgets, RunsOnTwo) {
  write("net.cad", transformer());
  trains("2", descend("run net.cad --dry-run --devices 2", 12));
}

TEST_F(Budgets, RunsOnFour) {
  write("net.cad", transformer());
  trains("4", descend("run net.cad --dry-run --devices 4", 4));
}

TEST_F(Budgets, PlansOfTwo) {
  write("net.cad", transformer());
  descend("plan net.cad --devices 2", 10);
}

}  // namespace
}  // namespace cad
