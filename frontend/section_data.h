// frontend/section_data.h -- the checked sections of a program: numbers and names read, expressions
// kept as syntax for lowering. Module::section_data holds one SectionData.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "frontend/ast.h"
#include "frontend/machine.h"
#include "frontend/module_data.h"
#include "ir/training.h"

namespace cad::frontend {

struct DataDeclaration {  // x: i32[B, T]
  Name name;
  ir::DType dtype = ir::DType::kF32;
  std::vector<Name> dims;
  Span span;
};

struct DataUse {  // text("kjv.txt", x: i32[B, T], y: i32[B, T])
  ir::DataSource::Kind kind = ir::DataSource::Kind::kText;
  std::vector<std::string> files;
  bool wide_tokens = false;
  std::vector<DataDeclaration> names;  // of an eval without declarations: the train section's
  Span span;
};

struct OptimizerUse {  // adamw(lr: 1e-3, decay: 0.1, of: "h.*")
  std::string name;
  const Definition* definition = nullptr;  // null for `frozen` and built-in ones
  bool built_in = false;                   // adafactor: the trainer's own, not elementwise
  bool frozen = false;
  std::vector<std::string> of;
  ExprId lr;
  bool decay_all = false;
  std::optional<double> decay;
  std::vector<std::pair<std::string, double>> constants;  // betas: beta1, beta2
  std::vector<Arg> args;  // the other constants, for the definition's arguments
  Span span;
};

struct EvalUse {
  std::string name;
  std::vector<DataUse> data;
  int64_t every = 0;
  std::optional<int64_t> batches;
  std::vector<std::pair<Name, ExprId>> metrics;
  Span span;
};

struct TrainUse {
  std::string name;
  bool valid = true;  // no errors were reported about it
  std::vector<DataUse> data;
  ExprId loss;
  std::vector<OptimizerUse> optimizers;
  std::vector<EvalUse> evals;
  ir::SaveSpec save;
  std::vector<ir::InitFile> init;
  int64_t accumulate = 1;
  ir::DType precision = ir::DType::kF32;
  std::optional<double> clip, ema, epochs;
  int64_t steps = 0;
  uint64_t seed = 0;
  bool shuffled = true;
  bool dropout = true;
  Span span;  // of its head, `train gpt`
};

struct SectionData {
  std::vector<TrainUse> trains;
  int chosen = -1;  // index of the train section in use; -1: none
  Machines machines;
};

// What check_sections kept; nullptr before it ran.
const SectionData* section_data(const Module& module);

}  // namespace cad::frontend
