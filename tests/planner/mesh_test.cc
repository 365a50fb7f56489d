// tests/planner/mesh_test.cc -- meshes over a cluster: counts of factorisations, the levels of
// every axis set, groups that nodes hold unevenly.
#include "planner/mesh.h"

#include <gtest/gtest.h>

namespace cad::planner {
namespace {

const Link kPair{211e9, 19e-6}, kNode{14.3e9, 20e-6}, kNetwork{5e9, 30e-6};

Cluster cluster_of(int64_t nodes, int64_t per_node, bool pairs = false) {
  Cluster cluster;
  cluster.name = "test";
  cluster.nodes = nodes;
  cluster.per_node = per_node;
  cluster.intra = kNode;
  if (nodes > 1) cluster.inter = kNetwork;
  if (pairs) cluster.pairs = kPair;
  return cluster;
}

Mesh mesh_of(const Cluster& cluster, const std::vector<Axis>& axes) {
  Result<Mesh> mesh = make_mesh(cluster, axes);
  EXPECT_TRUE(mesh.ok());
  return mesh.ok() ? *mesh : Mesh{};
}

using Levels = std::vector<Level>;

TEST(Mesh, CountsOfFactorisations) {
  EXPECT_EQ(factorisations(64).size(), 16U);
  EXPECT_EQ(factorisations(1024).size(), 46U);
  EXPECT_EQ(factorisations(1).size(), 1U);
  EXPECT_EQ(factorisations(7), (std::vector<std::vector<int>>{{7}}));
  EXPECT_EQ(factorisations(6), (std::vector<std::vector<int>>{{6}, {2, 3}, {3, 2}}));
  EXPECT_EQ(factorisations(64, 1).size(), 1U);
}

TEST(Mesh, AxesOfOneLinkClassAreSorted) {
  // one node: only the sizes matter. 8 = 8, 2x4, 2x2x2
  EXPECT_EQ(meshes(cluster_of(1, 8), 8)->size(), 3U);
  EXPECT_EQ(meshes(cluster_of(1, 8), 8)->at(1).str(), "x=2, y=4");
  // two nodes of four: 8; 2x4 and 4x2; 2x2x2
  EXPECT_EQ(meshes(cluster_of(2, 4), 8)->size(), 4U);
  // with pairs, nodes and network every order is different
  EXPECT_EQ(meshes(cluster_of(2, 4, true), 8)->size(), 4U);
  // 8 nodes of 8: of the 16 ordered factorisations two only swap axes inside the nodes or across;
  // of the 46 of 1,024 ten
  EXPECT_EQ(meshes(cluster_of(8, 8), 64)->size(), 14U);
  EXPECT_EQ(meshes(cluster_of(128, 8), 1024)->size(), 36U);
}

TEST(Mesh, OneDevice) {
  const auto one = meshes(cluster_of(1, 8), 1);
  ASSERT_EQ(one->size(), 1U);
  EXPECT_EQ(one->at(0).str(), "x=1");
  EXPECT_EQ(one->at(0).devices(), 1);
  EXPECT_TRUE(one->at(0).levels[1].empty());
}

TEST(Mesh, LevelsFromInsideOut) {
  const Mesh flat = mesh_of(cluster_of(2, 8, true), {{"x", 16}});
  EXPECT_EQ(flat.levels[1], (Levels{{2, kPair}, {4, kNode}, {2, kNetwork}}));
  const Mesh mesh = mesh_of(cluster_of(2, 8, true), {{"dp", 2}, {"sp", 4}, {"tp", 2}});
  EXPECT_EQ(mesh.levels[1], (Levels{{2, kNetwork}}));
  EXPECT_EQ(mesh.levels[2], (Levels{{4, kNode}}));
  EXPECT_EQ(mesh.levels[4], (Levels{{2, kPair}}));
  EXPECT_EQ(mesh.levels[3], (Levels{{4, kNode}, {2, kNetwork}}));
  EXPECT_EQ(mesh.levels[5], (Levels{{2, kPair}, {2, kNetwork}}));
  EXPECT_EQ(mesh.levels[7], flat.levels[1]);
  // an axis that crosses a node's border
  const Mesh wide = mesh_of(cluster_of(4, 4), {{"dp", 2}, {"tp", 8}});
  EXPECT_EQ(wide.levels[2], (Levels{{4, kNode}, {2, kNetwork}}));
  EXPECT_EQ(wide.levels[1], (Levels{{2, kNetwork}}));
}

// The sizes of a group's levels multiply to the group, on every mesh of odd clusters too.
TEST(Mesh, LevelsMultiplyToTheGroup) {
  for (const Cluster& cluster :
       {cluster_of(1, 8), cluster_of(4, 4), cluster_of(8, 8), cluster_of(3, 4, true),
        cluster_of(1, 8, true), cluster_of(2, 6, true), cluster_of(5, 3), cluster_of(16, 1)}) {
    for (int n = 1; n <= cluster.devices(); ++n) {
      const auto all = meshes(cluster, n);
      ASSERT_TRUE(all.ok());
      for (const Mesh& mesh : *all) {
        EXPECT_EQ(mesh.devices(), n);
        for (size_t set = 1; set < mesh.levels.size(); ++set) {
          int product = 1;
          for (const Level& level : mesh.levels[set]) {
            EXPECT_GT(level.size, 1);
            product *= level.size;
          }
          EXPECT_EQ(product, mesh.size(static_cast<AxisSet>(set))) << mesh.str() << " " << set;
        }
      }
    }
  }
}

TEST(Mesh, UnevenGroupsPayTheWorstLink) {
  // 6 devices of nodes of 4: 4 and 2
  const Mesh six = mesh_of(cluster_of(2, 4), {{"x", 6}});
  EXPECT_EQ(six.levels[1], (Levels{{6, kNetwork}}));
  // pairs stay pairs
  const Mesh pairs = mesh_of(cluster_of(2, 4, true), {{"x", 6}});
  EXPECT_EQ(pairs.levels[1], (Levels{{2, kPair}, {3, kNetwork}}));
  const Mesh three_pairs = mesh_of(cluster_of(1, 8, true), {{"x", 6}});
  EXPECT_EQ(three_pairs.levels[1], (Levels{{2, kPair}, {3, kNode}}));
  // {0,1,2} and {3,4,5} of nodes of 4, with pairs or without
  const Mesh threes = mesh_of(cluster_of(2, 4, true), {{"x", 2}, {"y", 3}});
  EXPECT_EQ(threes.levels[2], (Levels{{3, kNetwork}}));
  EXPECT_EQ(threes.levels[1], (Levels{{2, kNetwork}}));
  const Mesh odd = mesh_of(cluster_of(1, 8, true), {{"x", 3}});
  EXPECT_EQ(odd.levels[1], (Levels{{3, kNode}}));
}

TEST(Mesh, NamedAxesTakeEverySizeAndOrder) {
  const auto one_node = named_meshes(cluster_of(1, 8), 8, {"dp", "tp"});
  ASSERT_TRUE(one_node.ok());
  // 8x1, 4x2, 2x4, 1x8; the order makes no difference inside a node
  EXPECT_EQ(one_node->size(), 4U);
  const auto two_nodes = named_meshes(cluster_of(2, 4), 8, {"dp", "tp"});
  // 4x2 and 2x4 in both orders
  EXPECT_EQ(two_nodes->size(), 6U);
  EXPECT_EQ(named_meshes(cluster_of(1, 8), 1, {"dp", "tp"})->size(), 1U);
}

TEST(Mesh, AxesAsText) {
  EXPECT_EQ(*parse_axes("dp=2,tp=4"), (std::vector<Axis>{{"dp", 2}, {"tp", 4}}));
  EXPECT_EQ(*parse_axes("x=1"), (std::vector<Axis>{{"x", 1}}));
  for (const char* text : {"", "dp", "dp=", "dp=2,", ",dp=2", "2=2", "dp=two", "dp=2x", "d p=2",
                           "dp=99999999999", "=2", "dp==2", "dp=2.5"}) {
    const auto axes = parse_axes(text);
    ASSERT_FALSE(axes.ok()) << text;
    EXPECT_EQ(axes.error().id, DiagId::E0803) << text;
  }
}

TEST(Mesh, Errors) {
  const Cluster cluster = cluster_of(1, 8);
  const auto message = [&](const std::vector<Axis>& axes) {
    const Result<Mesh> mesh = make_mesh(cluster, axes);
    return mesh.ok() ? std::string()
                     : std::string(diag_name(mesh.error().id)) + mesh.error().message;
  };
  EXPECT_EQ(message({{"x", 4}, {"y", 4}}), "E0802the mesh needs 16 devices, `test` has 8");
  EXPECT_EQ(message({{"x", 2}, {"x", 4}}), "E0803no mesh `x=2,x=4`: the axis `x` is given twice");
  EXPECT_EQ(message({{"x", 0}}), "E0803no mesh `x=0`: the size of `x` is below 1");
  EXPECT_EQ(message({{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}}),
            "E0803no mesh `a=1,b=1,c=1,d=1`: it has 4 axes, at most 3 are planned for");
  EXPECT_EQ(message({{"x", 2147483647}, {"y", 2147483647}, {"z", 2147483647}}).substr(0, 5),
            "E0802");
  EXPECT_EQ(message({{"x", 2}, {"y", 2}}), "");
}

}  // namespace
}  // namespace cad::planner
