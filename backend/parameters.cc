// backend/parameters.cc -- collects Parameters from graph inputs.
#include "backend/parameters.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/spmd/lower.h"
#include "base/check.h"

namespace cad::backend {
namespace {

int64_t extent(const ir::Graph& graph, ir::DimId dim, const ir::Bindings& bindings,
               const std::string& path) {
  const auto value = graph.dim(dim).size.evaluate(bindings);
  CAD_CHECK(value.ok(), "parameter `{}`: dim `{}` is not bound ({})", path, graph.dim(dim).name,
            value.detail);
  return value.value;
}

Parameter parameter_of(const ir::Graph& graph, const ir::Input& input,
                       const ir::Bindings& bindings) {
  Parameter p;
  p.path = p.local = input.path;
  p.kind = input.kind;
  p.init = input.init.kind;
  p.frozen = input.frozen;
  p.decay = input.decay;
  p.span = input.span;
  const ir::Type& type = graph.type(input.value);
  p.dtype = type.dtype;
  for (size_t i = 0; i < type.dims.size(); ++i) {
    const int64_t size = extent(graph, type.dims[i], bindings, input.path);
    if (static_cast<int>(i) < input.loop_dims) {
      p.loops.push_back(size);
      p.iterations *= size;
    } else {
      p.extents.push_back(size);
      p.dims.push_back(graph.dim(type.dims[i]).name);
      p.iteration_elements *= size;
    }
  }
  p.held.resize(static_cast<size_t>(p.iterations));
  std::iota(p.held.begin(), p.held.end(), 0);
  p.storage = p.gradient = p.optimizer = whole_shard(p.extents);
  if (p.init != ir::Init::Kind::kZeros) {
    const auto scale = input.init.scale.evaluate(bindings);
    CAD_CHECK(scale.has_value(), "parameter `{}`: its initialiser `{}` is not bound", p.path,
              input.init.scale.str());
    p.init_scale = *scale;
  }
  return p;
}

}  // namespace

std::vector<int64_t> Parameter::loop_numbers(int64_t i) const {
  int64_t iteration = held[static_cast<size_t>(i)];
  std::vector<int64_t> numbers(loops.size());
  for (size_t d = loops.size(); d-- > 0;) {
    numbers[d] = iteration % loops[d];
    iteration /= loops[d];
  }
  return numbers;
}

std::string Parameter::iteration_path(int64_t index) const {
  const std::vector<int64_t> numbers = loop_numbers(index);
  std::string text;
  size_t next = 0;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path.compare(i, 2, "{}") == 0 && next < numbers.size()) {
      text += std::to_string(numbers[next++]);
      ++i;
    } else {
      text += path[i];
    }
  }
  return text;
}

void Parameters::add(const ir::Graph& graph, const ir::Bindings& bindings) {
  for (const ir::Input& input : graph.inputs) {
    if (input.kind != ir::InputKind::kParam && input.kind != ir::InputKind::kState) continue;
    if (find(input.path) < 0) list_.push_back(parameter_of(graph, input, bindings));
  }
}

void Parameters::add_local(const Parameters& whole, const std::vector<LocalTensor>& tensors) {
  for (const LocalTensor& tensor : tensors) {
    const int known = find(tensor.local), from = whole.find(tensor.path);
    CAD_CHECK(from >= 0, "`{}` is a part of no parameter", tensor.local);
    if (known >= 0) {
      const Parameter& p = list_[static_cast<size_t>(known)];
      CAD_CHECK(p.path == tensor.path && p.held == tensor.iterations &&
                    p.storage_layout == tensor.storage,
                "two programs hold `{}` differently", tensor.local);
      continue;
    }
    Parameter p = whole.all()[static_cast<size_t>(from)];
    CAD_CHECK(p.extents == tensor.extents, "`{}` is {}, its parts are of {}", p.path,
              shape_text(p.extents), shape_text(tensor.extents));
    p.local = tensor.local;
    p.held = tensor.iterations;
    p.iterations = static_cast<int64_t>(p.held.size());
    p.storage_layout = tensor.storage;
    p.gradient_layout = tensor.gradient;
    p.optimizer_layout = tensor.optimizer;
    list_.push_back(std::move(p));
  }
}

void Parameters::add_unused(const Parameters& whole) {
  const size_t used = list_.size();
  for (const Parameter& p : whole.all()) {
    const auto has = [&](const Parameter& part) { return part.path == p.path; };
    const auto end = list_.begin() + static_cast<int64_t>(used);
    if (std::none_of(list_.begin(), end, has)) list_.push_back(p);
  }
}

void Parameters::place(const planner::Mesh& mesh, std::span<const int> coordinates) {
  for (Parameter& p : list_) {
    p.storage = shard_of(p.storage_layout, p.extents, mesh, coordinates);
    p.gradient = shard_of(p.gradient_layout, p.extents, mesh, coordinates);
    p.optimizer = shard_of(p.optimizer_layout, p.extents, mesh, coordinates);
    p.iteration_elements = p.storage.elements();
  }
}

int Parameters::find(const std::string& local) const {
  for (size_t i = 0; i < list_.size(); ++i) {
    if (list_[i].local == local) return static_cast<int>(i);
  }
  return -1;
}

std::string Parameters::layouts_text() const {
  std::string text;
  const auto axes = [](const planner::Layout& layout) {
    return fmt::format("{}/{}", fmt::join(layout.axis, ","), layout.order);
  };
  for (const Parameter& p : list_) {
    text += fmt::format("{} {}: {} {} {}\n", p.local, p.iterations, axes(p.storage_layout),
                        axes(p.gradient_layout), axes(p.optimizer_layout));
  }
  return text;
}

int64_t Parameters::count() const {
  int64_t total = 0;
  for (const Parameter& p : list_) {
    if (p.kind == ir::InputKind::kParam) total += p.iterations * p.storage.whole_elements();
  }
  return total;
}

StoredType stored_as(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kF32:
      return StoredType::kF32;
    case ir::DType::kBF16:
      return StoredType::kBF16;
    case ir::DType::kF16:
      return StoredType::kF16;
    case ir::DType::kI32:
      return StoredType::kI32;
    case ir::DType::kBool:
      return StoredType::kBool;
  }
  return StoredType::kF32;
}

}  // namespace cad::backend
