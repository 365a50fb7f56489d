// backend/bound_program.cc -- see backend/bound_program.h.
#include "backend/bound_program.h"

#include <cstring>

#include "backend/compile.h"
#include "backend/run_memory.h"
#include "base/check.h"

namespace cad::backend {

BoundProgram::BoundProgram(const ir::Graph& graph, const ir::Bindings& bindings,
                           const CompileOptions& options, const DataSet* set)
    : program_(compile(graph, bindings, options)), inputs_(graph.inputs) {
  CAD_CHECK(program_.inputs().size() == inputs_.size(), "program has {} inputs, graph {}",
            program_.inputs().size(), inputs_.size());
  if (set == nullptr) return;
  for (const DataColumn& column : set->columns()) {
    column_names_.push_back(column.name);
    column_bytes_.push_back(column.bytes());
  }
}

int64_t BoundProgram::place(int64_t start, const std::map<std::string, int64_t>& shared) {
  int64_t at = aligned(start);
  const auto take = [&](int64_t bytes) {
    const int64_t offset = at;
    at = aligned(at + bytes);
    return offset;
  };
  // Every column has a buffer, also one that no op reads: the loader fills them all.
  std::map<std::string, int64_t> columns;
  column_offsets_.clear();
  for (size_t i = 0; i < column_names_.size(); ++i) {
    column_offsets_.push_back(take(column_bytes_[i]));
    columns[column_names_[i]] = column_offsets_.back();
  }
  input_offsets_.clear();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const ir::Input& input = inputs_[i];
    const bool data = input.kind == ir::InputKind::kData;
    if (input.kind == ir::InputKind::kParam || input.kind == ir::InputKind::kState) {
      input_offsets_.push_back(-1);
    } else if (data && columns.count(input.path) > 0) {
      input_offsets_.push_back(columns[input.path]);
    } else {
      input_offsets_.push_back(take(program_.inputs()[i].bytes));
    }
  }
  output_offsets_.clear();
  for (const Port& port : program_.outputs()) {
    const auto elsewhere = shared.find(port.name);
    const bool state = port.name.compare(0, 6, "state:") == 0;
    output_offsets_.push_back(elsewhere != shared.end() ? elsewhere->second
                              : state                   ? -1
                                                        : take(port.bytes));
  }
  arena_offset_ = at;
  return at + program_.transient_bytes();
}

void BoundProgram::bind(const Parameters& parameters, const std::vector<std::byte*>& values,
                        std::byte* region) {
  const auto parameter = [&](const std::string& path) {
    const int index = parameters.find(path);
    CAD_CHECK(index >= 0, "program names the unknown parameter `{}`", path);
    return static_cast<size_t>(index);
  };
  run_.inputs.clear();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const int64_t offset = input_offsets_[i];
    run_.inputs.push_back(offset >= 0 ? region + offset : values[parameter(inputs_[i].path)]);
  }
  run_.outputs.clear();
  for (size_t i = 0; i < program_.outputs().size(); ++i) {
    const int64_t offset = output_offsets_[i];
    const std::string& name = program_.outputs()[i].name;
    run_.outputs.push_back(offset >= 0 ? region + offset
                                       : parameters.all()[parameter(name.substr(6))].data);
  }
  column_data_.clear();
  for (const int64_t offset : column_offsets_) column_data_.push_back(region + offset);
  run_.arena = region + arena_offset_;
}

std::byte* BoundProgram::other(const std::string& name) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].kind == ir::InputKind::kOther && inputs_[i].path == name)
      return static_cast<std::byte*>(run_.inputs[i]);
  }
  return nullptr;
}

double BoundProgram::scalar(size_t output) const {
  const Port& port = program_.outputs()[output];
  CAD_CHECK(port.extents.empty(), "output `{}` has rank {}", port.name, port.extents.size());
  switch (port.type.dtype) {
    case ir::DType::kI32: {
      int32_t value = 0;
      std::memcpy(&value, run_.outputs[output], 4);
      return value;
    }
    case ir::DType::kBool:
      return *static_cast<const uint8_t*>(run_.outputs[output]);
    case ir::DType::kF32: {
      float value = 0;
      std::memcpy(&value, run_.outputs[output], 4);
      return value;
    }
    default:
      break;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, run_.outputs[output], 2);
  return port.type.dtype == ir::DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

}  // namespace cad::backend
