// tests/runtime/permutes_test.cc -- tensors whose parts move to other devices, on devices that are
// threads: every pair of layouts on the way between which the planner permutes, sizes that divide
// and that do not, who sends what, and what a device holds meanwhile. All other conversions, by
// interpreters: tests/spmd/convert_test.cc.
#include "backend/spmd/lower.h"
#include "planner/conversion.h"
#include "tests/planner/spmd_check.h"
#include "tests/runtime/device_harness.h"

namespace cad::backend {
namespace {

using planner::Layout;
using planner::Mesh;
using testing::DeviceTensors;

struct Conversion {
  Mesh mesh;
  std::vector<int64_t> extents;
  Layout from, to;
};

// A device's buffer of `copies` tensors of which the k-th element of all is k; beyond its own part
// -1.
ir::Tensor part_of(const Conversion& c, const Layout& layout, int64_t copies, int device,
                   ir::DType dtype) {
  const auto own =
      planner::local_ranges(layout, c.extents, c.mesh, planner::coordinates_of(c.mesh, device));
  ir::Tensor part;
  part.dtype = dtype;
  part.extents = {copies};
  std::vector<int64_t> at(own.size() + 1, 0);
  for (size_t i = 0; i < own.size(); ++i) {
    part.extents.push_back(
        planner::local_extent(layout, static_cast<int>(i), c.extents[i], c.mesh));
  }
  for (bool more = true; more;) {
    int64_t number = at[0];
    bool mine = true;
    for (size_t i = 0; i < own.size(); ++i) {
      mine = mine && at[i + 1] < own[i].extent;
      number = number * c.extents[i] + own[i].offset + at[i + 1];
    }
    part.data.push_back(mine ? static_cast<double>(number) : -1.0);
    size_t k = at.size();
    while (k > 0 && ++at[k - 1] == part.extents[k - 1]) at[--k] = 0;
    more = k > 0;
  }
  return part;
}

// "" when every device ends with its part; its program is looked at with `look`.
template <class Look>
std::string fault_of(const Conversion& c, ir::DType dtype, Look&& look) {
  constexpr int64_t kCopies = 2;
  const ir::Graph g = conversion_graph(c.mesh, dtype, kCopies, c.extents, c.from, c.to);
  CompileOptions options;
  options.threads = 1;
  const Program program = compile(g, {}, options);
  look(program);
  DeviceTensors inputs;
  for (int d = 0; d < c.mesh.devices(); ++d)
    inputs.push_back({part_of(c, c.from, kCopies, d, dtype)});
  ThreadWorld world(c.mesh.devices());
  const testing::DeviceOutcomes out = testing::run_on_world(world, program, inputs, {});
  if (!out.ended.ok()) return world.failure().value_or("no reason");
  for (int d = 0; d < c.mesh.devices(); ++d) {
    const ir::Tensor want = part_of(c, c.to, kCopies, d, dtype);
    const ir::Tensor& got = out.devices[static_cast<size_t>(d)].results[0];
    if (got.extents != want.extents) return fmt::format("device {}: other extents", d);
    for (size_t k = 0; k < want.data.size(); ++k) {
      if (want.data[k] >= 0 && got.data[k] != want.data[k])
        return fmt::format("device {}: {} instead of {}", d, got.data[k], want.data[k]);
    }
  }
  return "";
}

TEST(Permutes, EveryPairOfLayouts) {
  int permuted = 0, uneven = 0, met = 0;
  for (const std::vector<int>& sizes : {std::vector<int>{2, 2}, {2, 3}, {4, 2}, {2, 2, 2}}) {
    const Mesh mesh = planner::mesh_of(sizes);
    for (const std::vector<int64_t>& extents :
         {std::vector<int64_t>{24, 24}, {9, 5}, {7, 11}, {8, 4, 12}}) {
      const planner::ConversionTable table(mesh, extents, 4, false);
      for (const Layout& from : table.layouts()) {
        for (const Layout& to : table.layouts()) {
          const std::vector<planner::Step> path = table.path(from, to);
          // those that permute or move twice; of many an even share
          const auto moves = [](const planner::Step& a, const planner::Step& b) {
            const auto one = [](const planner::Step& step) {
              return step.kind == planner::Step::Kind::kPermute ||
                     step.kind == planner::Step::Kind::kAllToAll;
            };
            return one(a) && one(b);
          };
          const bool twice = std::adjacent_find(path.begin(), path.end(), moves) != path.end();
          const bool once = std::any_of(path.begin(), path.end(), [](const planner::Step& step) {
            return step.kind == planner::Step::Kind::kPermute;
          });
          if ((!twice && !once) || ++met % 5 != 1) continue;
          const std::string fault = fault_of({mesh, extents, from, to},
                                             permuted % 2 == 0 ? ir::DType::kF32 : ir::DType::kI32,
                                             [](const Program&) {});
          ASSERT_EQ(fault, "") << mesh.str() << " " << extents[0] << "x" << extents[1];
          ++permuted;
          uneven += extents[1] == 11 || extents[1] == 5 ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(permuted, 20);
  EXPECT_GT(uneven, 0);
}

// 1024 x 1024 from rows over the first axis and columns over the second to the other way round: a
// device receives no more than the 512 KiB that it then has, in one go, and never holds all 4 MiB.
TEST(Permutes, AxesThatChangePlaces) {
  for (const std::vector<int>& sizes : {std::vector<int>{2, 4}, {4, 2}, {2, 2}}) {
    Conversion c;
    c.mesh = planner::mesh_of(sizes);
    c.extents = {1024, 1024};
    c.from.axis = {0, 1, planner::kReplicated};
    c.to.axis = {1, 0, planner::kReplicated};
    const int64_t copies = 2, part = copies * 4 * 1024 * 1024 / c.mesh.devices();
    const std::string fault = fault_of(c, ir::DType::kF32, [&](const Program& program) {
      const std::vector<CollectivePlan>& plans = program.impl().collectives;
      ASSERT_EQ(plans.size(), 1U);
      const CollectiveCall& call = plans[0].call;
      EXPECT_EQ(call.kind, CollectiveKind::kPermute);
      for (int to = 0; to < call.size(); ++to) {
        int64_t bytes = 0, own = 0;
        for (int from = 0; from < call.size(); ++from)
          (from == to ? own : bytes) += 4 * piece(call, 0, from, to).elements();
        EXPECT_EQ(bytes + own, part);
        EXPECT_LE(bytes, part) << to;
      }
      EXPECT_LE(program.transient_bytes(), part);  // besides what comes in and goes out
    });
    EXPECT_EQ(fault, "") << c.mesh.str();
  }
}

}  // namespace
}  // namespace cad::backend
