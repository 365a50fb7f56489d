// tests/planner/chain_test.cc -- the chain program against exhaustive search, the simulator against
// schedules made by hand, budgets from infeasible to ample, and what is rounded.
#include "planner/chain.h"

#include <gtest/gtest.h>

#include <random>

#include "planner/chain_solver.h"
#include "tests/planner/chain_search.h"

namespace cad::planner {
namespace {

struct Shape {
  int stages = 3;  // before the loss
  int options = 1;
  int64_t size = 6;  // sizes up to this
  bool transient = true;
  bool equal = false;  // all stages alike
};

int64_t pick(std::mt19937_64& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

ChainStage random_stage(std::mt19937_64& random, const Shape& shape) {
  ChainStage stage;
  stage.output = pick(random, 1, shape.size);
  const auto options = pick(random, 1, shape.options);
  for (int64_t o = 0; o < options; ++o) {
    StageOption option;
    option.forward = static_cast<double>(pick(random, 0, 9));
    option.backward = static_cast<double>(pick(random, 0, 15));
    option.saved = stage.output + pick(random, 0, 2 * shape.size);
    if (shape.transient) {
      option.forward_tmp = pick(random, 0, shape.size);
      option.backward_tmp = pick(random, 0, shape.size);
    }
    stage.options.push_back(option);
  }
  return stage;
}

Chain random_chain(std::mt19937_64& random, const Shape& shape) {
  Chain chain;
  chain.input = pick(random, 1, shape.size);
  for (int s = 0; s < shape.stages; ++s) {
    chain.stages.push_back(shape.equal && s > 0 ? chain.stages[0] : random_stage(random, shape));
  }
  if (shape.equal) chain.input = chain.stages[0].output;
  StageOption loss;
  loss.backward = static_cast<double>(pick(random, 0, 4));
  if (shape.transient) loss.backward_tmp = pick(random, 0, shape.size);
  chain.stages.push_back({0, {loss}});
  return chain;
}

int64_t ample_budget(const Chain& chain) {
  return chain.input + ChainModel(chain).ample();
}

Chain uniform(int blocks, StageOption option, int64_t boundary) {
  Chain chain{boundary, {}};
  for (int s = 0; s < blocks; ++s) chain.stages.push_back({boundary, {option}});
  chain.stages.push_back({0, {StageOption{}}});
  return chain;
}

void expect_sound(const Chain& chain, int64_t budget, const ChainResult& result) {
  const ChainSimulation run = simulate(chain, result.schedule);
  EXPECT_EQ(run.error, "");
  EXPECT_LE(run.peak, budget);
  EXPECT_EQ(run.peak, result.peak);
  EXPECT_EQ(run.time, result.time);
  EXPECT_EQ(run.baseline, 2 * chain.input);  // the input and its gradient, nothing counted twice
  EXPECT_LE(result.bound, result.time);
}

// Budgets: the least, one below it, ample, and some between. Returns how many were compared.
int compare_with_search(const Chain& chain, std::mt19937_64& random, int between) {
  const int64_t least = least_chain_budget(chain), ample = ample_budget(chain);
  std::vector<int64_t> budgets{least - 1, least, ample};
  for (int i = 0; i < between; ++i) budgets.push_back(pick(random, least, std::max(least, ample)));
  for (const int64_t budget : budgets) {
    const ChainResult result = solve_chain(chain, budget);
    const std::optional<double> truth = search_chain(chain, budget);
    EXPECT_EQ(result.least_budget, least);
    EXPECT_EQ(result.status == ChainStatus::kInfeasible, !truth) << budget;
    if (!truth || result.status == ChainStatus::kInfeasible) continue;
    EXPECT_EQ(result.status, ChainStatus::kOptimal);
    EXPECT_EQ(result.time, *truth) << "budget " << budget;
    EXPECT_EQ(result.bound, *truth);
    expect_sound(chain, budget, result);
  }
  return static_cast<int>(budgets.size());
}

TEST(Chain, EqualsExhaustiveSearch) {
  std::mt19937_64 random(20191129);
  int instances = 0;
  const auto run = [&](int count, const Shape& shape) {
    for (int i = 0; i < count && !testing::Test::HasFailure(); ++i, ++instances) {
      SCOPED_TRACE(testing::Message() << "instance " << instances);
      compare_with_search(random_chain(random, shape), random, 3);
    }
  };
  for (int stages = 1; stages <= 5; ++stages) {
    run(60, {stages, 1, 6, true, false});
    run(40, {stages, 3, 6, true, false});
    run(20, {stages, 2, 9, false, false});
  }
  run(30, {6, 2, 5, true, false});
  run(20, {6, 3, 4, true, true});
  run(20, {7, 1, 5, true, false});
  run(10, {8, 1, 5, true, false});
  run(10, {8, 1, 4, true, true});
  run(20, {8, 3, 4, true, false});
  EXPECT_TRUE(testing::Test::HasFailure() || instances >= 500) << instances;
}

// Step functions and tables are two programs for one recurrence.
TEST(Chain, TablesEqualStepFunctions) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 40; ++i) {
    Shape shape{1 + i % 12, 3, 12, true, i % 3 == 0};
    const ChainModel model(random_chain(random, shape));
    const int64_t memory = model.ample();
    const ChainTable table(model, memory);
    const auto steps = ChainSteps::solve(model, memory, 1000000000);
    ASSERT_TRUE(steps);
    const int last = model.stages() - 1;
    for (int64_t m = 0; m <= memory; ++m) {
      ASSERT_EQ(table.time(0, last, m), steps->time(0, last, m)) << "instance " << i << " m " << m;
    }
    EXPECT_EQ(table.time(0, last, memory), model.base(0, last));
  }
}

// By hand: one stage and a loss. Input 2, output 3, saved 5, transients 1 and 4, loss transient 7.
TEST(Chain, OneStageByHand) {
  Chain chain{2, {{3, {{10, 20, 5, 1, 4}}}, {0, {{0, 30, 0, 0, 7}}}}};
  // forward 2 + 5 + 1; loss 2 + 5 + 3 + 7; backward 2 + 5 + 3 + 2 + 4
  const ChainResult result = solve_chain(chain, 17);
  EXPECT_EQ(result.status, ChainStatus::kOptimal);
  EXPECT_EQ(result.time, 60);
  EXPECT_EQ(result.peak, 17);
  // The loss's backward may also come before what the stage saves is made.
  const ChainSimulation run = simulate(chain, {{ChainOpKind::kForwardKeep, 0, 0},
                                               {ChainOpKind::kForwardSave, 1, 0},
                                               {ChainOpKind::kBackward, 1, 0},
                                               {ChainOpKind::kDrop, 1, 0},
                                               {ChainOpKind::kForwardSave, 0, 0},
                                               {ChainOpKind::kBackward, 0, 0}});
  EXPECT_EQ(run.error, "");
  EXPECT_EQ(run.time, 70);
  EXPECT_EQ(run.memory, (std::vector<int64_t>{6, 5, 15, 8, 11, 16}));
  EXPECT_EQ(run.peak, 16);
  EXPECT_EQ(least_chain_budget(chain), 16);
  EXPECT_EQ(solve_chain(chain, 16).time, 70);
  EXPECT_EQ(run.baseline, 4);
}

TEST(Chain, SimulatorRefuses) {
  const Chain chain = uniform(2, {1, 2, 5, 0, 0}, 1);
  const auto error = [&](const std::vector<ChainOp>& schedule) {
    return simulate(chain, schedule).error;
  };
  using Kind = ChainOpKind;
  EXPECT_EQ(error({{Kind::kForward, 1, 0}}),
            "operation 0, forward of stage 1: its input is not held");
  EXPECT_EQ(error({{Kind::kForwardSave, 0, 1}}),
            "operation 0, forward-save of stage 0: there is no such option");
  EXPECT_EQ(error({{Kind::kForwardSave, 0, 0}, {Kind::kForwardSave, 0, 0}}),
            "operation 1, forward-save of stage 0: it is saved already");
  EXPECT_EQ(error({{Kind::kForwardSave, 0, 0}, {Kind::kBackward, 0, 0}}),
            "operation 1, backward of stage 0: the gradient of its output is not there");
  EXPECT_EQ(error({{Kind::kForward, 0, 0}, {Kind::kForward, 0, 0}}),
            "operation 1, forward of stage 0: another stage's input would be lost");
  EXPECT_EQ(error({{Kind::kDrop, 1, 0}}), "operation 0, drop of stage 1: it keeps no input");
  EXPECT_EQ(error({{Kind::kDrop, 0, 0}}), "operation 0, drop of stage 0: the chain's input stays");
  EXPECT_EQ(error({{Kind::kForward, 3, 0}}),
            "operation 0, forward of stage 3: there is no such stage");
  EXPECT_EQ(error({{Kind::kForwardSave, 0, 0}}),
            "the schedule ends with work undone or memory held");
}

// 16 equal blocks and 16 random ones, budgets from ample down to the least in 20 steps.
TEST(Chain, LessMemoryIsNeverFasterAndPeaksFit) {
  std::mt19937_64 random(3);
  for (const bool equal : {true, false}) {
    const Chain chain = random_chain(random, {16, 2, 9, true, equal});
    const int64_t ample = ample_budget(chain), least = least_chain_budget(chain);
    double last = 0;
    int64_t feasible = 0;
    for (int step = 20; step >= 1; --step) {
      const int64_t budget = ample * step / 20;
      const ChainResult result = solve_chain(chain, budget);
      EXPECT_EQ(result.status == ChainStatus::kInfeasible, budget < least);
      if (budget < least) continue;
      ++feasible;
      expect_sound(chain, budget, result);
      EXPECT_GE(result.time, last);
      last = result.time;
    }
    EXPECT_GT(feasible, 5);
  }
}

// What is dropped is every kept input, once: nested recomputation, then the baseline again.
TEST(Chain, NestedSchedulesReturnToTheBaseline) {
  const Chain chain = uniform(40, {1, 2, 6, 1, 2}, 2);
  const int64_t least = least_chain_budget(chain);
  const ChainResult tight = solve_chain(chain, least);
  expect_sound(chain, least, tight);
  EXPECT_EQ(tight.peak, least);
  int most = 0;
  std::vector<int> runs(41, 0);
  for (const ChainOp& op : tight.schedule) {
    if (op.kind != ChainOpKind::kBackward && op.kind != ChainOpKind::kDrop) {
      most = std::max(most, ++runs[op.stage]);
    }
  }
  EXPECT_GT(most, 2);  // nested: some stage runs more than twice
}

// Sizes of any magnitude are exact while the chain is short.
TEST(Chain, LargeSizesAreExact) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 20; ++i) {
    const Chain chain = random_chain(random, {1 + i % 6, 2, 1000000007, true, false});
    const int64_t least = least_chain_budget(chain), ample = ample_budget(chain);
    for (const int64_t budget : {least, (least + ample) / 2, ample, int64_t{1} << 61}) {
      const ChainResult result = solve_chain(chain, budget);
      EXPECT_EQ(result.status, ChainStatus::kOptimal);
      EXPECT_FALSE(result.discretised);
      EXPECT_EQ(result.time, search_chain(chain, budget).value_or(-1));
      expect_sound(chain, budget, result);
    }
    EXPECT_FALSE(search_chain(chain, least - 1));
  }
}

