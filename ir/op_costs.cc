// ir/op_costs.cc -- see op_costs.h: FLOPs and bytes of one execution of a node, from its types and
// attributes alone.
#include "ir/op_costs.h"

#include <algorithm>

#include "ir/op_rules.h"  // defines: joined, without, operand_type, result_type

namespace cad::ir {

void Amount::add(int64_t times, std::vector<DimId> dims) {
  if (times == 0) return;
  std::sort(dims.begin(), dims.end());
  for (Term& term : terms_) {
    if (term.dims != dims) continue;
    term.times += times;
    return;
  }
  terms_.push_back({times, std::move(dims)});
}

Amount& Amount::operator+=(const Amount& more) {
  for (const Term& term : more.terms_) add(term.times, term.dims);
  return *this;
}

Amount Amount::repeated(DimId dim) const {
  Amount product;
  for (Term term : terms_) {
    term.dims.push_back(dim);
    product.add(term.times, std::move(term.dims));
  }
  return product;
}

Size Amount::size(const Graph& g) const {
  Size sum;
  for (const Term& term : terms_) sum = sum + Size(term.times) * elements_of(g, term.dims);
  return sum;
}

double Amount::at(std::span<const double> extents) const {
  double sum = 0;
  for (const Term& term : terms_) {
    auto product = static_cast<double>(term.times);
    for (DimId dim : term.dims) product *= extents[static_cast<size_t>(dim.index)];
    sum += product;
  }
  return sum;
}

OpCost& OpCost::operator+=(const OpCost& more) {
  matmul += more.matmul;
  other += more.other;
  read += more.read;
  written += more.written;
  return *this;
}

OpCost OpCost::repeated(DimId dim) const {
  return {matmul.repeated(dim), other.repeated(dim), read.repeated(dim), written.repeated(dim)};
}

Amount OpCost::flops() const {
  Amount sum = matmul;
  return sum += other;
}

Amount OpCost::bytes() const {
  Amount sum = read;
  return sum += written;
}

Size elements_of(const Graph& g, const Dims& dims) {
  Size product = 1;
  for (DimId dim : dims) product = product * g.dim(dim).size;
  return product;
}

Amount bytes_of(const Type& type) {
  return {dtype_bytes(type.dtype), type.dims};
}

namespace {

Amount written_bytes(const Graph& g, const Node& node) {
  Amount bytes;
  for (ValueId result : node.results) bytes += bytes_of(g.type(result));
  return bytes;
}

OpCost moved(const Graph& g, const Node& node, Amount other = {}) {
  OpCost cost;
  cost.other = std::move(other);
  for (ValueId operand : node.operands) cost.read += bytes_of(g.type(operand));
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

// FLOPs of the two kinds of product of attention, `times` each.
Amount attention_products(const Graph& g, const Node& node, int64_t query_key,
                          int64_t probs_value) {
  Amount sum(2 * query_key, joined(node.attrs.probs, {node.attrs.dims[2]}));
  sum.add(2 * probs_value, joined(node.attrs.probs, operand_type(g, node, 2).dims));
  return sum;
}

bool drops(const Node& node) {
  return node.attrs.p.number() != 0.0;
}

}  // namespace

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
  cost.matmul.add(2, joined(operand_type(g, node, 0).dims, operand_type(g, node, 1).dims));
  return cost;
}

OpCost pointwise_cost(const Graph& g, const Node& node) {
  const int64_t weight = is_square(g, node) ? 1 : pointwise_flops(node.op);
  return moved(g, node, {weight, result_type(g, node).dims});
}

OpCost reduce_cost(const Graph& g, const Node& node) {
  Dims dims = operand_type(g, node, 0).dims;
  if (node.operands.size() == 2) dims = joined(dims, operand_type(g, node, 1).dims);
  return moved(g, node, {reduce_flops(node), dims});
}

OpCost gather_cost(const Graph& g, const Node& node) {
  OpCost cost = picked_cost(g, node);
  cost.read += bytes_of(operand_type(g, node, 1));
  return cost;
}

OpCost scatter_cost(const Graph& g, const Node& node) {
  return moved(g, node, {1, operand_type(g, node, 0).dims});
}

OpCost topk_cost(const Graph& g, const Node& node) {
  Dims dims = operand_type(g, node, 0).dims;
  dims.push_back(node.attrs.to);
  return moved(g, node, {1, dims});
}

OpCost dropout_cost(const Graph& g, const Node& node) {
  return moved(g, node, {2, result_type(g, node).dims});
}

// The counter-based generator is whole-number work and not counted. normal: log, sqrt, cosine,
// two products; uniform: a product and an addition; bernoulli: a comparison.
OpCost draw_cost(const Graph& g, const Node& node) {
  const int64_t weight = node.op == Op::kNormal    ? 2 * kFunctionFlops + kDivideFlops + 2
                         : node.op == Op::kUniform ? 2
                                                   : 1;
  return moved(g, node, {weight, result_type(g, node).dims});
}

OpCost repeat_cost(const Graph& g, const Node& node) {
  OpCost body;
  for (NodeId id : g.region(node.loop.body).nodes) {
    const Node& inner = g.node(id);
    body += op_info(inner.op).cost(g, inner);
  }
  return body.repeated(node.loop.dim);
}

OpCost attention_cost(const Graph& g, const Node& node) {
  const int64_t each = kSoftmaxFlops + 1 + (drops(node) ? 2 : 0);  // scale, softmax, dropout
  OpCost cost = moved(g, node, {each, node.attrs.probs});
  cost.matmul = attention_products(g, node, 1, 1);
  return cost;
}

// Beside the products: p again from the scores and lse (scale, minus, exp), ds = p (dp - delta)
// scaled, and delta, a product and an addition an element of the result.
OpCost attention_grad_cost(const Graph& g, const Node& node) {
  const int64_t each = kFunctionFlops + 5 + (drops(node) ? 3 : 0);
  Amount other(each, node.attrs.probs);
  other.add(2, operand_type(g, node, 3).dims);
  OpCost cost = moved(g, node, std::move(other));
  cost.matmul = attention_products(g, node, 3, 2);
  return cost;
}

}  // namespace cad::ir
