// tests/spmd/spmd_testing.h -- a training step of the whole model against the same step lowered to
// a mesh, both by the reference interpreter in double: losses, gradients and states must agree to
// rounding. Placements come from the planner or are drawn at random (random_placement.h).
#pragma once

#include <fstream>
#include <sstream>

#include "backend/spmd/lower.h"
#include "ir/passes.h"
#include "tests/frontend/section_program.h"
#include "tests/ir/spmd_devices.h"
#include "tests/planner/spmd_check.h"
#include "tests/spmd/random_placement.h"

namespace cad::backend {

using Settings = std::vector<std::pair<std::string, std::string>>;

struct WholeModel {
  ir::TrainSpec spec;
  ir::Graph forward;  // after passes_before_autodiff()
  planner::Extents extents;
  std::map<std::string, ir::Tensor> inputs;   // by path
  std::map<std::string, ir::Tensor> results;  // by output: "loss", "grad:..", "state:.."
};

inline std::string example_text(const std::string& name) {
  std::ifstream in(std::string(COLAUTO_SOURCE_DIR) + "/examples/" + name);
  std::stringstream all;
  all << in.rdbuf();
  EXPECT_GT(all.str().size(), 0U) << name;
  return all.str();
}

inline ir::EvalContext context_of(const WholeModel& m) {
  ir::EvalContext context;
  context.bindings = m.spec.bindings;
  context.seed = 7;
  context.step = 3;
  return context;
}

// Runs the whole model on random inputs. Ids are drawn below the least size that they index.
inline WholeModel whole_model(const std::string& text, const Settings& settings,
                              uint32_t seed = 1) {
  WholeModel m;
  std::vector<frontend::Setting> list;
  for (const auto& [name, value] : settings) {
    list.emplace_back();
    list.back().name = name;
    list.back().value = value;
  }
  const frontend::Program program(text, list);
  m.spec = program.lowered();
  m.forward = ir::run_passes(m.spec.forward, ir::passes_before_autodiff());
  m.extents = planner::dim_extents(m.forward, m.spec.bindings);
  Draw draw(seed);
  std::map<std::string, int64_t> limits;
  for (const ir::DataSource& source : m.spec.data) {
    for (const ir::DataName& name : source.names) {
      int64_t limit = 3;
      for (size_t i = 0; i < name.id_limits.size(); ++i) {
        const int64_t size = name.id_limits[i].evaluate(m.spec.bindings).value;
        limit = i == 0 ? size : std::min(limit, size);
      }
      limits[name.name] = limit;
    }
  }
  for (const ir::Input& input : m.forward.inputs) {
    const ir::Type& type = m.forward.type(input.value);
    ir::Tensor t = ir::filled(m.forward, type, m.spec.bindings, 0);
    const auto limit = limits.count(input.path) != 0 ? limits[input.path] : 3;
    for (double& x : t.data) {
      if (type.dtype == ir::DType::kI32)
        x = draw.below(static_cast<int>(limit));
      else if (type.dtype == ir::DType::kBool)
        x = draw.below(2);
      else
        x = input.kind == ir::InputKind::kState ? 1 + draw.real() / 2 : draw.real() / 2;
    }
    m.inputs[input.path] = std::move(t);
  }
  const ir::Graph step = ir::training_graph(m.spec.forward);
  std::vector<ir::Tensor> given;
  for (const ir::Input& input : step.inputs) given.push_back(m.inputs.at(input.path));
  ir::EvalContext context = context_of(m);
  const std::vector<ir::Tensor> results = ir::interpret(step, given, context);
  for (size_t i = 0; i < results.size(); ++i) m.results[step.outputs[i].name] = results[i];
  return m;
}

inline planner::Mesh test_mesh(const std::vector<int>& sizes) {
  return planner::mesh_of(sizes);
}

// The iterations of a stacked tensor that a device's tensor holds; one without loops is itself.
inline ir::Tensor iterations_of(const ir::Tensor& whole, const LocalTensor& part) {
  int64_t each = 1;
  for (const int64_t e : part.extents) each *= e;
  ir::Tensor out;
  out.dtype = whole.dtype;
  out.extents = part.extents;
  out.extents.insert(out.extents.begin(), static_cast<int64_t>(part.iterations.size()));
  for (const int64_t i : part.iterations) {
    const auto first = whole.data.begin() + static_cast<std::ptrdiff_t>(i * each);
    out.data.insert(out.data.end(), first, first + static_cast<std::ptrdiff_t>(each));
  }
  return out;
}

// A layout with the iterations' dim in front, whole.
inline planner::Layout stacked(planner::Layout layout) {
  for (int8_t& axis : layout.axis) {
    if (axis >= 0) ++axis;
  }
  return layout;
}

// What a device holds: its part, padded to the parts' size with NaN.
inline ir::Tensor padded_part(const ir::Tensor& whole, const planner::Layout& layout,
                              const planner::Mesh& mesh, int device, std::vector<int64_t> extents) {
  const auto own = planner::ranges_of(layout, whole.extents, mesh, device);
  ir::Tensor part;
  part.dtype = whole.dtype;
  size_t count = 1;
  std::vector<planner::Range> room;
  for (size_t i = 0; i < own.size(); ++i) {
    const int64_t size = planner::local_extent(layout, static_cast<int>(i), whole.extents[i], mesh);
    room.push_back({own[i].offset, size});
    count *= static_cast<size_t>(size);
  }
  part.data.assign(count,
                   whole.dtype == ir::DType::kF32 ? std::numeric_limits<double>::quiet_NaN() : 0.0);
  // `room` of the last devices reaches beyond their own: copy what is theirs alone
  planner::for_overlap(own, planner::everywhere(whole.extents), [&](size_t to, size_t from) {
    size_t at = 0, rest = to, stride = 1;
    for (size_t i = own.size(); i-- > 0;) {
      const auto extent = static_cast<size_t>(own[i].extent);
      at += rest % extent * stride;
      rest /= extent;
      stride *= static_cast<size_t>(room[i].extent);
    }
    part.data[at] = whole.data[from];
  });
  part.extents = std::move(extents);
  return part;
}

// The own elements of a padded part, as a dense tensor.
inline ir::Tensor own_part(const ir::Tensor& padded, const std::vector<int64_t>& whole,
                           const planner::Layout& layout, const planner::Mesh& mesh, int device) {
  const auto own = planner::ranges_of(layout, whole, mesh, device);
  ir::Tensor out = planner::blank(padded.dtype, own);
  for (size_t k = 0; k < out.data.size(); ++k) {
    size_t at = 0, rest = k, stride = 1;
    for (size_t i = own.size(); i-- > 0;) {
      const auto extent = static_cast<size_t>(own[i].extent);
      at += rest % extent * stride;
      rest /= extent;
      stride *=
          static_cast<size_t>(planner::local_extent(layout, static_cast<int>(i), whole[i], mesh));
    }
    out.data[k] = padded.data[at];
  }
  return out;
}

// "" when the lowered step gives the whole one's results on every device.
inline std::string lowered_difference(const WholeModel& m, const planner::Placement& placement,
                                      double tolerance = 1e-8) {
  const LocalGraph local = lower_forward(m.forward, m.spec.bindings, placement);
  const planner::Mesh& mesh = placement.mesh;
  const ir::Graph g = differentiate_local(local, [](const LocalTensor&) { return true; });
  ir::EvalContext context = context_of(m);
  ir::PerDevice given;
  for (int device = 0; device < mesh.devices(); ++device) {
    given.emplace_back();
    for (const ir::Input& input : g.inputs) {
      const std::vector<int64_t> extents = ir::extents_of(g, g.type(input.value), m.spec.bindings);
      ir::Tensor part;
      for (const LocalInput& in : local.inputs) {
        if (in.local != input.path) continue;
        part = padded_part(m.inputs.at(in.name), in.layout, mesh, device, extents);
      }
      for (const LocalTensor& t : local.tensors) {
        if (t.local != input.path) continue;
        part = padded_part(iterations_of(m.inputs.at(t.path), t), stacked(t.storage), mesh, device,
                           extents);
      }
      given.back().push_back(std::move(part));
    }
  }
  const ir::PerDevice results = ir::SpmdDevices(g).run(given, context);
  std::map<std::string, size_t> at;
  for (size_t o = 0; o < g.outputs.size(); ++o) at[g.outputs[o].name] = o;
  for (const auto& [name, whole] : m.results) {
    if (name.rfind("grad:", 0) == 0 || name.rfind("state:", 0) == 0) continue;
    for (const auto& device : results) {
      const ir::Tensor& got = device[at.at(name)];
      for (size_t k = 0; k < whole.data.size(); ++k) {
        if (!planner::same(got.data[k], whole.data[k], tolerance))
          return fmt::format("{}: {} instead of {}", name, got.data[k], whole.data[k]);
      }
    }
  }
  for (const LocalTensor& t : local.tensors) {
    const bool state = t.kind == ir::InputKind::kState;
    const std::string prefix = state ? "state:" : "grad:";
    const auto whole = m.results.find(prefix + t.path);
    if (whole == m.results.end()) continue;
    const auto output = at.find(prefix + t.local);
    if (output == at.end()) return "no output " + prefix + t.local;
    const ir::Tensor wanted = iterations_of(whole->second, t);
    const planner::Layout layout = stacked(state ? t.storage : t.gradient);
    planner::Parts parts;
    for (int device = 0; device < mesh.devices(); ++device) {
      parts.push_back(own_part(results[static_cast<size_t>(device)][output->second], wanted.extents,
                               layout, mesh, device));
    }
    const std::string fault = planner::difference(parts, wanted, layout, mesh, tolerance);
    if (!fault.empty()) return prefix + t.local + ": " + fault;
  }
  return "";
}

}  // namespace cad::backend
