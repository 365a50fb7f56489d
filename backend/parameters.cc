// backend/parameters.cc -- collects Parameters from graph inputs.
#include "backend/parameters.h"

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
  p.path = input.path;
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
  if (p.init != ir::Init::Kind::kZeros) {
    const auto scale = input.init.scale.evaluate(bindings);
    CAD_CHECK(scale.has_value(), "parameter `{}`: its initialiser `{}` is not bound", p.path,
              input.init.scale.str());
    p.init_scale = *scale;
  }
  return p;
}

}  // namespace

std::vector<int64_t> Parameter::loop_numbers(int64_t iteration) const {
  std::vector<int64_t> numbers(loops.size());
  for (size_t d = loops.size(); d-- > 0;) {
    numbers[d] = iteration % loops[d];
    iteration /= loops[d];
  }
  return numbers;
}

std::string Parameter::iteration_path(int64_t iteration) const {
  const std::vector<int64_t> numbers = loop_numbers(iteration);
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

int Parameters::find(const std::string& path_template) const {
  for (size_t i = 0; i < list_.size(); ++i) {
    if (list_[i].path == path_template) return static_cast<int>(i);
  }
  return -1;
}

int64_t Parameters::count() const {
  int64_t total = 0;
  for (const Parameter& p : list_) {
    if (p.kind == ir::InputKind::kParam) total += p.elements();
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

void append_tensors(const Parameter& p, const std::byte* data, const std::string& prefix,
                    std::vector<TensorToWrite>& to) {
  const int64_t step = p.iteration_elements * ir::dtype_bytes(p.dtype);
  for (int64_t i = 0; i < p.iterations; ++i) {
    to.push_back({prefix + p.iteration_path(i), stored_as(p.dtype), p.extents, data + i * step});
  }
}

}  // namespace cad::backend
