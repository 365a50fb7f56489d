// tests/spmd/segments_test.cc -- runs of a loop in segments, lowered: the gradient keeps the carry
// before each segment and nothing else, numbers of iterations are those of the whole loop, and the
// step is the whole one. Random placements have segments too: tests/spmd/lower_test.cc.
#include "tests/spmd/spmd_testing.h"

namespace cad::backend {
namespace {

planner::Placement in_segments(const WholeModel& m,
                               const std::vector<planner::RunPlacement>& runs) {
  planner::Placement placement = planner::replicated_placement(test_mesh({2}));
  for (size_t i = 0; i < m.forward.nodes.size(); ++i) {
    if (m.forward.nodes[i].op == ir::Op::kRepeat) placement.top.loops[static_cast<int>(i)] = runs;
  }
  return placement;
}

std::vector<ir::Node> loops_in(const ir::Graph& g, ir::RegionId region) {
  std::vector<ir::Node> out;
  for (const ir::NodeId id : g.region(region).nodes) {
    if (g.node(id).op == ir::Op::kRepeat) out.push_back(g.node(id));
  }
  return out;
}

WholeModel gpt(int iterations) {
  return whole_model(example_text("gpt.cad"), {{"B", "2"},
                                               {"T", "4"},
                                               {"V", "11"},
                                               {"D", "6"},
                                               {"H", "2"},
                                               {"L", std::to_string(iterations)}});
}

TEST(LoweredSegments, KeepOneCarryEach) {
  const WholeModel m = gpt(6);
  const LocalGraph local =
      lower_forward(m.forward, m.spec.bindings, in_segments(m, {{6, {{}}, 3}}));
  const ir::Graph g = differentiate_local(local, [](const LocalTensor&) { return true; });
  const std::vector<ir::Node> top = loops_in(g, ir::RegionId{0});
  ASSERT_EQ(top.size(), 2u);  // forward, backward
  const auto trips = [&](const ir::Node& n) { return *g.dim(n.loop.dim).size.constant(); };
  EXPECT_EQ(trips(top[0]), 2);
  EXPECT_EQ(top[0].loop.collected, 1);  // the carry
  const std::vector<ir::Node> forward = loops_in(g, top[0].loop.body);
  ASSERT_EQ(forward.size(), 1u);
  EXPECT_EQ(trips(forward[0]), 3);
  EXPECT_EQ(forward[0].loop.collected, 0);
  const std::vector<ir::Node> backward = loops_in(g, top[1].loop.body);
  ASSERT_EQ(backward.size(), 2u);  // forward again, then backward
  EXPECT_EQ(trips(backward[0]), 3);
  EXPECT_GT(backward[0].loop.collected, 0);
  EXPECT_FALSE(backward[0].loop.reverse);
  EXPECT_TRUE(backward[1].loop.reverse);
}

// A remainder that is no segment, segments of different lengths, single ones.
TEST(LoweredSegments, AreTheWholeStep) {
  const WholeModel m = gpt(7);
  const std::vector<std::vector<planner::RunPlacement>> cases = {
      {{7, {{}}, 7}},
      {{7, {{}}, 1}},
      {{6, {{}}, 3}, {1, {{}}, 0}},
      {{4, {{}}, 2}, {3, {{}}, 3}},
      {{1, {{}}, 0}, {6, {{}}, 2}},
      {{2, {{}, {}}, 2}, {3, {{}}, 1}},
  };
  for (size_t i = 0; i < cases.size(); ++i)
    EXPECT_EQ(lowered_difference(m, in_segments(m, cases[i])), "") << i;
}

}  // namespace
}  // namespace cad::backend
