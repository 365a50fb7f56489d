// ir/op_costs.h -- the cost rules that OpInfo::cost points to. Most ops of a family share one, so
// they stand here and not in the family files. What a graph, a layer or a step costs is not known
// here: ir/cost.h and ir/profile.h.
//
// FLOPs: a multiply-add is 2, an addition, product, comparison or choice 1. Functions have fixed
// weights, about what a vector library spends on them; they matter for no sum but `other`.
#pragma once

#include "ir/op.h"

namespace cad::ir {

inline constexpr int64_t kDivideFlops = 4;     // /, sqrt, rsqrt, floor division, remainder
inline constexpr int64_t kFunctionFlops = 10;  // exp, log, sin, cos
inline constexpr int64_t kLongFlops = 16;      // tanh, erf, sigmoid, softplus, pow
inline constexpr int64_t kSoftmaxFlops = 4 + kFunctionFlops;  // max, minus, exp, sum, times

Size elements_of(const Graph& g, const std::vector<DimId>& dims);  // product of the sizes
Amount bytes_of(const Type& type);                                 // elements times dtype

OpCost free_cost(const Graph& g, const Node& node);       // views, constants, markers
OpCost iota_cost(const Graph& g, const Node& node);       // writes its result
OpCost copy_cost(const Graph& g, const Node& node);       // reads operands, writes results
OpCost picked_cost(const Graph& g, const Node& node);     // reads as much as it writes
OpCost contract_cost(const Graph& g, const Node& node);   // 2 * elements of all dims
OpCost pointwise_cost(const Graph& g, const Node& node);  // weight * elements of the result
OpCost reduce_cost(const Graph& g, const Node& node);     // weight * elements of the operand
OpCost gather_cost(const Graph& g, const Node& node);     // reads the rows it picks
OpCost scatter_cost(const Graph& g, const Node& node);    // one addition an element of g
OpCost topk_cost(const Graph& g, const Node& node);       // one comparison an element for each pick
OpCost dropout_cost(const Graph& g, const Node& node);    // a comparison and a product
OpCost draw_cost(const Graph& g, const Node& node);       // the float part of a draw
OpCost repeat_cost(const Graph& g, const Node& node);     // the body's nodes, once an iteration
OpCost attention_cost(const Graph& g, const Node& node);  // q k, softmax, p v; causal in full
// q k again, dp, dv, dq, dk: five products, 2.5 times the forward's two.
OpCost attention_grad_cost(const Graph& g, const Node& node);

}  // namespace cad::ir
