// backend/parameters.h -- the parameters and states of a run: what they are called, how big they
// are, where they lie. A parameter inside `repeat`s is one dense buffer with the loop dims first;
// in files it is one tensor an iteration. A device may hold a block of every iteration only, and
// some iterations in one buffer, others in another (on_device()). Initial values:
// backend/initialize.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/safetensors.h"
#include "backend/shard.h"
#include "ir/graph.h"

namespace cad::backend {

struct LocalTensor;  // backend/spmd/lower.h

struct Parameter {
  std::string path;   // of the whole, a template: "h.{}.block.attention.Wq"
  std::string local;  // of the program's input; equal to `path` where one buffer holds all
  ir::InputKind kind = ir::InputKind::kParam;
  ir::DType dtype = ir::DType::kF32;
  std::vector<int64_t> loops;     // trip counts, outermost first
  std::vector<int64_t> extents;   // of one whole iteration
  std::vector<std::string> dims;  // names, parallel to extents
  ir::Init::Kind init = ir::Init::Kind::kZeros;
  double init_scale = 0;
  bool frozen = false;  // @frozen
  ir::Input::Decay decay = ir::Input::Decay::kByRank;
  Span span;
  std::byte* data = nullptr;  // set when memory is laid out

  std::vector<int64_t> held;       // numbers of the iterations it holds, ascending
  int64_t iterations = 1;          // of them
  int64_t iteration_elements = 1;  // of the buffer: storage.elements()
  // Of one iteration: where `data` lies, and the gradient, and what updates work on.
  planner::Layout storage_layout, gradient_layout, optimizer_layout;
  Shard storage, gradient, optimizer;
  [[nodiscard]] int64_t elements() const { return iterations * iteration_elements; }
  [[nodiscard]] int64_t bytes() const { return elements() * ir::dtype_bytes(dtype); }
  // Of the i-th iteration that it holds.
  [[nodiscard]] std::vector<int64_t> loop_numbers(int64_t i) const;
  [[nodiscard]] std::string iteration_path(int64_t index) const;  // "h.3.block.attention.Wq"
  [[nodiscard]] bool trained() const { return kind == ir::InputKind::kParam && !frozen; }
};

class Parameters {
 public:
  // Adds the parameters and states of `graph` that are not there yet.
  void add(const ir::Graph& graph, const ir::Bindings& bindings);
  // What each of several devices holds of `whole`, tensor by tensor. Those of several programs may
  // be added; of one name they must be equal.
  void add_local(const Parameters& whole, const std::vector<LocalTensor>& tensors);
  // Those of `whole` that no program reads: they are kept whole everywhere, for files.
  void add_unused(const Parameters& whole);
  // Moves to a device: sets every Shard.
  void place(const planner::Mesh& mesh, std::span<const int> coordinates);
  [[nodiscard]] std::vector<Parameter>& all() { return list_; }
  [[nodiscard]] const std::vector<Parameter>& all() const { return list_; }
  [[nodiscard]] int find(const std::string& local) const;  // -1 if absent
  // How they lie on the mesh, a line each: equal texts, equal layouts.
  [[nodiscard]] std::string layouts_text() const;
  [[nodiscard]] int64_t count() const;  // elements of kParam, of the whole

 private:
  std::vector<Parameter> list_;
};

StoredType stored_as(ir::DType dtype);

}  // namespace cad::backend
