// tests/runtime/graphs.h -- building small graphs in tests: named dims, inputs, outputs.
#pragma once

#include <string>
#include <vector>

#include "ir/builder.h"

namespace cad::backend::testing {

struct GraphMaker {
  ir::Graph graph;
  ir::Builder b{graph, ir::RegionId{0}};

  ir::DimId dim(const std::string& name, int64_t size) {
    return graph.add_dim(name, ir::Size(size));
  }

  ir::ValueId input(const std::string& path, ir::DType dtype, std::vector<ir::DimId> dims,
                    ir::InputKind kind = ir::InputKind::kData) {
    const ir::ValueId v = graph.add_value(ir::RegionId{0}, {dtype, std::move(dims)}, path);
    const ir::NodeId id{static_cast<int32_t>(graph.nodes.size())};
    ir::Node node;
    node.op = ir::Op::kInput;
    node.attrs.input = ir::InputId{static_cast<int32_t>(graph.inputs.size())};
    node.results = {v};
    node.region = ir::RegionId{0};
    graph.nodes.push_back(node);
    graph.value(v).def = id;
    graph.region(ir::RegionId{0}).nodes.push_back(id);
    ir::Input in;
    in.kind = kind;
    in.path = path;
    in.value = v;
    graph.inputs.push_back(in);
    return v;
  }
  ir::ValueId f32(const std::string& path, std::vector<ir::DimId> dims) {
    return input(path, ir::DType::kF32, std::move(dims));
  }

  void output(const std::string& name, ir::ValueId v) {
    graph.region(ir::RegionId{0}).results.push_back(v);
    graph.outputs.push_back({name});
  }
};

inline ir::ValueId contract(ir::Builder& b, ir::ValueId x, ir::ValueId y,
                            std::vector<ir::DimId> dims) {
  ir::Attrs attrs;
  attrs.dims = std::move(dims);
  return b.make(ir::Op::kContract, {x, y}, attrs);
}

// A repeat: its body region, whose arguments are made from the operands' types.
struct LoopMaker {
  ir::Graph& graph;
  ir::Loop loop;
  std::vector<ir::ValueId> operands;
  ir::RegionId body;

  LoopMaker(ir::Graph& g, ir::DimId dim, const std::vector<ir::ValueId>& carries,
            const std::vector<ir::ValueId>& scanned, const std::vector<ir::ValueId>& invariants)
      : graph(g) {
    body = g.add_region({});
    loop.body = body;
    loop.dim = dim;
    loop.carries = static_cast<int>(carries.size());
    loop.scanned = static_cast<int>(scanned.size());
    loop.invariants = static_cast<int>(invariants.size());
    argument({ir::DType::kI32, {}});
    for (const auto* group : {&carries, &scanned, &invariants}) {
      for (const ir::ValueId v : *group) {
        operands.push_back(v);
        ir::Type type = g.type(v);
        if (group == &scanned) std::erase(type.dims, dim);
        argument(type);
      }
    }
  }
  [[nodiscard]] ir::ValueId number() const { return graph.region(body).args[0]; }
  [[nodiscard]] ir::ValueId arg(size_t i) const { return graph.region(body).args[1 + i]; }

  // Ends the body; returns the loop's results, in `region`.
  std::vector<ir::ValueId> finish(ir::RegionId region, const std::vector<ir::ValueId>& results,
                                  bool reverse = false) {
    loop.collected = static_cast<int>(results.size()) - loop.carries;
    loop.reverse = reverse;
    graph.region(body).results = results;
    const ir::NodeId id{static_cast<int32_t>(graph.nodes.size())};
    ir::Node node;
    node.op = ir::Op::kRepeat;
    node.region = region;
    node.operands = operands;
    node.loop = loop;
    for (size_t i = 0; i < results.size(); ++i) {
      ir::Type type = graph.type(results[i]);
      if (i >= static_cast<size_t>(loop.carries)) type.dims.insert(type.dims.begin(), loop.dim);
      const ir::ValueId v = graph.add_value(region, type);
      graph.value(v).def = id;
      graph.value(v).result = static_cast<int32_t>(i);
      node.results.push_back(v);
    }
    graph.nodes.push_back(node);
    graph.region(region).nodes.push_back(id);
    graph.region(body).owner = id;
    return node.results;
  }

 private:
  void argument(const ir::Type& type) {
    const ir::ValueId v = graph.add_value(body, type);
    graph.value(v).result = static_cast<int32_t>(graph.region(body).args.size());
    graph.region(body).args.push_back(v);
  }
};

}  // namespace cad::backend::testing
