// backend/evaluation.h -- the evaluations of a train section, once, with parameters that are there
// already: on one device, or on several, each of which reads its part of every batch. Evaluations
// within a run are backend/train_loop.h's.
#pragma once

#include <memory>
#include <vector>

#include "backend/trainer.h"

namespace cad::backend {

struct Evaluation {
  std::vector<EvalReport> reports;  // equal on all devices
  std::vector<Diagnostic> warnings;
  Status finite = Ok{};  // E0701 when the loss of one is not finite
};

// Of a trainer made with `evaluate_only`, for the devices of `world` (nullptr: one). E1001 when
// another device could not go on, E1002 when ranks were not started alike.
Result<Evaluation> evaluate(std::unique_ptr<Trainer> trainer, World* world);

}  // namespace cad::backend
