// planner/plan_json.cc -- see plan_json.h. A budget without limit is null.
#include "planner/plan_json.h"

#include <cmath>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "planner/placement_json.h"

namespace cad::planner {

using json = nlohmann::ordered_json;

namespace {

// "B" | null | "+" for each mesh axis.
json layout_json(const NamedLayout& layout) {
  json out = json::array();
  for (const std::string& entry : layout)
    out.push_back(entry.empty() ? json(nullptr) : json(entry));
  return out;
}
NamedLayout layout_of(const json& j) {
  NamedLayout out;
  for (const json& entry : j) out.push_back(entry.is_null() ? "" : entry.get<std::string>());
  return out;
}

json predicted_json(const Predicted& p) {
  return {{"step_s", p.step_s},
          {"compute_s", p.compute_s},
          {"comm_s", p.comm_s},
          {"exposed_comm_s", p.exposed_comm_s},
          {"recompute_s", p.recompute_s},
          {"optimizer_s", p.optimizer_s},
          {"peak_bytes", p.peak_bytes},
          {"params_bytes", p.params_bytes},
          {"grads_bytes", p.grads_bytes},
          {"optimizer_bytes", p.optimizer_bytes},
          {"activation_bytes", p.activation_bytes},
          {"transient_bytes", p.transient_bytes}};
}

json solver_json(const SolverReport& s) {
  return {{"name", s.name},
          {"status", s.status},
          {"objective", s.objective},
          {"bound", s.bound},
          {"gap", s.gap},
          {"wall_s", s.wall_s},
          {"columns", s.columns},
          {"rows", s.rows},
          {"meshes", s.meshes},
          {"meshes_dropped", s.meshes_dropped}};
}

json steps_json(const std::vector<PlanStep>& steps) {
  json out = json::array();
  for (const PlanStep& s : steps)
    out.push_back({{"kind", s.kind}, {"axes", s.axes}, {"bytes", s.bytes}, {"seconds", s.seconds}});
  return out;
}
std::vector<PlanStep> steps_of(const json& j) {
  std::vector<PlanStep> out;
  for (const json& step : j)
    out.push_back({step.at("kind").get<std::string>(),
                   step.at("axes").get<std::vector<std::string>>(), step.at("bytes").get<double>(),
                   step.at("seconds").get<double>()});
  return out;
}

json conversion_json(const PlanConversion& c) {
  return {{"value", c.value},
          {"to", c.to},
          {"phase", c.phase},
          {"from_layout", layout_json(c.from_layout)},
          {"to_layout", layout_json(c.to_layout)},
          {"steps", steps_json(c.steps)},
          {"count", c.count},
          {"body", c.body},
          {"parameter", c.parameter},
          {"group", c.group},
          {"inside", c.inside}};
}

Plan plan_of(const json& j) {
  Plan p;
  p.name = j.at("name").get<std::string>();
  p.cluster = j.at("cluster").get<std::string>();
  p.devices = j.at("devices").get<int>();
  p.offered = j.at("offered").get<int>();
  p.budget = j.at("budget_bytes").is_null() ? std::numeric_limits<double>::infinity()
                                            : j.at("budget_bytes").get<double>();
  p.memory = j.at("memory_bytes").get<double>();
  p.rows = j.at("rows").get<double>();
  p.micro_batches = j.at("micro_batches").get<double>();
  for (const json& a : j.at("mesh").at("axes"))
    p.axes.push_back({a.at("name").get<std::string>(), a.at("size").get<int>()});
  const json& q = j.at("predicted");
  Predicted& r = p.predicted;
  const std::vector<std::pair<const char*, double*>> figures = {
      {"step_s", &r.step_s},
      {"compute_s", &r.compute_s},
      {"comm_s", &r.comm_s},
      {"exposed_comm_s", &r.exposed_comm_s},
      {"recompute_s", &r.recompute_s},
      {"optimizer_s", &r.optimizer_s},
      {"peak_bytes", &r.peak_bytes},
      {"params_bytes", &r.params_bytes},
      {"grads_bytes", &r.grads_bytes},
      {"optimizer_bytes", &r.optimizer_bytes},
      {"activation_bytes", &r.activation_bytes},
      {"transient_bytes", &r.transient_bytes}};
  for (const auto& [key, to] : figures) *to = q.at(key).get<double>();
  const json& s = j.at("solver");
  p.solver.name = s.at("name").get<std::string>();
  p.solver.status = s.at("status").get<std::string>();
  p.solver.objective = s.at("objective").get<double>();
  p.solver.bound = s.at("bound").get<double>();
  p.solver.gap = s.at("gap").get<double>();
  p.solver.wall_s = s.at("wall_s").get<double>();
  p.solver.columns = s.at("columns").get<int64_t>();
  p.solver.rows = s.at("rows").get<int64_t>();
  p.solver.meshes = s.at("meshes").get<int64_t>();
  p.solver.meshes_dropped = s.at("meshes_dropped").get<int64_t>();
  for (const json& b : j.at("bodies"))
    p.bodies.push_back({b.at("path").get<std::string>(), b.at("parent").get<int>(),
                        b.at("count").get<int64_t>(), b.at("period").get<int>(),
                        b.at("position").get<int>(), b.at("run").get<int>(),
                        b.at("after").get<int>(), b.at("saved_bytes").get<double>(),
                        b.at("again_bytes").get<double>(), b.at("segment").get<int64_t>()});
  for (const json& t : j.at("tensors"))
    p.tensors.push_back({t.at("path").get<std::string>(), t.at("role").get<std::string>(),
                         t.at("dims").get<std::vector<std::string>>(), layout_of(t.at("layout")),
                         t.at("bytes").get<double>(), t.at("body").get<int>()});
  for (const json& o : j.at("ops"))
    p.ops.push_back({o.at("path").get<std::string>(), o.at("op").get<std::string>(),
                     o.at("node").get<int>(), o.at("group").get<int>(), layout_of(o.at("strategy")),
                     o.at("saved").get<std::string>(), o.at("body").get<int>(),
                     o.at("forward_s").get<double>(), o.at("backward_s").get<double>(),
                     o.at("recompute_s").get<double>(), o.at("saved_bytes").get<double>(),
                     o.at("transient_bytes").get<double>(), steps_of(o.at("forward_steps")),
                     steps_of(o.at("backward_steps"))});
  for (const json& c : j.at("conversions")) {
    PlanConversion v;
    v.value = c.at("value").get<std::string>();
    v.to = c.at("to").get<std::string>();
    v.phase = c.at("phase").get<std::string>();
    v.from_layout = layout_of(c.at("from_layout"));
    v.to_layout = layout_of(c.at("to_layout"));
    v.steps = steps_of(c.at("steps"));
    v.count = c.at("count").get<double>();
    v.body = c.at("body").get<int>();
    v.parameter = c.at("parameter").get<bool>();
    v.group = c.at("group").get<int>();
    v.inside = c.at("inside").get<bool>();
    p.conversions.push_back(std::move(v));
  }
  for (const json& c : j.at("collectives"))
    p.collectives.push_back({c.at("kind").get<std::string>(), c.at("axis").get<std::string>(),
                             c.at("phase").get<std::string>(), c.at("bytes").get<double>(),
                             c.at("count").get<double>(), c.at("seconds").get<double>()});
  for (const json& a : j.at("alternatives"))
    p.alternatives.push_back({a.at("name").get<std::string>(), a.at("mesh").get<std::string>(),
                              a.at("feasible").get<bool>(), a.at("step_s").get<double>(),
                              a.at("peak_bytes").get<double>(), ""});
  for (const json& n : j.at("notes")) p.notes.push_back(n.get<std::string>());
  if (j.contains("placement")) {  // without, it can be looked at, not run
    p.digest = j.at("placement").at("digest").get<std::string>();
    if (auto body = read_body(j.at("placement").at("body"))) p.placement = std::move(*body);
  }
  return p;
}

// What a file can say that no plan is; empty: nothing.
std::string contradiction(const Plan& p) {
  const auto known = [&](int body) {
    return body >= 0 && body < static_cast<int>(p.bodies.size());
  };
  if (p.axes.empty()) return "its mesh has no axes";
  if (p.bodies.empty()) return "it has no `bodies`";
  for (size_t b = 0; b < p.bodies.size(); ++b) {
    const PlanBody& body = p.bodies[b];
    if (b > 0 ? body.parent < 0 || body.parent >= static_cast<int>(b) : body.parent != -1)
      return fmt::format("the parent of body {} does not stand before it", b);
    if (body.count < 1 || body.period < 1) return fmt::format("body {} does not run", b);
  }
  for (const PlanOp& op : p.ops) {
    if (!known(op.body)) return fmt::format("there is no body {}", op.body);
    if (op.strategy.size() != p.axes.size())
      return fmt::format("the strategy of `{}` is not one entry an axis", op.path);
  }
  for (const PlanTensor& t : p.tensors) {
    if (!known(t.body)) return fmt::format("there is no body {}", t.body);
    if (t.layout.size() != p.axes.size())
      return fmt::format("the layout of `{}` is not one entry an axis", t.path);
  }
  for (const PlanConversion& c : p.conversions) {
    if (!known(c.body)) return fmt::format("there is no body {}", c.body);
  }
  return "";
}

}  // namespace

std::string plan_json(const Plan& p) {
  json axes = json::array(), bodies = json::array(), tensors = json::array(), ops = json::array(),
       conversions = json::array(), collectives = json::array(), alternatives = json::array();
  for (const Axis& a : p.axes) axes.push_back({{"name", a.name}, {"size", a.size}});
  for (const PlanBody& b : p.bodies)
    bodies.push_back({{"path", b.path},
                      {"parent", b.parent},
                      {"count", b.count},
                      {"period", b.period},
                      {"position", b.position},
                      {"run", b.run},
                      {"after", b.after},
                      {"saved_bytes", b.saved_bytes},
                      {"again_bytes", b.again_bytes},
                      {"segment", b.segment}});
  for (const PlanTensor& t : p.tensors)
    tensors.push_back({{"path", t.path},
                       {"role", t.role},
                       {"dims", t.dims},
                       {"layout", layout_json(t.layout)},
                       {"bytes", t.bytes},
                       {"body", t.body}});
  for (const PlanOp& o : p.ops)
    ops.push_back({{"path", o.path},
                   {"op", o.op},
                   {"node", o.node},
                   {"group", o.group},
                   {"strategy", layout_json(o.strategy)},
                   {"saved", o.saved},
                   {"body", o.body},
                   {"forward_s", o.forward_s},
                   {"backward_s", o.backward_s},
                   {"recompute_s", o.recompute_s},
                   {"saved_bytes", o.saved_bytes},
                   {"transient_bytes", o.transient_bytes},
                   {"forward_steps", steps_json(o.forward_steps)},
                   {"backward_steps", steps_json(o.backward_steps)}});
  for (const PlanConversion& c : p.conversions) conversions.push_back(conversion_json(c));
  for (const PlanCollective& c : p.collectives)
    collectives.push_back({{"kind", c.kind},
                           {"axis", c.axis},
                           {"bytes", c.bytes},
                           {"count", c.count},
                           {"phase", c.phase},
                           {"seconds", c.seconds}});
  for (const Alternative& a : p.alternatives)
    alternatives.push_back({{"name", a.name},
                            {"mesh", a.mesh},
                            {"feasible", a.feasible},
                            {"step_s", a.step_s},
                            {"peak_bytes", a.peak_bytes}});
  const json out = {{"schema", kPlanSchema},
                    {"name", p.name},
                    {"cluster", p.cluster},
                    {"devices", p.devices},
                    {"offered", p.offered},
                    {"memory_bytes", p.memory},
                    {"budget_bytes", std::isfinite(p.budget) ? json(p.budget) : json(nullptr)},
                    {"rows", p.rows},
                    {"micro_batches", p.micro_batches},
                    {"mesh", {{"axes", axes}}},
                    {"predicted", predicted_json(p.predicted)},
                    {"solver", solver_json(p.solver)},
                    {"bodies", bodies},
                    {"tensors", tensors},
                    {"ops", ops},
                    {"conversions", conversions},
                    {"collectives", collectives},
                    {"alternatives", alternatives},
                    {"notes", p.notes},
                    {"placement", {{"digest", p.digest}, {"body", body_json(p.placement)}}}};
  return out.dump(2) + "\n";
}

Result<Plan> read_plan(const std::string& path, const std::string& text) {
  const auto bad = [&](const std::string& why) {
    Diagnostic d =
        make_error(DiagId::E0902, fmt::format("`{}` is not a plan: {}", path, why), kExitNoInput);
    d.help("write one with `colauto plan FILE --json > plan.json`");
    return d;
  };
  const json j = json::parse(text, nullptr, false);
  if (j.is_discarded() || !j.is_object()) return bad("it is not a JSON object");
  if (!j.contains("schema") || !j["schema"].is_number_integer()) return bad("it has no `schema`");
  if (j["schema"].get<int64_t>() != kPlanSchema)
    return bad(fmt::format("its schema is {}, this program reads {}", j["schema"].get<int64_t>(),
                           kPlanSchema));
  try {  // the library's only way to say that a key is missing or of another type
    Plan plan = plan_of(j);
    if (const std::string why = contradiction(plan); !why.empty()) return bad(why);
    return plan;
  } catch (const json::exception& e) {
    return bad(e.what());
  }
}

}  // namespace cad::planner
