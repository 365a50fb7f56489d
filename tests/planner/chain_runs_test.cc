// tests/planner/chain_runs_test.cc -- plans of three runs: closed forms against the simulator,
// small ones against all plans, and what they lose against the recurrence.
#include "planner/chain_runs.h"

#include <gtest/gtest.h>

#include <random>

namespace cad::planner {
namespace {

int64_t pick(std::mt19937_64& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

BlockChain random_blocks(std::mt19937_64& random, int64_t count, int64_t options) {
  BlockChain blocks;
  blocks.count = count;
  blocks.boundary = pick(random, 1, 4);
  for (int64_t o = 0; o < options; ++o) {
    StageOption option;
    option.forward = static_cast<double>(pick(random, 3, 6));
    option.backward = static_cast<double>(pick(random, 6, 16));
    option.saved = blocks.boundary + pick(random, 0, 20);
    option.forward_tmp = pick(random, 0, 6);
    option.backward_tmp = pick(random, 0, 6);
    blocks.options.push_back(option);
  }
  blocks.loss.backward = 2;
  blocks.loss.backward_tmp = pick(random, 0, 30);
  return blocks;
}

void expect_sound(const BlockChain& blocks, int64_t budget, const ChainRuns& plan) {
  ASSERT_TRUE(plan.feasible);
  const Chain chain = expand(blocks);
  const ChainSimulation run = simulate(chain, runs_schedule(blocks, plan));
  EXPECT_EQ(run.error, "");
  EXPECT_EQ(run.peak, plan.peak);
  EXPECT_LE(run.peak, budget);
  EXPECT_DOUBLE_EQ(run.time, plan.time);
  EXPECT_EQ(run.baseline, 2 * blocks.boundary);
  EXPECT_LE(plan.runs.size(), 3);
}

// Every plan of at most three runs, by the simulator alone. Negative: none fits.
double best_by_trying(const BlockChain& blocks, int64_t budget) {
  const Chain chain = expand(blocks);
  double best = -1;
  const int64_t n = blocks.count;
  const auto options = static_cast<int>(blocks.options.size());
  std::vector<ChainRun> kinds;
  for (int64_t g = 0; g <= n; ++g) {
    for (int o = 0; o < options; ++o) kinds.push_back({0, g, o});
  }
  const auto offer = [&](std::vector<ChainRun> runs) {
    for (int way = 0; way < options; ++way) {
      ChainRuns plan;
      plan.runs = runs;
      plan.forward_option = way;
      const ChainSimulation run = simulate(chain, runs_schedule(blocks, plan));
      EXPECT_EQ(run.error, "");
      if (run.peak <= budget && (best < 0 || run.time < best)) best = run.time;
    }
  };
  for (ChainRun a : kinds) {
    a.blocks = n;
    offer({a});
    for (ChainRun b : kinds) {
      for (a.blocks = 1; a.blocks < n; ++a.blocks) {
        b.blocks = n - a.blocks;
        offer({a, b});
        for (ChainRun c : kinds) {
          for (b.blocks = 1; b.blocks < n - a.blocks; ++b.blocks) {
            c.blocks = n - a.blocks - b.blocks;
            offer({a, b, c});
          }
        }
      }
    }
  }
  return best;
}

TEST(ChainRuns, EqualEveryPlanOfThreeRuns) {
  std::mt19937_64 random(5);
  int compared = 0;
  for (int i = 0; i < 60; ++i) {
    const BlockChain blocks = random_blocks(random, 1 + i % 5, 1 + i % 2);
    const int64_t least = least_runs_budget(blocks);
    EXPECT_FALSE(three_runs(blocks, least - 1).feasible);
    EXPECT_EQ(three_runs(blocks, least - 1).least_budget, least);
    EXPECT_LT(best_by_trying(blocks, least - 1), 0) << i;
    for (const int64_t budget : {least, least + pick(random, 1, 30), least + 60}) {
      const ChainRuns plan = three_runs(blocks, budget);
      expect_sound(blocks, budget, plan);
      EXPECT_DOUBLE_EQ(plan.time, best_by_trying(blocks, budget)) << i << " budget " << budget;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 180);
}

TEST(ChainRuns, LessMemoryIsNeverFaster) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 10; ++i) {
    const BlockChain blocks = random_blocks(random, pick(random, 20, 300), 3);
    const int64_t least = least_runs_budget(blocks);
    double last = 1e300;
    for (int64_t budget = least; budget < least + 2000; budget += 37) {
      const ChainRuns plan = three_runs(blocks, budget);
      expect_sound(blocks, budget, plan);
      EXPECT_LE(plan.time, last);
      last = plan.time;
    }
  }
}

// What three runs lose against nested recomputation, over random blocks and budgets.
TEST(ChainRuns, LoseLittleAgainstTheRecurrence) {
  std::mt19937_64 random(8);
  double sum = 0, worst = 0;
  int cases = 0;
  for (int i = 0; i < 60; ++i) {
    const BlockChain blocks = random_blocks(random, pick(random, 8, 100), 1 + i % 3);
    const Chain chain = expand(blocks);
    const int64_t least = least_runs_budget(blocks);
    EXPECT_LE(least_chain_budget(chain), least);
    for (int j = 0; j < 3; ++j) {
      const int64_t budget = least + pick(random, 0, 12 * blocks.count);
      const double best = solve_chain(chain, budget, {20000, 4000000000}).bound;
      const ChainRuns plan = three_runs(blocks, budget);
      const double loss = plan.time / best - 1;
      EXPECT_GE(loss, -1e-12);
      sum += loss;
      worst = std::max(worst, loss);
      ++cases;
    }
  }
  RecordProperty("mean_percent", std::to_string(100 * sum / cases));
  RecordProperty("worst_percent", std::to_string(100 * worst));
  EXPECT_LE(sum / cases, 0.004);  // 0.2 % on average,
  EXPECT_LE(worst, 0.20);         // and up to 16 % where the budget is near the least
}

}  // namespace
}  // namespace cad::planner
