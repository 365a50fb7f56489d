// backend/bound_program.h -- a Program with its buffers: which parameter, data buffer or region
// offset every input and output stands for. The programs of a run use the region in turn:
//   [shared: gradients | own: data, other inputs, outputs | transient arena]
// A program for several devices is the same on all; place_device() says which of them this is.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/cpu/executor.h"
#include "backend/data.h"
#include "backend/parameters.h"
#include "backend/program.h"
#include "backend/spmd/lower.h"
#include "backend/team.h"

namespace cad::backend {

class BoundProgram {
 public:
  BoundProgram() = default;
  // `set`: the data it reads, when it reads any. `local`: of a lowered graph, what its inputs are
  // parts of.
  BoundProgram(const ir::Graph& graph, const ir::Bindings& bindings, const CompileOptions& options,
               const DataSet* set, const std::vector<LocalInput>& local = {});
  [[nodiscard]] bool valid() const { return program_.valid(); }
  [[nodiscard]] const Program& program() const { return program_; }

  // The device at these coordinates; `comm` of Run.
  void place_device(const planner::Mesh& mesh, const std::vector<int>& coordinates,
                    Communicator* comm);
  // Gives own buffers offsets from `start` on; returns the program's region bytes in all. `shared`:
  // outputs that lie elsewhere in the region (gradients).
  int64_t place(int64_t start, const std::map<std::string, int64_t>& shared = {});
  // Sets all pointers. `values`: where each parameter is read (its own data, or its average).
  void bind(const Parameters& parameters, const std::vector<std::byte*>& values, std::byte* region);

  // A kOther input of rank 0, in its dtype; nothing when the program does not read it.
  void set_scalar(const std::string& name, double value);
  // The input "row_mask": true for the batch's first `rows` rows.
  void set_row_mask(int64_t rows);
  [[nodiscard]] double scalar(size_t output) const;  // of rank 0, any dtype
  [[nodiscard]] std::byte* output(size_t i) const {
    return static_cast<std::byte*>(run_.outputs[i]);
  }
  // What the loader fills: blocks of the data set's columns.
  [[nodiscard]] const std::vector<DataSlice>& slices() const { return slices_; }
  Run& run() { return run_; }

 private:
  // What an input is a part of: its name in the whole graph.
  [[nodiscard]] const std::string& whole_name(size_t input) const;
  Program program_;
  std::vector<ir::Input> inputs_;
  std::vector<LocalInput> local_;
  std::vector<Shard> input_shards_;                      // data and others
  std::vector<int64_t> input_offsets_, output_offsets_;  // in the region; -1: a parameter
  std::vector<DataSlice> slices_;
  std::vector<int64_t> slice_inputs_;  // parallel: the input; -1: a column that nothing reads
  std::vector<int64_t> slice_bytes_, slice_offsets_;
  int64_t arena_offset_ = 0;
  Run run_;
};

}  // namespace cad::backend
