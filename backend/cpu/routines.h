// backend/cpu/routines.h -- library steps that are neither kernels, contractions nor attention:
// scatter-add, top-k, cumulative sums, expert slots, and copies. Plans hold sizes only; operands
// are dense and come as pointers at run time.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace cad::backend {

class ThreadPool;

// to[i] = from[i], or += with `add` (floats and i32).
struct CopyPlan {
  int64_t elements = 0;
  ir::DType dtype = ir::DType::kF32;
};
void run_copy(const CopyPlan& plan, const void* from, void* to, bool add, ThreadPool& pool);

// A dim of a scatter-add and its stride in each operand; 0 where absent.
struct ScatterDim {
  int64_t extent = 1, g = 0, ids = 0, out = 0;
};
struct RoutinePlan {
  ir::DType dtype = ir::DType::kF32;
  // scatter-add: kept dims are in g and out (perhaps in ids), summed ones in g and ids only
  std::vector<ScatterDim> kept, summed;
  int64_t rows = 0, row_stride = 0;  // extent and stride in out of the indexed dim
  int64_t elements = 0;              // of out
  // top-k and cumulative sums: [outer, extent, inner] -> [outer, taken, inner]
  int64_t outer = 1, extent = 1, inner = 1, taken = 1;
  bool reverse = false;
  // slots: `elements` experts in order, each below `rows`, at most `taken` a row
  int64_t scratch_bytes = 0;
};

RoutinePlan plan_scatter_add(const ir::Graph& g, const ir::Node& node,
                             const ir::Bindings& bindings);
RoutinePlan plan_top_k(const ir::Graph& g, const ir::Node& node, const ir::Bindings& bindings);
RoutinePlan plan_cum_sum(const ir::Graph& g, const ir::Node& node, const ir::Bindings& bindings);
RoutinePlan plan_slots(const ir::Graph& g, const ir::Node& node, const ir::Bindings& bindings);

// With `add`: to what is in `out`; else all of it is written.
void run_scatter_add(const RoutinePlan& plan, const void* g, const int32_t* ids, void* out,
                     void* scratch, bool add, ThreadPool& pool);
void run_top_k(const RoutinePlan& plan, const void* x, void* values, int32_t* indices,
               ThreadPool& pool);
void run_cum_sum(const RoutinePlan& plan, const void* x, void* out, ThreadPool& pool);
void run_slots(const RoutinePlan& plan, const int32_t* expert, int32_t* out, void* scratch);

// How many elements are NaN, +inf and -inf (debug_nan).
struct NonFiniteCounts {
  int64_t nan = 0, plus = 0, minus = 0;
};
NonFiniteCounts count_non_finite(const void* data, int64_t elements, ir::DType dtype);

}  // namespace cad::backend
