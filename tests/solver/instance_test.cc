// tests/solver/instance_test.cc -- the reader of the public format: what it takes, and that hostile
// files are errors with a place, never a crash.
#include <zlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <unistd.h>

#include <gtest/gtest.h>

#include "planner/solver/instance.h"

namespace cad::planner::solver {
namespace {

constexpr const char* kGood = R"({"problem": {"name": "two", "extra": [1, {"a": null}],
 "nodes": {"intervals": [[0, 4], [2, 2]], "costs": [[1, 2.5], [1e18, 3]], "usages": [[8, 0], [1, 2]]},
 "edges": {"nodes": [[1, 0]], "costs": [[0, 1000000000000000000, 7, 8]]}, "usage_limit": 10}})";

std::string with(const std::string& part, const std::string& other) {
  std::string text = kGood;
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return text.replace(at, part.size(), other);
}

void expect_error(const std::string& text, DiagId id, const std::string& part) {
  const Result<Instance> result = read_instance("p.json", text);
  ASSERT_FALSE(result.ok()) << part;
  EXPECT_EQ(result.error().id, id) << result.error().message;
  EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
  EXPECT_EQ(result.error().exit_code, kExitProgram);
}

TEST(Instance, IsRead) {
  const Result<Instance> result = read_instance("p.json", kGood);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->name, "two");
  const Problem& problem = result->problem;
  EXPECT_EQ(problem.budget, 10);
  ASSERT_EQ(problem.nodes.size(), 2u);
  EXPECT_EQ(problem.nodes[0].cost, (std::vector<double>{1, 2.5}));
  EXPECT_EQ(problem.nodes[1].cost, (std::vector<double>{kForbidden, 3}));
  ASSERT_EQ(problem.nodes[0].lives.size(), 1u);
  EXPECT_EQ(problem.nodes[0].lives[0].to, 4);
  EXPECT_TRUE(problem.nodes[1].lives.empty());  // an empty interval
  EXPECT_EQ(problem.edges[0].a, 1);
  EXPECT_EQ(problem.edges[0].cost, (std::vector<double>{0, kForbidden, 7, 8}));
}

TEST(Instance, BrokenJsonNamesLineAndColumn) {
  expect_error("", DiagId::E0820, "line 1, column 1");
  expect_error("not json", DiagId::E0820, "line 1");
  expect_error(with("2.5", "NaN"), DiagId::E0820, "line 2, column");
  expect_error(with("2.5", "1e999"), DiagId::E0820, "line 2, column");
  expect_error(std::string(kGood).substr(0, 120), DiagId::E0820, "line 2");
  expect_error(std::string(300000, '['), DiagId::E0821, "nested more than 64 deep");
  expect_error(std::string("{\"problem\": \"\xff\xfe\"}"), DiagId::E0820, "line 1");
}

TEST(Instance, WrongContentsNameThePlace) {
  expect_error("{}", DiagId::E0821, "`problem.nodes.intervals` is missing");
  expect_error("[]", DiagId::E0821, "missing");
  expect_error(with("[8, 0]", "[8]"), DiagId::E0821, "`problem.nodes.usages[0]` has 1 entries");
  expect_error(with("[8, 0]", "[8, -1]"), DiagId::E0821, "`problem.nodes.usages[0][1]` is -1");
  expect_error(with("[8, 0]", "[8, 0.5]"), DiagId::E0821, "`problem.nodes.usages[0][1]` is 0.5");
  expect_error(with("[8, 0]", "[9000000000000000000, 0]"), DiagId::E0821, "past 2^62");
  expect_error(with("[8, 0]", "[18446744073709551615, 0]"), DiagId::E0821, "whole number");
  expect_error(with("[0, 4]", "[4, 0]"), DiagId::E0821, "`problem.nodes.intervals[0]` is [4, 0]");
  expect_error(with("[0, 4]", "[-3, 4]"), DiagId::E0821, "`problem.nodes.intervals[0][0]` is -3");
  expect_error(with("[0, 4]", "[0]"), DiagId::E0821, "`problem.nodes.intervals[0]`");
  expect_error(with("[1, 2.5]", "[]"), DiagId::E0821, "`problem.nodes.costs[0]` is empty");
  expect_error(with("[1, 2.5]", "7"), DiagId::E0821, "`problem.nodes.costs[0]`");
  expect_error(with("2.5", "[2.5]"), DiagId::E0821, "not a list of lists");
  expect_error(with("2.5", "\"x\""), DiagId::E0821, "`problem.nodes.costs[0][1]` is a text");
  expect_error(with("2.5", "null"), DiagId::E0821, "is null");
  expect_error(with("2.5", "true"), DiagId::E0821, "truth value");
  expect_error(with("2.5", "9007199254740993"), DiagId::E0821, "exact up to 2^53");
  expect_error(with("2.5", "-1e17"), DiagId::E0821, "exact up to 2^53");
}

