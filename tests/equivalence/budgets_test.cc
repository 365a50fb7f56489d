// Budgets that are met only by running part of the forward pass again, for every kind of model, on
// one device, on a line and on a grid: within the budget, and one device's losses, gradients and
// weights. Models as elsewhere, but with a loop each and so many rows, or such large images, that
// activations are most of the memory.
#include "tests/equivalence/plans.h"

namespace cad::backend {
namespace {

using Changes = std::vector<std::pair<std::string, std::string>>;

TestModel changed(const std::string& name, const Changes& changes) {
  for (const TestModel& model : test_models()) {
    if (model.name != name) continue;
    TestModel result = model;
    for (const auto& [from, to] : changes) {
      const size_t at = result.text.find(from);
      EXPECT_NE(at, std::string::npos) << name << " has no " << from;
      if (at != std::string::npos) result.text.replace(at, from.size(), to);
    }
    return result;
  }
  ADD_FAILURE() << "no model " << name;
  return {};
}

// A little more than the least that the planner can do.
void check(const std::string& name, const Changes& changes,
           const std::vector<std::vector<int>>& meshes = {{1}, {3}, {2, 2}}) {
  const auto model = reference(changed(name, changes));
  for (const std::vector<int>& sizes : meshes) {
    const PlansOf plans(*model, sizes);
    const std::string where = name + " on " + plans.mesh().str();
    const planner::Planning ample = plans.plan(planner::Checkpointing::kAuto, PlansOf::kAmple);
    const double least = plans.plan(planner::Checkpointing::kAuto, 1).least_peak;
    const double most = ample.plan.predicted.peak_bytes;
    ASSERT_TRUE(ample.feasible && 0 < least && least < most) << where;
    const auto tight = plans.automatic(planner::Checkpointing::kAuto, least + (most - least) / 50);
    ASSERT_TRUE(tight.has_value()) << where;
    const int64_t budget = bytes_of(*model, where, *tight);
    const int64_t liked =
        bytes_of(*model, where, planner::placement_of(*ample.problem, ample.body));
    const int64_t kept = bytes_of(*model, where, all_saved(*tight, ir::Saving::kKeep));
    EXPECT_LT(budget, liked) << where;
    EXPECT_LT(budget, kept) << where << ": nothing is run again to save memory";
    fmt::print("{}: budget {}; {} if nothing is run again, {} as it likes\n", where, budget, kept,
               liked);
    const auto trainer = compiled(*model, where, *tight, budget);
    ASSERT_NE(trainer, nullptr);
    ThreadWorld world(trainer->mesh().devices(), 60);
    expect_equal(run_devices(*trainer, world, where), *model, where);
  }
}

TEST(Budgets, OfGpt) {
  check("gpt", {{"B: 6,", "B: 21,"}, {"L = 2", "L = 4"}});
}
TEST(Budgets, OfLlama) {
  check("llama", {{"B: 6,", "B: 21,"}});
}
// On a line five experts are padded, and what the planner takes for little memory is not.
TEST(Budgets, OfExperts) {
  check("experts",
        {{"B: 6,", "B: 42,"}, {"L = 2", "L = 3"}, {"M = 8", "M = 40"}, {"F = 7", "F = 35"}},
        {{1}, {2, 2}});
}
TEST(Budgets, OfConvnet) {
  check("convnet", {{"Y = 8, X = 8", "Y = 20, X = 12"},
                    {"O2 = 5", "O2 = 5, L = 3"},
                    {"x = dropout(ResBlock[O2, Y3, X3](x), 0.1)",
                     "repeat L as h { x = dropout(ResBlock[O2, Y3, X3](x), 0.1) }"}});
}
// On a line of three what runs again takes more for a moment, compiled, than it saves.
TEST(Budgets, OfTable) {
  check("table",
        {{"B: 6,", "B: 510,"},
         {"O = 2", "O = 2, L = 3"},
         {"  return Linear[F -> O](dropout(h, 0.1))",
          "  repeat L as g { h = h + dropout(relu(Linear[F -> F](h)), 0.1) }\n"
          "  return Linear[F -> O](h)"}},
        {{1}, {2, 2}});
}

}  // namespace
}  // namespace cad::backend
