// ir/op_leaf.cc -- ops without operands: input, const, iota. No gradient flows through them.
//
// input (C1) attrs.input is a row of Graph::inputs whose value has a type.
// const (C1) attrs.scalar is whole when attrs.dtype is i32, 0 or 1 when bool. Rank 0.
// iota  (C1) attrs.dim is a dim of the graph.
#include <cmath>

#include "ir/op_rules.h"  // defines: typed, failed, axes_of

namespace cad::ir {

using Code = ShapeError::Code;

namespace {

ShapeResult input_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {})) return *wrong;
  const auto row = static_cast<size_t>(attrs.input.index);
  if (!attrs.input.valid() || row >= g.inputs.size() || !g.inputs[row].value.valid()) {
    return failed(Code::kOther, -1, {}, fmt::format("no input {}", attrs.input.index));
  }
  return typed(g.type(g.inputs[row].value));
}

std::vector<Tensor> input_eval(const Graph& g, const Node& n, Operands, EvalContext& context) {
  const Tensor& given = (*context.inputs)[static_cast<size_t>(n.attrs.input.index)];
  CAD_CHECK(given.extents == extents_of(g, result_type(g, n), context.bindings),
            "input `{}`: the tensor given has other extents",
            g.inputs[static_cast<size_t>(n.attrs.input.index)].path);
  return {given};
}

ShapeResult const_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {})) return *wrong;
  const auto value = attrs.scalar.number();
  if (attrs.dtype == DType::kI32 && !attrs.scalar.is_whole() && !(value && std::isinf(*value))) {
    return failed(Code::kDType, -1, {}, fmt::format("`{}` is not whole", attrs.scalar.str()));
  }
  if (attrs.dtype == DType::kBool && !(value && (*value == 0 || *value == 1))) {
    return failed(Code::kDType, -1, {}, fmt::format("`{}` is no bool", attrs.scalar.str()));
  }
  return typed(attrs.dtype, {});
}

std::vector<Tensor> const_eval(const Graph& g, const Node& n, Operands, EvalContext& context) {
  return {
      filled(g, result_type(g, n), context.bindings, evaluated(n.attrs.scalar, context.bindings))};
}

ShapeResult iota_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {})) return *wrong;
  if (auto wrong = unknown(g, {attrs.dim})) return *wrong;
  return typed(DType::kI32, {attrs.dim});
}

std::vector<Tensor> iota_eval(const Graph& g, const Node& n, Operands, EvalContext& context) {
  Tensor out = filled(g, result_type(g, n), context.bindings, 0);
  const int64_t first = shard_of(g, n.attrs.dim, context).offset;
  for (size_t i = 0; i < out.data.size(); ++i)
    out.data[i] = static_cast<double>(first + static_cast<int64_t>(i));
  return {out};
}

}  // namespace

const OpInfo kInputInfo{"an input of the graph: parameter, state or data",
                        input_shape,
                        nullptr,
                        input_eval,
                        free_cost,
                        made_sharding};
const OpInfo kConstInfo{"a constant of rank 0", const_shape, nullptr, const_eval, free_cost,
                        whole_sharding};
const OpInfo kIotaInfo{"0, 1, .. along a dim", iota_shape, nullptr, iota_eval, iota_cost,
                       made_sharding};

}  // namespace cad::ir
