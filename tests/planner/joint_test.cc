// tests/planner/joint_test.cc -- the joint planner on stacks of dense layers with known answers.
#include "tests/planner/joint_testing.h"

namespace cad::planner {
namespace {

double best_bytes(const std::string& text, int devices, const std::vector<int>& sizes) {
  auto p = planned(text);
  const Problem problem =
      make_problem(p->sites, mesh_of(equal_links(devices), sizes), p->training, communication_only());
  Search search(problem);
  const Found found = search.run(std::numeric_limits<double>::infinity());
  EXPECT_TRUE(found.exact);
  EXPECT_TRUE(found.feasible);
  return found.evaluation.seconds;
}

// Seconds at one byte a second; an all-reduce of V bytes over n devices takes 2 V (n - 1) / n.
double all_reduce(double bytes, int n) {
  return 2 * bytes * (n - 1) / n;
}

TEST(DenseLayers, LargeBatchIsDataParallel) {
  EXPECT_NEAR(best_bytes(dense_layers(6, 256, 32), 4, {4}), all_reduce(25344, 4), 20);
}

TEST(DenseLayers, WideLayersAlternate) {
  EXPECT_NEAR(best_bytes(dense_layers(6, 32, 256), 4, {4}), 5 * all_reduce(32768, 4), 100);
}

}  // namespace
}  // namespace cad::planner
