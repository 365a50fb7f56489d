// tests/planner/joint_testing.h -- small programs planned on small meshes of equal links, priced by
// communication alone or by a plain roofline; and the plans of a problem counted out one by one.
#pragma once

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

}  // namespace cad::planner
