// tests/commands/solve_chain_test.cc -- `colauto solve` on chain problems: text, JSON as its schema
// says, exit statuses.
#include <nlohmann/json.hpp>

#include "tests/commands/command_testing.h"

namespace cad {
namespace {

using nlohmann::json;

const char* const kChain =
    R"({"chain": {"forward": [3, 4, 2], "backward": [6, 8, 4, 1], "output": [2, 2, 2, 2],
        "saved": [2, 7, [8, 5], 6], "forward_tmp": [0, 1, 0], "backward_tmp": [0, [1, 2], 0, 0]},
        "budget": )";

TEST_F(Commands, SolveChainText) {
  write("chain.json", std::string(kChain) + "40}");
  const Output ample = run("solve chain.json");
  EXPECT_EQ(ample.status, 0) << ample.err;
  EXPECT_TRUE(contains(ample.out, "chain of 3 stages and the loss\nstatus  optimal\ntime    28\n"))
      << ample.out;
  EXPECT_TRUE(contains(ample.out, "  save 0\n  save 1 with option 1\n  save 2\n  loss\n"))
      << ample.out;
  write("tight.json", std::string(kChain) + "15}");
  const Output tight = run("solve tight.json");
  EXPECT_EQ(tight.status, 0) << tight.err;
  EXPECT_TRUE(contains(tight.out, "keep the input of 0")) << tight.out;
  write("none.json", std::string(kChain) + "5}");
  const Output none = run("solve none.json");
  EXPECT_EQ(none.status, 3);
  EXPECT_TRUE(contains(none.out, "status  infeasible\nmemory  5 allowed; the least budget is "))
      << none.out;
}

TEST_F(Commands, SolveChainJson) {
  std::ifstream in(std::string(COLAUTO_SOURCE_DIR) + "/docs/schema/solve-chain.json");
  const json schema = json::parse(in);
  for (const int budget : {5, 15, 40}) {
    write("chain.json", std::string(kChain) + std::to_string(budget) + "}");
    const Output output = run("solve --json chain.json");
    EXPECT_EQ(output.status, budget == 5 ? 3 : 0);
    const json document = json::parse(output.out);
    for (const auto& key : schema["required"]) EXPECT_TRUE(document.contains(key)) << key;
    for (const auto& [key, value] : document.items()) {
      ASSERT_TRUE(schema["properties"].contains(key)) << key;
      const json& rule = schema["properties"][key];
      if (rule.contains("enum")) {
        EXPECT_NE(std::find(rule["enum"].begin(), rule["enum"].end(), value), rule["enum"].end());
      }
    }
    const json& op = schema["properties"]["schedule"]["items"]["properties"]["op"]["enum"];
    for (const json& item : document["schedule"]) {
      EXPECT_NE(std::find(op.begin(), op.end(), item["op"]), op.end());
    }
    EXPECT_EQ(document["cost"].is_null(), budget == 5);
    if (budget == 5) continue;
    EXPECT_LE(document["peak"].get<int>(), budget);
    EXPECT_EQ(document["gap"], 0.0);
    EXPECT_EQ(document["choices"].size(), 4);
  }
}

// A chain that takes many seconds is cut where `--time` says, with a schedule and no success.
TEST_F(Commands, SolveChainOutOfTime) {
  constexpr int kStages = 220;
  json chain;
  uint32_t state = 1;
  const auto draw = [&](int most) {
    state = state * 1664525 + 1013904223;
    return 1 + static_cast<int>(state >> 8) % most;
  };
  int64_t all = 0;
  for (int i = 0; i <= kStages; ++i) {
    const int output = draw(1000000), more = draw(3000000);
    all += output + more;
    chain["output"].push_back(output);
    chain["saved"].push_back(output + more);
    chain["backward"].push_back(draw(99));
    chain["backward_tmp"].push_back(draw(1000000));
    if (i == kStages) break;
    chain["forward"].push_back(draw(99));
    chain["forward_tmp"].push_back(draw(1000000));
  }
  const int64_t budget = all / 10;
  write("long.json", json{{"chain", chain}, {"budget", budget}}.dump());
  const Output text = run("solve long.json --time 0");
  EXPECT_EQ(text.status, 1) << text.err;
  EXPECT_TRUE(contains(text.out, "status  time limit, with a simple solution\ntime    "))
      << text.out.substr(0, 300);
  const Output cut = run("solve long.json --time 0.2 --json");
  EXPECT_EQ(cut.status, 1) << cut.err;
  const json document = json::parse(cut.out);
  EXPECT_EQ(document["status"], "time limit, with a simple solution");
  EXPECT_LE(document["peak"].get<int64_t>(), budget);
  EXPECT_GT(document["gap"].get<double>(), 0);
  EXPECT_LE(document["bound"].get<int64_t>(), document["cost"].get<int64_t>());
  EXPECT_GE(document["schedule"].size(), size_t{2} * kStages);
  EXPECT_LT(document["wall_s"].get<double>(), kSanitized ? 60 : 2);
}

TEST_F(Commands, SolveChainBroken) {
  write("chain.json", R"({"chain": {"forward": [1]}, "budget": 3})");
  const Output broken = run("solve chain.json");
  EXPECT_EQ(broken.status, 65);
  EXPECT_TRUE(contains(broken.err, "error[E0821]: `chain.json`: `chain` lacks `backward`"))
      << broken.err;
  EXPECT_TRUE(broken.out.empty());
}

}  // namespace
}  // namespace cad
