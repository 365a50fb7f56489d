// planner/plan_rules.cc -- see plan_rules.h: which splits follow a rule, plans with and without the
// rules, and what the notes say of them. Where the options are left out: planner/problem*.cc.
#include "planner/plan_rules.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "planner/plan_text.h"
#include "planner/planner.h"
#include "planner/rules_followed.h"

namespace cad::planner {

namespace {

AxisSet with(AxisSet set, size_t axis) {
  return static_cast<AxisSet>(set | 1U << axis);
}

// The axes that a rule means: none of them when the mesh has no use for it.
AxisSet meant(const ShardRule& rule, const Mesh& mesh) {
  AxisSet set = 0;
  for (size_t a = 0; a < mesh.axes.size(); ++a) {
    if (mesh.axes[a].size > 1 && mesh.axes[a].name == rule.axis) set = with(set, a);
  }
  return set;
}

template <typename... Of>
int count_followed(const PlanRules& rules, const Of&... of) {
  return static_cast<int>(
      std::count_if(rules.shard.begin(), rules.shard.end(),
                    [&](const ShardRule& rule) { return follows(rule, of...) == Followed::kYes; }));
}

std::string text_of(const ShardRule& rule) {
  return fmt::format("`shard {{ {}: {} }}`", rule.dim, rule.axis.empty() ? "none" : rule.axis);
}

// What a plan makes of one rule.
struct Outcome {
  int has = 0, follows = 0;  // ops and parameters
  std::string first;         // that does not follow
};

class Outcomes {
 public:
  explicit Outcomes(const Planning& planning) : p_(*planning.problem) { walk(0, planning.body); }

  // Ops of several bodies of a loop count once, and follow when they do in all.
  [[nodiscard]] Outcome of(const ShardRule& rule) const {
    Outcome out;
    for (const auto& [place, choices] : chosen_) {
      const VariableInfo& v = p_.regions[place.first].variables[place.second];
      bool has = false, all = true;
      for (const int choice : choices) {
        const Followed f = judge(rule, v, static_cast<size_t>(choice));
        has = has || f != Followed::kApart;
        all = all && f == Followed::kYes;
      }
      if (!has) continue;
      ++out.has;
      if (all)
        ++out.follows;
      else if (out.first.empty())
        out.first = v.name;
    }
    return out;
  }

  // Whether some op has the dims of both rules.
  [[nodiscard]] bool meet(const ShardRule& a, const ShardRule& b) const {
    return std::any_of(chosen_.begin(), chosen_.end(), [&](const auto& entry) {
      const VariableInfo& v = p_.regions[entry.first.first].variables[entry.first.second];
      const auto choice = static_cast<size_t>(*entry.second.begin());
      return v.kind == VariableInfo::Kind::kSite && judge(a, v, choice) != Followed::kApart &&
             judge(b, v, choice) != Followed::kApart;
    });
  }

 private:
  [[nodiscard]] Followed judge(const ShardRule& rule, const VariableInfo& v, size_t choice) const {
    if (v.kind == VariableInfo::Kind::kSite)
      return follows(rule, v, v.options[static_cast<size_t>(v.option[choice])], *p_.graph, p_.mesh);
    const Layout& stored = v.table->layouts()[static_cast<size_t>(v.layout[choice])];
    return follows(rule, p_.graph->type(v.value), stored, *p_.graph, p_.mesh);
  }

  void walk(size_t region, const BodyPlan& plan) {
    const RegionProblem& r = p_.regions[region];
    for (size_t v = 0; v < r.variables.size(); ++v) {
      const VariableInfo::Kind kind = r.variables[v].kind;
      if (kind == VariableInfo::Kind::kSite || kind == VariableInfo::Kind::kParam)
        chosen_[{region, v}].insert(plan.choices[v]);
    }
    for (size_t c = 0; c < r.children.size(); ++c) {
      for (const Run& run : plan.loops[c]) {
        for (const BodyPlan& body : run.pattern)
          walk(static_cast<size_t>(r.children[c].region), body);
      }
    }
  }

