// ir/profile.h -- what a program costs, from its graphs alone: FLOPs, bytes moved, parameters,
// gradients, optimizer state, activations saved and transient memory; by op, by layer, by parameter
// and in total, forward, backward and optimizer. Every amount is a polynomial in the program's dims
// (ir::Amount); with bindings it is a number. A `repeat` multiplies. Nothing is run.
//
// Forward and backward are those of one micro-batch: the graph that training would run
// (ir/passes.h), fused attention and saved values included. The optimizer's are of one step.
// Not here: seconds (planner/), addresses (backend/). How it is counted: docs/costs.md.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "ir/live_memory.h"
#include "ir/training.h"

namespace cad::ir {

struct ProfileOptions {
  // kKept: what colauto keeps for the backward pass: fewest bytes, attention fused.
  // kAll: no contraction, reduction or function is computed twice and attention is as written:
  // every value in memory that gradients need is saved. What one kernel keeps to itself is not in
  // memory.
  enum class Activations : uint8_t { kKept, kAll } activations = Activations::kKept;
};

enum class Phase : uint8_t { kForward, kBackward };

// A node of the training graph, all iterations of its loops together.
struct ProfiledOp {
  NodeId node;
  Phase phase = Phase::kForward;
  std::string scope;  // "h.{}.attention"; empty: the model itself
  OpCost cost;
};

struct ProfiledParameter {
  std::string path;  // "h.{}.attention.Wq"
  std::string scope;
  InputKind kind = InputKind::kParam;  // or kState
  Type type;                           // loop dims first
  bool trained = false;
  // Elements, and bytes: of the values, the gradient, the optimizer's state, the 16-bit copy that
  // is computed with (made where it is used, so part of the transient memory), the moving average.
  Amount count, bytes, grad_bytes, optimizer_bytes, copy_bytes, average_bytes;
  Amount optimizer_flops;
};

// A scope with all that lies below it.
struct ProfiledLayer {
  std::string scope;
  std::string layer;  // the definition's name, when the caller fills it in (frontend/layer_names.h)
  OpCost forward, backward;
  Amount params, param_bytes, grad_bytes, optimizer_bytes, activation_bytes;
};

struct ProfileTotals {
  OpCost forward, backward;
  Amount optimizer_flops;
  Amount params;  // elements of parameters, not of states
  Amount param_bytes, state_bytes, grad_bytes, optimizer_bytes, copy_bytes, average_bytes;
  Amount activation_bytes;                        // saved for the backward pass
  Amount data_bytes;                              // of a micro-batch, and scalars
  [[nodiscard]] Amount persistent_bytes() const;  // alive all through a step
};

struct Profile {
  Graph graph;  // the training graph: DimIds and NodeIds are its
  Bindings bindings;
  DType precision = DType::kF32;
  int64_t accumulate = 1;  // micro-batches a step
  bool training = true;    // false: there is nothing to train
  std::vector<ProfiledOp> ops;
  std::vector<ProfiledParameter> parameters;
  std::vector<ProfiledLayer> layers;  // the model first ("" scope), each before those inside it
  ProfileTotals total;
  LiveMemory memory;

  // Sizes of the graph's dims, NaN where a symbol is free; for Amount::at.
  [[nodiscard]] std::vector<double> extents(const Bindings& by) const;
  struct Peak {
    double bytes = std::numeric_limits<double>::quiet_NaN();  // persistent and transient
    double transient = std::numeric_limits<double>::quiet_NaN();
    int point = -1;        // of memory.points; -1: there is none
    bool nominal = false;  // a size is free: the point is the largest with 64 for each
  };
  // The point of a micro-batch at which most is alive.
  [[nodiscard]] Peak peak(const std::vector<double>& extents) const;
  // Bytes at each point of memory.course, persistent and transient; NaN where a size is free.
  [[nodiscard]] std::vector<double> course(const std::vector<double>& extents) const;
};

// Of a train section.
Profile profile(const TrainSpec& spec, const ProfileOptions& options = {});
// Of a model alone: forward, and the gradient of the sum of its results.
Profile profile(Graph model, const Bindings& bindings, const ProfileOptions& options = {});

}  // namespace cad::ir
