// tests/planner/joint_testing.h -- small programs planned on small meshes of equal links, priced by
// communication alone or by a plain roofline; and the plans of a problem counted out one by one.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/passes.h"
#include "planner/frontier.h"
#include "planner/plan.h"
#include "planner/problem.h"
#include "tests/frontend/section_program.h"

namespace cad::planner {

// `rate`: FLOP/s and bytes/s of a device.
inline Cluster equal_links(int devices, double bandwidth = 1, double latency = 0,
                           double rate = 1e12) {
  Cluster c;
  c.name = "equal";
  c.device.name = "d";
  c.device.memory = 1e18;
  c.device.bandwidth = rate;
  c.device.flops = {{"f32", rate}};
  c.per_node = devices;
  c.intra = Link{bandwidth, latency};
  return c;
}

inline Mesh mesh_of(const Cluster& cluster, const std::vector<int>& sizes) {
  std::vector<Axis> axes;
  for (size_t i = 0; i < sizes.size(); ++i)
    axes.push_back({std::string(1, static_cast<char>('x' + i)), sizes[i]});
  auto mesh = make_mesh(cluster, axes);
  EXPECT_TRUE(mesh.ok());
  return *mesh;
}

// Only collectives cost, and every contraction uses every axis that it can.
inline CostModel communication_only() {
  CostModel model;
  model.seconds = [](const Work&) { return 0.0; };
  model.memory_bandwidth = 1e300;
  model.every_contraction = true;
  return model;
}

struct Planned {
  ir::Graph graph;
  SiteGraph sites;
  Training training;
};

// Of a text with a train section.
inline std::unique_ptr<Planned> planned(const std::string& text) {
  auto p = std::make_unique<Planned>();
  const frontend::Program program(text);
  ir::TrainSpec spec = program.lowered();
  p->graph = ir::run_passes(spec.forward, ir::passes_before_autodiff());
  p->training.bindings = spec.bindings;
  p->training.state_bytes.assign(p->graph.inputs.size(), 8);
  p->sites = find_sites(p->graph);
  return p;
}

// A stack of dense layers, unrolled.
inline std::string dense_layers(int layers, int batch, int width, bool bias = true,
                                bool relu = true) {
  std::string text = "dim B, D = " + std::to_string(width) + "\nmodel Net(x: [B, D]) -> [B, D] {\n";
  for (int i = 0; i < layers; ++i) {
    const std::string linear = std::string("Linear[D -> D](x") + (bias ? ")" : ", bias: false)");
    text += "  x = " + (relu && i + 1 < layers ? "relu(" + linear + ")" : linear) + "\n";
  }
  text +=
      "  return x\n}\ntrain t {\n  data: synthetic(x: f32[B, D], y: f32[B, D])\n"
      "  loss: mse(Net(x), y)\n  optimizer: adam(lr: 1e-3)\n  B: " +
      std::to_string(batch) + "\n  steps: 1\n}\n";
  return text;
}

// Training of a model of tokens.
inline std::string token_training(int rows) {
  return fmt::format(
      "train t {{\n  data: synthetic(ids: i32[B, T], y: i32[B, T])\n"
      "  loss: cross_entropy[V](Net(ids), y)\n  optimizer: adam(lr: 1e-3)\n  B: {}\n"
      "  steps: 1\n}}\n",
      rows);
}

// A GPT with tied embeddings; without a train section.
inline std::string tied_gpt(int tokens, int heads, int head, int vocabulary, int layers) {
  return fmt::format(
      "dim B, T = {}, S = T, D = {}, F = {}, H = {}, K = {}, V = {}\n"
      "layer Att(x: [B, T, D]) -> [B, T, D] {{\n"
      "  param Wq, Wk, Wv : [D, H, K] = normal(0.02)\n  param Wo : [H, K, D] = normal(0.02)\n"
      "  q = x @[D] Wq\n  k = (x @[D] Wk)[T -> S]\n  v = (x @[D] Wv)[T -> S]\n"
      "  p = softmax[S](causal[T, S]((q @[K] k) / sqrt(K)))\n"
      "  return (p @[S] v) @[H, K] Wo\n}}\n"
      "model Net(ids: i32[B, T]) -> [B, T, V] {{\n  param emb : [V, D] = normal(0.02)\n"
      "  x = emb[V = ids]\n  repeat {} as h {{\n    x = x + Att(LayerNorm[D](x))\n"
      "    x = x + Linear[F -> D](gelu(Linear[D -> F](LayerNorm[D](x))))\n  }}\n"
      "  return LayerNorm[D](x) @[D] emb\n}}\n",
      tokens, heads * head, 4 * heads * head, heads, head, vocabulary, layers);
}

}  // namespace cad::planner
