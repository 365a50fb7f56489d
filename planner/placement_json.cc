// planner/placement_json.cc -- see placement_json.h.
#include "planner/placement_json.h"

#include <iterator>

#include <fmt/format.h>

#include "ir/text.h"
#include "planner/json_fields.h"
#include "planner/plan.h"
#include "planner/strategy.h"

namespace cad::planner {

namespace {

constexpr const char* kPerAxis = "one number an axis";

// One number an axis; an order of its axes behind them where it is not that of the mesh.
struct LayoutEntry {
  static Json write(const Layout& layout) {
    Json out(layout.axis);
    if (layout.order != 0) out.push_back(layout.order);
    return out;
  }
  static void read(const JsonReader& from, Layout& layout) {
    if (from.size() != kMaxAxes && from.size() != kMaxAxes + 1) return from.wrong(kPerAxis);
    from.each([&](const JsonReader& element, size_t i) {
      if (i < kMaxAxes) return element.read(layout.axis[i]);
      int order = 0;
      element.read(order);
      if (order < 0 || order >= static_cast<int>(kAxisOrders.size()))
        return element.wrong("an order of axes");
      layout.order = static_cast<uint8_t>(order);
    });
  }
};

struct AssignmentEntry {
  static Json write(const Assignment& assignment) { return assignment; }
  static void read(const JsonReader& from, Assignment& assignment) {
    if (from.size() != assignment.size()) return from.wrong(kPerAxis);
    from.each([&](const JsonReader& element, size_t i) { element.read(assignment[i]); });
  }
};

struct ParameterEntry {
  static Json write(const ParameterPlacement& p) {
    return Json::array({LayoutEntry::write(p.storage), LayoutEntry::write(p.gradient),
                        LayoutEntry::write(p.optimizer)});
  }
  static void read(const JsonReader& from, ParameterPlacement& p) {
    Layout* const layouts[] = {&p.storage, &p.gradient, &p.optimizer};
    if (from.size() != std::size(layouts))
      return from.wrong("the layouts of a parameter, its gradient and its optimizer state");
    from.each(
        [&](const JsonReader& element, size_t i) { LayoutEntry::read(element, *layouts[i]); });
  }
};

struct SavingEntry {
  static Json write(ir::Saving saving) { return saving == ir::Saving::kKeep ? "keep" : "again"; }
  static void read(const JsonReader& from, ir::Saving& saving) {
    std::string text;
    from.read(text);
    if (text != "keep" && text != "again") return from.wrong("`keep` or `again`");
    saving = text == "keep" ? ir::Saving::kKeep : ir::Saving::kRecompute;
  }
};

template <class Io, class Body>
void body_fields(const Io& io, Body& body);

constexpr auto run_fields = [](const auto& io, auto& run) {
  io.field("count", run.count);
  io.rows("pattern", run.pattern, [](const auto& in, auto& body) { body_fields(in, body); });
  io.optional("segment", run.segment, int64_t{0});
};

struct RunsEntry {
  static Json write(const std::vector<RunPlacement>& runs) {
    return JsonWriter::written_rows(runs, run_fields);
  }
  static void read(const JsonReader& from, std::vector<RunPlacement>& runs) {
    from.read_rows(runs, run_fields);
  }
};

template <class Io, class Body>
void body_fields(const Io& io, Body& body) {
  io.numbered("ops", body.ops, AssignmentEntry{});
  io.numbered("copies", body.copies, LayoutEntry{});
  io.numbered("parameters", body.parameters, ParameterEntry{});
  io.numbered("saved", body.saving, SavingEntry{});
  io.numbered("copies_saved", body.copy_saving, SavingEntry{});
  io.numbered("loops", body.loops, RunsEntry{});
}

// Checks numbers, strategies and layouts of a body against a region.
class Checker {
 public:
  Checker(const ir::Graph& g, const ir::Bindings& bindings, const Mesh& mesh)
      : g_(g), extents_(dim_extents(g, bindings)), mesh_(mesh) {}

