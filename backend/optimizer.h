// backend/optimizer.h -- which entry updates which parameters, the compiled updates, and their
// state. An update program is elementwise over a flattened parameter: one is compiled for each
// (entry, decays or not, number of elements) and run over every parameter of that size. Gradients
// arrive unscaled: the factor that clips them (and undoes the loss scale) is an input of the
// update.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/executor.h"
#include "backend/parameters.h"
#include "backend/program.h"
#include "base/result.h"
#include "ir/training.h"

namespace cad::backend {

class ThreadPool;

struct OptimizerState {
  std::string name;  // "m"
  ir::DType dtype = ir::DType::kF32;
  std::vector<int64_t> extents;  // of one iteration; empty and elements 1: one number for all
  int64_t elements = 1;          // over all iterations of the segment
  ir::Init::Kind init = ir::Init::Kind::kZeros;
  double init_scale = 0;
  bool per_iteration = true;  // in files: one tensor an iteration
  std::byte* data = nullptr;
  [[nodiscard]] int64_t bytes() const { return elements * ir::dtype_bytes(dtype); }
};

// A run of iterations of one parameter that one entry updates (usually the whole parameter).
struct Segment {
  int parameter = -1, entry = -1;
  int64_t first_iteration = 0, iterations = 1;
  bool decays = false;
  int program = -1;  // into Optimizer's; -1: frozen, or a special update
  std::vector<OptimizerState> states;
};

class Optimizer {
 public:
  // Assigns parameters to entries (E0316, E0317 when they do not match up) and marks as frozen
  // those that only frozen entries take.
  static Result<Optimizer> assign(const ir::TrainSpec& spec, Parameters& parameters);
  void compile_updates();
  [[nodiscard]] std::vector<Segment>& segments() { return segments_; }
  [[nodiscard]] const std::vector<Segment>& segments() const { return segments_; }
  [[nodiscard]] int64_t region_bytes() const;  // own small inputs and the largest transient arena
  void initialize_states(ThreadPool& pool);

  // One number an unfrozen entry, at step t = 1, 2, ..
  [[nodiscard]] std::vector<double> learning_rates(int64_t t, int64_t steps) const;
  // gradients[i]: that of parameter i. `count`: updates made so far, this one included.
  void update(const Parameters& parameters, const std::vector<float*>& gradients, double scale,
              const std::vector<double>& rates, int64_t count, std::byte* region, ThreadPool& pool);

 private:
  struct Compiled {
    Program program;
    std::vector<ir::Input> inputs;
  };
  void compile_segment(Segment& segment, const Parameter& p, std::map<std::string, int>& known);
  const ir::TrainSpec* spec_ = nullptr;
  Parameters* parameters_ = nullptr;
  std::vector<Segment> segments_;
  std::vector<Compiled> programs_;
  std::vector<int> rate_index_;  // entry -> place in learning_rates(); -1: frozen
};

// Optimizers that are not elementwise (backend/optimizer_adafactor.cc).
void add_adafactor_states(Segment& segment, const Parameter& p);
void adafactor_update(const Segment& segment, const Parameter& p, const float* gradient,
                      double scale, double rate, double decay,
                      const std::map<std::string, double>& constants, int64_t count,
                      ThreadPool& pool);

}  // namespace cad::backend