// With exact work forbidden sizes are rounded up: claims hold, the bound holds, the gap is small.
TEST(Chain, RoundedSizesNeverClaimTooMuch) {
  std::mt19937_64 random(13);
  int rounded = 0;
  for (int i = 0; i < 30; ++i) {
    const Chain chain = random_chain(random, {12, 2, 100003, true, i % 2 == 0});
    const int64_t least = least_chain_budget(chain), ample = ample_budget(chain);
    for (const int64_t budget : {least, least + (ample - least) / 3, ample - 1}) {
      const ChainResult exact = solve_chain(chain, budget);
      const ChainResult result = solve_chain(chain, budget, {100, 0});
      ASSERT_NE(result.status, ChainStatus::kInfeasible) << i;  // fits exactly, so it is solved
      expect_sound(chain, budget, result);
      EXPECT_GE(result.time, exact.time);
      EXPECT_LE(result.bound, exact.time);
      rounded += result.discretised ? 1 : 0;
      EXPECT_EQ(result.unit > 1, result.discretised);
    }
    EXPECT_EQ(solve_chain(chain, least - 1, {100, 0}).status, ChainStatus::kInfeasible);
  }
  EXPECT_GT(rounded, 60);
}

// 1,000 equal blocks: segments are alike, and the known closed form for ample memory.
TEST(Chain, ManyEqualBlocks) {
  const Chain chain = uniform(1000, {1, 2, 5, 0, 0}, 1);
  EXPECT_EQ(ChainModel(chain).segments().size(), 2001);
  const ChainResult result = solve_chain(chain, 500);
  EXPECT_EQ(result.status, ChainStatus::kOptimal);
  expect_sound(chain, 500, result);
  EXPECT_EQ(solve_chain(chain, 10000).time, 3000);
  // Depth one: kept inputs and one segment. 500 hold fewer than 100 blocks saved, and so more than
  // 900 run twice.
  EXPECT_GE(result.time, 3900);
  EXPECT_LE(result.time, 3950);
}

