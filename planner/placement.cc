// planner/placement.cc -- see placement.h.
#include "planner/placement.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

namespace cad::planner {

namespace {

class Placer {
 public:
  explicit Placer(const Problem& problem) : p_(problem) {}

  BodyPlacement body(size_t region, const BodyPlan& plan) const {
    const RegionProblem& r = p_.regions[region];
    BodyPlacement out;
    for (size_t v = 0; v < r.variables.size(); ++v) {
      if (static_cast<int>(v) == r.exit) continue;  // the next body's entry says the same
      const VariableInfo& info = r.variables[v];
      const auto choice = static_cast<size_t>(plan.choices[v]);
      if (info.kind == VariableInfo::Kind::kSite) site(info, choice, out);
      if (info.kind == VariableInfo::Kind::kHub) hub(info, choice, out);
      if (info.kind == VariableInfo::Kind::kParam) parameter(info, choice, out);
    }
    for (size_t c = 0; c < r.children.size(); ++c) {
      const RegionProblem::Child& child = r.children[c];
      const LoopSite& loop = p_.sites->loops[static_cast<size_t>(child.loop)];
      std::vector<RunPlacement>& runs = out.loops[loop.node.index];
      for (const Run& run : plan.loops[c]) {
        RunPlacement placed;
        placed.count = run.count;
        placed.segment = run.segment;
        for (const BodyPlan& inner : run.pattern)
          placed.pattern.push_back(body(static_cast<size_t>(child.region), inner));
        runs.push_back(std::move(placed));
      }
    }
    return out;
  }

 private:
  void site(const VariableInfo& info, size_t choice, BodyPlacement& out) const {
    const Site& s = p_.sites->sites[static_cast<size_t>(info.site)];
    const SiteOption& option = info.options[static_cast<size_t>(info.option[choice])];
    const Variant& variant = s.variants[static_cast<size_t>(info.variant[choice])];
    for (size_t i = 0; i < s.nodes.size(); ++i) {
      out.ops[s.nodes[i].index] = option.assignments[i];
      if (variant.again[i] == 0 && variant.kept != Kept::kAgain) continue;
      for (const ir::ValueId result : p_.graph->node(s.nodes[i]).results)
        out.saving[result.index] = ir::Saving::kRecompute;
    }
    for (const ir::ValueId value : variant.saved) out.saving[value.index] = ir::Saving::kKeep;
    if (variant.kept == Kept::kSaved) out.saving[s.outputs[0].index] = ir::Saving::kKeep;
  }

  static void hub(const VariableInfo& info, size_t choice, BodyPlacement& out) {
    out.copies[info.value.index] = info.table->layouts()[static_cast<size_t>(info.layout[choice])];
    if (info.copy[choice] == Copy::kCopy) out.copy_saving[info.value.index] = ir::Saving::kKeep;
    if (info.copy[choice] == Copy::kVia) out.copy_saving[info.value.index] = ir::Saving::kRecompute;
  }

  void parameter(const VariableInfo& info, size_t choice, BodyPlacement& out) const {
    const std::vector<Layout>& layouts = info.table->layouts();
    ParameterPlacement place;
    place.storage = layouts[static_cast<size_t>(info.layout[choice])];
    place.gradient = info.gradient[choice] < 0
                         ? dual(place.storage, p_.mesh)
                         : layouts[static_cast<size_t>(info.gradient[choice])];
    place.optimizer = layouts[static_cast<size_t>(info.optimizer[choice])];
    out.parameters[info.param] = place;
  }

  const Problem& p_;
};

// Finds in another graph what the placement of a first one names.
class Transfer {
 public:
  Transfer(const ir::Graph& from, const ir::Graph& to, const ir::Bindings& bindings,
           const Mesh& mesh)
      : from_(from), to_(to), extents_(dim_extents(to, bindings)), mesh_(mesh) {}

  BodyPlacement body(ir::RegionId from, ir::RegionId to, const BodyPlacement& placement) const {
    BodyPlacement out;
    std::map<Key, ir::NodeId> known;
    std::map<Key, int> count;
    for (const ir::NodeId id : from_.region(from).nodes) {
      Key key = key_of(from_, id);
      std::get<2>(key) = count[key]++;
      known.emplace(key, id);
    }
    count.clear();
    for (const ir::NodeId id : to_.region(to).nodes) {
      Key key = key_of(to_, id);
      std::get<2>(key) = count[key]++;
      const auto at = known.find(key);
      const bool repeat = to_.node(id).op == ir::Op::kRepeat;
      if (at != known.end() && !repeat) op(at->second, id, placement, out);
      if (!repeat) continue;
      const ir::NodeId same = at != known.end() ? at->second : loop_of_parameters(from, id);
      if (same.valid()) loop(same, id, placement, out);
    }
    for (const auto& [input, place] : placement.parameters) {
      const ir::Input& row = from_.inputs[static_cast<size_t>(input)];
      for (size_t i = 0; i < to_.inputs.size(); ++i) {
        if (to_.inputs[i].path == row.path) out.parameters[static_cast<int>(i)] = place;
      }
    }
    return out;
  }

