// backend/scalar_input.h -- adds inputs of the trainer's own to a graph: the factor gradients are
// multiplied with, the scale of an f16 loss.
#pragma once

#include <string>

#include "ir/graph.h"

namespace cad::backend {

// A new kOther input f32[] whose node stands before all others, so that anything may read it.
ir::ValueId prepend_scalar_input(ir::Graph& g, const std::string& name);

}  // namespace cad::backend
