// backend/jit.h -- compiles kernels for this host: LLVM IR by backend/emit_llvm.h, machine code by
// ORC. One Jit holds all code that it made until it is destroyed; equal kernels (Kernel::str())
// are compiled once. No LLVM type is seen outside.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/kernel_ir.h"

namespace cad::backend {

struct Partition;

// f32 lanes of a vector register here: 16 with AVX-512, 8 with AVX2, else 4.
int host_lanes();

struct CompiledKernel {
  std::vector<KernelFunction> stages;
};

class Jit {
 public:
  explicit Jit(int lanes = host_lanes());
  ~Jit();
  Jit(const Jit&) = delete;
  Jit& operator=(const Jit&) = delete;
  // One CompiledKernel per kernel, in order; `threads` compile at once. Thread safe, may be called
  // again.
  std::vector<CompiledKernel> compile(const std::vector<kernel::Kernel>& kernels, int threads = 2);
  // LLVM IR of a kernel after the passes (`--emit=kernels`).
  [[nodiscard]] std::string llvm_ir(const kernel::Kernel& kernel) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Every distinct kernel of a partition, its kernel IR and its LLVM IR (`--emit=kernels`).
std::string print_kernels(const Partition& partition);

}  // namespace cad::backend
