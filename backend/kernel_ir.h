// backend/kernel_ir.h -- kernel IR: a small loop nest over runtime extents, the scalar expressions
// evaluated in it, reductions and stores. It names no graph value, so that equal kernels are one:
// every integer (extent, stride, offset, size) is an argument, a slot of KernelArgs::ints.
// backend/partition.h makes it, backend/emit_llvm.h turns it into LLVM IR, a CUDA emitter will read
// the same structures. str() prints it (`--emit=kernels`) and is also the key of equality.
//
// A kernel is one or two stages; the executor puts a barrier between them. In a stage
//   - kParallel dims together make the items [0, items) that threads share out;
//   - an item runs the kSequential dims as loops, and in them the phases in order;
//   - a phase loops over the kInner dims, feeds the reductions of that phase and does its stores.
// Exactly one dim carries the SIMD lanes: the last kInner one (reductions over it are horizontal)
// or the last kSequential one (every lane is a row of its own). A rank-0 stage has none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace cad::backend {

// What compiled code receives. Pointers are those of the values' base buffers (layout offsets are
// part of `ints`).
struct KernelArgs {
  void* const* buffers = nullptr;  // one a kernel buffer that is not scratch
  const int64_t* ints = nullptr;   // KernelCall::ints
  void* scratch = nullptr;         // KernelCall::scratch_bytes, 64-byte aligned, shared by threads
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t row_offset = 0;  // first row of this micro-batch within the step
  int64_t step_rows =
      0;  // rows of the whole step (the batch dim's size when there is one micro-batch)
};
// Runs items [begin, end) of one stage. Any split of the items gives the same bits.
using KernelFunction = void (*)(const KernelArgs* args, int64_t begin, int64_t end);

namespace kernel {

// Index into KernelArgs::ints, or a value known when the kernel is compiled.
using Slot = int32_t;
inline constexpr Slot kZero = -1;
inline constexpr Slot kOne = -2;

// offset + sum over the stage's dims of strides[d] * (loop variable d)
struct Linear {
  Slot offset = kZero;
  std::vector<Slot> strides;  // parallel to Stage::dims
  bool operator==(const Linear&) const = default;
};

struct LoopDim {
  enum class Role : uint8_t { kParallel, kSequential, kInner } role = Role::kInner;
  Slot extent = kOne;
  int chunk_of = -1;  // a kParallel dim c: runs over [c * chunk, min(extent, (c + 1) * chunk))
  Slot chunk = kZero;
  bool lanes = false;
};

using ExprId = int32_t;  // index into Stage::exprs; operands come before their users

struct Expr {
  enum class Kind : uint8_t {
    kConst,      // value, of dtype
    kLoad,       // buffer[linear + sum of dynamic]; 0 where `predicate` is false
    kIndex,      // i32: linear + sum of dynamic
    kOp,         // op(operands), an ir::Op of the pointwise family
    kReduction,  // the result of reductions[reduction]
    kRandom,     // op: kUniform, kNormal (both standard) or kDropout (uniform again); element index
                 // linear + row terms; site hash in `site`; operands are the loop numbers (i32)
  } kind = Kind::kConst;
  ir::Op op = ir::Op::kConst;
  ir::DType dtype = ir::DType::kF32;   // kF32 (all floats compute in it), kI32 or kBool
  ir::DType rounds = ir::DType::kF32;  // a cast to bf16 or f16 rounds to it
  std::vector<ExprId> operands;
  double value = 0;
  int32_t buffer = -1;
  Linear linear;
  std::vector<std::pair<ExprId, Slot>> dynamic;  // i32 expression times stride
  ExprId predicate = -1;                         // bool
  int32_t reduction = -1;
  // kRandom: element += row_offset * row_stride + step_rows * rows
  Slot row_stride = kZero;
  Linear rows;
  uint64_t site = 0;
};

struct Reduction {
  enum class Kind : uint8_t { kSum, kMax, kMin, kArgmax } kind = Kind::kSum;
  ir::DType dtype = ir::DType::kF32;
  ExprId operand = -1;
  ExprId index = -1;  // kArgmax: i32 position of the element
  int phase = 0;
};

struct Store {
  int32_t buffer = -1;
  Linear linear;
  ExprId expr = -1;
  int phase = 0;     // full stores: in that phase's loop
  bool row = false;  // once a row, after phase `phase` (reductions of it are done)
  // Adds (or maxes ..) into buffer[linear] over the kSequential dims of an item instead: a column
  // reduction's partial, cleared when the item starts.
  bool accumulate = false;
  Reduction::Kind combine = Reduction::Kind::kSum;
};

struct Stage {
  std::vector<LoopDim> dims;
  std::vector<Expr> exprs;
  std::vector<Reduction> reductions;
  std::vector<Store> stores;
  int phases = 1;
};

struct Buffer {
  ir::DType dtype = ir::DType::kF32;
  bool written = false;
  bool scratch = false;  // in KernelArgs::scratch, at the byte offset `scratch_offset`
  Slot scratch_offset = kZero;
};

struct Kernel {
  std::string name;  // "layer_norm"-like hint: its ops joined, "mul+add+tanh"; not part of the key
  std::vector<Buffer> buffers;
  std::vector<Stage> stages;              // one or two
  int32_t ints = 0;                       // how many slots
  [[nodiscard]] std::string str() const;  // without the name
};

}  // namespace kernel
}  // namespace cad::backend
