// tests/planner/strategy_count_test.cc -- how many strategies a transformer block's ops have, and
// that tables of conversions are made fast enough to plan on hundreds of meshes.
#include <chrono>

#include "tests/frontend/frontend_testing.h"
#include "tests/planner/spmd_check.h"

namespace cad::planner {
namespace {

const char* const kBlock = R"(
dim B, T = 1024, S = T, D = 1024, H = 16, K = D / H, F = 4 * D
layer Attend(x: [B, T, D]) -> [B, T, D] {
  param Wq, Wk, Wv : [D, H, K] = normal(0.02)
  param Wo : [H, K, D] = normal(0.02)
  q = x @[D] Wq
  k = (x @[D] Wk)[T -> S]
  v = (x @[D] Wv)[T -> S]
  p = softmax[S](q @[K] k)
  return p @[S] v @[H, K] Wo
}
model Block(x: [B, T, D]) -> [B, T, D] {
  x = x + Attend(LayerNorm[D](x))
  h = relu(Linear[D -> F](LayerNorm[D](x), bias: false))
  return x + Linear[F -> D](h, bias: false)
}
)";

// The published count takes 14 ops: two norms as one op each (over B, T, D), q, k, v, scores,
// softmax with S by statistics, values, output, two residual sums (which let partial sums through),
// two products of the MLP and its activation.
TEST(StrategyCount, OfATransformerBlock) {
  auto program = frontend::checked(kBlock);
  const ir::Graph g = frontend::lowered(*program);
  ir::Bindings bindings = frontend::bindings(*program->module);
  bindings["B"] = 64;
  const Extents extents = dim_extents(g, bindings);
  // Strategies of a node; `flows`: those too that let partial operands through.
  const auto count = [&](ir::NodeId id, const Mesh& mesh, bool flows) {
    size_t found = 0;
    for (const Strategy& s : strategies(g, id, mesh, extents)) {
      bool flow = false;
      for (int8_t choice : s.assignment) flow |= choice <= kFlow;
      found += flows || !flow ? 1 : 0;
    }
    return found;
  };
  std::vector<size_t> block(3, 0), everything(3, 0);
  size_t ops = 0;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const ir::Node& n = g.nodes[i];
    const ir::NodeId id{static_cast<int32_t>(i)};
    // A norm is there once, by its first op over B, T and D.
    const bool norm = n.scope.find("layer_norm") != std::string::npos;
    const bool counts = norm ? n.op == ir::Op::kSub
                             : n.op == ir::Op::kContract || n.op == ir::Op::kSoftmax ||
                                   n.op == ir::Op::kAdd || n.op == ir::Op::kMax;
    if (counts) ++ops;
    for (size_t axes = 1; axes <= 3; ++axes) {
      const Mesh mesh = mesh_of(std::vector<int>(axes, 2));
      everything[axes - 1] += count(id, mesh, true);
      if (counts) block[axes - 1] += count(id, mesh, n.op == ir::Op::kAdd && !norm);
    }
  }
  EXPECT_EQ(ops, 14U);
  EXPECT_EQ(block, (std::vector<size_t>{73, 389, 2113}));
  // Node by node, with the norms written out and partial sums through all that adds or moves, there
  // are more: what the planner starts from before it groups ops.
  EXPECT_GT(everything[0], block[0]);
}

TEST(StrategyCount, TablesAreMadeQuickly) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  int tables = 0;
  for (const auto& sizes : {std::vector<int>{8, 8, 16}, {2, 16, 32}, {4, 4, 64}}) {
    Conversions conversions(mesh_of(sizes));
    for (const auto& extents : {std::vector<int64_t>{1536, 2048, 12288},
                                {1536, 2048, 96, 128},
                                {1536, 96, 2048, 2048},
                                {12288, 96, 128},
                                {12288, 49152},
                                {50257, 12288},
                                {1536, 2048}}) {
      conversions.table(extents, 2, true);
      ++tables;
    }
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  RecordProperty("milliseconds_a_table", std::to_string(1e3 * seconds / tables));
  EXPECT_LT(seconds / tables, 0.2);  // a few ms; loose, for busy and instrumented machines
  std::printf("%d tables, %.2f ms each\n", tables, 1e3 * seconds / tables);
}

}  // namespace
}  // namespace cad::planner
