// planner/plan.cc -- from choices (planner/problem.h) to a plan in names. Conversions are listed
// per pair of ops and phase; collectives sum them up.
#include "planner/plan.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "planner/collective.h"
#include "planner/placement_json.h"

namespace cad::planner {

namespace {

class Describer {
 public:
  Describer(const Problem& p, Plan& out) : p_(p), g_(*p.graph), out_(out) {}

  void region(int index, const BodyPlan& plan, int body, double times) {
    const RegionProblem& r = p_.regions[static_cast<size_t>(index)];
    std::vector<int> last(r.variables.size(), -1);  // by variable: the last op of its site
    for (size_t v = 0; v < r.variables.size(); ++v) {
      if (static_cast<int>(v) == r.exit) continue;
      variable(r, r.variables[v], static_cast<size_t>(plan.choices[v]), body, times);
      if (r.variables[v].kind == VariableInfo::Kind::kSite)
        last[v] = static_cast<int>(out_.ops.size()) - 1;
    }
    for (const Pair& pair : r.pairs) describe_pair(r, pair, plan, body, times, last);
    const std::vector<int> after = groups_before_loops(r.region);
    for (size_t c = 0; c < r.children.size(); ++c) {
      const RegionProblem::Child& child = r.children[c];
      const LoopSite& loop = p_.sites->loops[static_cast<size_t>(child.loop)];
      const std::string name = g_.dim(g_.node(loop.node).loop.dim).name;
      int run = 0;
      for (const Run& repeated : plan.loops[c]) {
        for (size_t k = 0; k < repeated.pattern.size(); ++k) {
          PlanBody b;
          b.path = name;
          b.parent = body;
          b.count = repeated.count;
          b.period = static_cast<int>(repeated.pattern.size());
          b.position = static_cast<int>(k);
          b.run = run;
          b.after = after[c];
          b.segment = repeated.segment;
          const int number = static_cast<int>(out_.bodies.size());
          out_.bodies.push_back(b);
          again_ = repeated.segment > 0;
          region(child.region, repeated.pattern[k], number,
                 times * static_cast<double>(repeated.count));
          again_ = false;
        }
        ++run;
      }
    }
  }

 private:
  // By loop of a region, in order.
  [[nodiscard]] std::vector<int> groups_before_loops(ir::RegionId region) const {
    std::vector<int> out;
    const auto order = p_.sites->order.find(region.index);
    if (order == p_.sites->order.end()) return out;
    int groups = 0;
    for (const int member : order->second) {
      if (member >= 0)
        ++groups;
      else
        out.push_back(groups);
    }
    return out;
  }

  [[nodiscard]] NamedLayout named(const Layout& layout, const ir::Type& type) const {
    NamedLayout out;
    for (size_t a = 0; a < p_.mesh.axes.size(); ++a) {
      const int8_t x = layout.axis[a];
      out.push_back(x == kReplicated ? ""
                    : x == kPartial  ? "+"
                                     : g_.dim(type.dims[static_cast<size_t>(x)]).name);
    }
    return out;
  }
  [[nodiscard]] std::vector<std::string> dim_names(const ir::Type& type) const {
    std::vector<std::string> out;
    out.reserve(type.rank());
    for (ir::DimId d : type.dims) out.push_back(g_.dim(d).name);
    return out;
  }

  void tensor(const std::string& path, const char* role, ir::ValueId value, const Layout& layout,
              double element, int body) {
    const ir::Type& type = g_.type(value);
    PlanTensor t;
    t.path = path;
    t.role = role;
    t.dims = dim_names(type);
    t.layout = named(layout, type);
    t.bytes = local_elements(layout, tensor_extents(type, p_.extents), p_.mesh) * element;
    t.body = body;
    out_.tensors.push_back(std::move(t));
  }

