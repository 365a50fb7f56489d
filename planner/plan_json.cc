// planner/plan_json.cc -- see plan_json.h. A budget without limit is null.
#include "planner/plan_json.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "planner/placement_json.h"

namespace cad::planner {

using json = nlohmann::ordered_json;

namespace {

constexpr int kMostLevels = 1000;  // of values within values; a loop within a loop takes five

// "B" | null | "+" for each mesh axis.
json layout_json(const NamedLayout& layout) {
  json out = json::array();
  for (const std::string& entry : layout)
    out.push_back(entry.empty() ? json(nullptr) : json(entry));
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

// An object of the file that is read key by key. The first thing that is missing or of another kind
// is what the message says; what is read from then on does not count.
class Fields {
 public:
  Fields(const json& object, std::string where, std::string& fault)
      : object_(object), where_(std::move(where)), fault_(fault) {
    if (!object_.is_object())
      wrong(where_.empty() ? "it" : fmt::format("`{}`", where_), "an object");
  }

  void read(const char* key, std::string& to) const {
    if (const json* j = find(key, "a text", &json::is_string)) to = text(*j, path(key));
  }
  void read(const char* key, double& to) const {
    if (const json* j = find(key, "a number", &json::is_number)) to = j->get<double>();
  }
  void read(const char* key, int64_t& to) const {
    if (const json* j = find(key, "a whole number", &json::is_number_integer))
      to = j->get<int64_t>();
  }
  void read(const char* key, int& to) const {
    int64_t whole = 0;
    read(key, whole);
    to = static_cast<int>(std::clamp<int64_t>(whole, std::numeric_limits<int>::min(),
                                              std::numeric_limits<int>::max()));
  }
  void read(const char* key, bool& to) const {
    if (const json* j = find(key, "true or false", &json::is_boolean)) to = j->get<bool>();
  }
  void read(const char* key, std::vector<std::string>& to) const {
    each(key, [&](const json& j, const std::string& where) {
      if (!j.is_string()) return wrong(fmt::format("`{}`", where), "a text");
      to.push_back(text(j, where));
    });
  }
  // "B", null or "+" for each axis
  void read_layout(const char* key, NamedLayout& to) const {
    each(key, [&](const json& j, const std::string& where) {
      if (!j.is_string() && !j.is_null())
        return wrong(fmt::format("`{}`", where), "a text or null");
      to.push_back(j.is_null() ? "" : text(j, where));
    });
  }
  void read_steps(const char* key, std::vector<PlanStep>& to) const {
    each_object(key, [&](const Fields& f) {
      PlanStep& step = to.emplace_back();
      f.read("kind", step.kind);
      f.read("axes", step.axes);
      f.read("bytes", step.bytes);
      f.read("seconds", step.seconds);
    });
  }
  // f(element, where) of an array, f(Fields) of an array of objects, of an object.
  template <class F>
  void each(const char* key, const F& f) const {
    const json* list = find(key, "a list", &json::is_array);
    for (size_t i = 0; list != nullptr && i < list->size() && fault_.empty(); ++i)
      f(list->at(i), fmt::format("{}[{}]", path(key), i));
  }
  template <class F>
  void each_object(const char* key, const F& f) const {
    each(key, [&](const json& j, const std::string& where) {
      const Fields fields(j, where, fault_);
      if (fault_.empty()) f(fields);
    });
  }
  template <class F>
  void object(const char* key, const F& f) const {
    const json* j = find(key, "an object", &json::is_object);
    if (j != nullptr) f(Fields(*j, path(key), fault_));
  }
  [[nodiscard]] const json* any(const char* key) const {
    return find(key, "", [](const json&) { return true; });
  }
  void wrong(const std::string& what, const char* wanted) const {
    if (fault_.empty()) fault_ = fmt::format("{} is not {}", what, wanted);
  }

 private:
  [[nodiscard]] std::string path(const char* key) const {
    return where_.empty() ? key : where_ + "." + key;
  }
  // It is shown in a terminal.
  [[nodiscard]] std::string text(const json& j, const std::string& where) const {
    std::string read = j.get<std::string>();
    const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
    if (std::any_of(read.begin(), read.end(), control))
      wrong(fmt::format("`{}`", where), "a text without control characters");
    return read;
  }
  template <class Is>
  const json* find(const char* key, const char* wanted, Is is) const {
    if (!fault_.empty()) return nullptr;
    const auto at = object_.find(key);
    if (at == object_.end()) {
      fault_ = where_.empty() ? fmt::format("it lacks `{}`", key)
                              : fmt::format("`{}` lacks `{}`", where_, key);
      return nullptr;
    }
    if (std::invoke(is, *at)) return &*at;
    wrong(fmt::format("`{}`", path(key)), wanted);
    return nullptr;
  }

  const json& object_;
  std::string where_;
  std::string& fault_;
};

void read_predicted(const Fields& f, Predicted& r) {
  f.read("step_s", r.step_s);
  f.read("compute_s", r.compute_s);
  f.read("comm_s", r.comm_s);
  f.read("exposed_comm_s", r.exposed_comm_s);
  f.read("recompute_s", r.recompute_s);
  f.read("optimizer_s", r.optimizer_s);
  f.read("peak_bytes", r.peak_bytes);
  f.read("params_bytes", r.params_bytes);
  f.read("grads_bytes", r.grads_bytes);
  f.read("optimizer_bytes", r.optimizer_bytes);
  f.read("activation_bytes", r.activation_bytes);
  f.read("transient_bytes", r.transient_bytes);
}

void read_solver(const Fields& f, SolverReport& s) {
  f.read("name", s.name);
  f.read("status", s.status);
  f.read("objective", s.objective);
  f.read("bound", s.bound);
  f.read("gap", s.gap);
  f.read("wall_s", s.wall_s);
  f.read("columns", s.columns);
  f.read("rows", s.rows);
  f.read("meshes", s.meshes);
  f.read("meshes_dropped", s.meshes_dropped);
}

void read_body_row(const Fields& f, PlanBody& b) {
  f.read("path", b.path);
  f.read("parent", b.parent);
  f.read("count", b.count);
  f.read("period", b.period);
  f.read("position", b.position);
  f.read("run", b.run);
  f.read("after", b.after);
  f.read("saved_bytes", b.saved_bytes);
  f.read("again_bytes", b.again_bytes);
  f.read("segment", b.segment);
}

void read_tensor(const Fields& f, PlanTensor& t) {
  f.read("path", t.path);
  f.read("role", t.role);
  f.read("dims", t.dims);
  f.read_layout("layout", t.layout);
  f.read("bytes", t.bytes);
  f.read("body", t.body);
}

void read_op(const Fields& f, PlanOp& o) {
  f.read("path", o.path);
  f.read("op", o.op);
  f.read("node", o.node);
  f.read("group", o.group);
  f.read_layout("strategy", o.strategy);
  f.read("saved", o.saved);
  f.read("body", o.body);
  f.read("forward_s", o.forward_s);
  f.read("backward_s", o.backward_s);
  f.read("recompute_s", o.recompute_s);
  f.read("saved_bytes", o.saved_bytes);
  f.read("transient_bytes", o.transient_bytes);
  f.read_steps("forward_steps", o.forward_steps);
  f.read_steps("backward_steps", o.backward_steps);
}

void read_conversion(const Fields& f, PlanConversion& v) {
  f.read("value", v.value);
  f.read("to", v.to);
  f.read("phase", v.phase);
  f.read_layout("from_layout", v.from_layout);
  f.read_layout("to_layout", v.to_layout);
  f.read_steps("steps", v.steps);
  f.read("count", v.count);
  f.read("body", v.body);
  f.read("parameter", v.parameter);
  f.read("group", v.group);
  f.read("inside", v.inside);
}

void read_collective(const Fields& f, PlanCollective& c) {
  f.read("kind", c.kind);
  f.read("axis", c.axis);
  f.read("phase", c.phase);
  f.read("bytes", c.bytes);
  f.read("count", c.count);
  f.read("seconds", c.seconds);
}

void read_alternative(const Fields& f, Alternative& a) {
  f.read("name", a.name);
  f.read("mesh", a.mesh);
  f.read("feasible", a.feasible);
  f.read("step_s", a.step_s);
  f.read("peak_bytes", a.peak_bytes);
}

// `fault`: the first thing that no plan has or lacks.
Plan plan_of(const json& j, std::string& fault) {
  Plan p;
  const Fields f(j, "", fault);
  f.read("name", p.name);
  f.read("cluster", p.cluster);
  f.read("devices", p.devices);
  f.read("offered", p.offered);
  p.budget = std::numeric_limits<double>::infinity();
  if (const json* budget = f.any("budget_bytes"); budget != nullptr && !budget->is_null())
    f.read("budget_bytes", p.budget);
  f.read("memory_bytes", p.memory);
  f.read("rows", p.rows);
  f.read("micro_batches", p.micro_batches);
  f.object("mesh", [&](const Fields& mesh) {
    mesh.each_object("axes", [&](const Fields& axis) {
      axis.read("name", p.axes.emplace_back().name);
      axis.read("size", p.axes.back().size);
    });
  });
  f.object("predicted", [&](const Fields& o) { read_predicted(o, p.predicted); });
  f.object("solver", [&](const Fields& o) { read_solver(o, p.solver); });
  f.each_object("bodies", [&](const Fields& o) { read_body_row(o, p.bodies.emplace_back()); });
  f.each_object("tensors", [&](const Fields& o) { read_tensor(o, p.tensors.emplace_back()); });
  f.each_object("ops", [&](const Fields& o) { read_op(o, p.ops.emplace_back()); });
  f.each_object("conversions",
                [&](const Fields& o) { read_conversion(o, p.conversions.emplace_back()); });
  f.each_object("collectives",
                [&](const Fields& o) { read_collective(o, p.collectives.emplace_back()); });
  f.each_object("alternatives",
                [&](const Fields& o) { read_alternative(o, p.alternatives.emplace_back()); });
  f.read("notes", p.notes);
  if (!fault.empty() || !j.contains("placement")) return p;  // it can be looked at, not run
  f.object("placement", [&](const Fields& placement) {
    placement.read("digest", p.digest);
    const json* body = placement.any("body");
    if (body == nullptr) return;
    if (auto read = read_body(*body))
      p.placement = std::move(*read);
    else
      placement.wrong("`placement.body`", "how a plan lies");
  });
  return p;
}

constexpr double kMostRows = 1e15;  // of a step

// What a file can say that no plan is; empty: nothing.
std::string contradiction(const Plan& p) {
  const auto known = [&](int body) {
    return body >= 0 && body < static_cast<int>(p.bodies.size());
  };
  if (p.axes.empty()) return "its mesh has no axes";
  double devices = 1;
  for (const Axis& axis : p.axes) devices *= axis.size;
  if (devices < 1 || devices != p.devices || p.offered < p.devices)
    return "its mesh has not as many devices as it says";
  if (!(p.micro_batches >= 1 && p.micro_batches <= kMostRows) ||
      !(p.rows >= 0 && p.rows <= kMostRows))
    return "it says of no step how many rows it reads";
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
  // What lies deeper is not kept: copies of values call themselves for each level.
  const auto shallow = [](int depth, json::parse_event_t, const json&) {
    return depth < kMostLevels;
  };
  const json j = json::parse(text, shallow, false);
  if (j.is_discarded() || !j.is_object()) return bad("it is not a JSON object");
  if (!j.contains("schema") || !j["schema"].is_number_integer()) return bad("it has no `schema`");
  if (j["schema"].get<int64_t>() != kPlanSchema)
    return bad(fmt::format("its schema is {}, this program reads {}", j["schema"].get<int64_t>(),
                           kPlanSchema));
  std::string fault;
  Plan plan = plan_of(j, fault);
  if (fault.empty()) fault = contradiction(plan);
  if (!fault.empty()) return bad(fault);
  return plan;
}

}  // namespace cad::planner
