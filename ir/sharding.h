// ir/sharding.h -- how an op may be split over devices: its loop nest over named dims. This is the
// `sharding` column of the op registry (ir/op.h); the planner makes strategies of it for any number
// of mesh axes (planner/strategy.h) and never looks at ops themselves.
//
// A loop that no factor stands for must run whole on a device, and so must every dim that no factor
// names. Sizes are not looked at here: which splits come out even is the planner's question.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace cad::ir {

// One loop that may be divided among devices. Each device runs a stretch of it; an operand that has
// the loop's dim is split alike, one that has not is whole. contract: b, t, d of x[B, T, D] @[D]
// W[D, F] are {x: B, out: B}, {x: T, out: T}, {x: D, W: D, out: partial}, and f is {W: F, out: F}.
struct Factor {
  enum class Kind : uint8_t {
    kMap,        // splits results, or leaves them partial or whole, as `results` says
    kStatistic,  // normalised or reduced over by more than a sum: see ShardingRule::Statistic
    kLookup,     // indexed by data: a device answers for its own stretch, zeros elsewhere: partial
  };
  struct Result {
    DimId dim;             // the dim it is split along; invalid: whole or partial
    bool partial = false;  // every device holds a summand
  };
  Kind kind = Kind::kMap;
  std::vector<DimId> operands;  // one an operand; invalid: whole
  std::vector<Result> results;  // one a result
};

struct ShardingRule {
  std::vector<Factor> factors;

  // Linearity: if exactly these operands are partial over an axis (the others whole), so are all
  // results, and no other operand may be.
  std::vector<std::vector<int>> linear;

  // What the devices along kStatistic axes agree on: tensors of these dims in f32, all-reduced by
  // maximum or sum, `forward` times in the op and `backward` times in its gradient. softmax over S
  // of [B, T, S]: dims B, T; maximum and sum forward, the sum of g y backward.
  struct Statistic {
    std::vector<DimId> dims;
    int forward = 0, backward = 0;
  };
  Statistic statistic;
};

// Of a node that its shape rule accepts. `repeat` has no rule: its body's nodes have.
ShardingRule sharding_rule(const Graph& g, const Node& node);
// "x[B, T, D] W[D, F] -> [B, T, F]: B T D+ F" for listings: + partial, ~ statistic, ? look-up.
std::string str(const Graph& g, const Node& node, const ShardingRule& rule);

}  // namespace cad::ir