  void variable(const RegionProblem& r, const VariableInfo& v, size_t choice, int body,
                double times) {
    switch (v.kind) {
      case VariableInfo::Kind::kSite:
        site(v, choice, body, times);
        break;
      case VariableInfo::Kind::kParam: {
        const std::vector<Layout>& l = v.table->layouts();
        tensor(v.name, "parameter", v.value, l[static_cast<size_t>(v.layout[choice])],
               p_.training.mixed ? 2 : 4, body);
        if (v.choices[choice].gradients <= 0) break;
        const int gradient = v.gradient[choice] >= 0 ? v.gradient[choice] : v.layout[choice];
        tensor(v.name, "gradient", v.value, l[static_cast<size_t>(gradient)], 4, body);
        const double state = p_.training.state_bytes.empty()
                                 ? 8
                                 : p_.training.state_bytes[static_cast<size_t>(v.param)];
        tensor(v.name, "optimizer", v.value, l[static_cast<size_t>(v.optimizer[choice])],
               state + (p_.training.mixed ? 4 : 0), body);
        {
          const bool shared = std::any_of(r.variables.begin(), r.variables.end(),
                                          [&](const auto& user) { return is_shared(v, user); });
          update(v, choice, body, shared ? times / r.trips : times);
        }
        break;
      }
      case VariableInfo::Kind::kHub:
        tensor(v.name + " (shared)", "activation", v.value,
               v.table->layouts()[static_cast<size_t>(v.layout[choice])],
               ir::dtype_bytes(g_.type(v.value).dtype), body);
        out_.bodies[static_cast<size_t>(body)].saved_bytes +=
            static_cast<double>(v.choices[choice].saved);
        break;
      case VariableInfo::Kind::kSink:
        break;
    }
  }

  void site(const VariableInfo& v, size_t choice, int body, double times) {
    const Site& s = p_.sites->sites[static_cast<size_t>(v.site)];
    const SiteOption& o = v.options[static_cast<size_t>(v.option[choice])];
    const Variant& variant = s.variants[static_cast<size_t>(v.variant[choice])];
    const int group = groups_++;
    for (size_t i = 0; i < s.nodes.size(); ++i) {
      const ir::Node& n = g_.node(s.nodes[i]);
      PlanOp op;
      op.path = n.scope.empty() ? s.path : n.scope;
      op.op = ir::op_name(n.op);
      op.node = s.nodes[i].index;
      op.group = group;
      op.body = body;
      for (size_t a = 0; a < p_.mesh.axes.size(); ++a) {
        const int8_t d = o.split[a];
        op.strategy.push_back(d < 0 || o.assignments[i][a] == kUnused
                                  ? ""
                                  : g_.dim(v.dims[static_cast<size_t>(d)]).name);
      }
      const bool last = i + 1 == s.nodes.size();
      const bool kept = std::find(variant.saved.begin(), variant.saved.end(), n.results[0]) !=
                        variant.saved.end();
      if (kept || (last && variant.kept == Kept::kSaved))
        op.saved = "saved";
      else if (variant.again[i] != 0 || variant.kept == Kept::kAgain)
        op.saved = "recomputed";
      out_.ops.push_back(std::move(op));
    }
    const std::string& name = g_.value(s.outputs[0]).name;
    tensor(name.empty() ? s.path : s.path + ":" + name, "activation", s.outputs[0],
           o.results.back(), ir::dtype_bytes(g_.type(s.outputs[0]).dtype), body);
    const double n = times * p_.training.micro_batches;
    inner(o.forward, "forward", n);
    inner(o.backward, "backward", n);
    std::vector<char> again = variant.again;
    again.resize(s.nodes.size(), 0);
    if (variant.kept == Kept::kAgain) again.assign(s.nodes.size(), 1);
    std::vector<InnerCollective> repeated;
    for (size_t i = 0; i < o.forward.size(); ++i) {
      if (again[static_cast<size_t>(o.forward_of[i])] != 0) repeated.push_back(o.forward[i]);
    }
    inner(repeated, "recompute", n);
    if (again_) inner(o.forward, "recompute", n);
    for (const InsideConversion& c : o.inside) inside(s, c, again, n, body);
    measure(o, v.choices[choice], body);
  }

