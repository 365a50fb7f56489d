// tests/spmd/random_placement.h -- placements drawn at random from all that are legal: what no
// optimiser would pick must be lowered rightly too.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "planner/placement.h"
#include "planner/strategy.h"

namespace cad::backend {

class Draw {
 public:
  explicit Draw(uint32_t seed) : engine_(seed) {}
  int below(int n) { return static_cast<int>(engine_() % static_cast<uint32_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  double real() { return static_cast<double>(engine_()) / 4294967296.0 * 2 - 1; }
  template <class T>
  const T& of(const std::vector<T>& list) {
    return list[static_cast<size_t>(below(static_cast<int>(list.size())))];
  }

 private:
  std::mt19937 engine_;
};

// Any legal placement: a random strategy for every op, random layouts of parameters, runs of loops,
// shared copies and savings.
class RandomPlacement {
 public:
  // `forward`: after passes_before_autodiff(); `extents` of its dims.
  RandomPlacement(const ir::Graph& forward, const planner::Extents& extents,
                  const planner::Mesh& mesh, uint32_t seed)
      : g_(forward), extents_(extents), mesh_(mesh), draw_(seed) {}
  planner::Placement make() { return {mesh_, body(ir::RegionId{0})}; }

 private:
  planner::BodyPlacement body(ir::RegionId region) {
    planner::BodyPlacement out;
    for (const ir::NodeId id : g_.region(region).nodes) {
      const ir::Node& n = g_.node(id);
      if (n.op == ir::Op::kRepeat) {
        loop(id, out);
        continue;
      }
      if (n.op == ir::Op::kInput) {
        parameter(id, out);
        continue;
      }
      if (n.op == ir::Op::kConst || n.op == ir::Op::kRename || n.op == ir::Op::kStop) continue;
      if (draw_.chance(10)) continue;  // when it is asked for
      planner::StrategyOptions options;
      options.partial_products = true;
      options.obey_pins = false;
      const auto all = planner::strategies(g_, id, mesh_, extents_, options);
      out.ops[id.index] = draw_.of(all).assignment;
      for (const ir::ValueId v : n.results) value(v, out);
    }
    return out;
  }

  planner::Layout layout(const ir::Type& type, size_t skip = 0) {
    std::vector<int64_t> extents = planner::tensor_extents(type, extents_);
    extents.erase(extents.begin(), extents.begin() + static_cast<std::ptrdiff_t>(skip));
    return draw_.of(planner::layouts(extents, mesh_, false));
  }

  void value(ir::ValueId v, planner::BodyPlacement& out) {
    if (draw_.chance(20)) {
      out.copies[v.index] = layout(g_.type(v));
      if (draw_.chance(50))
        out.copy_saving[v.index] = draw_.chance(50) ? ir::Saving::kKeep : ir::Saving::kRecompute;
    }
    if (draw_.chance(60))
      out.saving[v.index] = draw_.chance(50) ? ir::Saving::kKeep : ir::Saving::kRecompute;
  }

  void parameter(ir::NodeId id, planner::BodyPlacement& out) {
    const ir::InputId input = g_.node(id).attrs.input;
    const ir::Input& row = g_.inputs[static_cast<size_t>(input.index)];
    if (row.kind != ir::InputKind::kParam) return;
    const auto loops = static_cast<size_t>(row.loop_dims);
    planner::ParameterPlacement place;
    place.storage = layout(g_.type(row.value), loops);
    place.optimizer = layout(g_.type(row.value), loops);
    place.gradient =
        draw_.chance(40) ? planner::dual(place.storage, mesh_) : layout(g_.type(row.value), loops);
    out.parameters[input.index] = place;
  }

  void loop(ir::NodeId id, planner::BodyPlacement& out) {
    const ir::Loop& l = g_.node(id).loop;
    int64_t left = extents_[static_cast<size_t>(l.dim.index)];
    std::vector<planner::RunPlacement>& runs = out.loops[id.index];
    while (left > 0) {
      planner::RunPlacement run;
      const int period = left > 1 && draw_.chance(40) ? 2 : 1;
      run.count = 1 + draw_.below(static_cast<int>(left / period));
      if (draw_.chance(50)) run.count = left / period;
      for (int k = 0; k < period; ++k) {
        run.pattern.push_back(body(l.body));
        // parameters that the body scans lie as it says
        for (const ir::Input& row : g_.inputs) {
          if (row.kind != ir::InputKind::kParam || row.loop_dims == 0 || draw_.chance(50)) continue;
          planner::BodyPlacement list;
          parameter(g_.value(row.value).def, list);
          run.pattern.back().parameters.insert(list.parameters.begin(), list.parameters.end());
        }
        const auto& args = g_.region(l.body).args;
        for (int c = 0; c < l.carries; ++c) {
          const ir::ValueId arg = args[static_cast<size_t>(c) + 1];
          run.pattern.back().copies[arg.index] = layout(g_.type(arg));
        }
      }
      if (draw_.chance(40)) {  // in segments, of any length that divides the run
        std::vector<int64_t> lengths;
        for (int64_t k = 1; k <= run.count; ++k) {
          if (run.count % k == 0) lengths.push_back(k);
        }
        run.segment = draw_.of(lengths);
      }
      left -= run.count * period;
      runs.push_back(std::move(run));
    }
  }

  const ir::Graph& g_;
  const planner::Extents& extents_;
  planner::Mesh mesh_;
  Draw draw_;
};

// Saves everything or runs everything again.
inline planner::Placement all_saved(planner::Placement placement, ir::Saving saving) {
  const auto set = [&](planner::BodyPlacement& body) {
    for (auto& [value, how] : body.saving) how = saving;
    for (auto& [value, how] : body.copy_saving) how = saving;
  };
  set(placement.top);
  for (auto& [node, list] : placement.top.loops) {
    for (planner::RunPlacement& run : list) {
      for (planner::BodyPlacement& body : run.pattern) set(body);
    }
  }
  return placement;
}

}  // namespace cad::backend
