// backend/train_graph.h -- the graph of one micro-batch of training: forward, gradients of the
// trained parameters, all passes run.
#pragma once

#include "backend/parameters.h"
#include "ir/passes.h"
#include "ir/training.h"

namespace cad::backend {

ir::Graph train_step_graph(const ir::TrainSpec& spec, const Parameters& parameters,
                           ir::PassLog* log);

}  // namespace cad::backend
