// backend/partition.h -- cuts every region of a graph into steps, fuses what can be fused into
// kernels (backend/kernel_ir.h) and gives every stored value its layout. It decides nothing about
// time or addresses: that is backend/schedule.h. How groups grow: backend/fuse.h.
//
// What holds for the result:
//  - a value is either stored (its layout's base is itself, and one step or the region's arguments
//    write it, dense row-major), a view of a stored one (base is another value), or fused away
//    (layout.base invalid);
//  - steps stand in a valid order; the inputs of a step are stored values or views;
//  - operands of kLoop, kGather, kScatterAdd, kTopK, kCumSum, kSlots, kCollective and region
//  results
//    are dense (offset allowed); those of kContract, kAttention, kAttentionGrad may have any
//    strides, also 0 and negative. A region's result may be one of its arguments, a view, or listed
//    twice: the executor copies then.
//  - kView steps do no work and are there for traces only.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backend/kernel_ir.h"
#include "backend/steps.h"
#include "ir/graph.h"

namespace cad::backend {

// An integer of a call that depends on the device: ints[slot] + the sum of the terms.
struct DeviceInt {
  int32_t slot = 0;
  ShardTerms terms;
};

// One use of a kernel: Step::kernel indexes Partition::calls.
struct KernelCall {
  int32_t kernel = -1;               // index into Partition::kernels
  std::vector<ir::ValueId> buffers;  // parallel to the kernel's buffers that are not scratch: pass
                                     // the start of the buffer of layouts[value].base
  std::vector<int64_t> ints;
  std::vector<DeviceInt> device_ints;
  std::vector<int64_t> items;      // per stage: run [0, items[s]), split as you like
  std::vector<int64_t> item_cost;  // per stage: about how many elements an item touches
  int64_t scratch_bytes = 0;       // shared by the threads; need not be cleared
  double bytes = 0, flops = 0;     // estimates for traces
};

struct RegionSteps {
  std::vector<Step> steps;
};

struct Partition {
  std::vector<RegionSteps> regions;  // by region
  std::vector<KernelCall> calls;
  std::vector<kernel::Kernel> kernels;                      // distinct ones
  std::vector<Layout> layouts;                              // by value
  [[nodiscard]] std::string str(const ir::Graph& g) const;  // --emit=program's cut
};

struct PartitionOptions {
  int64_t lanes = 16;  // f32 lanes of the host: how pieces are sized
  bool fuse = true;    // false: every node its own kernel (tests)
};

// `bindings` bind every dim of the graph.
Partition partition(const ir::Graph& g, const ir::Bindings& bindings,
                    const PartitionOptions& options = {});

}  // namespace cad::backend
