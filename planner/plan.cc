// planner/plan.cc -- from choices (planner/problem.h) to a plan in names. Conversions are listed
// per pair of ops and phase; collectives sum them up.
#include "planner/plan.h"

#include <algorithm>

#include "base/check.h"
#include "planner/collective.h"

namespace cad::planner {

namespace {

class Describer {
 public:
  Describer(const Problem& p, Plan& out) : p_(p), g_(*p.graph), out_(out) {}

  void region(int index, const BodyPlan& plan, int body, double times) {
    const RegionProblem& r = p_.regions[static_cast<size_t>(index)];
    for (size_t v = 0; v < r.variables.size(); ++v) {
      if (static_cast<int>(v) == r.exit) continue;
      variable(r.variables[v], static_cast<size_t>(plan.choices[v]), body, times);
    }
    for (const Pair& pair : r.pairs) describe_pair(r, pair, plan, body, times);
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
          const int number = static_cast<int>(out_.bodies.size());
          out_.bodies.push_back(b);
          region(child.region, repeated.pattern[k], number,
                 times * static_cast<double>(repeated.count));
        }
        ++run;
      }
    }
  }

 private:
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

  void variable(const VariableInfo& v, size_t choice, int body, double times) {
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
        update(v, choice, body, times);
        break;
      }
      case VariableInfo::Kind::kHub:
        tensor(v.name + " (shared)", "activation", v.value,
               v.table->layouts()[static_cast<size_t>(v.layout[choice])],
               ir::dtype_bytes(g_.type(v.value).dtype), body);
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
    const double micro = p_.training.micro_batches;
    inner(o.forward, "forward", times * micro);
    inner(o.backward, "backward", times * micro);
  }

  void inner(const std::vector<InnerCollective>& list, const char* phase, double times) {
    for (const InnerCollective& c : list)
      collective(collective_name(c.kind), c.axes, phase, c.bytes, times,
                 collective_seconds(p_.mesh, c.axes, c.kind, c.bytes));
  }

  void update(const VariableInfo& v, size_t choice, int body, double times) {
    const std::vector<Layout>& l = v.table->layouts();
    if (v.gradient[choice] < 0) {
      convert(*v.table, v.value, dual(l[static_cast<size_t>(v.layout[choice])], p_.mesh),
              l[static_cast<size_t>(v.optimizer[choice])], v.name, v.name, "backward", times, body,
              true);
    }
    convert(*v.table, v.value, l[static_cast<size_t>(v.optimizer[choice])],
            l[static_cast<size_t>(v.layout[choice])], v.name, v.name, "update", times, body, true);
  }

  void collective(const std::string& kind, AxisSet axes, const std::string& phase, double bytes,
                  double count, double seconds) {
    std::string names;
    for (size_t a = 0; a < p_.mesh.axes.size(); ++a) {
      if ((axes >> a & 1) == 0) continue;
      names += (names.empty() ? "" : "+") + p_.mesh.axes[a].name;
    }
    for (PlanCollective& c : out_.collectives) {
      if (c.kind != kind || c.axis != names || c.phase != phase) continue;
      c.bytes = (c.bytes * c.count + bytes * count) / (c.count + count);
      c.count += count;
      c.seconds += count * seconds;
      return;
    }
    out_.collectives.push_back({kind, names, phase, bytes, count, count * seconds});
  }

  void convert(const ConversionTable& table, ir::ValueId value, const Layout& from,
               const Layout& to, const std::string& path, const std::string& user,
               const char* phase, double count, int body, bool parameter) {
    if (from == to) return;
    PlanConversion c;
    c.value = path;
    c.to = user;
    c.phase = phase;
    c.from_layout = named(from, g_.type(value));
    c.to_layout = named(to, g_.type(value));
    c.count = count;
    c.body = body;
    c.parameter = parameter;
    for (const Step& s : table.path(from, to)) {
      PlanConversion::Step step;
      step.kind = step_name(s.kind);
      for (size_t a = 0; a < p_.mesh.axes.size(); ++a) {
        if ((s.axes >> a & 1) != 0) step.axes.push_back(p_.mesh.axes[a].name);
      }
      step.bytes = s.bytes;
      step.seconds = s.seconds;
      c.steps.push_back(std::move(step));
      if (!is_free(s.kind)) collective(step_name(s.kind), s.axes, phase, s.bytes, count, s.seconds);
    }
    out_.conversions.push_back(std::move(c));
  }

  void describe_pair(const RegionProblem& r, const Pair& pair, const BodyPlan& plan, int body,
                     double times) {
    const auto a = static_cast<size_t>(pair.a), b = static_cast<size_t>(pair.b);
    const auto i = static_cast<size_t>(pair.class_a[static_cast<size_t>(plan.choices[a])]);
    const auto j = static_cast<size_t>(pair.class_b[static_cast<size_t>(plan.choices[b])]);
    const std::vector<Layout>& l = pair.table->layouts();
    const Layout& from = l[static_cast<size_t>(pair.row[i].first)];
    const Layout& to = l[static_cast<size_t>(pair.column[j].first)];
    const VariableInfo &va = r.variables[a], &vb = r.variables[b];
    const double n = times * p_.training.micro_batches;
    if (pair.kind == Pair::Kind::kParam) {
      convert(*pair.table, va.value, from, to, va.name, vb.name, "forward", n, body, true);
      if (pair.column[j].second != 0)
        convert(*pair.table, va.value, from, to, va.name, vb.name, "backward", n, body, true);
      if (!pair.gradient) return;
      const int gradient = pair.row[i].second;
      const Layout reduced = gradient >= 0 ? l[static_cast<size_t>(gradient)] : dual(from, p_.mesh);
      convert(*pair.table, va.value, dual(to, p_.mesh), reduced, va.name + " (gradient)", va.name,
              "backward", n, body, true);
      return;
    }
    const ir::ValueId value = value_of(va, vb);
    convert(*pair.table, value, from, to, va.name, vb.name, "forward", n, body, false);
    if (pair.part(static_cast<int>(i), static_cast<int>(j)) > 0)
      convert(*pair.table, value, from, to, va.name, vb.name, "recompute", n, body, false);
    if (pair.gradient)
      convert(*pair.table, value, dual(to, p_.mesh), dual(from, p_.mesh), vb.name + " (gradient)",
              va.name, "backward", n, body, false);
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
};

}  // namespace

Plan describe(const Problem& problem, const BodyPlan& plan) {
  Plan out;
  out.axes = problem.mesh.axes;
  out.devices = problem.mesh.devices();
  out.bodies.emplace_back();
  Describer(problem, out).region(0, plan, 0, 1);
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

}  // namespace cad::planner
