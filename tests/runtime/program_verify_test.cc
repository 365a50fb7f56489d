// tests/runtime/program_verify_test.cc -- the verifier finds groups that do not fit together, and
// its work does not grow with devices times collectives.
#include "backend/program_verify.h"

#include <ctime>

#include "tests/runtime/device_harness.h"

namespace cad::backend {
namespace {

using Problems = std::vector<std::string>;
using testing::DeviceGraph;

// Devices 0 .. 5 in rows of three.
std::vector<int> row_of(int64_t device) {
  const int first = static_cast<int>(device) / 3 * 3;
  return {first, first + 1, first + 2};
}

TEST(ProgramVerify, GroupsOnWhichAllAgree) {
  EXPECT_EQ(group_problems(6, row_of), Problems{});
  EXPECT_EQ(group_problems(6, [](int64_t d) { return std::vector<int>{static_cast<int>(d)}; }),
            Problems{});
}

TEST(ProgramVerify, ADeviceOutsideOfItsGroup) {
  const Problems found = group_problems(6, [](int64_t d) { return row_of((d + 3) % 6); });
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0], "device 0 is not in its own group");
}

TEST(ProgramVerify, AMemberThatSeesAnotherGroup) {
  const auto one_alone = [](int64_t d) { return d == 4 ? std::vector<int>{4} : row_of(d); };
  EXPECT_EQ(group_problems(6, one_alone), Problems{"devices 3 and 4 see other groups"});
  const auto other_order = [](int64_t d) {  // ranks within a group are places in the list
    return d == 2 ? std::vector<int>{0, 2, 1} : row_of(d);
  };
  EXPECT_EQ(group_problems(6, other_order), Problems{"devices 0 and 2 see other groups"});
}

TEST(ProgramVerify, ADeviceOfTwoGroups) {
  const auto overlap = [](int64_t d) {
    return d < 3 ? std::vector<int>{0, 1, 2} : std::vector<int>{2, 3, 4, 5};
  };
  EXPECT_EQ(group_problems(6, overlap), Problems{"devices 3 and 2 see other groups"});
}

TEST(ProgramVerify, AMemberThatIsNoDevice) {
  const auto beyond = [](int64_t d) { return d < 3 ? row_of(d) : std::vector<int>{3, 4, 5, 6}; };
  EXPECT_EQ(group_problems(6, beyond), Problems{"the group of device 3 has a device 6"});
}

// However the devices are grouped, a few questions a device.
TEST(ProgramVerify, AsksAFewTimesADevice) {
  constexpr int64_t kDevices = 1 << 14;
  for (const int64_t size : {int64_t{1}, int64_t{2}, int64_t{16}, int64_t{128}, kDevices}) {
    int64_t asked = 0;
    const Problems found = group_problems(kDevices, [&](int64_t d) {
      ++asked;
      std::vector<int> group(static_cast<size_t>(size));
      for (size_t i = 0; i < group.size(); ++i)
        group[i] = static_cast<int>(d / size * size) + static_cast<int>(i);
      return group;
    });
    EXPECT_EQ(found, Problems{});
    EXPECT_LE(asked, 2 * kDevices) << size;
  }
}

// Sums over all sets of axes of a mesh.
Program sums(const std::vector<int64_t>& mesh, int rounds) {
  DeviceGraph m(mesh);
  const ir::DimId d = m.dim("D", 8);
  ir::ValueId x = m.f32("x", {d});
  for (int r = 0; r < rounds; ++r)
    for (uint32_t axes = 1; axes < 1U << mesh.size(); ++axes)
      x = m.b.unary(ir::Op::kTanh, testing::all_reduce(m.b, x, axes));
  m.output("y", x);
  return compile(m.graph, {}, {});
}

// Of the axes {8, 2, 8}, `from` are those of a collective, `to` what it is made to have.
Problems with_axes(uint32_t from, uint32_t to, bool members_too) {
  auto impl = std::make_shared<ProgramImpl>(sums({8, 2, 8}, 1).impl());
  for (CollectivePlan& plan : impl->collectives) {
    if (plan.axes != from) continue;
    plan.axes = to;
    if (members_too) plan.call.members = group_of(impl->graph, to, std::vector<int>{0, 0, 0});
  }
  return verify(Program(impl));
}

TEST(ProgramVerify, ACollectiveOnOtherAxesThanItsNode) {
  EXPECT_EQ(verify(sums({8, 2, 8}, 1)), Problems{});
  const auto names = [](const Problems& found, const std::string& what) {
    return std::any_of(found.begin(), found.end(), [&](const std::string& problem) {
      return problem.find(what) != std::string::npos;
    });
  };
  EXPECT_TRUE(names(with_axes(1, 4, false), "other members than the first device's group"));
  EXPECT_TRUE(names(with_axes(1, 4, true), "other axes than its node"));
  EXPECT_TRUE(names(with_axes(1, 2, false), "has 8 members on axes of 2 devices"));
}

// On 131,072 devices: each set of axes is asked about once, so 64 times as many collectives take
// hardly longer (asked for each, they take 64 times as long).
TEST(ProgramVerify, ManyCollectivesOnManyDevices) {
  const auto seconds = [](int rounds) {
    const Program program = sums({8, 64, 256}, rounds);
    EXPECT_EQ(program.impl().collectives.size(), static_cast<size_t>(7 * rounds));
    const std::clock_t before = std::clock();
    EXPECT_EQ(verify(program), Problems{});
    return static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  };
  const double few = std::max(seconds(1), seconds(1));
  EXPECT_LT(seconds(64), 8 * few + 0.1);
}

}  // namespace
}  // namespace cad::backend
