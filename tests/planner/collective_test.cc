// tests/planner/collective_test.cc -- collectives at hand-computed points, and the mesh levels that
// they are priced by.
#include "planner/collective.h"

#include <gtest/gtest.h>

#include "planner/machines.h"

namespace cad::planner {
namespace {

constexpr double kGB = 1e9;
constexpr double kUs = 1e-6;

Cluster uniform(int64_t nodes, int64_t per_node, Link intra, std::optional<Link> inter = {}) {
  Cluster cluster;
  cluster.name = "test";
  cluster.nodes = nodes;
  cluster.per_node = per_node;
  cluster.intra = intra;
  cluster.inter = inter;
  return cluster;
}

Mesh mesh_of(const Cluster& cluster, const std::vector<Axis>& axes) {
  Result<Mesh> mesh = make_mesh(cluster, axes);
  EXPECT_TRUE(mesh.ok());
  return mesh.ok() ? *mesh : Mesh{};
}

// The ring formulas of docs/planner.md with 2 devices, where ring and halving/doubling agree.
TEST(Collective, TwoDevices) {
  const Mesh mesh = mesh_of(uniform(1, 2, {10 * kGB, 100 * kUs}), {{"x", 2}});
  const double bytes = 1e6;
  const double one_way = 100 * kUs + bytes / 2 / (10 * kGB);
  EXPECT_DOUBLE_EQ(collective_seconds(mesh, 1, Collective::kAllGather, bytes), one_way);
  EXPECT_DOUBLE_EQ(collective_seconds(mesh, 1, Collective::kReduceScatter, bytes), one_way);
  EXPECT_DOUBLE_EQ(collective_seconds(mesh, 1, Collective::kAllReduce, bytes), 2 * one_way);
  EXPECT_DOUBLE_EQ(collective_seconds(mesh, 1, Collective::kAllToAll, bytes), one_way);
  EXPECT_DOUBLE_EQ(collective_seconds(mesh, 1, Collective::kPermute, bytes),
                   100 * kUs + bytes / (10 * kGB));
}

TEST(Collective, OneDeviceCostsNothingAtAll) {
  const Mesh mesh = mesh_of(uniform(1, 4, {10 * kGB, 100 * kUs}), {{"x", 1}, {"y", 4}});
  for (auto kind : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                    Collective::kAllToAll, Collective::kPermute}) {
    EXPECT_EQ(collective_seconds(mesh, 0, kind, 1e9), 0.0);
    EXPECT_EQ(collective_seconds(mesh, 1, kind, 1e9), 0.0);
    EXPECT_GT(collective_seconds(mesh, 2, kind, 1e9), 0.0);
    // an axis of one device changes nothing
    EXPECT_EQ(collective_seconds(mesh, 3, kind, 1e9), collective_seconds(mesh, 2, kind, 1e9));
  }
}

// ceil(log2 n) latencies, (n-1)/n of the bytes: 2 and 3 of them at n = 3 and 6.
TEST(Collective, ThreeAndSixDevices) {
  for (const auto& [n, rounds] : std::vector<std::pair<int, int>>{{3, 2}, {6, 3}, {5, 3}, {7, 3}}) {
    const Mesh mesh = mesh_of(uniform(1, n, {10 * kGB, 100 * kUs}), {{"x", n}});
    const double moved = 6e6 * (n - 1) / n / (10 * kGB);
    EXPECT_DOUBLE_EQ(collective_seconds(mesh, 1, Collective::kAllGather, 6e6),
                     rounds * 100 * kUs + moved);
    EXPECT_DOUBLE_EQ(collective_seconds(mesh, 1, Collective::kAllReduce, 6e6),
                     2 * (rounds * 100 * kUs + moved));
    EXPECT_NEAR(collective_seconds(mesh, 1, Collective::kAllToAll, 6e6),
                (n - 1) * 100 * kUs + moved, 1e-15);
  }
}

// 2 nodes of 8: reduce-scatter inside, across on an eighth of the bytes, and back.
TEST(Collective, HierarchicalBeatsAFlatRing) {
  const Link inside{200 * kGB, 5 * kUs}, across{20 * kGB, 20 * kUs};
  const Mesh mesh = mesh_of(uniform(2, 8, inside, across), {{"x", 16}});
  const double bytes = 64e6;
  const double hierarchical =
      2 * (3 * 5 * kUs + bytes * 7 / 8 / (200 * kGB) + 20 * kUs + bytes / 8 / 2 / (20 * kGB));
  const double flat_ring = 2 * (15 * 20 * kUs + bytes * 15 / 16 / (20 * kGB));
  const double seconds = collective_seconds(mesh, 1, Collective::kAllReduce, bytes);
  EXPECT_DOUBLE_EQ(seconds, hierarchical);
  EXPECT_LT(seconds, flat_ring / 4);
  // the same algorithm for all three: an all-reduce is a reduce-scatter and an all-gather
  EXPECT_DOUBLE_EQ(seconds, 2 * collective_seconds(mesh, 1, Collective::kAllGather, bytes));
}

// Equal links on both levels: nothing is gained by splitting, and the result is the flat one.
TEST(Collective, EqualLinksAreOneLevel) {
  const Link link{10 * kGB, 100 * kUs};
  const Mesh two = mesh_of(uniform(2, 4, link, link), {{"x", 8}});
  const Mesh one = mesh_of(uniform(1, 8, link), {{"x", 8}});
  for (auto kind : {Collective::kAllReduce, Collective::kAllToAll, Collective::kPermute}) {
    EXPECT_NEAR(collective_seconds(two, 1, kind, 1e6), collective_seconds(one, 1, kind, 1e6),
                1e-12);
  }
}

// Two axes at once are one group: an all-gather over both costs less than one after the other.
TEST(Collective, SeveralAxesAreASingleStep) {
  const Mesh mesh = mesh_of(uniform(1, 8, {10 * kGB, 100 * kUs}), {{"x", 2}, {"y", 4}});
  const double bytes = 8e6;
  const double at_once = collective_seconds(mesh, 3, Collective::kAllToAll, bytes);
  EXPECT_NEAR(at_once, 7 * 100 * kUs + bytes * 7 / 8 / (10 * kGB), 1e-15);
  EXPECT_DOUBLE_EQ(collective_seconds(mesh, 3, Collective::kAllGather, bytes),
                   3 * 100 * kUs + bytes * 7 / 8 / (10 * kGB));
}

// An all-to-all between nodes sends most of its bytes over the network.
TEST(Collective, AllToAllPerLevel) {
  const Mesh mesh =
      mesh_of(uniform(2, 2, {200 * kGB, 5 * kUs}, Link{20 * kGB, 20 * kUs}), {{"x", 4}});
  EXPECT_NEAR(collective_seconds(mesh, 1, Collective::kAllToAll, 4e6),
              5 * kUs + 1e6 / (200 * kGB) + 2 * (20 * kUs + 1e6 / (20 * kGB)), 1e-15);
}

// Each axis is priced by its own link; swapping the links swaps the prices.
TEST(Collective, BandwidthsOfTwoAxesAreNotSwapped) {
  const Link fast{200 * kGB, 0}, slow{10 * kGB, 0};
  const auto seconds = [](const Link& intra, const Link& inter, AxisSet axis) {
    const Mesh mesh = mesh_of(uniform(2, 4, intra, inter), {{"dp", 2}, {"tp", 4}});
    return collective_seconds(mesh, axis, Collective::kAllReduce, 80e6);
  };
  const AxisSet dp = 1, tp = 2;
  EXPECT_DOUBLE_EQ(seconds(fast, slow, dp), 2 * 80e6 / 2 / (10 * kGB));
  EXPECT_DOUBLE_EQ(seconds(fast, slow, tp), 2 * 80e6 * 3 / 4 / (200 * kGB));
  EXPECT_DOUBLE_EQ(seconds(slow, fast, dp), 2 * 80e6 / 2 / (200 * kGB));
  EXPECT_DOUBLE_EQ(seconds(slow, fast, tp), 2 * 80e6 * 3 / 4 / (10 * kGB));
}

// A group of two devices in two nodes pays the network, not the node's links.
TEST(Collective, TwoRanksAcrossNodes) {
  const Link inside{100 * kGB, 2 * kUs}, across{10 * kGB, 100 * kUs};
  const Mesh mesh = mesh_of(uniform(2, 2, inside, across), {{"x", 2}, {"y", 2}});
  const double bytes = 1e6;
  EXPECT_DOUBLE_EQ(collective_seconds(mesh, 1, Collective::kAllReduce, bytes),
                   2 * (100 * kUs + bytes / 2 / (10 * kGB)));
  EXPECT_DOUBLE_EQ(collective_seconds(mesh, 2, Collective::kAllReduce, bytes),
                   2 * (2 * kUs + bytes / 2 / (100 * kGB)));
}

// Messages times latency plus bytes over bandwidth: small tensors are latency, large ones
// bandwidth.
TEST(Collective, LatencyIsASumOfSteps) {
  const Mesh mesh = mesh_of(uniform(1, 4, {10 * kGB, 100 * kUs}), {{"x", 4}});
  const Mesh no_latency = mesh_of(uniform(1, 4, {10 * kGB, 0}), {{"x", 4}});
  for (const double bytes : {16.0 * 16 * 4, 1e9}) {
    const double seconds = collective_seconds(mesh, 1, Collective::kAllReduce, bytes);
    const double moved = collective_seconds(no_latency, 1, Collective::kAllReduce, bytes);
    EXPECT_DOUBLE_EQ(moved, 2 * bytes * 3 / 4 / (10 * kGB));
    EXPECT_NEAR(seconds, 4 * 100 * kUs + moved, 1e-12);
  }
  // three gradients in one bucket pay the latency once
  EXPECT_LT(collective_seconds(mesh, 1, Collective::kAllReduce, 3 * 1024),
            3 * collective_seconds(mesh, 1, Collective::kAllReduce, 1024) - 700 * kUs);
}

// One, two, three, five, six and seven devices, flat and as two axes.
TEST(Collective, AnyNumberOfDevices) {
  const std::vector<std::vector<Axis>> all = {
      {{"x", 1}},           {{"x", 1}, {"y", 1}}, {{"x", 2}},
      {{"x", 1}, {"y", 2}}, {{"x", 3}},           {{"x", 2}, {"y", 3}},
      {{"x", 5}},           {{"x", 6}},           {{"x", 7}}};
  for (const auto& axes : all) {
    const Mesh mesh = mesh_of(uniform(1, 8, {10 * kGB, 100 * kUs}), axes);
    for (size_t set = 0; set < mesh.levels.size(); ++set) {
      for (auto kind : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                        Collective::kAllToAll, Collective::kPermute}) {
        const auto axis_set = static_cast<AxisSet>(set);
        const double seconds = collective_seconds(mesh, axis_set, kind, 1e6);
        if (mesh.size(axis_set) == 1) {
          EXPECT_EQ(seconds, 0.0) << mesh.str();
        } else {
          EXPECT_GT(seconds, 100 * kUs) << mesh.str();
          EXPECT_LT(seconds, 1e-2) << mesh.str();
        }
      }
    }
  }
}

// NCCL on 8 A100 with NVLink: 93 us for 1 MB, 232 us for 16 MB.
TEST(Collective, AsNcclMeasures) {
  const Result<Cluster> cluster = find_cluster({}, "dgx_a100", 8);
  ASSERT_TRUE(cluster.ok());
  const Mesh mesh = mesh_of(*cluster, {{"x", 8}});
  for (const auto& [megabytes, us] : std::vector<std::pair<double, double>>{
           {1, 92.8}, {2, 93.3}, {4, 95.8}, {8, 134.3}, {16, 232.4}}) {
    EXPECT_NEAR(collective_seconds(mesh, 1, Collective::kAllReduce, megabytes * 1048576) / kUs / us,
                1, 0.25);
  }
}

}  // namespace
}  // namespace cad::planner