// 200 equal blocks with sizes in bytes: too many for exact tables, and the gap is small all the
// same.
TEST(Chain, ManyEqualBlocksOfManyBytes) {
  const Chain chain = uniform(200, {1.0, 2.0, 1234567, 3456, 7890}, 100003);
  const int64_t least = least_chain_budget(chain), ample = ample_budget(chain);
  for (const int part : {2, 5, 8}) {
    const int64_t budget = least + (ample - least) / 10 * part;
    const ChainResult result = solve_chain(chain, budget, {500, 100000000});
    EXPECT_TRUE(result.discretised);
    expect_sound(chain, budget, result);
    EXPECT_LE(result.time, 1.01 * result.bound) << part << " bound " << result.bound;
  }
}

TEST(Chain, Errors) {
  EXPECT_EQ(chain_error({}), "the chain has no stage");
  EXPECT_EQ(chain_error({-1, {{1, {StageOption{0, 0, 1, 0, 0}}}}}),
            "the size of the input is negative");
  EXPECT_EQ(chain_error({1, {{1, {}}}}), "stage 0 has no option");
  EXPECT_EQ(chain_error({1, {{2, {StageOption{0, 0, 1, 0, 0}}}}}),
            "stage 0: what is saved includes the output, so it cannot be smaller");
  EXPECT_EQ(chain_error({1, {{1, {StageOption{-1, 0, 1, 0, 0}}}}}), "stage 0: a time is negative");
  EXPECT_EQ(chain_error({1, {{1, {StageOption{1e16, 0, 1, 0, 0}}}}}),
            "the times are too large to be added exactly");
  EXPECT_EQ(chain_error({1, {{1, {StageOption{1, 0, INT64_MAX, 0, 0}}}}}),
            "the sizes are too large to be added");
}

