// backend/program_impl.h -- the inside of a Program: blocks of instructions with every address
// resolved. Written by backend/schedule.cc, run by backend/cpu/executor.cc, private to both.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/routines.h"
#include "backend/device_part.h"
#include "backend/jit.h"
#include "backend/partition.h"
#include "backend/program.h"

namespace cad::backend {

// Where something lies: pointers[root] + offset + the numbers of the enclosing loops times strides,
// all in bytes. Root 0 is the arena, then come inputs, then outputs. While scheduling, an address
// in the arena names a buffer of a block and the offset counts from there; resolve() makes it
// absolute. The last root is a table of the device's numbers along axes of the mesh (i32).
struct Address {
  static constexpr int32_t kArena = 0;
  int32_t root = -1;
  int32_t block = -1, buffer = -1;
  int64_t offset = 0;
  std::vector<std::pair<int32_t, int64_t>> numbers;  // (loop level, stride)
  [[nodiscard]] bool valid() const { return root >= 0; }
  bool operator==(const Address&) const = default;
};

// A float result that debug_nan looks at.
struct Checked {
  Address at;
  int64_t elements = 0;
  ir::DType dtype = ir::DType::kF32;
  ir::ValueId value;
};

// Whether an instruction adds to what lies at its result's place.
enum class Adds : uint8_t {
  kNo,
  kWhenAccumulating,  // when Run::accumulate is set
  kAlways             // to what an earlier instruction of the same run wrote there
};

struct Instruction {
  enum class Kind : uint8_t {
    kKernel,
    kContract,
    kAttention,
    kAttentionGrad,
    kScatterAdd,
    kTopK,
    kCumSum,
    kSlots,
    kCopy,
    kLoop,
    kCollective,  // starts it; `detail` indexes collectives, `ticket` the tickets of a run
    kAwait        // waits until the collective of `ticket` is done
  } kind = Kind::kKernel;
  // kKernel: the kernel's buffers. Else operands, then results. kCopy: from, to.
  std::vector<Address> operands;
  std::vector<char> writes;  // parallel to operands: 1 where one is written
  Address scratch;
  int32_t step = 0;       // of its region's steps, in the schedule's order
  int32_t detail = -1;    // index into calls, gemms, attentions, routines, copies, .. by kind
  int32_t info = -1;      // index into Program::steps()
  Adds adds = Adds::kNo;  // kContract, kScatterAdd, kCopy
  // kLoop
  int32_t block = -1;
  int32_t level = 0;
  int64_t count = 0;
  bool reverse = false;
  Address number;        // i32 that the body reads
  int32_t ticket = -1;   // kCollective, kAwait
  bool joins = false;    // kCollective: starts together with the next instruction
  bool at_once = false;  // kCollective: awaited next
  std::vector<Checked> checked, read;
  bool may_be_minus_infinity = false;
};

struct ArenaBuffer {
  int64_t bytes = 0;
  int32_t first = 0, last = 0;  // steps of its region over which it is live
  int64_t offset = 0;           // within the block's arena
  int32_t first_info = 0, last_info = 0;
  std::string name, scope;
};

// A region's instructions and its part of the arena.
struct Block {
  std::vector<Instruction> instructions;
  std::vector<ArenaBuffer> buffers;
  int64_t bytes = 0;
  int32_t parent = -1;         // block whose loop runs this one
  int32_t parent_buffer = -1;  // where this block's arena lies in the parent's
  int64_t base = 0;            // absolute, after resolve()
};

struct ProgramImpl {
  ir::Graph graph;
  ir::Bindings bindings;
  std::vector<Port> inputs, outputs;
  std::vector<int32_t> in_place;  // by output: the input with the same memory; -1: none
  std::vector<Block> blocks;      // [0] is the top level
  std::vector<KernelCall> calls;
  std::vector<CompiledKernel> kernels;
  std::vector<GemmPlan> gemms;
  std::vector<AttentionPlan> attentions;
  std::vector<RoutinePlan> routines;
  std::vector<CopyPlan> copies;
  std::vector<CollectivePlan> collectives;
  std::vector<uint32_t> axis_indices;  // the axes of each number in the device's table
  int32_t tickets = 0;                 // of collectives: one for each that starts
  std::vector<StepInfo> infos;
  std::vector<TransientBuffer> buffers;
  std::vector<std::string> kernel_names;
  std::shared_ptr<Jit> jit;  // owns the code
  int64_t transient_bytes = 0;
  int64_t batch_rows = 0;  // size of the batch dim; 0 without one
  int32_t levels = 0;      // deepest loop nest
};

}  // namespace cad::backend
