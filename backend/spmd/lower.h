// backend/spmd/lower.h -- from a forward graph and a placement to the program of one device (the
// same for all): local dims, collectives as ops (family `comm` of ir/ops.def), one loop for every
// run of equal iterations. The gradient is taken of the local graph: the gradients of collectives
// are their duals, so the backward pass converts as planner/conversion.h says without being told.
//
// Values: a tensor that does not divide is padded to equal parts; what lies beyond a device's own
// part is arbitrary until ir::mask_tails() (after the gradient) keeps it from mattering.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/spmd/shared_parameters.h"
#include "ir/autodiff.h"
#include "ir/passes.h"
#include "planner/placement.h"

namespace cad::backend {

// A parameter or state as devices hold it. Several may be parts of one: iterations of a `repeat`
// that the plan treats differently.
struct LocalTensor {
  std::string path;   // of the whole: "h.{}.block.attention.Wq"
  std::string local;  // of the local graph's input; output "grad:<local>" or "state:<local>"
  ir::InputKind kind = ir::InputKind::kParam;
  std::vector<int64_t> iterations;  // which it holds, ascending; {0} outside of repeats
  std::vector<int64_t> extents;     // of one whole iteration
  // Positions in `extents`. The gradient comes out of a micro-batch in `gradient`, which may be
  // partial.
  planner::Layout storage, gradient, optimizer;
};

// Data (or another non-parameter input) in the layout in which the program reads it. One name may
// be read in several.
struct LocalInput {
  std::string name;              // of the whole graph's input
  std::string local;             // of the local graph's input
  std::vector<int64_t> extents;  // of the whole
  planner::Layout layout;
};

struct LocalGraph {
  ir::Graph graph;  // outputs are whole on every device ("loss"), states in their storage layout
  planner::Mesh mesh;
  std::vector<LocalTensor> tensors;
  std::vector<LocalInput> inputs;
  std::vector<ir::SavePolicy::Choice> saving;  // what the plan saves, by ValueId
  bool late_sums = true;                       // the gradient's loops may leave small sums to later
};

// `bindings` bind every dim. Of a graph without a loss too (evaluation). `shared`: of all programs
// of a run; without it, of this one.
LocalGraph lower_forward(const ir::Graph& forward, const ir::Bindings& bindings,
                         const planner::Placement& placement, const SharedParameters& shared);
LocalGraph lower_forward(const ir::Graph& forward, const ir::Bindings& bindings,
                         const planner::Placement& placement);

// Takes the gradient of the loss (outputs "grad:<local>" in LocalTensor::gradient layout, of the
// tensors that `trained` accepts), masks tails and runs passes_after_autodiff(). `loss_scale`: the
// graph gets an f32[] input of that name and the gradients are of loss * loss_scale.
ir::Graph differentiate_local(LocalGraph local,
                              const std::function<bool(const LocalTensor&)>& trained,
                              const std::string& loss_scale = "", ir::PassLog* log = nullptr);
// Without a gradient.
ir::Graph finish_local(LocalGraph local, ir::PassLog* log = nullptr);

// A program of its own for a conversion: input "x", `copies` stacked tensors of these whole extents
// in layout `from`, output "y" in `to`.
ir::Graph conversion_graph(const planner::Mesh& mesh, ir::DType dtype, int64_t copies,
                           const std::vector<int64_t>& extents, const planner::Layout& from,
                           const planner::Layout& to);

}  // namespace cad::backend
