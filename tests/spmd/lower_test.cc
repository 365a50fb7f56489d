// tests/spmd/lower_test.cc -- whatever the placement, the lowered step is the whole one: random
// legal placements of small models on several meshes, even and uneven sizes.
#include "tests/spmd/spmd_testing.h"

namespace cad::backend {
namespace {

const std::vector<std::vector<int>> kMeshes = {{2}, {3}, {4}, {2, 2}, {2, 3}, {2, 2, 2}};

std::string dense(const std::string& loss = "mse(Net(x), y)") {
  return "dim B, D = 6, E = 5\n"
         "model Net(x: [B, D]) -> [B, D] {\n"
         "  h = relu(Linear[D -> E](x))\n"
         "  h = softmax[E](h) + logsumexp[E](h) + max[E](h) * h\n"
         "  return Linear[E -> D](h)\n}\n"
         "train t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n  loss: " +
         loss + "\n  optimizer: adam(lr: 1e-3)\n  B: 6\n  steps: 1\n}\n";
}

void compare(const std::string& text, const Settings& settings, int placements) {
  const WholeModel m = whole_model(text, settings);
  uint32_t seed = 1;
  for (const std::vector<int>& sizes : kMeshes) {
    const planner::Mesh mesh = test_mesh(sizes);
    EXPECT_EQ(lowered_difference(m, planner::replicated_placement(mesh)), "") << mesh.str();
    for (int i = 0; i < placements; ++i, ++seed) {
      const planner::Placement placement = RandomPlacement(m.forward, m.extents, mesh, seed).make();
      ASSERT_EQ(lowered_difference(m, placement), "") << mesh.str() << " seed " << seed;
    }
  }
}

std::string no_causal(std::string text) {
  const size_t at = text.find("causal[T, S](s)");
  text.replace(at, 15, "s");
  return text;
}

// Every op alone in every way that it can be split, all else whole.
void compare_each_strategy(const std::string& text, const Settings& settings,
                           const std::vector<int>& sizes) {
  const WholeModel m = whole_model(text, settings);
  const planner::Mesh mesh = test_mesh(sizes);
  const ir::Graph& g = m.forward;
  for (size_t r = 0; r < g.regions.size(); ++r) {
    const ir::NodeId owner = g.regions[r].owner;
    for (const ir::NodeId id : g.regions[r].nodes) {
      const ir::Node& n = g.node(id);
      if (n.op == ir::Op::kRepeat || n.op == ir::Op::kInput || n.op == ir::Op::kConst) continue;
      planner::StrategyOptions options;
      options.partial_products = true;
      options.obey_pins = false;
      for (const planner::Strategy& s : planner::strategies(g, id, mesh, m.extents, options)) {
        planner::Placement placement = planner::replicated_placement(mesh);
        planner::BodyPlacement body;
        body.ops[id.index] = s.assignment;
        if (owner.valid()) {
          const ir::DimId dim = g.node(owner).loop.dim;
          placement.top.loops[owner.index] = {{m.extents[static_cast<size_t>(dim.index)], {body}}};
        } else {
          placement.top = body;
        }
        const std::string fault = lowered_difference(m, placement);
        EXPECT_EQ(fault, "") << mesh.str() << " " << ir::op_name(n.op) << " in " << n.scope << ": "
                             << planner::OpSharding(g, id, m.extents).str(s.assignment, mesh);
      }
    }
  }
}

TEST(Lower, EachStrategyOfGpt) {
  compare_each_strategy(
      no_causal(example_text("gpt.cad")),
      {{"drop", "0"}, {"B", "4"}, {"T", "4"}, {"V", "8"}, {"D", "8"}, {"H", "2"}, {"L", "2"}}, {2});
}

TEST(Lower, GptEven) {
  compare(example_text("gpt.cad"),
          {{"B", "8"}, {"T", "8"}, {"V", "16"}, {"D", "16"}, {"H", "4"}, {"L", "3"}}, 4);
}

TEST(Lower, GptUneven) {
  compare(example_text("gpt.cad"),
          {{"B", "6"}, {"T", "7"}, {"V", "13"}, {"D", "12"}, {"H", "3"}, {"L", "4"}}, 4);
}

TEST(Lower, Llama) {
  compare(example_text("llama.cad"),
          {{"B", "4"}, {"T", "6"}, {"V", "11"}, {"D", "8"}, {"G", "2"}, {"L", "3"}, {"F", "10"}},
          3);
}

TEST(Lower, Bert) {
  compare(example_text("bert.cad"), {{"B", "4"}, {"T", "6"}, {"D", "8"}, {"H", "2"}, {"L", "2"}},
          2);
}

TEST(Lower, Convnet) {
  compare(example_text("convnet.cad"),
          {{"B", "6"}, {"Y", "8"}, {"X", "8"}, {"O", "4"}, {"O2", "6"}}, 2);
}

TEST(Lower, Vit) {
  compare(example_text("vit.cad"),
          {{"B", "4"}, {"Y", "8"}, {"X", "8"}, {"P", "4"}, {"D", "8"}, {"H", "2"}, {"L", "2"}}, 2);
}

TEST(Lower, Lora) {
  compare(example_text("lora.cad"),
          {{"B", "4"}, {"T", "4"}, {"V", "9"}, {"D", "8"}, {"H", "2"}, {"L", "2"}, {"R", "2"}}, 2);
}

TEST(Lower, Gru) {
  compare(example_text("gru.cad"), {{"B", "4"}, {"T", "5"}, {"V", "7"}, {"D", "6"}, {"M", "4"}}, 3);
}

// Experts by top-k, with slots; a table looked up by several ids a row.
TEST(Lower, MixtureOfExperts) {
  compare(
      "dim B, T = 4, D = 6, F = 5, E = 4, A = 2, M = 6, V = 9\n"
      "model Net(ids: i32[B, T], y: i32[B, T]) -> f32[] {\n"
      "  param wte : [V, D] = normal(0.3)\n"
      "  h, balance = MoE[D -> F, E, A, M](wte[V = ids])\n"
      "  return cross_entropy[V](h @[D] wte, y) + 0.01 * balance\n}\n"
      "train t {\n  data: text(\"a.txt\", x: i32[B, T], y: i32[B, T])\n"
      "  loss: Net(x, y)\n"
      "  optimizer: adam(lr: 1e-3)\n  B: 4\n  steps: 1\n}\n",
      {}, 2);
}

TEST(Lower, TablesOfIds) {
  compare(
      "dim B, N = 3, M = 2, V = 13, D = 4, O = 2\n"
      "model Net(ids: i32[B, N, M], x: [B, D]) -> [B, O] {\n"
      "  e = EmbeddingBag[V -> D, M](ids)\n"
      "  s = e @[D] x\n"
      "  return Linear[N -> O](s) + Linear[D -> O](x)\n}\n"
      "train t {\n  data: synthetic(ids: i32[B, N, M], x: f32[B, D], y: f32[B, O])\n"
      "  loss: mse(Net(ids, x), y)\n  optimizer: sgd(lr: 1e-2)\n  B: 6\n  steps: 1\n}\n",
      {}, 4);
}

// Parameters that two loops scan, one of all iterations in it and each with its own runs; nested
// loops, weights that are shared by iterations and used after them, states.
TEST(Lower, LoopsMentionedTwice) {
  const std::string train =
      "train t {\n  data: synthetic(x: f32[B, I], y: f32[B, I])\n"
      "  loss: mse(Net(x), y) + 0.5 * mse(Net(y), x)\n"
      "  optimizer: sgd(lr: 1e-2)\n  B: 6\n  steps: 1\n}\n";
  compare(
      "dim B, I = 4, F = 5\nmodel Net(x: [B, I]) -> [B, I] {\n"
      "  use ln = LayerNorm[I]\n"
      "  repeat 3 as h { x = x + Linear[F -> I](gelu(Linear[I -> F](ln(x)))) }\n"
      "  return ln(x)\n}\n" +
          train,
      {}, 3);
  compare(
      "dim B, I = 4\nmodel Net(x: [B, I]) -> [B, I] {\n"
      "  repeat 2 as h { x = x + gelu(Linear[I -> I](x))\n"
      "    repeat 3 as k { x = x + Linear[I -> I](tanh(x)) } }\n"
      "  return x\n}\n" +
          train,
      {}, 2);
  compare(
      "dim B, I = 4\nmodel Net(x: [B, I]) -> [B, I] {\n"
      "  repeat 3 as h { x = x + gelu(BatchNorm[I](x)) }\n"
      "  return x\n}\n" +
          train,
      {}, 2);
}

TEST(Lower, DenseWithSharedSoftmax) {
  compare(dense(), {}, 8);
}

}  // namespace
}  // namespace cad::backend