  std::string body(ir::RegionId region, const BodyPlacement& body) const {
    for (const auto& [node, assignment] : body.ops) {
      if (!stands_in(region, node)) return fmt::format("op {} is not there", node);
      const ir::Op op = g_.node(ir::NodeId{node}).op;
      if (op == ir::Op::kInput || op == ir::Op::kRepeat)
        return fmt::format("op {} is none that is split", node);
      const OpSharding rule(g_, ir::NodeId{node}, extents_);
      for (const int8_t choice : assignment) {
        const bool factor = choice < static_cast<int>(rule.rule().factors.size());
        const bool flow =
            choice > kFlow || kFlow - choice < static_cast<int>(rule.rule().linear.size());
        if (!factor || !flow) return fmt::format("op {} cannot be split so", node);
      }
      if (!rule.strategy(assignment, mesh_)) return fmt::format("op {} cannot be split so", node);
    }
    for (const auto& [value, layout] : body.copies) {
      if (value < 0 || static_cast<size_t>(value) >= g_.values.size() ||
          !suits(layout, g_.type(ir::ValueId{value}), 0))
        return fmt::format("value {} cannot lie so", value);
    }
    for (const auto& [input, place] : body.parameters) {
      if (input < 0 || static_cast<size_t>(input) >= g_.inputs.size())
        return fmt::format("parameter {} is not there", input);
      const ir::Input& row = g_.inputs[static_cast<size_t>(input)];
      const auto loops = static_cast<size_t>(row.loop_dims);
      for (const Layout& layout : {place.storage, place.gradient, place.optimizer}) {
        if (!suits(layout, g_.type(row.value), loops))
          return fmt::format("`{}` cannot lie so", row.path);
      }
    }
    for (const auto& [node, runs] : body.loops) {
      if (!stands_in(region, node) || g_.node(ir::NodeId{node}).op != ir::Op::kRepeat)
        return fmt::format("loop {} is not there", node);
      const ir::Loop& loop = g_.node(ir::NodeId{node}).loop;
      const int64_t extent = extents_[static_cast<size_t>(loop.dim.index)];
      int64_t trips = 0;
      for (const RunPlacement& run : runs) {
        if (run.count < 1 || run.pattern.empty()) return "a run of no iterations";
        if (run.count > (extent - trips) / static_cast<int64_t>(run.pattern.size()))
          return fmt::format("its runs of loop {} are more than {} iterations", node, extent);
        if (run.segment < 0 || (run.segment > 0 && run.count % run.segment != 0))
          return fmt::format("{} iterations are not segments of {}", run.count, run.segment);
        trips += run.count * static_cast<int64_t>(run.pattern.size());
        for (const BodyPlacement& pattern : run.pattern) {
          std::string fault = this->body(loop.body, pattern);
          if (!fault.empty()) return fault;
        }
      }
      if (trips != extent) return fmt::format("its runs of loop {} are {} iterations", node, trips);
    }
    return "";
  }

 private:
  [[nodiscard]] bool stands_in(ir::RegionId region, int node) const {
    return node >= 0 && static_cast<size_t>(node) < g_.nodes.size() &&
           g_.node(ir::NodeId{node}).region == region;
  }
  [[nodiscard]] bool suits(const Layout& layout, const ir::Type& type, size_t loops) const {
    std::vector<int64_t> extents = tensor_extents(type, extents_);
    if (loops > extents.size()) return false;
    extents.erase(extents.begin(), extents.begin() + static_cast<std::ptrdiff_t>(loops));
    for (size_t a = 0; a < kMaxAxes; ++a) {
      const int8_t entry = layout.axis[a];
      const bool idle = a >= mesh_.axes.size() || mesh_.axes[a].size == 1;
      if (entry < kPartial || entry >= static_cast<int>(extents.size())) return false;
      if (idle && entry != kReplicated) return false;
    }
    return splittable(layout, extents, mesh_);
  }

  const ir::Graph& g_;
  Extents extents_;
  const Mesh& mesh_;
};

}  // namespace

std::string graph_digest(const ir::Graph& graph, const ir::Bindings& bindings) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  const auto add = [&](const std::string& text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  };
  add(ir::print(graph));
  for (const int64_t extent : dim_extents(graph, bindings)) add(std::to_string(extent) + " ");
  return fmt::format("{:016x}", hash);
}

Json body_json(const BodyPlacement& body) {
  return JsonWriter::written(body, [](const auto& io, auto& row) { body_fields(io, row); });
}

void read_body(const JsonReader& from, BodyPlacement& body) {
  from.read_object(body, [](const auto& io, auto& row) { body_fields(io, row); });
}

Result<Placement> saved_placement(const Plan& plan, const std::string& path, const ir::Graph& graph,
                                  const ir::Bindings& bindings, const Cluster& cluster) {
  Placement placement;
  auto mesh = make_mesh(cluster, plan.axes);
  if (mesh.ok()) placement.mesh = std::move(*mesh);
  placement.top = plan.placement;
  std::string fault;
  if (!mesh.ok())
    fault = mesh.error().message;
  else if (plan.digest.empty())
    fault = "it lacks its `placement`";
  else if (plan.digest != graph_digest(graph, bindings))
    fault = "it is of another program, or of other sizes of its dims";
  else
    fault = placement_fault(graph, bindings, placement);
  if (fault.empty()) return placement;
  Diagnostic error = make_error(
      DiagId::E0902, fmt::format("`{}` is no plan for this run: {}", path, fault), kExitNoInput);
  error.help("write one with `colauto plan FILE --json > plan.json`, with the same flags");
  return error;
}

std::string placement_fault(const ir::Graph& graph, const ir::Bindings& bindings,
                            const Placement& placement) {
  return Checker(graph, bindings, placement.mesh).body(ir::RegionId{0}, placement.top);
}

}  // namespace cad::planner