  const Problem& p_;
  std::map<std::pair<size_t, size_t>, std::set<int>> chosen_;  // (region, variable) -> choices
};

// `@shard`s that a rule contradicts.
std::string stronger_pin(const ShardRule& rule, const ir::Graph& graph) {
  for (const ir::Value& value : graph.values) {
    for (const ir::Pin& pin : value.pins) {
      if (graph.dim(pin.dim).name == rule.dim && pin.axis != rule.axis)
        return fmt::format("`@shard({}: {})` on `{}`", rule.dim,
                           pin.axis.empty() ? "none" : pin.axis, value.name);
    }
  }
  return "";
}

std::vector<std::string> rule_notes(const PlanRules& rules, const Planning& planning) {
  std::vector<std::string> notes;
  if (rules.shard.empty()) return notes;
  const Problem& problem = *planning.problem;
  const Outcomes outcomes(planning);
  for (size_t i = 0; i < rules.shard.size(); ++i) {
    const ShardRule& rule = rules.shard[i];
    const Outcome outcome = outcomes.of(rule);
    if (outcome.has == 0) {
      notes.push_back(fmt::format("{} matches nothing: no op or parameter of the step has `{}`",
                                  text_of(rule), rule.dim));
      continue;
    }
    if (const std::string pin = stronger_pin(rule, *problem.graph); !pin.empty())
      notes.push_back(fmt::format("{} gives way to {}", text_of(rule), pin));
    if (outcome.follows < outcome.has)
      notes.push_back(
          fmt::format("{} is followed by {} of {} ops and parameters that have `{}`, "
                      "not by `{}`",
                      text_of(rule), outcome.follows, outcome.has, rule.dim, outcome.first));
    for (size_t j = 0; j < i; ++j) {
      const ShardRule& other = rules.shard[j];
      if (!rule.axis.empty() && rule.axis == other.axis && outcomes.meet(rule, other))
        notes.push_back(
            fmt::format("`{}` and `{}` are both wished on the axis `{}`: an op that "
                        "has both follows one of the two",
                        other.dim, rule.dim, rule.axis));
    }
  }
  return notes;
}

void add_notes(Plan& plan, std::vector<std::string> notes) {
  for (std::string& note : notes) plan.notes.push_back(std::move(note));
}

// The plan made without rules becomes a row of the other's alternatives.
void set_beside(Planning& ruled, const Planning& free) {
  Plan& plan = ruled.plan;
  plan.alternatives = free.plan.alternatives;
  plan.solver.wall_s += free.plan.solver.wall_s;
  if (!free.feasible || free.problem == nullptr) return;
  Alternative a;
  a.name = "without `plan` rules";
  a.mesh = free.problem->mesh.str();
  a.feasible = true;
  a.step_s = free.plan.predicted.step_s;
  a.peak_bytes = free.plan.predicted.peak_bytes;
  const auto place =
      std::find_if(plan.alternatives.begin(), plan.alternatives.end(),
                   [&](const Alternative& x) { return !x.feasible || x.step_s >= a.step_s; });
  plan.alternatives.insert(place, a);
  const double more = plan.predicted.step_s / a.step_s - 1;
  if (ruled.feasible && more > 0.005)
    plan.notes.push_back(fmt::format(
        "the rules of `plan` cost {} a step, {:.0f} %: it takes {} "
        "without them",
        seconds_text(plan.predicted.step_s - a.step_s), more * 100, seconds_text(a.step_s)));
}

std::string not_for(const std::string& baseline) {
  return fmt::format("the rules of `plan` do not apply to `--plan {}`", baseline);
}

}  // namespace

Followed follows(const ShardRule& rule, const VariableInfo& site, const SiteOption& option,
                 const ir::Graph& graph, const Mesh& mesh) {
  int number = -1;
  for (size_t d = 0; d < site.dims.size(); ++d) {
    if (graph.dim(site.dims[d]).name == rule.dim) number = site.one_of[d];
  }
  if (number < 0) return Followed::kApart;
  AxisSet is = 0;
  for (size_t a = 0; a < mesh.axes.size(); ++a) {
    if (mesh.axes[a].size > 1 && option.split[a] == number) is = with(is, a);
  }
  return is == meant(rule, mesh) ? Followed::kYes : Followed::kNo;
}

Followed follows(const ShardRule& rule, const ir::Type& type, const Layout& layout,
                 const ir::Graph& graph, const Mesh& mesh) {
  int position = -1;
  for (size_t p = 0; p < type.rank(); ++p) {
    if (graph.dim(type.dims[p]).name == rule.dim) position = static_cast<int>(p);
  }
  if (position < 0) return Followed::kApart;
  AxisSet is = 0;
  for (size_t a = 0; a < mesh.axes.size(); ++a) {
    if (mesh.axes[a].size > 1 && layout.axis[a] == position) is = with(is, a);
  }
  const AxisSet wanted = meant(rule, mesh);
  const bool yes = rule.axis.empty() ? is == 0 : (is & wanted) == wanted;
  return yes ? Followed::kYes : Followed::kNo;
}

int rules_followed(const PlanRules& rules, const VariableInfo& site, const SiteOption& option,
                   const ir::Graph& graph, const Mesh& mesh) {
  return count_followed(rules, site, option, graph, mesh);
}

int rules_followed(const PlanRules& rules, const ir::Type& type, const Layout& layout,
                   const ir::Graph& graph, const Mesh& mesh) {
  return count_followed(rules, type, layout, graph, mesh);
}

std::vector<Planning> baseline_plans_by_rules(const PlanRequest& request) {
  PlanRequest open = request;
  open.rules = {};
  std::vector<Planning> plans = baseline_plans(open);
  if (request.rules.empty() || request.name == "auto") return plans;
  for (Planning& planning : plans) planning.plan.notes.push_back(not_for(request.name));
  return plans;
}

Planning plan_by_rules(const PlanRequest& request) {
  if (request.rules.empty()) return make_plan(request);
  PlanRequest open = request;
  open.rules = {};
  Planning free = make_plan(open);
  if (request.name != "auto") {
    free.plan.notes.push_back(not_for(request.name));
    return free;
  }
  PlanRequest bound = request;
  bound.alternatives = false;
  Planning ruled = make_plan(bound);
  std::vector<std::string> notes;
  if (!ruled.feasible && !request.rules.shard.empty()) {
    notes.push_back(ruled.problem == nullptr
                        ? "`shard` and the annotations of the program exclude each other on every "
                          "mesh: planned without `shard`"
                        : fmt::format("no plan that follows `shard` fits: the least that was found "
                                      "needs {} a device; planned without `shard`",
                                      bytes_text(ruled.least_peak)));
    bound.rules.shard.clear();
    ruled = bound.rules.empty() ? free : make_plan(bound);
  }
  if (ruled.problem == nullptr) return ruled;
  add_notes(ruled.plan, std::move(notes));
  if (!ruled.feasible && free.feasible && bound.rules.checkpointing != Checkpointing::kAuto)
    ruled.plan.notes.push_back(fmt::format(
        "`checkpoint: {}` rules out the plans that fit: with `checkpoint: auto` one needs {}",
        bound.rules.checkpointing == Checkpointing::kNone ? "none" : "all",
        bytes_text(free.plan.predicted.peak_bytes)));
  if (bound.rules.empty()) return ruled;
  add_notes(ruled.plan, rule_notes(bound.rules, ruled));
  set_beside(ruled, free);
  return ruled;
}

}  // namespace cad::planner