  void inside(const Site& s, const InsideConversion& c, const std::vector<char>& again,
              double times, int body) {
    const auto& table = p_.conversions->table(tensor_extents(g_.type(c.value), p_.extents),
                                              ir::dtype_bytes(g_.type(c.value).dtype),
                                              ir::is_float(g_.type(c.value).dtype));
    const std::string user = site_path(g_, {s.nodes[static_cast<size_t>(c.node)]});
    const auto add = [&](const Layout& from, const Layout& to, const char* phase) {
      convert(table, c.value, from, to,
              {s.path, user, phase, times, body, false, groups_ - 1, true});
    };
    add(c.from, c.to, "forward");
    if (c.gradient) add(dual(c.to, p_.mesh), dual(c.from, p_.mesh), "backward");
    if (again[static_cast<size_t>(c.node)] != 0) add(c.from, c.to, "recompute");
    if (again_) add(c.from, c.to, "recompute");
  }

  // Seconds and bytes of the site that was described last.
  void measure(const SiteOption& o, const Choice& choice, int body) {
    const double micro = p_.training.micro_batches;
    PlanOp& op = out_.ops.back();
    op.forward_s = micro * o.forward_s;
    op.backward_s = micro * o.backward_s;
    op.recompute_s = static_cast<double>(choice.terms.recompute);
    op.forward_steps = steps_of(o.forward);
    op.backward_steps = steps_of(o.backward);
    op.saved_bytes = static_cast<double>(choice.saved);
    op.transient_bytes = static_cast<double>(choice.transient);
    if (body == 0)
      op.transient_bytes += static_cast<double>(choice.again);
    else
      out_.bodies[static_cast<size_t>(body)].again_bytes += static_cast<double>(choice.again);
  }

  [[nodiscard]] std::vector<PlanStep> steps_of(const std::vector<InnerCollective>& list) const {
    std::vector<PlanStep> out;
    for (const InnerCollective& c : list)
      out.push_back({collective_name(c.kind), names_of(c.axes), c.bytes,
                     collective_seconds(p_.mesh, c.axes, c.kind, c.bytes)});
    return out;
  }

  void inner(const std::vector<InnerCollective>& list, const char* phase, double times) {
    for (const InnerCollective& c : list)
      collective(collective_name(c.kind), c.axes, phase, c.bytes, times,
                 collective_seconds(p_.mesh, c.axes, c.kind, c.bytes));
  }

  void update(const VariableInfo& v, size_t choice, int body, double times) {
    const std::vector<Layout>& l = v.table->layouts();
    const Layout& stored = l[static_cast<size_t>(v.layout[choice])];
    const Layout& updated = l[static_cast<size_t>(v.optimizer[choice])];
    if (v.gradient[choice] < 0)
      convert(*v.table, v.value, dual(stored, p_.mesh), updated,
              {v.name, v.name, "backward", times, body, true, -1});
    convert(*v.table, v.value, updated, stored, {v.name, v.name, "update", times, body, true, -1});
  }

  [[nodiscard]] std::vector<std::string> names_of(AxisSet axes) const {
    std::vector<std::string> names;
    for (size_t a = 0; a < p_.mesh.axes.size(); ++a) {
      if ((axes >> a & 1) != 0) names.push_back(p_.mesh.axes[a].name);
    }
    return names;
  }

  void collective(const std::string& kind, AxisSet axes, const std::string& phase, double bytes,
                  double count, double seconds) {
    const std::string names = fmt::format("{}", fmt::join(names_of(axes), "+"));
    for (PlanCollective& c : out_.collectives) {
      if (c.kind != kind || c.axis != names || c.phase != phase) continue;
      c.bytes = (c.bytes * c.count + bytes * count) / (c.count + count);
      c.count += count;
      c.seconds += count * seconds;
      return;
    }
    out_.collectives.push_back({kind, names, phase, bytes, count, count * seconds});
  }

