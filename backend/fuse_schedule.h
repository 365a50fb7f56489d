// backend/fuse_schedule.h -- turning a LoopProgram into kernel IR: order and merging of loops, the
// lanes' dim, chunks of items, and the choice among four shapes of nest. Shared by
// fuse_schedule.cc (the choices) and fuse_stage.cc (writing stages); not for use elsewhere.
#pragma once

#include <map>
#include <vector>

#include "backend/fuse.h"

namespace cad::backend::fuse {

class Scheduler {
 public:
  Scheduler(const RegionContext& context, LoopProgram program, int64_t lanes)
      : c_(context), p_(std::move(program)), lanes_(lanes) {}
  ScheduledKernel run();

 private:
  // A dim of the stage being written: a loop, or chunks of a loop (then loop is -1).
  struct Dim {
    int loop = -1;
    kernel::LoopDim::Role role = kernel::LoopDim::Role::kInner;
    int64_t extent = 1;
    int chunk_of = -1;
    int64_t chunk = 0;
    bool lanes = false;
  };
  struct Partial {  // a reduction's partial results in scratch
    int32_t buffer = -1;
    kernel::Linear linear;  // in the stage that reads it
  };

  // fuse_schedule.cc
  void drop_unused();
  void order_loops();
  void merge_loops();
  [[nodiscard]] bool mergeable(size_t major, size_t minor) const;
  [[nodiscard]] double unit_weight(size_t loop) const;
  [[nodiscard]] int64_t product(const std::vector<size_t>& loops) const;
  [[nodiscard]] bool single_phase_sums() const;
  void pointwise_nest();
  void row_nest();               // lanes along the reduced loops
  void lane_per_row_nest();      // lanes along kept loops
  void split_rows_nest();        // few long rows: partial results of chunks, then combined
  void streamed_columns_nest();  // columns summed over many rows, read in storage order
  void rows_and_columns_nest();  // reductions along rows, and sums of columns beside them
  [[nodiscard]] std::vector<Dim> parallel_dims(const std::vector<size_t>& loops, int64_t row) const;
  template <class F>
  void each_affine(F&& f) const;

  // fuse_stage.cc
  void write_stage(const std::vector<Dim>& dims, bool partial,
                   const std::vector<int64_t>& partial_strides);
  void write_rows_stage(const std::vector<Dim>& dims, const std::vector<int64_t>& partial_strides);
  // Dims of stride 0 share their elements.
  static int64_t scratch_elements(const std::vector<Dim>& dims,
                                  const std::vector<int64_t>& strides);
  int32_t add_scratch(ir::DType dtype, int64_t elements);
  void write_combining_stage(const std::vector<Dim>& dims, int chunk_dim, int64_t chunks);
  kernel::ExprId copy(ExprId e);
  kernel::Linear linear(const Affine& a, const ShardTerms& shards = {}) const;
  kernel::Slot slot(int64_t value) const;
  int32_t buffer(ir::ValueId v, bool written);
  void begin_stage(const std::vector<Dim>& dims);
  void finish_stage(const std::vector<Dim>& dims);
  void add_full_stores();
  void add_row_stores();
  void find_overwrites();
  void estimate();
  void name_kernel();

  const RegionContext& c_;
  LoopProgram p_;
  int64_t lanes_;
  std::vector<size_t> outer_, inner_;   // loops in order, slowest first
  std::vector<double> weight_, score_;  // by loop

  mutable ScheduledKernel out_;
  mutable std::map<int64_t, kernel::Slot> slots_;
  std::map<ir::ValueId, int32_t> buffers_;
  std::vector<int32_t> scratch_;  // buffer of each reduction's partials
  // of the stage being written
  kernel::Stage stage_;
  std::vector<Dim> dims_;
  std::map<ExprId, kernel::ExprId> copied_;
  std::map<int32_t, int32_t> reduction_of_;
  const std::vector<Partial>* partials_ = nullptr;
};

}  // namespace cad::backend::fuse
