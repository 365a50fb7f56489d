// ir/training.h -- a `train` section as a value without syntax: what the front end hands to the
// trainer. Graphs carry the tensors; everything else is plain data, checked already.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace cad::ir {

// A name that the data supplies; input of kind kData of the same path in every graph.
struct DataName {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::string> dims;  // dim names; the first is the batch dim
  std::vector<Size> sizes;        // their sizes, parallel
  // ids that index a dim somewhere in the program: each value must be in [-1, limit)
  std::vector<Size> id_limits;
};

struct DataSource {
  enum class Kind { kText, kTokens, kNpy, kCsv, kSynthetic } kind = Kind::kText;
  std::vector<std::string> files;  // relative to the program's folder; may be globs
  bool wide_tokens = false;        // tokens(.., dtype: u32)
  std::vector<DataName> names;
  Span span;
};
// Several sources (a tuple): each draws a row, in its own order.
using DataSpec = std::vector<DataSource>;

// Parameters it takes: those matching a pattern of `of` (all if empty) and no earlier entry.
struct OptimizerEntry {
  std::string name;  // "adamw"
  bool frozen = false;
  std::vector<std::string> of;
  // Update of one parameter whose dims are one stand-in dim `n`: inputs (kOther) "p", "g", "lr",
  // "step" then its states (kState, with Init); outputs "p", then "state:NAME" in order.
  // `decayed` is used for parameters that decay, `plain` for the others (decay constant 0).
  Graph decayed, plain;
  bool elementwise = true;  // false (adafactor): the graph is per parameter, see `special`
  std::string special;      // optimizers the trainer implements itself
  std::map<std::string, double> constants;  // evaluated constant arguments, "decay" 0.1
  bool decay_all = false;
  // Learning rate at step t: a rank-0 graph with inputs "t", "steps" and one output "lr".
  Graph schedule;
  Span span;
};

struct Metric {
  std::string name;
};

struct EvalSpec {
  std::string name;  // "eval", or the section's own name
  DataSpec data;
  int64_t every = 0;               // steps; 0: only at the end
  std::optional<int64_t> batches;  // nullopt: every row once
  // Outputs come in pairs for exact means: "sum:NAME" and "count:NAME"; else "value:NAME" (averaged
  // over batches). The loss is NAME "loss". Input "row_mask" (kOther, bool[B]) leaves rows out.
  Graph graph;
  std::vector<std::string> metrics;  // names in order, "loss" first
  Span span;
};

struct SaveSpec {
  std::string to;      // empty: nothing is saved
  int64_t every = 0;   // 0: only at the end
  int64_t keep = 0;    // 0: all
  bool frozen = true;  // false: frozen parameters are left out
  enum class Best { kNone, kMin, kMax } best = Best::kNone;
  std::string best_of;  // "loss", "acc", "val.acc"
};

struct InitFile {
  std::string file;
  std::string under;  // fills the paths below this one; empty: all
  Span span;
};

struct TrainSpec {
  std::string name;          // of the section
  std::string program_path;  // the .cad file; data files are relative to its folder
  DataSpec data;
  // Forward graph of one micro-batch: inputs are the data names, the parameters and the states;
  // outputs "loss" (exact means over the step already in terms of step_total) and "state:PATH".
  Graph forward;
  std::vector<OptimizerEntry> optimizers;
  std::vector<EvalSpec> evals;
  SaveSpec save;
  std::vector<InitFile> init;
  Bindings bindings;  // every dim that is bound
  int64_t accumulate = 1;
  int64_t parts = 1;  // that split_rows() cut each of the program's micro-batches into
  DType precision = DType::kF32;
  std::optional<double> clip;
  std::optional<double> ema;
  int64_t steps = 0;  // the program's; 0 when `epochs` is given
  std::optional<double> epochs;
  uint64_t seed = 0;
  bool shuffled = true;
  bool dropout = true;
};

}  // namespace cad::ir
