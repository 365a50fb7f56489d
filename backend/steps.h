// backend/steps.h -- a region cut into steps: what one call of the executor does. The cut
// (backend/partition.h) decides what is fused; the schedule (backend/schedule.h) gives every step's
// outputs a place in the arena; the executor (backend/cpu/executor.h) runs the steps in order.
//
// Storage. Every value has a Layout: a buffer, an element offset and a stride for each dim, so
// renames, splits, slices, flips of order and broadcasts cost nothing: a *view* is a layout over
// another value's buffer. Kernels, contractions and attention take strided operands; results are
// dense row-major in the type's order unless the partition picks another order for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace cad::backend {

struct Step {
  enum class Kind : uint8_t {
    kView,      // no work: the output is a view of the input
    kKernel,    // a fused loop nest, JIT compiled: `kernel` indexes Partition::calls
    kContract,  // one GEMM or a batch of them
    kAttention,
    kAttentionGrad,
    kGather,
    kScatterAdd,  // rows by index, when not fused into a kernel
    kTopK,
    kCumSum,
    kSlots,
    kConcat,
    kWindowFold,
    kCopy,       // library routines of backend/cpu
    kLoop,       // `body` indexes Partition::regions
    kCollective  // all_reduce, all_gather, reduce_scatter, all_to_all between devices; none on one
  } kind = Kind::kView;
  std::vector<ir::NodeId> nodes;     // covered, in order
  std::vector<ir::ValueId> inputs;   // read from memory
  std::vector<ir::ValueId> outputs;  // written to memory
  int32_t kernel = -1;
  int32_t body = -1;
  // Parallel to outputs (or empty): inputs whose buffer the output may take over, if it dies here:
  // each element is read before it is written, and only for that element.
  std::vector<std::vector<int32_t>> may_overwrite;
};

// Where a device's part of a dim begins, times a stride: only the device knows the number.
struct ShardTerm {
  ir::DimId dim;
  int64_t stride = 1;
};
using ShardTerms = std::vector<ShardTerm>;

// The dim that this one is a part of, or itself; and which of `dims` counts the rows of a step (it
// is the graph's batch dim, or a part of that): -1 for none.
inline ir::DimId whole_dim(const ir::Graph& g, ir::DimId dim) {
  return g.dim(dim).whole.valid() ? g.dim(dim).whole : dim;
}
int batch_position(const ir::Graph& g, const std::vector<ir::DimId>& dims);

// Storage of a value as a view: element (i, j, ..) lies at offset + i * strides[0] + j * strides[1]
// ..
struct Layout {
  ir::ValueId base;              // the value that owns the buffer (itself, when not a view)
  int64_t offset = 0;            // elements
  std::vector<int64_t> strides;  // elements, parallel to the type's dims
};

}  // namespace cad::backend
