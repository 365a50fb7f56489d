// backend/program.h -- what compile() makes of a graph: steps in order, addresses, and how much
// memory they need. A Program owns code, never tensor memory: the caller binds one buffer for every
// input and output of the graph and one transient arena, which several programs may share in turn
// (train step, optimizer updates, evaluations). Running it: backend/cpu/executor.h.
//
// Bound buffers are dense, row-major in the type's order, 64-byte aligned; bool is a byte of 0
// or 1. They belong to the caller between runs: parameters, gradients, optimizer state, data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace cad::backend {

class Jit;

struct CompileOptions {
  // Outputs (by name) that are added to the bound buffer when Run::accumulate is set, and overwrite
  // it when not: gradients over micro-batches (first one overwrites, later ones add).
  std::vector<std::string> accumulate;
  // {output name, input path}: the caller binds the same memory to both (an update p -> p).
  std::vector<std::pair<std::string, std::string>> in_place;
  // false: every op is its own step, so that debug_nan can name the exact one.
  bool fuse = true;
  // Of the pool that will run it, at most: memory of steps that need some for each thread. 0: all
  // cores of this process.
  int threads = 0;
  // false: collectives are carried out where they stand, beside nothing else.
  bool overlap = true;
  // false: not even small collectives that go together may take more memory than one by one.
  bool slack = true;
  // false: no machine code is made. The program cannot run; steps, arena and ports are all there.
  bool code = true;
  // Where the kernels' code lives. Of several programs with one Jit equal kernels, whatever their
  // sizes, are compiled once. nullptr: one of its own.
  std::shared_ptr<Jit> jit;
};

// An input or output as the caller has to supply it.
struct Port {
  std::string name;  // input path or output name
  ir::Type type;
  std::vector<int64_t> extents;
  int64_t bytes = 0;
};

// A buffer of the transient arena; for the memory report.
struct TransientBuffer {
  std::string name;  // the value's name, or the op that makes it
  std::string scope;
  int64_t offset = 0, bytes = 0;  // from the arena's start; a loop's body is laid out once
  int32_t first = 0, last = 0;    // live over these steps (indices into steps(), inclusive)
};

// One step for profiles and traces. A loop body's steps follow their loop, at depth + 1.
struct StepInfo {
  enum class Kind : uint8_t {
    kOther,
    kProduct,
    kAttention,
    kCollective,
    kLoop
  } kind = Kind::kOther;
  bool backward = false;   // the loss does not need it
  uint32_t axes = 0;       // of a collective: those of Graph::mesh
  std::string name;        // "contract", "kernel add+mul+exp", "attention"
  std::string scope;       // "h.{}.block.attention"
  std::string last_scope;  // of a kernel: of the last of its ops; else the same
  Span span;
  int32_t depth = 0;
  double flops = 0, bytes = 0;  // of one execution
  double times = 1;             // executions a run
};

struct ProgramImpl;
class Program {
 public:
  Program();
  explicit Program(std::shared_ptr<const ProgramImpl> impl);
  [[nodiscard]] bool valid() const { return impl_ != nullptr; }
  [[nodiscard]] const std::vector<Port>& inputs() const;   // one per Graph::inputs, in order
  [[nodiscard]] const std::vector<Port>& outputs() const;  // one per Graph::outputs, in order
  [[nodiscard]] int input(const std::string& path) const;  // index, -1 if absent
  [[nodiscard]] int output(const std::string& name) const;
  [[nodiscard]] int64_t transient_bytes() const;  // exact peak of the arena
  [[nodiscard]] const std::vector<TransientBuffer>& buffers() const;
  [[nodiscard]] const std::vector<StepInfo>& steps() const;
  [[nodiscard]] std::string str() const;  // --emit=program
  [[nodiscard]] const ProgramImpl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const ProgramImpl> impl_;
};

}  // namespace cad::backend
