// Layouts that no planner would pick: a random legal strategy for every op, random layouts of
// parameters, gradients and optimizer states, random runs of loops, copies and savings. 232 of
// them, carried out by the executor, are one device.
#include "tests/equivalence/plans.h"

namespace cad::backend {
namespace {

// So many on each of eight meshes.
void check(size_t index, uint32_t each = 5) {
  const std::unique_ptr<const Reference> model = reference(test_models()[index]);
  std::vector<std::vector<int>> meshes = line_meshes();
  meshes.insert(meshes.end(), grid_meshes().begin(), grid_meshes().end());
  int layouts = 0;
  for (const std::vector<int>& sizes : meshes) {
    const PlansOf plans(*model, sizes);
    for (uint32_t i = 0; i < each; ++i, ++layouts) {
      const uint32_t seed = 1000 * static_cast<uint32_t>(index) + static_cast<uint32_t>(layouts);
      const std::string what =
          fmt::format("{}: layout {} on {}", model->name, seed, plans.mesh().str());
      const auto trainer = compiled(*model, what, plans.random(seed));
      ASSERT_NE(trainer, nullptr);
      ThreadWorld world(trainer->mesh().devices(), 60);
      expect_equal(run_devices(*trainer, world, what), *model, what);
    }
  }
  EXPECT_EQ(layouts, static_cast<int>(8 * each));
}

TEST(RandomLayouts, OfGpt) {
  check(0);
}
TEST(RandomLayouts, OfLlama) {
  check(1);
}
TEST(RandomLayouts, OfExperts) {
  check(2);
}
TEST(RandomLayouts, OfConvnet) {
  check(3);
}
TEST(RandomLayouts, OfTable) {
  check(4);
}
TEST(RandomLayouts, OfLoopsMentionedTwice) {
  check(5, 2);
}
TEST(RandomLayouts, OfStatesUpdatedTwice) {
  check(6, 2);
}

}  // namespace
}  // namespace cad::backend
