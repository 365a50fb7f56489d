// backend/bound_program.cc -- see backend/bound_program.h.
#include "backend/bound_program.h"

#include <cstring>

#include "backend/compile.h"
#include "backend/run_memory.h"
#include "base/check.h"

namespace cad::backend {

BoundProgram::BoundProgram(const ir::Graph& graph, const ir::Bindings& bindings,
                           const CompileOptions& options, const DataSet* set,
                           const std::vector<LocalInput>& local)
    : program_(compile(graph, bindings, options)), inputs_(graph.inputs), local_(local) {
  CAD_CHECK(program_.inputs().size() == inputs_.size(), "program has {} inputs, graph {}",
            program_.inputs().size(), inputs_.size());
  for (const Port& port : program_.inputs()) input_shards_.push_back(whole_shard(port.extents));
  if (set == nullptr) return;
  const auto reads = [&](const std::string& column) {
    std::vector<int64_t> found;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i].kind == ir::InputKind::kData && whole_name(i) == column)
        found.push_back(static_cast<int64_t>(i));
    }
    // One device has a buffer for every column, also one that no op reads.
    if (found.empty() && local_.empty()) found.push_back(-1);
    return found;
  };
  for (size_t c = 0; c < set->columns().size(); ++c) {
    const DataColumn& column = set->columns()[c];
    for (const int64_t input : reads(column.name)) {
      const bool parted = input >= 0 && !local_.empty();
      slices_.push_back({c, whole_shard(column.extents), nullptr});
      slice_inputs_.push_back(input);
      slice_bytes_.push_back(parted ? program_.inputs()[static_cast<size_t>(input)].bytes
                                    : column.bytes());
    }
  }
}

const std::string& BoundProgram::whole_name(size_t input) const {
  for (const LocalInput& part : local_) {
    if (part.local == inputs_[input].path) return part.name;
  }
  return inputs_[input].path;
}

void BoundProgram::place_device(const planner::Mesh& mesh, const std::vector<int>& coordinates,
                                Communicator* comm) {
  run_.coordinates = coordinates;
  run_.comm = comm;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    for (const LocalInput& part : local_) {
      if (part.local != inputs_[i].path) continue;
      input_shards_[i] = shard_of(part.layout, part.extents, mesh, coordinates);
      CAD_CHECK(input_shards_[i].padded == program_.inputs()[i].extents,
                "input `{}` is {} on a device, the program's is {}", part.local,
                shape_text(input_shards_[i].padded), shape_text(program_.inputs()[i].extents));
    }
  }
  for (size_t s = 0; s < slices_.size(); ++s) {
    const int64_t input = slice_inputs_[s];
    if (input >= 0) slices_[s].shard = input_shards_[static_cast<size_t>(input)];
  }
}

int64_t BoundProgram::place(int64_t start, const std::map<std::string, int64_t>& shared) {
  int64_t at = aligned(start);
  const auto take = [&](int64_t bytes) {
    const int64_t offset = at;
    at = aligned(at + bytes);
    return offset;
  };
  std::map<size_t, int64_t> filled;  // inputs
  slice_offsets_.clear();
  for (size_t s = 0; s < slices_.size(); ++s) {
    slice_offsets_.push_back(take(slice_bytes_[s]));
    if (slice_inputs_[s] >= 0)
      filled[static_cast<size_t>(slice_inputs_[s])] = slice_offsets_.back();
  }
  input_offsets_.clear();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const ir::Input& input = inputs_[i];
    const auto found = filled.find(i);
    if (input.kind == ir::InputKind::kParam || input.kind == ir::InputKind::kState) {
      input_offsets_.push_back(-1);
    } else if (found != filled.end()) {
      input_offsets_.push_back(found->second);
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
  const auto parameter = [&](const std::string& local) {
    const int index = parameters.find(local);
    CAD_CHECK(index >= 0, "program names the unknown parameter `{}`", local);
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
  for (size_t s = 0; s < slices_.size(); ++s) slices_[s].target = region + slice_offsets_[s];
  run_.arena = region + arena_offset_;
}

void BoundProgram::set_scalar(const std::string& name, double value) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].kind != ir::InputKind::kOther || whole_name(i) != name) continue;
    if (program_.inputs()[i].type.dtype == ir::DType::kI32) {
      const auto whole = static_cast<int32_t>(value);
      std::memcpy(run_.inputs[i], &whole, 4);
    } else {
      const auto narrow = static_cast<float>(value);
      std::memcpy(run_.inputs[i], &narrow, 4);
    }
  }
}

void BoundProgram::set_row_mask(int64_t rows) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].kind != ir::InputKind::kOther || whole_name(i) != "row_mask") continue;
    const Shard& shard = input_shards_[i];
    auto* mask = static_cast<std::byte*>(run_.inputs[i]);
    for (int64_t b = 0; b < shard.padded[0]; ++b) {
      const bool in = b < shard.own[0].extent && shard.own[0].offset + b < rows;
      mask[b] = static_cast<std::byte>(in ? 1 : 0);
    }
  }
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
