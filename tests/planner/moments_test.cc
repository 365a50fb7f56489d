// tests/planner/moments_test.cc -- what is alive for a moment, as a mean over iterations, against
// walking through every iteration of random plans one by one.
#include "planner/moments.h"

#include <gtest/gtest.h>

#include "tests/planner/random_problem.h"

namespace cad::planner {
namespace {

// Of each execution of a region its variables' moments, added up.
struct Walk {
  Moments sum;
  std::vector<double> executions;  // by region
};

void walk(const Problem& p, size_t region, const BodyPlan& plan, Walk& into) {
  const RegionProblem& r = p.regions[region];
  ++into.executions[region];
  const auto choice = [&](size_t v) -> const Choice& {
    return r.variables[v].choices[static_cast<size_t>(plan.choices[v])];
  };
  for (size_t v = 0; v < r.variables.size(); ++v) {
    if (static_cast<int>(v) == r.exit) continue;
    double bytes = static_cast<double>(choice(v).transient);
    for (const Pair& pair : r.pairs) {
      if (pair.b != static_cast<int>(v) || pair.alive.at.empty()) continue;
      bytes += static_cast<double>(
          pair.alive(pair.class_a[static_cast<size_t>(plan.choices[static_cast<size_t>(pair.a)])],
                     pair.class_b[static_cast<size_t>(plan.choices[v])]));
    }
    // in a loop all that runs again in an iteration is there together
    for (size_t other = 0; other < r.variables.size(); ++other) {
      if (static_cast<int>(other) != r.exit && (region > 0 || other == v))
        bytes += static_cast<double>(choice(other).again);
    }
    into.sum[region][v] += bytes;
  }
  for (size_t c = 0; c < r.children.size(); ++c) {
    for (const Run& run : plan.loops[c]) {
      for (int64_t i = 0; i < run.count; ++i) {
        for (const BodyPlan& body : run.pattern)
          walk(p, static_cast<size_t>(r.children[c].region), body, into);
      }
    }
  }
}

// Iterations that are alike, next to each other, as one run.
size_t join(BodyPlan& plan) {
  size_t joined = 0;
  for (std::vector<Run>& loop : plan.loops) {
    std::vector<Run> runs;
    for (Run& run : loop) {
      for (BodyPlan& body : run.pattern) joined += join(body);
      const BodyPlan& body = run.pattern[0];
      if (!runs.empty() && body.loops.empty() && runs.back().pattern[0].choices == body.choices) {
        ++runs.back().count;
        ++joined;
      } else {
        runs.push_back(std::move(run));
      }
    }
    loop = std::move(runs);
  }
  return joined;
}

TEST(Moments, AreTheMeanOfEveryIteration) {
  size_t compared = 0, joined = 0, loops = 0;
  for (uint32_t seed = 1; seed <= 120; ++seed) {
    const RandomProblem random(seed);
    const Problem& problem = random.problem();
    std::vector<BodyPlan> plans;
    random.plans(200, plans);
    for (size_t i = 0; i < plans.size(); i += 7) {
      joined += join(plans[i]);
      Walk all;
      for (const RegionProblem& r : problem.regions) all.sum.emplace_back(r.variables.size(), 0.0);
      all.executions.assign(problem.regions.size(), 0);
      walk(problem, 0, plans[i], all);
      const Moments got = mean_moments(problem, plans[i]);
      for (size_t r = 0; r < problem.regions.size(); ++r) {
        loops += all.executions[r] > 1 ? 1 : 0;
        for (size_t v = 0; v < got[r].size(); ++v, ++compared)
          ASSERT_NEAR(got[r][v], all.sum[r][v] / all.executions[r], 1e-9) << seed << " " << i;
      }
    }
  }
  EXPECT_GT(compared, 2000U);
  EXPECT_GT(joined, 100U);
  EXPECT_GT(loops, 300U);
}

}  // namespace
}  // namespace cad::planner
