// planner/plan_json.cc -- see plan_json.h. One list of fields for each type of row serves writing
// and reading (planner/json_fields.h).
#include "planner/plan_json.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "planner/json_fields.h"
#include "planner/placement_json.h"

namespace cad::planner {

namespace {

constexpr int kMostLevels = 1000;  // of values within values: JsonReader goes half as deep

// "B" | null | "+" for each mesh axis.
struct LayoutEntry {
  static Json write(const NamedLayout& layout) {
    Json out = Json::array();
    for (const std::string& entry : layout)
      out.push_back(entry.empty() ? Json(nullptr) : Json(entry));
    return out;
  }
  static void read(const JsonReader& from, NamedLayout& layout) {
    from.each([&](const JsonReader& element, size_t) {
      std::string& entry = layout.emplace_back();
      if (element.is_null()) return;
      if (!element.is_text()) return element.wrong("a text or null");
      element.read(entry);
    });
  }
};

// null: without limit.
struct LimitEntry {
  static Json write(double limit) { return std::isfinite(limit) ? Json(limit) : Json(nullptr); }
  static void read(const JsonReader& from, double& limit) {
    limit = std::numeric_limits<double>::infinity();
    if (!from.is_null()) from.read(limit);
  }
};

struct PlacementEntry {
  static Json write(const BodyPlacement& body) { return body_json(body); }
  static void read(const JsonReader& from, BodyPlacement& body) { read_body(from, body); }
};

constexpr auto axis_fields = [](const auto& io, auto& axis) {
  io.field("name", axis.name);
  io.field("size", axis.size);
};

constexpr auto predicted_fields = [](const auto& io, auto& p) {
  io.field("step_s", p.step_s);
  io.field("compute_s", p.compute_s);
  io.field("comm_s", p.comm_s);
  io.field("exposed_comm_s", p.exposed_comm_s);
  io.field("recompute_s", p.recompute_s);
  io.field("optimizer_s", p.optimizer_s);
  io.field("peak_bytes", p.peak_bytes);
  io.field("params_bytes", p.params_bytes);
  io.field("grads_bytes", p.grads_bytes);
  io.field("optimizer_bytes", p.optimizer_bytes);
  io.field("activation_bytes", p.activation_bytes);
  io.field("transient_bytes", p.transient_bytes);
};

constexpr auto solver_fields = [](const auto& io, auto& solver) {
  io.field("name", solver.name);
  io.field("status", solver.status);
  io.field("objective", solver.objective);
  io.field("bound", solver.bound);
  io.field("gap", solver.gap);
  io.field("wall_s", solver.wall_s);
  io.field("columns", solver.columns);
  io.field("rows", solver.rows);
  io.field("meshes", solver.meshes);
  io.field("meshes_dropped", solver.meshes_dropped);
};

constexpr auto body_fields = [](const auto& io, auto& body) {
  io.field("path", body.path);
  io.field("parent", body.parent);
  io.field("count", body.count);
  io.field("period", body.period);
  io.field("position", body.position);
  io.field("run", body.run);
  io.field("after", body.after);
  io.field("saved_bytes", body.saved_bytes);
  io.field("again_bytes", body.again_bytes);
  io.field("segment", body.segment);
};

constexpr auto tensor_fields = [](const auto& io, auto& tensor) {
  io.field("path", tensor.path);
  io.field("role", tensor.role);
  io.field("dims", tensor.dims);
  io.field("layout", tensor.layout, LayoutEntry{});
  io.field("bytes", tensor.bytes);
  io.field("body", tensor.body);
};

constexpr auto step_fields = [](const auto& io, auto& step) {
  io.field("kind", step.kind);
  io.field("axes", step.axes);
  io.field("bytes", step.bytes);
  io.field("seconds", step.seconds);
};

constexpr auto op_fields = [](const auto& io, auto& op) {
  io.field("path", op.path);
  io.field("op", op.op);
  io.field("node", op.node);
  io.field("group", op.group);
  io.field("strategy", op.strategy, LayoutEntry{});
  io.field("saved", op.saved);
  io.field("body", op.body);
  io.field("forward_s", op.forward_s);
  io.field("backward_s", op.backward_s);
  io.field("recompute_s", op.recompute_s);
  io.field("saved_bytes", op.saved_bytes);
  io.field("transient_bytes", op.transient_bytes);
  io.rows("forward_steps", op.forward_steps, step_fields);
  io.rows("backward_steps", op.backward_steps, step_fields);
};

constexpr auto conversion_fields = [](const auto& io, auto& conversion) {
  io.field("value", conversion.value);
  io.field("to", conversion.to);
  io.field("phase", conversion.phase);
  io.field("from_layout", conversion.from_layout, LayoutEntry{});
  io.field("to_layout", conversion.to_layout, LayoutEntry{});
  io.rows("steps", conversion.steps, step_fields);
  io.field("count", conversion.count);
  io.field("body", conversion.body);
  io.field("parameter", conversion.parameter);
  io.field("group", conversion.group);
  io.field("inside", conversion.inside);
  io.field("loop", conversion.loop);
};

constexpr auto collective_fields = [](const auto& io, auto& collective) {
  io.field("kind", collective.kind);
  io.field("axis", collective.axis);
  io.field("bytes", collective.bytes);
  io.field("count", collective.count);
  io.field("phase", collective.phase);
  io.field("seconds", collective.seconds);
};

constexpr auto alternative_fields = [](const auto& io, auto& alternative) {
  io.field("name", alternative.name);
  io.field("mesh", alternative.mesh);
  io.field("feasible", alternative.feasible);
  io.field("step_s", alternative.step_s);
  io.field("peak_bytes", alternative.peak_bytes);
};

constexpr auto plan_fields = [](const auto& io, auto& plan) {
  io.field("name", plan.name);
  io.field("cluster", plan.cluster);
  io.field("devices", plan.devices);
  io.field("offered", plan.offered);
  io.field("memory_bytes", plan.memory);
  io.field("budget_bytes", plan.budget, LimitEntry{});
  io.field("rows", plan.rows);
  io.field("micro_batches", plan.micro_batches);
  io.object("mesh", plan,
            [](const auto& mesh, auto& p) { mesh.rows("axes", p.axes, axis_fields); });
  io.object("predicted", plan.predicted, predicted_fields);
  io.object("solver", plan.solver, solver_fields);
  io.rows("bodies", plan.bodies, body_fields);
  io.rows("tensors", plan.tensors, tensor_fields);
  io.rows("ops", plan.ops, op_fields);
  io.rows("conversions", plan.conversions, conversion_fields);
  io.rows("collectives", plan.collectives, collective_fields);
  io.rows("alternatives", plan.alternatives, alternative_fields);
  io.field("notes", plan.notes);
  // a plan without it can be looked at, not run
  io.optional_object("placement", plan, [](const auto& placement, auto& p) {
    placement.field("digest", p.digest);
    placement.field("body", p.placement, PlacementEntry{});
  });
};

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

std::string plan_json(const Plan& plan) {
  Json out;
  out["schema"] = kPlanSchema;
  plan_fields(JsonWriter(out), plan);
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
  const auto shallow = [](int depth, Json::parse_event_t, const Json&) {
    return depth < kMostLevels;
  };
  const Json j = Json::parse(text, shallow, false);
  if (j.is_discarded() || !j.is_object()) return bad("it is not a JSON object");
  if (!j.contains("schema") || !j["schema"].is_number_integer()) return bad("it has no `schema`");
  if (j["schema"].get<int64_t>() != kPlanSchema)
    return bad(fmt::format("its schema is {}, this program reads {}", j["schema"].get<int64_t>(),
                           kPlanSchema));
  std::string fault;
  Plan plan;
  plan_fields(JsonReader(j, fault), plan);
  if (fault.empty()) fault = contradiction(plan);
  if (!fault.empty()) return bad(fault);
  return plan;
}

}  // namespace cad::planner
