// backend/bound_program.h -- a Program with its buffers: which parameter, data buffer or region
// offset every input and output stands for. The programs of a run use the region in turn:
//   [shared: gradients | own: data, other inputs, outputs | transient arena]
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/cpu/executor.h"
#include "backend/data.h"
#include "backend/parameters.h"
#include "backend/program.h"

namespace cad::backend {

class BoundProgram {
 public:
  BoundProgram() = default;
  // `set`: the data it reads, when it reads any.
  BoundProgram(const ir::Graph& graph, const ir::Bindings& bindings, const CompileOptions& options,
               const DataSet* set);
  [[nodiscard]] bool valid() const { return program_.valid(); }
  [[nodiscard]] const Program& program() const { return program_; }

  // Gives own buffers offsets from `start` on; returns the program's region bytes in all. `shared`:
  // outputs that lie elsewhere in the region (gradients).
  int64_t place(int64_t start, const std::map<std::string, int64_t>& shared = {});
  // Sets all pointers. `values`: where each parameter is read (its own data, or its average).
  void bind(const Parameters& parameters, const std::vector<std::byte*>& values, std::byte* region);

  [[nodiscard]] std::byte* other(const std::string& name) const;  // kOther input; nullptr: none
  [[nodiscard]] double scalar(size_t output) const;               // of rank 0, any dtype
  [[nodiscard]] std::byte* output(size_t i) const {
    return static_cast<std::byte*>(run_.outputs[i]);
  }
  [[nodiscard]] const std::vector<std::byte*>& columns() const { return column_data_; }
  Run& run() { return run_; }

 private:
  Program program_;
  std::vector<ir::Input> inputs_;
  std::vector<int64_t> input_offsets_, output_offsets_;  // in the region; -1: a parameter
  std::vector<std::string> column_names_;
  std::vector<int64_t> column_bytes_, column_offsets_;  // of the data set's columns
  std::vector<std::byte*> column_data_;
  int64_t arena_offset_ = 0;
  Run run_;
};

}  // namespace cad::backend
