// backend/optimizer.h -- which entry updates which parameters, the compiled updates, and their
// state. An update program is elementwise over a flattened parameter, or a device's block of it:
// one is compiled for each (entry, decays or not, number of elements) and run over every parameter
// of that size. Gradients arrive unscaled: the factor that clips them (and undoes the loss scale)
// is an input of the update. How parameter and gradient come into their optimizer layout, and back,
// is the trainer's (backend/trainer_update.cc).
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
  std::vector<int64_t> extents;  // of one whole iteration; none: one number for all
  Shard shard;                   // of them on this device
  int64_t elements = 1;          // of its buffer, over all iterations of the segment
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
  // Of a state that is one number for all iterations: in files it goes by the first one's path.
  std::string first_path;
  bool has_first = true;  // this part of the parameter holds it
  int program = -1;       // into Optimizer's; -1: frozen, or a special update
  std::vector<OptimizerState> states;
};

class Optimizer {
 public:
  // Assigns parameters to entries (E0316, E0317 when they do not match up) and marks as frozen
  // those that only frozen entries take.
  static Result<Optimizer> assign(const ir::TrainSpec& spec, Parameters& parameters);
  // Parts of the parameters that `whole` has assigned entries to.
  void part_of(const Optimizer& whole, const Parameters& parameters, const Parameters& all);
  // Adafactor needs whole rows and columns, so its parameters are whole where they are updated.
  void fix_layouts(Parameters& parameters) const;
  // States first, with their sizes on any device; then the programs.
  void add_states(const Parameters& parameters);
  void compile_updates(const Parameters& parameters, const CompileOptions& options);
  // Moves to a device.
  void place(const planner::Mesh& mesh, std::span<const int> coordinates,
             const Parameters& parameters);
  [[nodiscard]] std::vector<Segment>& segments() { return segments_; }
  [[nodiscard]] const std::vector<Segment>& segments() const { return segments_; }
  [[nodiscard]] int64_t region_bytes() const;  // own small inputs and the largest transient arena
  void initialize_states(ThreadPool& pool);

  // One number an unfrozen entry, at step t = 1, 2, ..
  [[nodiscard]] std::vector<double> learning_rates(int64_t t, int64_t steps) const;
  struct Update {
    double scale = 1;
    std::vector<double> rates;
    int64_t count = 1;  // updates made so far, this one included
    std::byte* region = nullptr;
  };
  // Of one segment. `values` and `gradient`: of its parameter, in the optimizer's layout.
  void update(const Segment& segment, const Parameter& p, float* values, const float* gradient,
              const Update& update, ThreadPool& pool);

 private:
  struct Compiled {
    Program program;
    std::vector<ir::Input> inputs;
  };
  void compile_segment(Segment& segment, const Parameter& p, CompileOptions options,
                       std::map<std::string, int>& known);
  [[nodiscard]] const ir::OptimizerEntry& entry_of(const Segment& segment) const;
  const ir::TrainSpec* spec_ = nullptr;
  std::vector<Segment> segments_;
  std::vector<Compiled> programs_;
  std::vector<int> rate_index_;  // entry -> place in learning_rates(); -1: frozen
};

// Optimizers that are not elementwise (backend/optimizer_adafactor.cc).
void add_adafactor_states(Segment& segment, const Parameter& p);
// `values`, `gradient`: of the segment's first iteration on.
void adafactor_update(const Segment& segment, const Parameter& p, float* values,
                      const float* gradient, double scale, double rate, double decay,
                      const std::map<std::string, double>& constants, int64_t count,
                      ThreadPool& pool);

}  // namespace cad::backend
