// ir/op_contract.cc -- contract: a @[K] b, every matrix product, batched or not.
//
//   out[m.., n..] = sum over k.. of a[m.., k..] * b[n.., k..]     (m and n may share batch dims)
//
// (C1) two operands of one float dtype. (C2) attrs.dims are in both. (C3) attrs.dims has no dim
// twice. Dims of equal id are aligned, so sizes need no check. Result: a's dims, then b's new ones,
// without attrs.dims. Sums are accumulated in f32 or better.
#include "ir/op_rules.h"  // defines: Axes, Named, walk

namespace cad::ir {

using Code = ShapeError::Code;

namespace {

ShapeResult contract_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kFloat, Accepts::kFloat})) return *wrong;
  if (auto wrong = unknown(g, attrs.dims)) return *wrong;
  const Type &a = g.type(operands[0]), &b = g.type(operands[1]);
  if (a.dtype != b.dtype) {
    return failed(
        Code::kDType, 1, {},
        fmt::format("the operands are `{}` and `{}`", dtype_name(a.dtype), dtype_name(b.dtype)));
  }
  for (int side : {0, 1}) {
    if (auto wrong = missing(g, operands, side, attrs.dims)) return *wrong;
  }
  if (auto twice = duplicate(attrs.dims)) {
    return failed(Code::kDuplicateDim, -1, {*twice},
                  fmt::format("`{}` is summed twice", g.dim(*twice).name));
  }
  return typed(a.dtype, without(joined(a.dims, b.dims), attrs.dims));
}

std::vector<Tensor> contract_eval(const Graph& g, const Node& n, Operands in,
                                  EvalContext& context) {
  const Type& type = result_type(g, n);
  Tensor out = filled(g, type, context.bindings, 0);
  const Axes axes = axes_of(g, joined(type.dims, n.attrs.dims), context.bindings);
  const Named a(axes, operand_type(g, n, 0).dims, *in[0]);
  const Named b(axes, operand_type(g, n, 1).dims, *in[1]);
  const Named result(axes, type.dims, out);
  walk(axes, [&](const Index& i) { result(i) += a(i) * b(i); });
  return {out};
}

// da = g @[dims of b alone] b: what is left are a's own dims. The order of the operands is the one
// that needs no transpose, if there is one.
ValueId side_gradient(Builder& b, ValueId grad, ValueId other, const Dims& wanted,
                      const Dims& summed) {
  Attrs attrs;
  attrs.dims = summed;
  const Dims grad_first =
      without(joined(b.graph().type(grad).dims, b.graph().type(other).dims), summed);
  ValueId r = grad_first == wanted ? b.make(Op::kContract, {grad, other}, attrs)
                                   : b.make(Op::kContract, {other, grad}, attrs);
  return b.ordered(r, wanted);
}

std::vector<ValueId> contract_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  const Dims da = operand_type(b.graph(), n, 0).dims, db = operand_type(b.graph(), n, 1).dims;
  return {side_gradient(b, grads[0], n.operands[1], da, without(db, da)),
          side_gradient(b, grads[0], n.operands[0], db, without(da, db))};
}

}  // namespace

const OpInfo kContractInfo{"multiply, align dims by name, sum over the listed ones",
                           contract_shape,
                           contract_grad,
                           contract_eval,
                           contract_cost,
                           contract_sharding};

}  // namespace cad::ir
