// planner/placement.cc -- see placement.h.
#include "planner/placement.h"

#include "base/check.h"

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

}  // namespace

Placement placement_of(const Problem& problem, const BodyPlan& plan) {
  return {problem.mesh, Placer(problem).body(0, plan)};
}

Placement replicated_placement(const Mesh& mesh) {
  return {mesh, {}};
}

}  // namespace cad::planner
