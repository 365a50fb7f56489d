// tests/runtime/program_harness.h -- compiles a graph, runs it in a poisoned arena with a guard
// page behind, and compares with the interpreter.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/compile.h"
#include "backend/cpu/executor.h"
#include "backend/cpu/thread_pool.h"
#include "tests/runtime/graphs.h"
#include "tests/runtime/values.h"

namespace cad::backend::testing {

// An arena of exactly `bytes` (to the alignment), all 0xFF, that ends at an inaccessible page.
class GuardedArena {
 public:
  explicit GuardedArena(int64_t bytes) : bytes_(bytes) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    const int64_t whole = (bytes + page - 1) / page * page;
    size_ = whole + page;
    base_ = static_cast<char*>(mmap(nullptr, static_cast<size_t>(size_), PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + whole, static_cast<size_t>(page), PROT_NONE);
    start_ = base_ + whole - (bytes + 63) / 64 * 64;
    std::memset(base_, 0xFF, static_cast<size_t>(whole));
  }
  ~GuardedArena() { munmap(base_, static_cast<size_t>(size_)); }
  GuardedArena(const GuardedArena&) = delete;
  GuardedArena& operator=(const GuardedArena&) = delete;

  [[nodiscard]] char* get() const { return start_; }
  // One past the highest byte that is no longer 0xFF; -1 when something before the arena changed.
  [[nodiscard]] int64_t touched() const {
    for (const char* p = base_; p < start_; ++p) {
      if (*p != '\xFF') return -1;
    }
    int64_t top = (bytes_ + 63) / 64 * 64;
    while (top > 0 && start_[top - 1] == '\xFF') --top;
    return top;
  }

 private:
  int64_t bytes_, size_ = 0;
  char* base_ = nullptr;
  char* start_ = nullptr;
};

struct Outcome {
  std::vector<ir::Tensor> results;
  std::vector<std::vector<char>> bytes;
  int64_t touched = 0;
};

// `run`: a device's place in its world, if it has one. `shared`: output index -> input index that
// is bound to the same memory.
inline Outcome run_program(const Program& program, const std::vector<ir::Tensor>& inputs,
                           const ir::EvalContext& context, ThreadPool& pool, Run run = {},
                           const std::map<int, int>& shared = {}) {
  const GuardedArena arena(program.transient_bytes());
  std::vector<Memory> in, out;
  for (const ir::Tensor& t : inputs) {
    in.push_back(to_memory(t));
    run.inputs.push_back(in.back().get());
  }
  for (const Port& port : program.outputs()) out.emplace_back(static_cast<size_t>(port.bytes));
  for (size_t o = 0; o < out.size(); ++o) {
    const auto found = shared.find(static_cast<int>(o));
    run.outputs.push_back(found == shared.end() ? out[o].get()
                                                : in[static_cast<size_t>(found->second)].get());
  }
  run.arena = arena.get();
  run.seed = context.seed;
  run.step = context.step;
  run.row_offset = context.row_offset;
  run.step_rows = context.step_rows;
  execute(program, pool, run);
  Outcome outcome;
  for (size_t o = 0; o < out.size(); ++o) {
    const Port& port = program.outputs()[o];
    Memory copy(static_cast<size_t>(port.bytes));
    std::memcpy(copy.get(), run.outputs[o], static_cast<size_t>(port.bytes));
    outcome.results.push_back(from_memory(copy, port.type.dtype, port.extents));
    outcome.bytes.emplace_back(copy.as<char>(), copy.as<char>() + port.bytes);
  }
  // Inputs are read only.
  for (size_t i = 0; i < inputs.size(); ++i) {
    bool written = false;
    for (const auto& [o, input] : shared) written |= input == static_cast<int>(i);
    if (!written) {
      EXPECT_EQ(difference(from_memory(in[i], inputs[i].dtype, inputs[i].extents), inputs[i]), 0)
          << "input " << i << " changed";
    }
  }
  outcome.touched = arena.touched();
  EXPECT_GE(outcome.touched, 0) << "memory before the arena was written";
  return outcome;
}

inline Outcome run_program(const Program& program, const std::vector<ir::Tensor>& inputs,
                           const ir::EvalContext& context, int threads,
                           const std::map<int, int>& shared = {}) {
  ThreadPool pool(threads);
  return run_program(program, inputs, context, pool, {}, shared);
}

inline std::vector<ir::Tensor> random_inputs(const ir::Graph& g, const ir::Bindings& bindings,
                                             unsigned seed, int limit = 5) {
  std::mt19937 random(seed);
  std::vector<ir::Tensor> inputs;
  for (const ir::Input& in : g.inputs) {
    const ir::Type& type = g.type(in.value);
    inputs.push_back(random_tensor(type.dtype, ir::extents_of(g, type, bindings), random, limit));
  }
  return inputs;
}

struct CheckOptions {
  bool exact_peak = true;  // the highest byte of the arena is written
  double looser = 1;       // times the tolerance of the dtype
  int limit = 5;
};

// Values against the interpreter, peak, repeatability, thread counts, with and without fusion.
inline void check_program(const ir::Graph& g, const ir::Bindings& bindings = {},
                          const CheckOptions& options = {}) {
  ir::EvalContext context;
  context.bindings = bindings;
  context.seed = 11;
  context.step = 5;
  context.round = true;
  const std::vector<ir::Tensor> inputs = random_inputs(g, bindings, 3, options.limit);
  const std::vector<ir::Tensor> expected = ir::interpret(g, inputs, context);
  for (const bool fuse : {true, false}) {
    CompileOptions compile_options;
    compile_options.fuse = fuse;
    const Program program = compile(g, bindings, compile_options);
    for (const int threads : {1, 2, 3}) {
      const Outcome one = run_program(program, inputs, context, threads);
      const Outcome two = run_program(program, inputs, context, threads);
      EXPECT_EQ(one.bytes, two.bytes) << "two runs differ";
      EXPECT_LE(one.touched, program.transient_bytes());
      if (options.exact_peak) {
        EXPECT_EQ(one.touched, program.transient_bytes()) << program.str();
      }
      for (size_t r = 0; r < expected.size(); ++r) {
        EXPECT_LE(difference(one.results[r], expected[r]),
                  options.looser * tolerance(expected[r].dtype))
            << "output " << g.outputs[r].name << ", threads " << threads << ", fuse " << fuse
            << "\n"
            << program.str();
      }
    }
  }
}

}  // namespace cad::backend::testing