 private:
  using Key = std::tuple<ir::Op, std::string, int>;  // the n-th of its kind in a scope
  static Key key_of(const ir::Graph& g, ir::NodeId id) {
    return {g.node(id).op, g.node(id).scope, 0};
  }

  // A loop that is called once more reads the parameters of the first, and must as they lie.
  ir::NodeId loop_of_parameters(ir::RegionId from, ir::NodeId to) const {
    const auto paths = [](const ir::Graph& g, ir::NodeId id) {
      std::set<std::string> found;
      for (const ir::ValueId operand : g.node(id).operands) {
        const ir::NodeId def = g.value(operand).def;
        if (!def.valid() || g.node(def).op != ir::Op::kInput) continue;
        const ir::Input& row = g.inputs[static_cast<size_t>(g.node(def).attrs.input.index)];
        if (row.kind == ir::InputKind::kParam && row.loop_dims > 0) found.insert(row.path);
      }
      return found;
    };
    const std::set<std::string> wanted = paths(to_, to);
    for (const ir::NodeId id : from_.region(from).nodes) {
      if (from_.node(id).op != ir::Op::kRepeat) continue;
      for (const std::string& path : paths(from_, id)) {
        if (wanted.count(path) != 0) return id;
      }
    }
    return {};
  }

  void op(ir::NodeId from, ir::NodeId to, const BodyPlacement& placement,
          BodyPlacement& out) const {
    const auto at = placement.ops.find(from.index);
    if (at == placement.ops.end()) return;
    if (from_.node(from).operands.size() != to_.node(to).operands.size()) return;
    const OpSharding rule(to_, to, extents_);
    for (const int8_t choice : at->second) {
      if (choice >= static_cast<int>(rule.rule().factors.size())) return;
      if (choice <= kFlow && kFlow - choice >= static_cast<int>(rule.rule().linear.size())) return;
    }
    if (rule.strategy(at->second, mesh_)) out.ops[to.index] = at->second;
  }

  void loop(ir::NodeId from, ir::NodeId to, const BodyPlacement& placement,
            BodyPlacement& out) const {
    const ir::Loop &a = from_.node(from).loop, &b = to_.node(to).loop;
    const auto at = placement.loops.find(from.index);
    if (at == placement.loops.end()) return;
    const auto& from_args = from_.region(a.body).args;
    const auto& to_args = to_.region(b.body).args;
    std::vector<RunPlacement>& runs = out.loops[to.index];
    for (const RunPlacement& run : at->second) {
      RunPlacement moved;
      moved.count = run.count;
      for (const BodyPlacement& pattern : run.pattern) {
        moved.pattern.push_back(body(a.body, b.body, pattern));
        // how carried values come in
        for (int c = 0; c < std::min(a.carries, b.carries); ++c) {
          const auto i = static_cast<size_t>(c) + 1;
          const auto copy = pattern.copies.find(from_args[i].index);
          if (copy == pattern.copies.end() || a.carries != b.carries) continue;
          if (from_.type(from_args[i]).rank() != to_.type(to_args[i]).rank()) continue;
          moved.pattern.back().copies[to_args[i].index] = copy->second;
        }
      }
      runs.push_back(std::move(moved));
    }
  }

  const ir::Graph &from_, &to_;
  Extents extents_;
  const Mesh& mesh_;
};

}  // namespace

Placement placement_of(const Problem& problem, const BodyPlan& plan) {
  return {problem.mesh, Placer(problem).body(0, plan)};
}

Placement replicated_placement(const Mesh& mesh) {
  return {mesh, {}};
}

Placement placement_for(const ir::Graph& other, const ir::Bindings& bindings,
                        const ir::Graph& graph, const Placement& placement) {
  const Transfer transfer(graph, other, bindings, placement.mesh);
  return {placement.mesh, transfer.body(ir::RegionId{0}, ir::RegionId{0}, placement.top)};
}

}  // namespace cad::planner
