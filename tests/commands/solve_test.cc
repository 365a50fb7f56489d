// tests/commands/solve_test.cc -- `colauto solve`: statuses, exit codes and JSON; every solution is
// computed again by tests/solver/recompute.py, a program of its own. With COLAUTO_IOPDDL set to the
// folder of the public instances those are solved too (minutes).
#include <chrono>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "tests/commands/command_testing.h"

namespace cad {
namespace {

using nlohmann::json;

const std::string kData = COLAUTO_SOURCE_DIR "/tests/solver/data/";

bool has_solution(const json& result) {
  const std::string status = result.value("status", "");
  return status == "optimal" || status == "within the gap" ||
         status == "time limit, with a solution";
}

class SolveCommand : public Commands {
 protected:
  // Whether the other program agrees with what result.json says of the file.
  bool recomputed(const std::string& file) const {
    const std::string script = "python3 '" COLAUTO_SOURCE_DIR "/tests/solver/recompute.py' '" +
                               file + "' '" + (folder_ / "result.json").string() + "' 2>&1";
    return std::system(script.c_str()) == 0;
  }
  // Runs with --json, checks the document's form and exit status, and recomputes it.
  json solved(const std::string& file, const std::string& flags) {
    const Output output = run("solve '" + file + "' --json " + flags);
    const json result = json::parse(output.out, nullptr, false);
    EXPECT_TRUE(result.is_object()) << output.out << output.err;
    if (!result.is_object()) return json::object();
    EXPECT_EQ(output.status, has_solution(result)               ? 0
                             : result["status"] == "infeasible" ? 3
                                                                : 1)
        << result["status"];
    const bool simple = result["status"] == "time limit, with a simple solution";
    EXPECT_EQ(result["cost"].is_number(), has_solution(result) || simple)
        << output.out.substr(0, 300);
    write("result.json", output.out);
    EXPECT_TRUE(recomputed(file)) << output.out.substr(0, 300);
    return result;
  }
};

void expect_schema(const json& result) {
  std::ifstream in(COLAUTO_SOURCE_DIR "/docs/schema/solve.json");
  const json schema = json::parse(in);
  for (const json& name : schema["required"]) EXPECT_TRUE(result.contains(name)) << name;
  const auto fits = [](const std::string& type, const json& value) {
    if (type == "null") return value.is_null();
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "string") return value.is_string();
    return type == "array" && value.is_array();
  };
  for (const auto& [name, value] : result.items()) {
    ASSERT_TRUE(schema["properties"].contains(name)) << name << " is not in the schema";
    const json& rule = schema["properties"][name];
    if (rule.contains("const")) {
      EXPECT_EQ(value, rule["const"]);
    }
    if (rule.contains("enum")) {
      EXPECT_NE(std::find(rule["enum"].begin(), rule["enum"].end(), value), rule["enum"].end());
    }
    if (!rule.contains("type")) continue;
    bool any = false;
    const json types = rule["type"].is_array() ? rule["type"] : json::array({rule["type"]});
    for (const json& type : types) any = any || fits(type.get<std::string>(), value);
    EXPECT_TRUE(any) << name << " is " << value;
  }
}

TEST_F(SolveCommand, OptimalAndCheckedByAnotherProgram) {
  const json result = solved(kData + "layers.json", "");
  expect_schema(result);
  EXPECT_EQ(result["status"], "optimal");
  ASSERT_TRUE(result["cost"].is_number());
  EXPECT_EQ(result["cost"], result["bound"]);
  EXPECT_LE(result["peak_bytes"], result["budget_bytes"]);
  json packed = solved(kData + "layers.json.gz", "");
  packed["seconds"] = result["seconds"];
  EXPECT_EQ(packed, result);
  const Output text = run("solve '" + kData + "layers.json'");
  EXPECT_EQ(text.status, 0);
  EXPECT_TRUE(contains(text.out, "status  optimal\n")) << text.out;
  const Output piped = run("solve - <'" + kData + "layers.json.gz'");
  EXPECT_EQ(piped.status, 0) << piped.err;
}

// The other program is a check: it refuses a result that is wrong in any one place.
TEST_F(SolveCommand, WhatIsWrongIsNotRecomputed) {
  const std::string file = kData + "layers.json";
  const json result = solved(file, "");
  ASSERT_TRUE(has_solution(result));
  const auto agrees = [&](const json& other) {
    write("result.json", other.dump());
    return recomputed(file);
  };
  EXPECT_TRUE(agrees(result));
  const auto changed = [&](const char* key, const json& value) {
    json other = result;
    other[key] = value;
    return agrees(other);
  };
  EXPECT_FALSE(changed("cost", result["cost"].get<double>() + 1));
  EXPECT_FALSE(changed("cost", nullptr));
  EXPECT_FALSE(changed("peak_bytes", result["peak_bytes"].get<int64_t>() - 1));
  EXPECT_FALSE(changed("bound", result["cost"].get<double>() + 1));
  EXPECT_FALSE(changed("bound", result["cost"].get<double>() - 1));  // and optimal
  EXPECT_FALSE(changed("status", "infeasible"));
  EXPECT_FALSE(changed("choices", json::array()));
  json choices = result["choices"];
  choices.erase(0);
  EXPECT_FALSE(changed("choices", choices));
  choices = result["choices"];
  choices[0] = -1;  // Python would count from the end
  EXPECT_FALSE(changed("choices", choices));
  json none = result;
  none["choices"] = json::array();
  none["cost"] = nullptr;
  EXPECT_FALSE(agrees(none));  // and a status that says there is one
  none["status"] = "time limit, without a solution";
  EXPECT_TRUE(agrees(none));
}

// The form of a file, without nodes.
json empty_problem() {
  std::ifstream in(kData + "layers.json");
  json problem = json::parse(in);
  problem["problem"]["nodes"] = {
      {"intervals", json::array()}, {"costs", json::array()}, {"usages", json::array()}};
  problem["problem"]["edges"] = {{"nodes", json::array()}, {"costs", json::array()}};
  return problem;
}

void add_edge(json& problem, int a, int b, const json& costs) {
  problem["problem"]["edges"]["nodes"].push_back({a, b});
  problem["problem"]["edges"]["costs"].push_back(costs);
}

// A grid of near-equal choices with memory all through: nothing folds, nothing is decided soon.
json grid(int side, int choices) {
  json problem = empty_problem();
  json& nodes = problem["problem"]["nodes"];
  int random = 1;
  const auto next = [&](int below) { return (random = (random * 1103 + 12345) % 100'003) % below; };
  for (int i = 0; i < side * side; ++i) {
    json costs = json::array(), usages = json::array();
    for (int k = 0; k < choices; ++k) {
      usages.push_back(next(100));
      costs.push_back(100 - usages.back().get<int>() + next(20));
    }
    nodes["intervals"].push_back({i, i + 2 * side});
    nodes["costs"].push_back(costs);
    nodes["usages"].push_back(usages);
    for (const int other : {i % side == 0 ? -1 : i - 1, i - side}) {
      if (other < 0) continue;
      json pairs = json::array();
      for (int k = 0; k < choices * choices; ++k) pairs.push_back(next(50));
      add_edge(problem, other, i, pairs);
    }
  }
  problem["problem"]["usage_limit"] = 60 * side;
  return problem;
}

// Stopped before it begins: that is said, and is neither a success nor "infeasible". What is chosen
// without a search is given where it fits.
TEST_F(SolveCommand, OutOfTimeIsSaidAndIsNoSuccess) {
  constexpr int kSide = 24, kChoices = 8;
  json problem = grid(kSide, kChoices);
  write("hard.json", problem.dump());
  const std::string file = (folder_ / "hard.json").string();
  const json simple = solved(file, "--time 0");
  expect_schema(simple);
  EXPECT_EQ(simple["status"], "time limit, with a simple solution");
  EXPECT_GT(simple["gap"], 0);
  const json some = solved(file, "--time 3");
  EXPECT_EQ(some["status"], "time limit, with a solution");
  EXPECT_GT(some["gap"], 0);
  EXPECT_LE(some["seconds"], 3);
  EXPECT_LT(some["cost"], simple["cost"]);
  const Output text = run("solve hard.json --time 0");
  EXPECT_EQ(text.status, 1);
  EXPECT_TRUE(contains(text.out, "status  time limit, with a simple solution\n")) << text.out;
  EXPECT_TRUE(contains(text.out, "cost    ") && contains(text.out, "gap     ")) << text.out;
  EXPECT_FALSE(contains(text.out, "infeasible")) << text.out;
  // The last node agrees with the first one and not with another, which both like even choices:
  // taken one by one they leave it none.
  json& nodes = problem["problem"]["nodes"];
  const int first = 0, other = kSide / 2, last = kSide * kSide - 1;
  for (const int i : {first, other}) {
    for (int k = 0; k < kChoices; k += 2) nodes["costs"][i][k] = nodes["usages"][i][k] = 0;
    for (int k = 1; k < kChoices; k += 2) nodes["costs"][i][k] = nodes["usages"][i][k] = 1000;
  }
  for (const int i : {first, other}) {
    json pairs = json::array();
    for (int k = 0; k < kChoices * kChoices; ++k) {
      const bool alike = k / kChoices % 2 == k % 2;
      pairs.push_back(alike == (i == first) ? 0 : 1'000'000'000'000'000'000);
    }
    add_edge(problem, i, last, pairs);
  }
  write("harder.json", problem.dump());
  const json none = solved((folder_ / "harder.json").string(), "--time 0");
  EXPECT_EQ(none["status"], "time limit, without a solution");
  EXPECT_EQ(run("solve harder.json --time 0").status, 1);
}

// Blocks of equal ops, each with so many splits, saved or run again in the backward pass: what is
// saved is in use from its op to that op's backward pass. Costs differ a little from block to
// block, which is what keeps the blocks from being alike.
json block_chain(int blocks, int ops, int splits, int spread, int seed) {
  json problem = empty_problem();
  json& nodes = problem["problem"]["nodes"];
  int random = seed;
  const auto next = [&](int below) { return (random = (random * 1103 + 12345) % 100'003) % below; };
  const auto numbers = [&](int count, int least, int below) {
    std::vector<int> out;
    for (int i = 0; i < count; ++i) out.push_back(least + next(below));
    return out;
  };
  const std::vector<int> seconds = numbers(ops * splits, 200, 200);
  const std::vector<int> bytes = numbers(ops * splits, 50, 100);
  std::vector<int> moves;  // from split to split
  for (int k = 0; k < splits * splits; ++k)
    moves.push_back(k / splits == k % splits ? 0 : 20 + next(40));
  json pairs = json::array();
  for (int a = 0; a < 2 * splits; ++a) {
    for (int b = 0; b < 2 * splits; ++b) pairs.push_back(moves[a / 2 * splits + b / 2]);
  }
  const int count = blocks * ops;
  int64_t least = 0, most = 0;
  for (int i = 0; i < count; ++i) {
    std::vector<int> costs, usages;
    for (int k = 0; k < splits; ++k) {
      const int at = i % ops * splits + k;
      const int time = seconds[at] + next(spread + 1);
      const int memory = bytes[at] + next(spread + 1);
      costs.insert(costs.end(), {time, time + time / 3});
      usages.insert(usages.end(), {memory, memory / 8});
    }
    least += *std::min_element(usages.begin(), usages.end());
    most += *std::max_element(usages.begin(), usages.end());
    nodes["intervals"].push_back({i, 2 * count - i});
    nodes["costs"].push_back(costs);
    nodes["usages"].push_back(usages);
    if (i > 0) add_edge(problem, i - 1, i, pairs);
    if (i > 0 && i % ops == 0) add_edge(problem, i - ops, i, pairs);  // past the block
  }
  problem["problem"]["usage_limit"] = least + (most - least) * 3 / 10;
  return problem;
}

// A model of 48 blocks and a hundredth of a second, a second, a minute: no solution of the search
// but a simple one that was checked, the best one with its gap, and the optimum. Which one it is
// says the status, and the time is that on the wall.
TEST_F(SolveCommand, ThreeTimeLimitsHaveThreeOutcomes) {
  if (kSanitized) GTEST_SKIP() << "its seconds are not those of the clock";
  write("blocks.json", block_chain(48, 16, 6, 8, 6).dump());
  const std::string file = (folder_ / "blocks.json").string();
  const auto limited = [&](const std::string& time) {
    const double start = now_s();
    const json result = solved(file, "--time " + time);
    EXPECT_LE(now_s() - start, std::stod(time) + 5) << time;  // of them some for recomputing
    EXPECT_LE(result["peak_bytes"], result["budget_bytes"]);
    return result;
  };
  const json simple = limited("0.01"), best = limited("1"), proven = limited("60");
  EXPECT_EQ(simple["status"], "time limit, with a simple solution");
  EXPECT_EQ(best["status"], "time limit, with a solution");
  EXPECT_EQ(proven["status"], "optimal");
  EXPECT_LE(best["seconds"], 1);
  EXPECT_LE(proven["seconds"], 60);
  EXPECT_EQ(proven["cost"], proven["bound"]);
  EXPECT_EQ(proven["gap"], 0);
  EXPECT_GT(best["gap"], 0);
  EXPECT_LE(best["bound"], proven["cost"]);
  EXPECT_GE(best["cost"], proven["cost"]);
  EXPECT_GT(simple["cost"], best["cost"]);
  EXPECT_LT(best["cost"], 1.01 * proven["cost"].get<double>());
}

TEST_F(SolveCommand, InfeasibleNamesTheLeastBudget) {
  std::ifstream in(kData + "layers.json");
  json problem = json::parse(in);
  problem["problem"]["usage_limit"] = 300;
  write("tight.json", problem.dump());
  const std::string file = (folder_ / "tight.json").string();
  const Output output = run("solve tight.json");
  EXPECT_EQ(output.status, 3) << output.out;
  EXPECT_TRUE(contains(output.out, "infeasible")) << output.out;
  const json result = solved(file, "");
  expect_schema(result);
  EXPECT_EQ(result["status"], "infeasible");
  ASSERT_TRUE(result["least_budget_found_bytes"].is_number());
  EXPECT_EQ(result["least_budget_found_bytes"], result["least_budget_bound_bytes"]);
  // exactly that budget does, one byte less does not
  const int64_t least = result["least_budget_found_bytes"];
  problem["problem"]["usage_limit"] = least;
  write("just.json", problem.dump());
  EXPECT_EQ(solved((folder_ / "just.json").string(), "")["status"], "optimal");
  problem["problem"]["usage_limit"] = least - 1;
  write("less.json", problem.dump());
  EXPECT_EQ(run("solve less.json").status, 3);
}

TEST_F(SolveCommand, ErrorsOfFiles) {
  const Output missing = run("solve none.json");
  EXPECT_EQ(missing.status, 66);
  EXPECT_TRUE(contains(missing.err, "E0601"));
  write("text.json", "hello");
  const Output text = run("solve text.json");
  EXPECT_EQ(text.status, 65);
  EXPECT_TRUE(contains(text.err, "E0820")) << text.err;
  write("other.json", "{\"nodes\": []}");
  const Output other = run("solve other.json");
  EXPECT_EQ(other.status, 65);
  EXPECT_TRUE(contains(other.err, "E0822")) << other.err;
  EXPECT_EQ(run("solve").status, 2);
  EXPECT_EQ(run("solve text.json --time -1").status, 2);
  for (const char* gap : {"x", "nan", "-0.1", "1.5"})
    EXPECT_EQ(run(std::string("solve text.json --gap ") + gap).status, 2) << gap;
}

// What is no JSON is not read to its end, which it may not have; what is nested is not followed
// without end.
TEST_F(SolveCommand, EndlessFiles) {
  for (const char* endless : {"/dev/zero", "- < /dev/zero", "- < /dev/urandom"}) {
    const Output output = run(std::string("solve ") + endless);
    EXPECT_EQ(output.status, 65) << endless;
    EXPECT_TRUE(contains(output.err, "is not JSON at line")) << output.err;
  }
  const Output words = run("solve words", "mkfifo words; (yes hello >words) &");
  EXPECT_EQ(words.status, 65);
  EXPECT_TRUE(contains(words.err, "is not JSON at line 1, column 1")) << words.err;
  write("deep.json", std::string(1'000'000, '['));
  const Output deep = run("solve deep.json");
  EXPECT_EQ(deep.status, 65);
  EXPECT_TRUE(contains(deep.err, "is nested more than 64 deep")) << deep.err;
}

// Files that are nearly problems: each is refused by the name of what is wrong, or solved.
TEST_F(SolveCommand, HostileFiles) {
  const auto file = [&](const std::string& nodes, const std::string& edges,
                        const std::string& limit) {
    write("x.json", "{\"problem\":{\"nodes\":" + nodes + ",\"edges\":" + edges +
                        ",\"usage_limit\":" + limit + "}}");
    return run("solve x.json");
  };
  const auto one = [](const std::string& interval, const std::string& costs,
                      const std::string& usages) {
    return "{\"intervals\":[" + interval + "],\"costs\":[" + costs + "],\"usages\":[" + usages +
           "]}";
  };
  const std::string none = "{\"nodes\":[],\"costs\":[]}";
  const auto refused = [&](const Output& out, const std::string& part) {
    EXPECT_EQ(out.status, 65) << out.out << out.err;
    EXPECT_TRUE(contains(out.err, part)) << out.err;
    EXPECT_FALSE(contains(out.err, "json.exception")) << out.err;
  };
  refused(file("{}", none, "1"), "`problem.nodes.intervals` is missing");
  refused(file(one("[5,1]", "[1]", "[1]"), none, "1"), "from <= to");
  refused(file(one("[0,1]", "[]", "[]"), none, "1"), "is empty");
  refused(file(one("[0,1]", "[1,2]", "[1]"), none, "1"), "has 1 entries");
  refused(file(one("[0,1]", "[1]", "[-1]"), none, "1"), "whole number from 0");
  refused(file(one("[0,1]", "[1]", "[9223372036854775807]"), none, "1"), "past 2^62");
  refused(file(one("[0,1]", "[1e400]", "[1]"), none, "1"), "is not JSON");
  refused(file(one("[0,1]", "[-5e300]", "[1]"), none, "1"), "exact up to 2^53");
  refused(file(one("[0.5,1]", "[1]", "[1]"), none, "1"), "whole number");
  refused(file(one("[0,1]", "[\"a\"]", "[1]"), none, "1"), "costs");
  refused(file(one("[0,1]", "[1]", "[1]"), "{\"nodes\":[[0,5]],\"costs\":[[1]]}", "1"), "node 5");
  refused(file(one("[0,1]", "[1]", "[1]"), none, "-1"), "usage_limit");
  refused(file(one("[0,1]", "[1]", "[1]"), none, "1e300"), "usage_limit");
  const Output nothing = file(one("", "", ""), none, "10");
  EXPECT_EQ(nothing.status, 0);
  EXPECT_TRUE(contains(nothing.out, "0 nodes, 0 edges\n") && contains(nothing.out, "gap     0 %\n"))
      << nothing.out;
  const Output single = file(one("[0,1]", "[7]", "[1]"), none, "1");
  EXPECT_TRUE(contains(single.out, "1 node, 0 edges\n") && contains(single.out, "cost    7\n"))
      << single.out;
  const Output apart = file(one("[0,1],[0,1]", "[1],[1]", "[1],[1]"),
                            "{\"nodes\":[[0,1]],\"costs\":[[1e18]]}", "10");
  EXPECT_EQ(apart.status, 3);
  EXPECT_TRUE(contains(apart.out, "no budget helps")) << apart.out;
  for (const char* time : {"nan", "inf", "-1", "x"})
    EXPECT_EQ(run(std::string("solve x.json --time ") + time).status, 2) << time;
  EXPECT_EQ(run("solve x.json --time 0").status, 3);
}

// {file, seconds, the cost that must be reached}
struct Public {
  const char* name;
  int seconds;
  double most;
  bool optimal;
};

TEST_F(SolveCommand, PublicInstancesSlow) {
  const char* folder = std::getenv("COLAUTO_IOPDDL");
  if (folder == nullptr) GTEST_SKIP() << "set COLAUTO_IOPDDL to the folder of the instances";
  for (const Public& each : {Public{"B", 60, 532843, true}, Public{"G", 60, 217039, true},
                             Public{"V", 300, 2213404, false}, Public{"M", 180, 1e12, false},
                             Public{"U", 300, 1e10, false}}) {
    SCOPED_TRACE(each.name);
    const std::string file = std::string(folder) + "/asplos-2025-iopddl-" + each.name + ".json.gz";
    const auto start = std::chrono::steady_clock::now();
    const json result = solved(file, "--time " + std::to_string(each.seconds));
    const std::chrono::duration<double> used = std::chrono::steady_clock::now() - start;
    RecordProperty(each.name, result["cost"].dump());
    EXPECT_LE(used.count(), each.seconds + 15.0);  // of them some for recomputing
    EXPECT_LE(result["seconds"], each.seconds);
    // null is less than any number
    ASSERT_TRUE(result["cost"].is_number()) << result["status"];
    EXPECT_TRUE(has_solution(result)) << result["status"];
    EXPECT_FALSE(result["choices"].empty());
    EXPECT_LE(result["cost"], each.most);
    ASSERT_TRUE(result["budget_bytes"].is_number());
    EXPECT_LE(result["peak_bytes"], result["budget_bytes"]);
    if (each.optimal) {
      EXPECT_EQ(result["status"], "optimal");
      EXPECT_EQ(result["bound"], result["cost"]);
    }
  }
}

}  // namespace
}  // namespace cad
