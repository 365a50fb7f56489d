// tests/planner/chain_file_test.cc -- reading chain problems: what entries mean, and what broken
// files are told.
#include "planner/chain_file.h"

#include <gtest/gtest.h>

namespace cad::planner {
namespace {

std::string error_of(const std::string& text) {
  const Result<ChainProblem> problem = read_chain("c.json", text);
  return problem ? "" : problem.error().message;
}

std::string chain(const std::string& forward, const std::string& backward,
                  const std::string& output, const std::string& saved,
                  const std::string& forward_tmp, const std::string& backward_tmp,
                  const std::string& budget = "9") {
  return R"({"chain":{"forward":)" + forward + R"(,"backward":)" + backward + R"(,"output":)" +
         output + R"(,"saved":)" + saved + R"(,"forward_tmp":)" + forward_tmp +
         R"(,"backward_tmp":)" + backward_tmp + R"(},"budget":)" + budget + "}";
}

TEST(ChainFile, EntriesAndOptions) {
  const auto problem =
      read_chain("c.json", chain("[3, [4, 5]]", "[6, 8, [1, 2]]", "[2, 3, 1]", "[2, 7, [8, 5]]",
                                 "[0, 1]", "[0, [1, 2], 9]", "16"));
  ASSERT_TRUE(problem.ok());
  EXPECT_EQ(problem->budget, 16);
  EXPECT_EQ(problem->chain.input, 2);
  const std::vector<ChainStage> expected{{3, {{3, 6, 7, 0, 0}}},
                                         {1, {{4, 8, 8, 1, 1}, {5, 8, 5, 1, 2}}},
                                         {0, {{0, 1, 0, 0, 9}, {0, 2, 0, 0, 9}}}};
  EXPECT_EQ(problem->chain.stages, expected);
}

TEST(ChainFile, OneStage) {
  const auto problem =
      read_chain("c.json", chain("[3]", "[6, 1]", "[2, 1]", "[2, 4]", "[0]", "[0, 0]"));
  ASSERT_TRUE(problem.ok());
  const ChainResult result = solve_chain(problem->chain, problem->budget);
  EXPECT_EQ(result.status, ChainStatus::kOptimal);
  EXPECT_EQ(result.time, 10);
  EXPECT_EQ(result.peak, 2 + 4 + 1 + 2);  // input, saved, both gradients
}

TEST(ChainFile, Broken) {
  EXPECT_EQ(error_of("{"), "`c.json` is not JSON");
  EXPECT_EQ(error_of("[]"), "`c.json`: there is no `chain`");
  EXPECT_EQ(error_of(R"({"chain":1,"budget":1})"), "`c.json`: `chain` is not an object");
  EXPECT_EQ(error_of(R"({"chain":{}})"), "`c.json`: there is no `budget`");
  EXPECT_EQ(error_of(R"({"chain":{},"budget":1})"), "`c.json`: `chain` lacks `forward`");
  const std::string good = chain("[3]", "[6, 1]", "[2, 1]", "[2, 4]", "[0]", "[0, 0]");
  EXPECT_EQ(error_of(good), "");
  EXPECT_EQ(error_of(chain("[]", "[1]", "[2]", "[2]", "[]", "[0]")),
            "`c.json`: the chain is empty: `forward` has no entry");
  EXPECT_EQ(error_of(chain("3", "[6, 1]", "[2, 1]", "[2, 4]", "[0]", "[0, 0]")),
            "`c.json`: chain.forward is not a list");
  EXPECT_EQ(error_of(chain("[3]", "[6]", "[2, 1]", "[2, 4]", "[0]", "[0, 0]")),
            "`c.json`: chain.backward has 1 entries, expected 2: `forward` has 1");
  EXPECT_EQ(error_of(chain("[-3]", "[6, 1]", "[2, 1]", "[2, 4]", "[0]", "[0, 0]")),
            "`c.json`: chain.forward[0] is negative");
  EXPECT_EQ(error_of(chain("[3.5]", "[6, 1]", "[2, 1]", "[2, 4]", "[0]", "[0, 0]")),
            "`c.json`: chain.forward[0] is not whole");
  EXPECT_EQ(error_of(chain("[3]", "[6, 1]", "[2, 1]", "[2, \"4\"]", "[0]", "[0, 0]")),
            "`c.json`: chain.saved[1] is not a number");
  EXPECT_EQ(error_of(chain("[3]", "[6, 1]", "[2, [1]]", "[2, 4]", "[0]", "[0, 0]")),
            "`c.json`: chain.output[1] is not a number");
  EXPECT_EQ(
      error_of(chain("[3]", "[6, 1]", "[2, 1]", "[2, 18446744073709551615]", "[0]", "[0, 0]")),
      "`c.json`: chain.saved[1] is beyond 63 bits");
  EXPECT_EQ(error_of(chain("[3]", "[6, 1]", "[2, 1]", "[2, 9223372036854775807]", "[0]", "[0, 0]")),
            "`c.json`: the sizes are too large to be added");
  EXPECT_EQ(error_of(chain("[9007199254740993]", "[6, 1]", "[2, 1]", "[2, 4]", "[0]", "[0, 0]")),
            "`c.json`: the times are too large to be added exactly");
  EXPECT_EQ(error_of(chain("[3]", "[6, 1]", "[2, 5]", "[2, 4]", "[0]", "[0, 0]")),
            "`c.json`: stage 0: what is saved includes the output, so it cannot be smaller");
  EXPECT_EQ(error_of(chain("[[]]", "[6, 1]", "[2, 1]", "[2, 4]", "[0]", "[0, 0]")),
            "`c.json`: chain.forward[0] has no option");
  EXPECT_EQ(error_of(chain("[[1, 2]]", "[[6, 7, 8], 1]", "[2, 1]", "[2, 4]", "[0]", "[0, 0]")),
            "`c.json`: stage 0 has lists of 2 and of 3 options");
  EXPECT_EQ(error_of(chain("[3]", "[6, 1]", "[2, 1]", "[2, 4]", "[0]", "[0, 0]", "-1")),
            "`c.json`: budget is negative");
  EXPECT_EQ(error_of(chain("[3]", "[6, 1]", "[2, 1]", "[2, 4]", "[0]", "[0, 0]", "1e3")),
            "`c.json`: budget is not whole");
}

// Equal stages are cheap however many; 2,000 different ones are refused before any work.
TEST(ChainFile, TooManyStages) {
  const auto stages = [](int n, int differ) {
    std::string forward, more = "1", zero = "0";
    for (int i = 0; i < n; ++i) {
      forward += (i > 0 ? "," : "") + std::to_string(1 + i % differ);
      more += ",1";
      zero += ",0";
    }
    return chain("[" + forward + "]", "[" + more + "]", "[" + more + "]", "[" + more + "]",
                 "[" + zero.substr(2) + "]", "[" + zero + "]");
  };
  EXPECT_EQ(error_of(stages(2000, 1)), "");
  EXPECT_EQ(error_of(stages(2000, 2000)), "`c.json`: 2000 stages, too many of which differ");
  EXPECT_EQ(error_of(stages(2001, 1)), "`c.json`: 2001 stages, at most 2000 are taken");
}

}  // namespace
}  // namespace cad::planner
