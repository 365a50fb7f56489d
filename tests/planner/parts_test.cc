// tests/planner/parts_test.cc -- the planner's arithmetic of layouts and that of graphs which
// devices run (ir/shard.h) are the same: offsets, extents, padded extents, coordinates.
#include "ir/shard.h"
#include "ir/text.h"
#include "tests/planner/spmd_check.h"

namespace cad::planner {
namespace {

TEST(Parts, AsTheLayoutSays) {
  const std::vector<std::vector<int>> meshes{{2}, {3}, {4}, {2, 2}, {2, 3}, {2, 2, 2}, {4, 1, 2}};
  size_t count = 0;
  for (const std::vector<int>& sizes : meshes) {
    const Mesh mesh = mesh_of(sizes);
    ir::Graph g;
    for (const Axis& axis : mesh.axes) g.mesh.push_back({axis.name, axis.size});
    for (int64_t whole : {1, 2, 3, 5, 6, 7, 8, 12, 17, 257}) {
      for (const Layout& layout : layouts(std::vector<int64_t>{whole}, mesh, false)) {
        const AxisList list = axes_of(layout, 0);
        ir::Dim part;
        part.name = fmt::format("part{}", count++);
        part.axes.assign(list.axes.begin(), list.axes.begin() + list.count);
        part.whole = g.add_dim("whole", whole);
        part.size = ir::part_extent(g, whole, part.axes);
        EXPECT_EQ(part.size.constant(), local_extent(layout, 0, whole, mesh));
        g.dims.push_back(part);
        const ir::DimId dim{static_cast<int32_t>(g.dims.size()) - 1};
        bool uneven = false;
        for (int device = 0; device < mesh.devices(); ++device) {
          const std::vector<int> at = coordinates_of(mesh, device);
          EXPECT_EQ(ir::coordinates_of(g, device), at);
          const Range range = local_ranges(layout, std::vector<int64_t>{whole}, mesh, at)[0];
          EXPECT_EQ(ir::own_extent(g, dim, at, {}), range.extent);
          if (range.extent > 0) {
            EXPECT_EQ(ir::shard_offset(g, dim, at, {}), range.offset);
          }
          uneven = uneven || range.extent != *part.size.constant();
        }
        EXPECT_EQ(ir::is_uneven(g, dim, {}), uneven) << whole << " " << count;
      }
    }
    // Members of a group: ascending numbers, counted as axis_index does.
    for (AxisSet set = 1; set < 1U << sizes.size(); ++set) {
      for (int device = 0; device < mesh.devices(); ++device) {
        const std::vector<int> group = group_of(mesh, set, device);
        EXPECT_EQ(static_cast<int64_t>(group.size()), ir::mesh_size(g, set));
        const auto own = static_cast<size_t>(ir::axis_index(g, set, coordinates_of(mesh, device)));
        EXPECT_EQ(group[own], device);
      }
    }
    EXPECT_TRUE(ir::verify(g).empty());
  }
  EXPECT_GT(count, 150U);
}

}  // namespace
}  // namespace cad::planner
