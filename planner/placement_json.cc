// planner/placement_json.cc -- see placement_json.h.
#include "planner/placement_json.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ir/text.h"
#include "planner/plan.h"
#include "planner/strategy.h"

namespace cad::planner {

namespace {

using Json = nlohmann::ordered_json;

Json layout_json(const Layout& layout) {
  Json out = Json::array();
  for (const int8_t axis : layout.axis) out.push_back(static_cast<int>(axis));
  if (layout.order != 0) out.push_back(static_cast<int>(layout.order));
  return out;
}

Layout read_layout(const Json& json) {
  Layout layout;
  for (size_t a = 0; a < kMaxAxes; ++a) layout.axis[a] = json.at(a).get<int8_t>();
  if (json.size() > kMaxAxes) layout.order = json.at(kMaxAxes).get<uint8_t>();
  if (layout.order >= kAxisOrders.size()) layout.order = 0;
  return layout;
}

const char* saving_name(ir::Saving saving) {
  return saving == ir::Saving::kKeep ? "keep" : "again";
}

template <class Map, class F>
void write(Json& to, const char* key, const Map& map, F&& f) {
  if (map.empty()) return;
  Json list = Json::object();
  for (const auto& [number, value] : map) list[std::to_string(number)] = f(value);
  to[key] = std::move(list);
}

template <class Map, class F>
void read(const Json& from, const char* key, Map& map, F&& f) {
  if (!from.contains(key)) return;
  if (!from.at(key).is_object()) throw std::invalid_argument("not an object");
  for (const auto& [number, value] : from.at(key).items()) map[std::stoi(number)] = f(value);
}

ir::Saving read_saving(const Json& json) {
  return json.get<std::string>() == "keep" ? ir::Saving::kKeep : ir::Saving::kRecompute;
}

constexpr int kMostDepth = 64;  // of loops within loops

BodyPlacement body_of(const Json& json, int depth = 0) {
  if (!json.is_object() || depth > kMostDepth)
    throw std::invalid_argument("not an object");  // read_body() tells
  BodyPlacement body;
  read(json, "ops", body.ops, [](const Json& j) {
    Assignment a{};
    for (size_t i = 0; i < kMaxAxes; ++i) a[i] = j.at(i).get<int8_t>();
    return a;
  });
  read(json, "copies", body.copies, read_layout);
  read(json, "parameters", body.parameters, [](const Json& j) {
    return ParameterPlacement{read_layout(j.at(0)), read_layout(j.at(1)), read_layout(j.at(2))};
  });
  read(json, "saved", body.saving, read_saving);
  read(json, "copies_saved", body.copy_saving, read_saving);
  read(json, "loops", body.loops, [depth](const Json& j) {
    std::vector<RunPlacement> runs;
    for (const Json& run : j) {
      RunPlacement made;
      made.count = run.at("count").get<int64_t>();
      if (run.contains("segment")) made.segment = run.at("segment").get<int64_t>();
      for (const Json& pattern : run.at("pattern"))
        made.pattern.push_back(body_of(pattern, depth + 1));
      runs.push_back(std::move(made));
    }
    return runs;
  });
  return body;
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
  Json out = Json::object();
  write(out, "ops", body.ops, [](const Assignment& a) {
    Json list = Json::array();
    for (const int8_t choice : a) list.push_back(static_cast<int>(choice));
    return list;
  });
  write(out, "copies", body.copies, layout_json);
  write(out, "parameters", body.parameters, [](const ParameterPlacement& p) {
    return Json::array({layout_json(p.storage), layout_json(p.gradient), layout_json(p.optimizer)});
  });
  write(out, "saved", body.saving, saving_name);
  write(out, "copies_saved", body.copy_saving, saving_name);
  write(out, "loops", body.loops, [](const std::vector<RunPlacement>& runs) {
    Json list = Json::array();
    for (const RunPlacement& run : runs) {
      Json patterns = Json::array();
      for (const BodyPlacement& pattern : run.pattern) patterns.push_back(body_json(pattern));
      Json row = {{"count", run.count}, {"pattern", std::move(patterns)}};
      if (run.segment > 0) row["segment"] = run.segment;
      list.push_back(std::move(row));
    }
    return list;
  });
  return out;
}

std::optional<BodyPlacement> read_body(const Json& json) {
  try {
    return body_of(json);
  } catch (const std::exception&) {  // a key that is missing, a number that is none
    return std::nullopt;
  }
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
