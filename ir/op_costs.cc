// ir/op_costs.cc -- see op_costs.h: FLOPs and bytes of one execution of a node, from its types and
// attributes alone.
#include "ir/op_costs.h"

#include "ir/op_rules.h"  // defines: joined, without, operand_type, result_type

namespace cad::ir {

namespace {

Size read_bytes(const Graph& g, const Node& node) {
  Size bytes;
  for (ValueId operand : node.operands) bytes = bytes + bytes_of(g, g.type(operand));
  return bytes;
}

Size written_bytes(const Graph& g, const Node& node) {
  Size bytes;
  for (ValueId result : node.results) bytes = bytes + bytes_of(g, g.type(result));
  return bytes;
}

OpCost moved(const Graph& g, const Node& node, Size other = 0) {
  OpCost cost;
  cost.other = std::move(other);
  cost.read = read_bytes(g, node);
  cost.written = written_bytes(g, node);
  return cost;
}

int64_t pointwise_flops(Op op) {
  switch (op) {
    case Op::kCast:
      return 0;
    case Op::kDiv:
    case Op::kFloorDiv:
    case Op::kMod:
    case Op::kSqrt:
    case Op::kRsqrt:
      return kDivideFlops;
    case Op::kExp:
    case Op::kLog:
    case Op::kSin:
    case Op::kCos:
      return kFunctionFlops;
    case Op::kPow:
    case Op::kTanh:
    case Op::kErf:
    case Op::kSigmoid:
    case Op::kSoftplus:
      return kLongFlops;
    default:
      return 1;
  }
}

// x^2 is a product, whatever the weight of `pow`.
bool is_square(const Graph& g, const Node& node) {
  if (node.op != Op::kPow) return false;
  const NodeId exponent = g.value(node.operands[1]).def;
  return exponent.valid() && g.node(exponent).op == Op::kConst &&
         g.node(exponent).attrs.scalar.number() == 2.0;
}

int64_t reduce_flops(const Node& node) {
  switch (node.op) {
    case Op::kMean:
      return node.operands.size() == 2 ? 3 : 1;  // the product and two sums
    case Op::kLogSumExp:
      return 3 + kFunctionFlops;  // max, minus, exp, sum
    case Op::kSoftmax:
      return kSoftmaxFlops;
    default:
      return 1;
  }
}

// Elements of the scores and FLOPs of the two kinds of product over them.
struct AttentionSizes {
  AttentionSizes(const Graph& g, const Node& node)
      : scores(elements_of(g, node.attrs.probs)),
        query_key(2 * elements_of(g, joined(node.attrs.probs, {node.attrs.dims[2]}))),
        probs_value(2 * elements_of(g, joined(node.attrs.probs, operand_type(g, node, 2).dims))) {}
  Size scores, query_key, probs_value;
};

bool drops(const Node& node) {
  return node.attrs.p.number() != 0.0;
}

}  // namespace

OpCost& OpCost::operator+=(const OpCost& more) {
  matmul = matmul + more.matmul;
  other = other + more.other;
  read = read + more.read;
  written = written + more.written;
  return *this;
}

OpCost operator*(const Size& times, const OpCost& cost) {
  OpCost product;
  product.matmul = times * cost.matmul;
  product.other = times * cost.other;
  product.read = times * cost.read;
  product.written = times * cost.written;
  return product;
}

Size elements_of(const Graph& g, const Dims& dims) {
  Size product = 1;
  for (DimId dim : dims) product = product * g.dim(dim).size;
  return product;
}

Size bytes_of(const Graph& g, const Type& type) {
  return elements_of(g, type.dims) * dtype_bytes(type.dtype);
}

OpCost free_cost(const Graph&, const Node&) {
  return {};
}

OpCost iota_cost(const Graph& g, const Node& node) {
  return moved(g, node);
}

OpCost copy_cost(const Graph& g, const Node& node) {
  return moved(g, node);
}

OpCost picked_cost(const Graph& g, const Node& node) {
  OpCost cost;
  cost.written = written_bytes(g, node);
  cost.read = cost.written;
  return cost;
}

OpCost contract_cost(const Graph& g, const Node& node) {
  OpCost cost = moved(g, node);
  cost.matmul =
      2 * elements_of(g, joined(operand_type(g, node, 0).dims, operand_type(g, node, 1).dims));
  return cost;
}

OpCost pointwise_cost(const Graph& g, const Node& node) {
  const int64_t weight = is_square(g, node) ? 1 : pointwise_flops(node.op);
  return moved(g, node, weight * elements_of(g, result_type(g, node).dims));
}

OpCost reduce_cost(const Graph& g, const Node& node) {
  Dims dims = operand_type(g, node, 0).dims;
  if (node.operands.size() == 2) dims = joined(dims, operand_type(g, node, 1).dims);
  return moved(g, node, reduce_flops(node) * elements_of(g, dims));
}

OpCost gather_cost(const Graph& g, const Node& node) {
  OpCost cost = picked_cost(g, node);
  cost.read = cost.read + bytes_of(g, operand_type(g, node, 1));
  return cost;
}

OpCost scatter_cost(const Graph& g, const Node& node) {
  return moved(g, node, elements_of(g, operand_type(g, node, 0).dims));
}

OpCost unwindow_cost(const Graph& g, const Node& node) {
  return scatter_cost(g, node);
}

OpCost topk_cost(const Graph& g, const Node& node) {
  return moved(g, node, elements_of(g, operand_type(g, node, 0).dims) * g.dim(node.attrs.to).size);
}

OpCost dropout_cost(const Graph& g, const Node& node) {
  return moved(g, node, 2 * elements_of(g, result_type(g, node).dims));
}

// The counter-based generator is whole-number work and not counted. normal: log, sqrt, cosine,
// two products; uniform: a product and an addition; bernoulli: a comparison.
OpCost draw_cost(const Graph& g, const Node& node) {
  const int64_t weight = node.op == Op::kNormal    ? 2 * kFunctionFlops + kDivideFlops + 2
                         : node.op == Op::kUniform ? 2
                                                   : 1;
  return moved(g, node, weight * elements_of(g, result_type(g, node).dims));
}

OpCost repeat_cost(const Graph& g, const Node& node) {
  OpCost body;
  for (NodeId id : g.region(node.loop.body).nodes) {
    const Node& inner = g.node(id);
    body += op_info(inner.op).cost(g, inner);
  }
  return g.dim(node.loop.dim).size * body;
}

OpCost attention_cost(const Graph& g, const Node& node) {
  const AttentionSizes sizes(g, node);
  OpCost cost = moved(g, node, (kSoftmaxFlops + 1 + (drops(node) ? 2 : 0)) * sizes.scores);
  cost.matmul = sizes.query_key + sizes.probs_value;
  return cost;
}

// Beside the products: p again from the scores and lse (scale, minus, exp), ds = p (dp - delta)
// scaled, and delta, a product and an addition an element of the result.
OpCost attention_grad_cost(const Graph& g, const Node& node) {
  const AttentionSizes sizes(g, node);
  const Size delta = 2 * elements_of(g, operand_type(g, node, 3).dims);
  OpCost cost = moved(g, node, (kFunctionFlops + 5 + (drops(node) ? 3 : 0)) * sizes.scores + delta);
  cost.matmul = 3 * sizes.query_key + 2 * sizes.probs_value;
  return cost;
}

}  // namespace cad::ir
