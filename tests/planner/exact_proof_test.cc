// tests/planner/exact_proof_test.cc -- proofs by label sets, and the search with them, against
// counting out every plan of random problems with loops (tests/planner/random_problem.h). Counting
// shares evaluate() with them and nothing else.
#include "planner/exact_proof.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "planner/frontier.h"
#include "planner/machines.h"
#include "planner/planner.h"
#include "tests/planner/joint_testing.h"
#include "tests/planner/random_problem.h"

namespace cad::planner {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

struct Counted {
  std::vector<Evaluation> all;  // of valid plans
  double least_peak = kInfinite, most_peak = 0;
};

Counted count_out(const Problem& problem, const std::vector<BodyPlan>& plans) {
  Counted counted;
  for (const BodyPlan& plan : plans) {
    const Evaluation e = evaluate(problem, plan);
    if (!e.valid) continue;
    counted.all.push_back(e);
    counted.least_peak = std::min(counted.least_peak, e.peak);
    counted.most_peak = std::max(counted.most_peak, e.peak);
  }
  return counted;
}

double fastest(const Counted& counted, double budget) {
  double best = kInfinite;
  for (const Evaluation& e : counted.all) {
    if (e.peak <= budget) best = std::min(best, e.seconds);
  }
  return best;
}

struct Tally {
  int problems = 0, proofs = 0, below = 0, impossible = 0, loops = 0;
};

void expect_proof(const Problem& problem, double budget, double best, const ProofLimits& limits,
                  Tally& tally) {
  const auto proof = prove(problem, budget, limits);
  ASSERT_TRUE(proof.has_value());
  ASSERT_TRUE(proof->complete);
  ++tally.proofs;
  // nothing that fits is faster than the bound
  EXPECT_LE(proof->bound, best * (1 + 1e-9) + 1e-9);
  EXPECT_LE(proof->bound, limits.target + 1e-9);
  if (best > limits.target) {
    ++tally.below;
    EXPECT_FALSE(proof->plan.has_value());
    EXPECT_NEAR(proof->bound, limits.target, 1e-9 * limits.target);
    return;
  }
  EXPECT_GE(proof->bound, best - limits.grain - 1e-6 * best);
  ASSERT_TRUE(proof->plan.has_value());
  const Evaluation found = evaluate(problem, *proof->plan);
  EXPECT_TRUE(found.valid);
  EXPECT_LE(found.peak, budget * (1 + 1e-12));
  EXPECT_GE(found.seconds, best * (1 - 1e-9));
  EXPECT_LE(found.seconds, best + limits.grain + 1e-6 * best);
}

void expect_search(const Problem& problem, double budget, double best) {
  Search search(problem);
  search.be_exact(0, 1e-7);
  const Found found = search.run(budget);
  if (best == kInfinite) {
    EXPECT_FALSE(found.feasible);
    EXPECT_GT(found.least_peak, budget);
    return;
  }
  EXPECT_LE(found.bound, best * (1 + 1e-5));
  ASSERT_TRUE(found.feasible);
  EXPECT_LE(found.evaluation.peak, budget);
  EXPECT_NEAR(found.evaluation.seconds, best, 2e-6 * best);
}

// Of up to three variables.
MomentPrices random_prices(const Problem& problem, std::mt19937& draw) {
  MomentPrices prices;
  prices.hide = static_cast<double>(draw() % 3) / 2;
  for (uint32_t n = draw() % 4; n > 0; --n) {
    const size_t region = draw() % problem.regions.size();
    const size_t variable = draw() % problem.regions[region].variables.size();
    prices.list.push_back({region, variable, static_cast<double>(1 + draw() % 4) / 16});
  }
  return prices;
}

void compare(uint32_t seed, Tally& tally) {
  const RandomProblem random(seed);
  const Problem& problem = random.problem();
  std::vector<BodyPlan> plans;
  if (!random.plans(6'000, plans)) return;
  const Counted counted = count_out(problem, plans);
  if (counted.all.empty()) return;
  SCOPED_TRACE(seed);
  ++tally.problems;
  for (const RegionProblem& region : problem.regions) tally.loops += region.trips > 1 ? 1 : 0;
  std::mt19937 draw(seed + 1);
  for (int i = 0; i < 4; ++i) {
    const double part = static_cast<double>(draw() % 100) / 100;
    const double budget =
        i == 0 ? counted.most_peak
               : counted.least_peak +
                     std::floor(part * part * (counted.most_peak - counted.least_peak));
    const double best = fastest(counted, budget);
    if (!(best > 0)) continue;
    ProofLimits limits;
    limits.price = static_cast<double>(draw() % 4) / 8;
    limits.hide = static_cast<double>(draw() % 3) / 2;
    limits.moments = random_prices(problem, draw);
    limits.grain = i == 3 ? 0.01 * best : 0;
    for (const double times : {0.97, 1.0, 1.3}) {
      limits.target = best * times * (1 + 1e-9);
      expect_proof(problem, budget, best, limits, tally);
    }
    expect_search(problem, budget, best);
  }
  // a byte less than the least
  const double less = counted.least_peak - 1;
  if (less <= 0) return;
  ++tally.impossible;
  ProofLimits limits;
  limits.target = 1e6;
  const auto proof = prove(problem, less, limits);
  ASSERT_TRUE(proof.has_value() && proof->complete);
  EXPECT_FALSE(proof->plan.has_value());
  expect_search(problem, less, kInfinite);
}

TEST(ExactProof, EqualsCountingOutEveryPlan) {
  Tally tally;
  for (uint32_t seed = 1; seed <= 2000 && tally.problems < 300; ++seed) {
    compare(seed, tally);
    if (::testing::Test::HasFatalFailure() || ::testing::Test::HasNonfatalFailure()) break;
  }
  EXPECT_GE(tally.problems, 300);
  EXPECT_GE(tally.proofs, 3000);
  EXPECT_GE(tally.below, 900);
  EXPECT_GE(tally.impossible, 250);
  EXPECT_GE(tally.loops, 200);
}

// Tied embeddings on 2x2, where what is short is memory for a moment.
TEST(ExactProof, PricesOfMomentsRuleOutMost) {
  const auto p = planned(tied_gpt(16, 3, 8, 257, 2) + token_training(64));
  const Cluster cluster = *find_cluster({}, "pairs_a100", 4);
  const Problem problem =
      make_problem(p->sites, mesh_of(cluster, {2, 2}), p->training, cost_model(cluster.device));
  Search search(problem);
  const double budget = std::floor(1.36 * search.run(1).least_peak);
  search.be_exact(0, 1e-7, 0);
  const double known = search.run(budget).evaluation.seconds;
  const Found found = search.run(budget, known);
  ASSERT_TRUE(found.feasible);
  ProofLimits limits;
  limits.price = search.line().price;
  limits.hide = search.line().hide;
  limits.target = found.evaluation.seconds;
  limits.work = 100'000'000;
  EXPECT_FALSE(prove(problem, budget, limits)->complete);
  limits.moments = search.moment_prices();
  ASSERT_GT(limits.moments.sum(), 0);
  const auto proof = prove(problem, budget, limits);
  ASSERT_TRUE(proof->complete);
  ASSERT_TRUE(proof->plan.has_value());
  const Evaluation best = evaluate(problem, *proof->plan);
  EXPECT_LE(best.peak, budget);
  EXPECT_NEAR(best.seconds, proof->bound, 1e-9 * best.seconds);
}

}  // namespace
}  // namespace cad::planner
