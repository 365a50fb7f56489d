// tests/solver/program_test.cc -- the layer over lp_solve: two programs that the library has been
// known to call infeasible, and what it says of programs that really are.
#include <gtest/gtest.h>

#include "planner/solver/mip.h"

namespace cad::planner::solver {
namespace {

Program::Row at_most(std::vector<int> columns, std::vector<double> values, double most) {
  Program::Row row;
  row.columns = std::move(columns);
  row.values = std::move(values);
  row.most = most;
  return row;
}

Program::Row at_least(std::vector<int> columns, std::vector<double> values, double least) {
  Program::Row row;
  row.columns = std::move(columns);
  row.values = std::move(values);
  row.least = least;
  return row;
}

TEST(Program, SmallCoefficientBesideALargeOne) {
  Program program;
  program.columns = {{1, -200, 200, false}, {0, -200, 200, false}, {-1, -200, 200, true}};
  program.rows = {at_most({0, 2}, {-0.02, 88.5}, -1139)};
  const ProgramResult result = solve_program(program, 10);
  ASSERT_EQ(result.status, ProgramStatus::kOptimal);
  EXPECT_NEAR(result.cost, -187, 1e-6);
  EXPECT_NEAR(result.values[0], -200, 1e-6);
  EXPECT_NEAR(result.values[2], -13, 1e-6);
}

TEST(Program, ThreeRowsOverTwoColumns) {
  Program program;
  program.columns = {{1, -200, 200, false}, {0, -200, 200, true}};
  program.rows = {at_most({0, 1}, {41, 49}, -508), at_most({0, 1}, {22, -64}, -943),
                  at_least({1}, {83}, 506)};
  const ProgramResult result = solve_program(program, 10);
  ASSERT_EQ(result.status, ProgramStatus::kOptimal);
  EXPECT_NEAR(result.cost, -200, 1e-6);
}

TEST(Program, InfeasibleUnboundedAndOutOfTime) {
  Program program;
  program.columns = {{1, 0, 1, true}, {1, 0, 1, true}};
  program.rows = {at_least({0, 1}, {1, 1}, 3)};
  EXPECT_EQ(solve_program(program, 10).status, ProgramStatus::kInfeasible);
  program.rows = {at_least({0, 1}, {2, 2}, 1), at_most({0, 1}, {2, 2}, 1)};  // only halves
  EXPECT_EQ(solve_program(program, 10).status, ProgramStatus::kInfeasible);
  program.columns = {{-1, 0, kForbidden, false}};
  program.rows = {at_least({0}, {1}, 1)};
  EXPECT_EQ(solve_program(program, 10).status, ProgramStatus::kUnbounded);
  // a knapsack of many near-equal things, stopped at once
  program = {};
  Program::Row row;
  for (int c = 0; c < 60; ++c) {
    program.columns.push_back({-1000.0 - c * 7 % 13, 0, 1, true});
    row.columns.push_back(c);
    row.values.push_back(1000.0 + c * 11 % 17);
  }
  row.most = 30007.5;
  program.rows = {row};
  const ProgramResult stopped = solve_program(program, 10, kForbidden, 3);
  EXPECT_TRUE(stopped.status == ProgramStatus::kTime || stopped.status == ProgramStatus::kFeasible);
}

TEST(Program, CutoffLeavesOnlyWhatIsBelow) {
  Program program;
  for (int c = 0; c < 6; ++c) program.columns.push_back({1.0 + c, 0, 1, true});
  program.rows = {at_least({0, 1, 2, 3, 4, 5}, {1, 1, 1, 1, 1, 1}, 2)};  // optimum 1 + 2
  const ProgramResult above = solve_program(program, 10, 4);
  ASSERT_EQ(above.status, ProgramStatus::kOptimal);
  EXPECT_NEAR(above.cost, 3, 1e-9);
}

}  // namespace
}  // namespace cad::planner::solver