// Out of time before anything is solved: a schedule that fits whenever one exists, and a bound.
TEST(Chain, OutOfTime) {
  std::mt19937_64 random(17);
  ChainLimits no_time;
  no_time.seconds = 0;
  int simple = 0;
  for (int i = 0; i < 40; ++i) {
    const Chain chain = random_chain(random, {30, 2, 9, i % 3 != 0, i % 4 == 0});
    const int64_t least = least_chain_budget(chain);
    for (const int64_t budget : {least, least + 3, least + pick(random, 4, 60)}) {
      const ChainResult exact = solve_chain(chain, budget);
      const ChainResult quick = solve_chain(chain, budget, no_time);
      ASSERT_EQ(exact.status, ChainStatus::kOptimal);
      ASSERT_NE(quick.status, ChainStatus::kInfeasible);
      const ChainSimulation run = simulate(chain, quick.schedule);
      ASSERT_EQ(run.error, "");
      EXPECT_LE(run.peak, budget);
      EXPECT_EQ(run.time, quick.time);
      EXPECT_GE(quick.time, exact.time);
      EXPECT_LE(quick.bound, exact.time);
      if (quick.status == ChainStatus::kSimple) ++simple;
      EXPECT_TRUE(quick.status == ChainStatus::kSimple || quick.time == exact.time);
    }
    EXPECT_EQ(solve_chain(chain, least - 1, no_time).status, ChainStatus::kInfeasible);
  }
  EXPECT_GE(simple, 60);
}

}  // namespace
}  // namespace cad::planner
