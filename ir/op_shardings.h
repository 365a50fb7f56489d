// ir/op_shardings.h -- the sharding rules that OpInfo::sharding points to; see ir/sharding.h for
// what a rule says. Most ops of a family share one, so they stand here and not in the family files.
// Every rule is checked by execution: tests/planner/strategy_execution_test.cc.
#pragma once

#include "ir/op.h"

namespace cad::ir {

ShardingRule whole_sharding(const Graph& g, const Node& node);      // nothing is divided
ShardingRule made_sharding(const Graph& g, const Node& node);       // results, from no operand
ShardingRule contract_sharding(const Graph& g, const Node& node);   // summed dims leave it partial
ShardingRule pointwise_sharding(const Graph& g, const Node& node);  // every dim
ShardingRule reduce_sharding(const Graph& g, const Node& node);     // sums, extremes, softmax, ..
ShardingRule regroup_sharding(const Graph& g, const Node& node);    // rename, split, merge
ShardingRule kept_sharding(const Graph& g, const Node& node);       // all but the dims it works on
ShardingRule gather_sharding(const Graph& g, const Node& node);     // and select: look-ups
ShardingRule scatter_sharding(const Graph& g, const Node& node);    // and unselect
ShardingRule attention_sharding(const Graph& g, const Node& node);  // batch, heads, T; S, K whole
ShardingRule attention_grad_sharding(const Graph& g, const Node& node);

}  // namespace cad::ir
