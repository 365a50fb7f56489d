// tests/planner/budget_properties_test.cc -- what holds for every model, machine and budget, on 182
// random ones of six families: `auto` is no slower than a baseline that fits, less memory
// never gives a faster plan, and what is named where nothing fits does when it is asked for. Each
// plan is made by a call that knows nothing of the others.
#include <algorithm>
#include <cmath>

#include "tests/planner/random_models.h"

namespace cad::planner {
namespace {

constexpr double kSame = 1e-6;  // sums of floats

struct Tally {
  int plans = 0, tight = 0, infeasible = 0, slower = 0;
};

class Instance {
 public:
  Instance(const std::string& family, const std::string& shape, uint32_t seed)
      : random_(seed), program_(planned(random_.text(family))) {
    const char* const clusters[] = {"dgx_a100", "pairs_a100", "p3_16xlarge"};
    request_ = random_request(*program_, clusters[random_.pick({0, 1, 2})], shape);
  }

  void check(Tally& tally) {
    const Planning ample = plan(1e15), none = plan(1);
    ASSERT_TRUE(ample.feasible);
    ASSERT_FALSE(none.feasible);
    const double most = ample.plan.predicted.peak_bytes, least = std::ceil(none.least_peak);
    no_slower_than_baselines(ample);
    double before = ample.plan.predicted.step_s, bound = ample.plan.solver.bound, last = most;
    for (const double budget : budgets(least, most)) {
      const Planning planning = plan(budget);
      ++tally.plans;
      if (budget < least) {
        ++tally.infeasible;
        names_the_least(planning, budget, least);
        continue;
      }
      ASSERT_TRUE(planning.feasible) << budget << " bytes, and " << least << " are enough";
      ++tally.tight;
      EXPECT_LE(planning.plan.predicted.peak_bytes, budget);
      const double step = planning.plan.predicted.step_s;
      EXPECT_GE(step, bound * (1 - kSame)) << budget << " bytes, against the bound of " << last;
      EXPECT_GE(step, before * (1 - kSame)) << budget << " bytes are faster than " << last;
      no_slower_than_baselines(planning);
      tally.slower += step > before * (1 + kSame) ? 1 : 0;
      before = step;
      bound = std::max(bound, planning.plan.solver.bound);
      last = budget;
    }
  }

 private:
  Planning plan(double budget) {
    request_.budget = budget;
    return make_plan(request_);
  }

  // From ample to infeasible: some on a ladder, some close to each other, the least, too little.
  std::vector<double> budgets(double least, double most) {
    std::vector<double> list = {least, std::floor(least * 0.999),
                                std::floor(least * random_.part())};
    for (int i = 0; i < 2; ++i) {
      const double one = std::floor(least * std::pow(most / least, random_.part()));
      list.push_back(one);
      list.push_back(std::floor(one * 0.997));
    }
    std::sort(list.rbegin(), list.rend());
    return list;
  }

  static void no_slower_than_baselines(const Planning& planning) {
    EXPECT_FALSE(planning.plan.alternatives.empty());
    for (const Alternative& a : planning.plan.alternatives) {
      if (a.feasible) {
        EXPECT_LE(planning.plan.predicted.step_s, a.step_s) << a.name;
      }
    }
  }

  static void names_the_least(const Planning& planning, double budget, double least) {
    EXPECT_FALSE(planning.feasible) << budget << " bytes";
    EXPECT_GT(planning.least_peak, budget);
    EXPECT_EQ(std::ceil(planning.least_peak), least) << "the same whatever was asked for";
    EXPECT_FALSE(planning.contributors.empty());
    for (const Alternative& a : planning.plan.alternatives) EXPECT_FALSE(a.feasible) << a.name;
  }

  RandomModels random_;
  std::unique_ptr<Planned> program_;
  PlanRequest request_;
};

void check(const std::string& family, int instances, int first = 0) {
  static const char* const kShapes[] = {"2", "2x2", "4"};
  const std::vector<std::string>& all = model_families();
  const auto number = std::find(all.begin(), all.end(), family) - all.begin();
  Tally tally;
  for (int i = first; i < first + instances; ++i) {
    const std::string shape = kShapes[i % 3];
    SCOPED_TRACE(family + " on " + shape + ", number " + std::to_string(i));
    Instance(family, shape, static_cast<uint32_t>(6 * i + number)).check(tally);
  }
  EXPECT_GE(tally.tight, 2 * instances);
  EXPECT_GE(tally.infeasible, instances);
  EXPECT_GE(tally.slower, instances / 2) << "memory has a price";
}

TEST(BudgetProperties, OfDenseLayers) {
  check("mlp", 6);
}
TEST(BudgetProperties, OfTables) {
  check("table", 6);
}
TEST(BudgetProperties, OfConvnets) {
  check("convnet", 3);
}
TEST(BudgetProperties, OfLlama) {
  check("llama", 4);
}
TEST(BudgetProperties, OfGpt) {
  check("gpt", 6, 3);
}
TEST(BudgetProperties, OfExperts) {
  check("experts", 1);
}

}  // namespace
}  // namespace cad::planner
