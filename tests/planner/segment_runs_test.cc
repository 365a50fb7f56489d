// tests/planner/segment_runs_test.cc -- runs of segments against counting out every plan of at most
// three runs of segments of small loops, and against the staircase that no plan with one kind of
// iteration beats.
#include "planner/segment_runs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace cad::planner {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

LoopKinds random_loop(std::mt19937& random) {
  const auto number = [&](int from, int to) {
    return from + static_cast<double>(random() % static_cast<uint32_t>(to - from + 1));
  };
  LoopKinds loop;
  loop.iterations = static_cast<int64_t>(number(2, 9));
  loop.carry = number(1, 3);
  const int kinds = static_cast<int>(number(1, 2));
  for (int k = 0; k < kinds; ++k) {
    SegmentKind kind;
    for (size_t line = 0; line < 2; ++line) {
      kind.plain[line] = number(20, 40);
      kind.again[line] = kind.plain[line] + number(5, 15);
    }
    kind.base = k > 0 && random() % 2 == 0 ? number(10, 14) : 10;
    kind.saved = number(2, 12);
    kind.moment = number(0, 5);
    kind.inside = number(0, 8);
    loop.kinds.push_back(kind);
  }
  for (int k = 0; k < kinds; ++k)
    loop.plain.push_back(std::vector<PlainRun>{PlainRun{k, loop.iterations}});
  return loop;
}

// Every way: up to three runs of segments, the rest of one kind.
double counted(const LoopKinds& loop, double budget) {
  double best = kInfinite;
  SegmentRuns runs;
  const std::function<void(int64_t)> extend = [&](int64_t left) {
    for (int kind = 0; kind < static_cast<int>(loop.kinds.size()) && !runs.segments.empty();
         ++kind) {
      runs.plain.clear();
      if (left > 0) runs.plain.push_back({kind, left});
      const SegmentRuns done = measured(loop, runs);
      if (done.peak <= budget) best = std::min(best, done.seconds);
    }
    if (runs.segments.size() == 3) return;
    for (int kind = 0; kind < static_cast<int>(loop.kinds.size()); ++kind) {
      for (int64_t length = 1; length <= left; ++length) {
        for (int64_t n = 1; n * length <= left; ++n) {
          runs.segments.push_back({kind, n, length});
          extend(left - n * length);
          runs.segments.pop_back();
        }
      }
    }
  };
  extend(loop.iterations);
  return best;
}

TEST(SegmentRuns, NearlyTheBestOfAll) {
  std::mt19937 random(11);
  int equal = 0, all = 0, none = 0;
  for (int i = 0; i < 150; ++i) {
    const LoopKinds loop = random_loop(random);
    const double budget = 12 + static_cast<double>(random() % 60);
    const double best = counted(loop, budget);
    const auto found = best_segment_runs(loop, budget);
    if (best == kInfinite) {
      EXPECT_FALSE(found) << i;
      ++none;
      continue;
    }
    ASSERT_TRUE(found) << i;
    EXPECT_LE(found->peak, budget) << i;
    EXPECT_EQ(measured(loop, *found).seconds, found->seconds) << i;
    EXPECT_LE(found->seconds, best * 1.06) << i;
    ++all;
    equal += found->seconds <= best * (1 + 1e-9) ? 1 : 0;
  }
  EXPECT_GE(all, 80);
  EXPECT_GE(none, 10);
  EXPECT_GE(equal, all * 8 / 10);
}

// One kind, nothing left without segments: the j-th of n segments holds (budget - j carry) / saved
// iterations, so a loop longer than their sum fits no plan.
TEST(SegmentRuns, MostOfTheStaircase) {
  LoopKinds loop;
  loop.carry = 1;
  SegmentKind kind;
  kind.plain = {1e3, 1e3};
  kind.again = {4e3, 4e3};
  kind.saved = 17;
  loop.kinds = {kind};
  for (const double budget : {60.0, 190.0, 400.0}) {
    int64_t most = 0;
    for (double j = 1; j < budget; ++j) most += static_cast<int64_t>((budget - j) / 17);
    int64_t longest = 0;
    for (const int64_t n : {most * 11 / 20, most, most + 1}) {
      loop.iterations = n;
      loop.plain = {std::vector<PlainRun>{PlainRun{0, n}}};
      if (best_segment_runs(loop, budget)) longest = n;
    }
    // three steps of equal width hold three quarters of it; widths come from a coarse grid
    EXPECT_EQ(longest, most * 11 / 20) << budget;
  }
}

}  // namespace
}  // namespace cad::planner
