// backend/spmd/shared_parameters.cc -- see shared_parameters.h.
#include "backend/spmd/shared_parameters.h"

#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "planner/layout.h"

namespace cad::backend {

using ir::NodeId;
using ir::Op;
using ir::RegionId;
using ir::ValueId;

namespace {

// Follows parameters from where they are read to the inputs they are.
class Readers {
 public:
  explicit Readers(const ir::Graph& g) : g_(g) {}

  std::set<std::string> run() {
    region(RegionId{0}, {});
    std::set<std::string> several;
    for (const auto& [input, ways] : ways_) {
      const ir::Input& row = g_.inputs[static_cast<size_t>(input)];
      std::set<std::vector<int>> different;
      // without iterations there is one tensor anyway; bodies may still say different things of it
      bool outside = false;  // where several iterations are seen at once
      for (const Way& way : ways) {
        different.insert(row.loop_dims > 0 ? way.scanned_by : way.region);
        outside = outside || way.scanned_by.size() < static_cast<size_t>(row.loop_dims);
      }
      if (different.size() > 1 || outside) several.insert(row.path);
    }
    return several;
  }

 private:
  struct Way {
    std::vector<int> scanned_by, region;  // loops, outermost first
    bool operator<(const Way& o) const {
      return std::tie(scanned_by, region) < std::tie(o.scanned_by, o.region);
    }
  };
  struct Source {
    int input = -1;  // -1: no parameter
    std::vector<int> scanned_by;
  };

  Source source(ValueId v) const {
    const auto given = arguments_.find(v.index);
    if (given != arguments_.end()) return given->second;
    const NodeId def = g_.value(v).def;
    if (!def.valid()) return {};
    const ir::Node& n = g_.node(def);
    if (n.op == Op::kInput) {
      const int input = n.attrs.input.index;
      const ir::InputKind kind = g_.inputs[static_cast<size_t>(input)].kind;
      if (kind == ir::InputKind::kParam || kind == ir::InputKind::kState) return {input, {}};
      return {};
    }
    return passes_parameter(n) ? source(n.operands[0]) : Source{};
  }

  void read(ValueId v, const std::vector<int>& loops) {
    const Source from = source(v);
    if (from.input >= 0) ways_[from.input].insert({from.scanned_by, loops});
  }

  void region(RegionId id, const std::vector<int>& loops) {
    for (const NodeId node : g_.region(id).nodes) {
      const ir::Node& n = g_.node(node);
      if (passes_parameter(n)) continue;  // its users read
      if (n.op != Op::kRepeat) {
        for (const ValueId operand : n.operands) read(operand, loops);
        continue;
      }
      const auto carries = static_cast<size_t>(n.loop.carries);
      const auto scanned = carries + static_cast<size_t>(n.loop.scanned);
      const std::vector<ValueId>& args = g_.region(n.loop.body).args;
      for (size_t i = 0; i < n.operands.size(); ++i) {
        if (i < carries) {
          read(n.operands[i], loops);
          continue;
        }
        Source from = source(n.operands[i]);
        if (from.input < 0) continue;
        if (i < scanned) from.scanned_by.push_back(node.index);
        arguments_[args[i + 1].index] = std::move(from);
      }
      std::vector<int> inside = loops;
      inside.push_back(node.index);
      region(n.loop.body, inside);
    }
    for (const ValueId result : g_.region(id).results) read(result, loops);
  }

  const ir::Graph& g_;
  std::unordered_map<int, Source> arguments_;  // by value: of loops
  std::map<int, std::set<Way>> ways_;          // by input
};

template <class F>
void each_placement(const planner::BodyPlacement& body, int input, const F& f) {
  const auto at = body.parameters.find(input);
  if (at != body.parameters.end()) f(at->second);
  for (const auto& [loop, runs] : body.loops) {
    for (const planner::RunPlacement& run : runs) {
      for (const planner::BodyPlacement& pattern : run.pattern) each_placement(pattern, input, f);
    }
  }
}

}  // namespace

bool passes_parameter(const ir::Node& n) {
  return n.op == Op::kRename || n.op == Op::kStop ||
         (n.op == Op::kCast && ir::is_float(n.attrs.dtype));
}

std::set<std::string> read_in_several_ways(const ir::Graph& forward) {
  return Readers(forward).run();
}

void place_shared(const ir::Graph& forward, const ir::Bindings& bindings,
                  const planner::Placement& placement, const std::set<std::string>& paths,
                  SharedParameters& known) {
  const planner::Extents sizes = planner::dim_extents(forward, bindings);
  for (size_t i = 0; i < forward.inputs.size(); ++i) {
    const ir::Input& input = forward.inputs[i];
    if (paths.count(input.path) == 0 || known.count(input.path) != 0 || !input.value.valid())
      continue;
    std::vector<int64_t> extents = planner::tensor_extents(forward.type(input.value), sizes);
    extents.erase(extents.begin(), extents.begin() + input.loop_dims);
    const auto bytes = [&](const planner::ParameterPlacement& p) {
      return planner::local_elements(p.storage, extents, placement.mesh) +
             planner::local_elements(p.gradient, extents, placement.mesh) +
             2 * planner::local_elements(p.optimizer, extents, placement.mesh);
    };
    bool any = false;
    planner::ParameterPlacement least;
    each_placement(placement.top, static_cast<int>(i), [&](const planner::ParameterPlacement& p) {
      if (!any || bytes(p) < bytes(least)) least = p;
      any = true;
    });
    known[input.path] = least;
  }
}

}  // namespace cad::backend