  // What a conversion is listed as.
  struct Listing {
    std::string value, to;
    const char* phase;
    double count = 1;
    int body = 0;
    bool parameter = false;
    int group = -1;
    bool inside = false;
    int loop = -1;
  };
  void convert(const ConversionTable& table, ir::ValueId value, const Layout& from,
               const Layout& to, const Listing& as) {
    if (from == to) return;
    PlanConversion c;
    c.value = as.value;
    c.to = as.to;
    c.phase = as.phase;
    c.from_layout = named(from, g_.type(value));
    c.to_layout = named(to, g_.type(value));
    c.count = as.count;
    c.body = as.body;
    c.parameter = as.parameter;
    c.group = as.group;
    c.inside = as.inside;
    c.loop = as.loop;
    for (const Step& s : table.path(from, to)) {
      c.steps.push_back({step_name(s.kind), names_of(s.axes), s.bytes, s.seconds});
      if (!is_free(s.kind))
        collective(step_name(s.kind), s.axes, as.phase, s.bytes, as.count, s.seconds);
    }
    out_.conversions.push_back(std::move(c));
  }

  void describe_pair(const RegionProblem& r, const Pair& pair, const BodyPlan& plan, int body,
                     double times, const std::vector<int>& last) {
    const auto a = static_cast<size_t>(pair.a), b = static_cast<size_t>(pair.b);
    const auto i = static_cast<size_t>(pair.class_a[static_cast<size_t>(plan.choices[a])]);
    const auto j = static_cast<size_t>(pair.class_b[static_cast<size_t>(plan.choices[b])]);
    const std::vector<Layout>& l = pair.table->layouts();
    const Layout& from = l[static_cast<size_t>(pair.row[i].first)];
    const Layout& to = l[static_cast<size_t>(pair.column[j].first)];
    const VariableInfo &va = r.variables[a], &vb = r.variables[b];
    const int op = last[b] >= 0 ? last[b] : last[a];  // a hub's copy is made by what gives it
    const int group = op >= 0 ? out_.ops[static_cast<size_t>(op)].group : -1;
    const auto at = [](const Table& table, size_t row, size_t column) {
      return table.at.empty()
                 ? 0.0
                 : static_cast<double>(table(static_cast<int>(row), static_cast<int>(column)));
    };
    if (op >= 0) {
      out_.ops[static_cast<size_t>(op)].saved_bytes += at(pair.saved, i, j);
      out_.ops[static_cast<size_t>(op)].transient_bytes += at(pair.alive, i, j);
    }
    const double n = times * p_.training.micro_batches;
    if (pair.kind == Pair::Kind::kParam) {
      // what all iterations share is gathered and reduced once for all
      const double shared = is_shared(va, vb) ? n / r.trips : n;
      const auto add = [&](const Layout& x, const Layout& y, const std::string& value,
                           const std::string& user, const char* phase) {
        convert(*pair.table, va.value, x, y, {value, user, phase, shared, body, true, group});
      };
      add(from, to, va.name, vb.name, "forward");
      if (pair.column[j].second != 0) add(from, to, va.name, vb.name, "backward");
      if (again_) add(from, to, va.name, vb.name, "recompute");
      if (!pair.gradient) return;
      const int gradient = pair.row[i].second;
      const Layout reduced = gradient >= 0 ? l[static_cast<size_t>(gradient)] : dual(from, p_.mesh);
      add(dual(to, p_.mesh), reduced, va.name + " (gradient)", va.name, "backward");
      return;
    }
    const ir::ValueId value = value_of(va, vb);
    const int loop = op >= 0 ? -1 : loop_after(r, pair);
    const auto add = [&](const Layout& x, const Layout& y, const std::string& given,
                         const std::string& user, const char* phase) {
      convert(*pair.table, value, x, y, {given, user, phase, n, body, false, group, false, loop});
    };
    add(from, to, va.name, vb.name, "forward");
    if (at(pair.part, i, j) > 0) add(from, to, va.name, vb.name, "recompute");
    if (again_) add(from, to, va.name, vb.name, "recompute");
    if (pair.gradient)
      add(dual(to, p_.mesh), dual(from, p_.mesh), vb.name + " (gradient)", va.name, "backward");
  }