TEST(Instance, WrongEdgesNameThePlace) {
  expect_error(with("[[1, 0]]", "[[1, 2]]"), DiagId::E0821,
               "`problem.edges.nodes[0]` names node 2");
  expect_error(with("[[1, 0]]", "[[1, -1]]"), DiagId::E0821, "`problem.edges.nodes[0][1]` is -1");
  expect_error(with("[[1, 0]]", "[[1]]"), DiagId::E0821, "has 1 entries");
  expect_error(with("[[1, 0]]", "[]"), DiagId::E0821, "has 0 `nodes` and 1 `costs`");
  expect_error(with("7, 8]", "7]"), DiagId::E0821, "has 3 entries; nodes 1 and 0 have 2 x 2");
  expect_error(with("7, 8]", "7, 123456789012345678]"), DiagId::E0821, "exact up to 2^53");
  expect_error(with("\"usage_limit\": 10", "\"usage_limit\": -1"), DiagId::E0821,
               "`problem.usage_limit` is -1");
  expect_error(with("\"usage_limit\": 10", "\"usage_limit\": {}"), DiagId::E0821, "usage_limit");
}

class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("solver-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string packed(const std::string& text) const {
    const std::string path = (folder_ / "packed").string();
    const gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    std::ifstream in(path, std::ios::binary);
    std::stringstream bytes;
    bytes << in.rdbuf();
    return bytes.str();
  }
  std::filesystem::path folder_;
};

TEST_F(Files, PlainPackedAndCutOff) {
  const Result<std::string> plain = read_packed(write("a.json", kGood));
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(*plain, kGood);
  std::string noise;
  for (int i = 0; i < 100000; ++i) noise += static_cast<char>(i * 7919 % 251);
  const std::string bytes = packed(kGood + noise);
  const Result<std::string> whole = read_packed(write("a.json.gz", bytes));
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(*whole, kGood + noise);
  const Result<std::string> cut =
      read_packed(write("b.json.gz", bytes.substr(0, bytes.size() / 2)));
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().id, DiagId::E0820);
  std::string damaged = bytes;
  damaged[damaged.size() / 2] ^= 0x55;
  EXPECT_FALSE(read_packed(write("c.json.gz", damaged)).ok());
  const Result<std::string> missing = read_packed((folder_ / "none.json").string());
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().id, DiagId::E0601);
  EXPECT_EQ(missing.error().exit_code, kExitNoInput);
  EXPECT_FALSE(read_packed(folder_.string()).ok());  // a folder
}

TEST(Instance, KindsAreToldByTheFirstKnownKey) {
  const std::vector<std::string> keys{"problem", "chain"};
  EXPECT_EQ(*first_key("p", kGood, keys), "problem");
  EXPECT_EQ(*first_key("p", R"({"budget": 3, "x": {"problem": 1}, "chain": [broken)", keys),
            "chain");
  EXPECT_EQ(*first_key("p", R"({"nodes": []})", keys), "");
  EXPECT_EQ(*first_key("p", "[1, 2]", keys), "");
  EXPECT_FALSE(first_key("p", "{", keys).ok());
}

TEST(Check, CountsCostAndMemoryByTheDefinition) {
  Problem problem;
  problem.nodes = {{{1, 2}, {{0, 4, {8, 3}}, {2, 6, {1, 1}}}}, {{5}, {{3, 3, {100}}, {3, 9, {4}}}}};
  problem.edges = {{0, 1, {10, 20}}, {1, 0, {100, 200}}, {0, 0, {0, 7, 7, 1000}}};
  problem.budget = 8;
  const Checked first = check(problem, {0, 0});
  EXPECT_EQ(first.cost, 1 + 5 + 10 + 100);
  EXPECT_EQ(first.times, (std::vector<int64_t>{0, 2, 3, 4, 6, 9}));
  EXPECT_EQ(first.in_use, (std::vector<int64_t>{8, 9, 13, 5, 4, 0}));
  EXPECT_EQ(first.peak, 13);
  EXPECT_FALSE(first.fits);
  const Checked second = check(problem, {1, 0});
  EXPECT_EQ(second.cost, 2 + 5 + 20 + 200 + 1000);
  EXPECT_EQ(second.peak, 8);
  EXPECT_TRUE(second.fits);
}

}  // namespace
}  // namespace cad::planner::solver
