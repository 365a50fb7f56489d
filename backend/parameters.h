// backend/parameters.h -- the parameters and states of a run: what they are called, how big they
// are, where they lie. A parameter inside `repeat`s is one dense buffer with the loop dims first;
// in files it is one tensor an iteration. Initial values: backend/initialize.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/safetensors.h"
#include "ir/graph.h"

namespace cad::backend {

struct Parameter {
  std::string path;  // template: "h.{}.block.attention.Wq"
  ir::InputKind kind = ir::InputKind::kParam;
  ir::DType dtype = ir::DType::kF32;
  std::vector<int64_t> loops;     // trip counts, outermost first
  std::vector<int64_t> extents;   // of one iteration
  std::vector<std::string> dims;  // names, parallel to extents
  ir::Init::Kind init = ir::Init::Kind::kZeros;
  double init_scale = 0;
  bool frozen = false;  // @frozen
  ir::Input::Decay decay = ir::Input::Decay::kByRank;
  Span span;
  std::byte* data = nullptr;  // set when memory is laid out

  int64_t iterations = 1;          // product of loops
  int64_t iteration_elements = 1;  // product of extents
  [[nodiscard]] int64_t elements() const { return iterations * iteration_elements; }
  [[nodiscard]] int64_t bytes() const { return elements() * ir::dtype_bytes(dtype); }
  [[nodiscard]] std::vector<int64_t> loop_numbers(int64_t iteration) const;
  [[nodiscard]] std::string iteration_path(int64_t iteration) const;  // "h.3.block.attention.Wq"
  [[nodiscard]] bool trained() const { return kind == ir::InputKind::kParam && !frozen; }
};

class Parameters {
 public:
  // Adds the parameters and states of `graph` that are not there yet.
  void add(const ir::Graph& graph, const ir::Bindings& bindings);
  [[nodiscard]] std::vector<Parameter>& all() { return list_; }
  [[nodiscard]] const std::vector<Parameter>& all() const { return list_; }
  [[nodiscard]] int find(const std::string& path_template) const;  // -1 if absent
  [[nodiscard]] int64_t count() const;                             // elements of kParam

 private:
  std::vector<Parameter> list_;
};

// The tensors of `p`, one an iteration, read from or written to `data` (p.data or a copy of it,
// such as the moving average); names get `prefix`.
void append_tensors(const Parameter& p, const std::byte* data, const std::string& prefix,
                    std::vector<TensorToWrite>& to);
StoredType stored_as(ir::DType dtype);

}  // namespace cad::backend