  // Of a region, the loop that starts after a carry has been converted from one hub to another.
  static int loop_after(const RegionProblem& r, const Pair& pair) {
    int next = 0;
    for (size_t c = 0; c < r.children.size(); ++c) {
      if (r.children[c].entry == pair.b) return static_cast<int>(c);
      if (r.children[c].exit == pair.a) next = static_cast<int>(c) + 1;
    }
    return next;
  }

  // Whether all iterations of the loop share the parameter.
  [[nodiscard]] bool is_shared(const VariableInfo& parameter, const VariableInfo& user) const {
    if (user.kind != VariableInfo::Kind::kSite) return false;
    const std::vector<Use>& uses = p_.sites->sites[static_cast<size_t>(user.site)].params;
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      return use.param == parameter.param && use.invariant;
    });
  }

  // Some value of the pair's type: layouts are positions.
  [[nodiscard]] ir::ValueId value_of(const VariableInfo& a, const VariableInfo& b) const {
    if (a.kind == VariableInfo::Kind::kHub) return a.value;
    if (b.kind == VariableInfo::Kind::kHub || b.kind == VariableInfo::Kind::kSink) return b.value;
    const Site& from = p_.sites->sites[static_cast<size_t>(a.site)];
    for (const Use& use : p_.sites->sites[static_cast<size_t>(b.site)].inputs) {
      if (std::find(from.outputs.begin(), from.outputs.end(), use.root) != from.outputs.end())
        return use.root;
    }
    return from.outputs[0];
  }

  const Problem& p_;
  const ir::Graph& g_;
  Plan& out_;
  int groups_ = 0;
  bool again_ = false;  // in a run whose segments run again
};

}  // namespace

Plan describe(const Problem& problem, const BodyPlan& plan) {
  Plan out;
  out.axes = problem.mesh.axes;
  out.devices = out.offered = problem.mesh.devices();
  out.micro_batches = problem.training.micro_batches;
  out.bodies.emplace_back();
  Describer(problem, out).region(0, plan, 0, 1);
  out.placement = placement_of(problem, plan).top;
  out.digest = graph_digest(*problem.graph, problem.training.bindings);
  const Evaluation e = evaluate(problem, plan);
  Predicted& q = out.predicted;
  q.step_s = e.seconds;
  q.compute_s = e.compute;
  q.comm_s = e.communicate + e.parameters;
  q.exposed_comm_s = e.communicate + e.parameters - e.hidden;
  q.recompute_s = e.recompute;
  q.optimizer_s = e.optimizer;
  q.peak_bytes = e.peak;
  q.params_bytes = e.bytes.parameters;
  q.grads_bytes = e.bytes.gradients;
  q.optimizer_bytes = e.bytes.optimizer;
  q.activation_bytes = e.bytes.saved;
  q.transient_bytes = e.bytes.again + e.transient;
  return out;
}

std::vector<Alternative> best_rows(const std::vector<Alternative>& rows) {
  std::vector<Alternative> best;
  for (const Alternative& row : rows) {
    const auto same = std::find_if(best.begin(), best.end(),
                                   [&](const Alternative& old) { return old.name == row.name; });
    if (same == best.end()) {
      best.push_back(row);
      continue;
    }
    const bool better = row.feasible != same->feasible ? row.feasible
                        : row.feasible                 ? row.step_s < same->step_s
                                                       : row.peak_bytes < same->peak_bytes;
    if (better) *same = row;
  }
  std::stable_sort(best.begin(), best.end(), [](const Alternative& a, const Alternative& b) {
    return a.feasible != b.feasible ? a.feasible : a.step_s < b.step_s;
  });
  return best;
}

void SolverReport::prove(double seconds) {
  bound = seconds;
  gap = (objective - bound) / objective;
  status = gap <= 1e-5 ? "optimal" : gap <= 0.01 ? "within the gap" : "feasible";
}

}  // namespace cad::planner
