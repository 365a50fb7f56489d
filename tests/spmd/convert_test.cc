// tests/spmd/convert_test.cc -- programs that convert between layouts: from every layout to every
// other one, on several meshes, with sizes that do not divide and NaN beyond what devices own.
// Their gradients take a cotangent in the dual of the layout that they give to the dual of the one
// that they take (planner/conversion.h).
#include <limits>

#include "ir/autodiff.h"
#include "tests/spmd/spmd_testing.h"

namespace cad::backend {
namespace {

using planner::Layout;
using planner::Mesh;
using planner::Parts;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A device's own part in a tensor of these extents, the rest NaN.
ir::Tensor in_room(const ir::Tensor& own, const std::vector<int64_t>& extents) {
  ir::Tensor out;
  out.dtype = own.dtype;
  out.extents = extents;
  size_t count = 1;
  for (const int64_t e : extents) count *= static_cast<size_t>(e);
  out.data.assign(count, own.dtype == ir::DType::kI32 ? -7 : kNan);
  for (size_t k = 0; k < own.data.size(); ++k) {
    size_t at = 0, rest = k, stride = 1;
    for (size_t i = extents.size(); i-- > 0;) {
      at += rest % static_cast<size_t>(own.extents[i]) * stride;
      rest /= static_cast<size_t>(own.extents[i]);
      stride *= static_cast<size_t>(extents[i]);
    }
    out.data[at] = own.data[k];
  }
  return out;
}

ir::Tensor numbered(ir::DType dtype, const std::vector<int64_t>& extents, double first) {
  ir::Tensor t;
  t.dtype = dtype;
  t.extents = extents;
  size_t count = 1;
  for (const int64_t e : extents) count *= static_cast<size_t>(e);
  for (size_t k = 0; k < count; ++k) t.data.push_back(first + static_cast<double>(k));
  return t;
}

// Every device's results of one output, without what lies beyond its own.
Parts own_parts(const ir::PerDevice& results, size_t output, const std::vector<int64_t>& extents,
                const Layout& layout, const Mesh& mesh) {
  Parts parts;
  for (int device = 0; device < mesh.devices(); ++device) {
    parts.push_back(
        own_part(results[static_cast<size_t>(device)][output], extents, layout, mesh, device));
  }
  return parts;
}

struct Pair {
  Layout from, to;
};

// "" when x in layout `from` comes out in `to`, and (floats) c in dual(to) goes back to dual(from).
std::string fault_of(const Mesh& mesh, ir::DType dtype, const std::vector<int64_t>& extents,
                     const Pair& pair) {
  constexpr int64_t kCopies = 2;
  ir::Graph g = conversion_graph(mesh, dtype, kCopies, extents, pair.from, pair.to);
  const ir::ValueId y = g.regions[0].results[0];
  std::vector<int64_t> whole_extents = extents;
  whole_extents.insert(whole_extents.begin(), kCopies);
  const Layout from = stacked(pair.from), to = stacked(pair.to);
  const ir::Tensor whole = numbered(dtype, whole_extents, 1);
  const ir::Tensor cotangent = numbered(dtype, whole_extents, 100);
  const Parts given = planner::shard(whole, from, mesh);
  const bool back = ir::is_float(dtype);
  if (back) {
    ir::Builder b(g, ir::RegionId{0});
    ir::Input input;
    input.path = "c";
    const ir::Type type = g.type(y);
    const ir::ValueId c = b.input(std::move(input), type);
    const ir::ValueId loss = b.sum(b.mul(y, c), type.dims);
    ir::DifferentiateOptions options;
    options.wrt = {ir::InputId{0}};
    g = ir::differentiate(std::move(g), loss, options);
  }
  g = ir::run_passes(ir::mask_tails(std::move(g)), ir::passes_after_autodiff());
  const Layout dual_from = planner::dual(from, mesh), dual_to = planner::dual(to, mesh);
  const Parts seeds = planner::shard(cotangent, dual_to, mesh, 5);
  ir::PerDevice inputs;
  for (size_t device = 0; device < given.size(); ++device) {
    inputs.push_back({in_room(given[device], ir::extents_of(g, g.type(g.inputs[0].value), {}))});
    if (back)
      inputs.back().push_back(
          in_room(seeds[device], ir::extents_of(g, g.type(g.inputs[1].value), {})));
  }
  ir::EvalContext context;
  const ir::PerDevice results = ir::SpmdDevices(g).run(inputs, context);
  std::string fault =
      planner::difference(own_parts(results, 0, whole_extents, to, mesh), whole, to, mesh);
  if (!fault.empty() || !back) return fault;
  fault = planner::difference(own_parts(results, 1, whole_extents, dual_from, mesh), cotangent,
                              dual_from, mesh);
  return fault.empty() ? "" : "gradient: " + fault;
}

// Every pair of layouts, or an even share of them; returns how many.
size_t check_pairs(const Mesh& mesh, ir::DType dtype, const std::vector<int64_t>& extents,
                   size_t most = std::numeric_limits<size_t>::max()) {
  const std::vector<Layout> all = planner::layouts(extents, mesh, ir::is_float(dtype));
  const size_t pairs = all.size() * all.size(), step = 1 + pairs / most;
  size_t count = 0;
  for (size_t k = 0; k < pairs; k += step, ++count) {
    const std::string fault =
        fault_of(mesh, dtype, extents, {all[k / all.size()], all[k % all.size()]});
    EXPECT_EQ(fault, "") << mesh.str() << " " << extents.size() << " dims of " << extents[0]
                         << ", pair " << k << " of " << pairs;
    if (!fault.empty()) break;
  }
  return count;
}

TEST(Convert, BetweenLayoutsOfManyMeshes) {
  size_t count = 0;
  for (const std::vector<int>& sizes :
       {std::vector<int>{2}, {3}, {4}, {2, 2}, {2, 3}, {3, 2}, {2, 4}, {2, 2, 2}}) {
    for (const std::vector<int64_t>& extents :
         {std::vector<int64_t>{5}, {8}, {7, 4}, {9, 5}, {4, 5, 3}}) {
      for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kI32})
        count += check_pairs(test_mesh(sizes), dtype, extents, 70);
    }
  }
  EXPECT_GT(count, 1700U);
}

// Of matrices all pairs, and of what has one dim or three those of meshes of up to two axes. No
// extent divides by any number of devices, and every one has room for all of them.
TEST(Convert, EveryLayoutToEveryOther) {
  struct Case {
    std::vector<int> mesh;
    std::vector<int64_t> extents;
    size_t layouts;  // whole or partial along an axis, or one of the dims: (2 + dims)^axes
  };
  const std::vector<Case> cases = {
      {{4}, {9}, 3},        {{4}, {9, 7}, 4},       {{4}, {9, 7, 5}, 5},
      {{2, 2}, {9}, 9},     {{2, 2}, {9, 7}, 16},   {{2, 2}, {9, 7, 5}, 25},
      {{2, 4}, {9}, 9},     {{2, 4}, {9, 7}, 16},   {{2, 4}, {9, 7, 11}, 25},
      {{2, 2, 2}, {9}, 27}, {{2, 2, 2}, {9, 7}, 64}};
  for (const Case& c : cases) {
    EXPECT_EQ(check_pairs(test_mesh(c.mesh), ir::DType::kF32, c.extents), c.layouts * c.layouts);
    const size_t whole = planner::layouts(c.extents, test_mesh(c.mesh), false).size();
    EXPECT_EQ(check_pairs(test_mesh(c.mesh), ir::DType::kI32, c.extents), whole * whole);
  }
}

}  // namespace
}  // namespace cad::backend
