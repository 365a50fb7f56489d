// ir/op_move.cc -- ops that rearrange elements without arithmetic, with all their rules.
//
// (C1) the operand count is the op's; any dtype. (C2) the dims taken are the operand's; the result
// has no dim twice. (C3) sizes: a rename's are equal; a split's and merge's products are equal; a
// unit group's is 1; a slice lies inside; a pad fits; concat's sizes add up; a stack's dim counts
// its operands. (C4) concat and stack: operands of one dtype and equal dims otherwise.
#include "ir/op_rules.h"  // defines: Axes, Named, walk, shape helpers

namespace cad::ir {

using Code = ShapeError::Code;

namespace {

// --- rename, reshape
// --------------------------------------------------------------------------------

Size product(const Graph& g, const Dims& dims) {
  Size size = 1;
  for (DimId d : dims) size = size * g.dim(d).size;
  return size;
}

// Each group's new dims stand where the first of its old ones stood; new unit dims stand last.
Dims regrouped(const Dims& dims, const std::vector<DimGroup>& groups) {
  Dims result;
  std::vector<bool> placed(groups.size(), false);
  for (DimId d : dims) {
    size_t at = 0;
    while (at < groups.size() && !contains(groups[at].from, d)) ++at;
    if (at == groups.size()) {
      result.push_back(d);
    } else if (!placed[at]) {
      placed[at] = true;
      result.insert(result.end(), groups[at].to.begin(), groups[at].to.end());
    }
  }
  for (const DimGroup& group : groups) {
    if (group.from.empty()) result.insert(result.end(), group.to.begin(), group.to.end());
  }
  return result;
}

ShapeResult regroup_shape(const Graph& g, Values operands, const Attrs& attrs, bool rename) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kAny})) return *wrong;
  Dims from;
  for (const DimGroup& group : attrs.groups) {
    for (const Dims* dims : {&group.from, &group.to}) {
      if (auto wrong = unknown(g, *dims)) return *wrong;
    }
    const size_t f = group.from.size(), t = group.to.size();
    if (rename ? f != 1 || t != 1 : f > 1 && t > 1) {
      return failed(Code::kOther, 0, group.from,
                    fmt::format("{} dims cannot become {} at once", f, t));
    }
    from.insert(from.end(), group.from.begin(), group.from.end());
  }
  if (auto wrong = missing(g, operands, 0, from)) return *wrong;
  if (auto twice = duplicate(from)) {
    return failed(Code::kDuplicateDim, 0, {*twice},
                  fmt::format("`{}` is taken twice", g.dim(*twice).name));
  }
  const Type& x = g.type(operands[0]);
  ShapeResult result = typed(x.dtype, regrouped(x.dims, attrs.groups));
  if (auto wrong = repeated(g, result.types[0].dims)) return *wrong;
  for (const DimGroup& group : attrs.groups) {
    Dims both = joined(group.from, group.to);
    const std::string what = fmt::format("{} of {}", rename ? "rename" : "sizes", names(g, both));
    require_equal(result, product(g, group.from), product(g, group.to), both, what);
  }
  return result;
}

ShapeResult rename_shape(const Graph& g, Values operands, const Attrs& attrs) {
  return regroup_shape(g, operands, attrs, true);
}
ShapeResult reshape_shape(const Graph& g, Values operands, const Attrs& attrs) {
  return regroup_shape(g, operands, attrs, false);
}

// The row-major number over the group's old dims equals that over its new ones: d = h * K + k.
std::vector<Tensor> regroup_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  const Type& type = result_type(g, n);
  Tensor out = filled(g, type, context.bindings, 0);
  const Axes axes = axes_of(g, type.dims, context.bindings);
  Dims moved;  // a rename may swap: these names mean other dims of x
  for (const DimGroup& group : n.attrs.groups) moved = joined(moved, group.from);
  const Named x(axes, operand_type(g, n, 0).dims, *in[0], moved);
  size_t at = 0;
  walk(axes, [&](const Index& i) {
    int64_t further = 0;
    for (const DimGroup& group : n.attrs.groups) {
      int64_t number = 0;
      for (DimId d : group.to) {
        const auto axis = static_cast<size_t>(axes.position(d));
        number = number * axes.extents[axis] + i[axis];
      }
      for (size_t k = group.from.size(); k-- > 0;) {
        const int64_t extent = extent_of(g, group.from[k], context.bindings);
        further += number % extent * x.stride(group.from[k]);
        number /= extent;
      }
    }
    out.data[at++] = x(i, further);
  });
  return {out};
}

// dx = g regrouped back
std::vector<ValueId> regroup_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  const Type x = operand_type(b.graph(), n, 0);
  if (!is_float(x.dtype)) return {{}};
  Attrs attrs;
  for (const DimGroup& group : n.attrs.groups) attrs.groups.push_back({group.to, group.from});
  return {b.ordered(b.make(n.op, {grads[0]}, attrs), x.dims)};
}

// --- slice, pad
// ---------------------------------------------------------------------------------------

std::optional<ShapeResult> wrong_exchange(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kAny})) return wrong;
  if (auto wrong = unknown(g, {attrs.dim, attrs.to})) return wrong;
  return missing(g, operands, 0, {attrs.dim});
}

ShapeResult slice_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_exchange(g, operands, attrs)) return *wrong;
  const Type& x = g.type(operands[0]);
  ShapeResult result = typed(x.dtype, replaced(x.dims, attrs.dim, {attrs.to}));
  if (auto wrong = repeated(g, result.types[0].dims)) return *wrong;
  require_at_most(result, attrs.start + g.dim(attrs.to).size, g.dim(attrs.dim).size,
                  {attrs.dim, attrs.to},
                  fmt::format("end of the slice of {}", names(g, {attrs.dim})));
  return result;
}

ShapeResult pad_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_exchange(g, operands, attrs)) return *wrong;
  const Type& x = g.type(operands[0]);
  ShapeResult result = typed(x.dtype, replaced(x.dims, attrs.dim, {attrs.to}));
  if (auto wrong = repeated(g, result.types[0].dims)) return *wrong;
  require_at_most(result, attrs.start + g.dim(attrs.dim).size, g.dim(attrs.to).size,
                  {attrs.dim, attrs.to},
                  fmt::format("end of {} in {}", names(g, {attrs.dim}), names(g, {attrs.to})));
  return result;
}

// Copies the elements whose index along `dim` of x is that along `to` of the result plus `shift`,
// where both exist.
void copy_shifted(const Graph& g, const Type& from, const Tensor& x, const Type& to, Tensor& out,
                  DimId dim, DimId result_dim, int64_t shift, const Bindings& bindings) {
  const Axes axes = axes_of(g, to.dims, bindings);
  const Named source(axes, from.dims, x, {dim});
  const Named target(axes, to.dims, out);
  const auto axis = static_cast<size_t>(axes.position(result_dim));
  const int64_t extent = extent_of(g, dim, bindings), stride = source.stride(dim);
  walk(axes, [&](const Index& i) {
    const int64_t at = i[axis] + shift;
    if (at >= 0 && at < extent) target(i) = source(i, at * stride);
  });
}

int64_t start_of(const Node& n, const Bindings& bindings) {
  const Size::Evaluated start = n.attrs.start.evaluate(bindings);
  CAD_CHECK(start.ok(), "start `{}` of a {}: {}", n.attrs.start.str(), op_name(n.op), start.detail);
  return start.value;
}

std::vector<Tensor> slice_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  Tensor out = filled(g, result_type(g, n), context.bindings, 0);
  const int64_t start = start_of(n, context.bindings);
  CAD_CHECK(start + extent_of(g, n.attrs.to, context.bindings) <=
                extent_of(g, n.attrs.dim, context.bindings),
            "slice of `{}` leaves it", g.dim(n.attrs.dim).name);
  copy_shifted(g, operand_type(g, n, 0), *in[0], result_type(g, n), out, n.attrs.dim, n.attrs.to,
               start, context.bindings);
  return {out};
}

std::vector<Tensor> pad_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  Tensor out =
      filled(g, result_type(g, n), context.bindings, evaluated(n.attrs.scalar, context.bindings));
  copy_shifted(g, operand_type(g, n, 0), *in[0], result_type(g, n), out, n.attrs.dim, n.attrs.to,
               -start_of(n, context.bindings), context.bindings);
  return {out};
}

// slice: dx = g padded with zeros; pad: dx = g sliced
std::vector<ValueId> exchange_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  if (!is_float(result_type(b.graph(), n).dtype)) return {{}};
  Attrs attrs;
  attrs.dim = n.attrs.to;
  attrs.to = n.attrs.dim;
  attrs.start = n.attrs.start;
  return {b.make(n.op == Op::kSlice ? Op::kPad : Op::kSlice, {grads[0]}, attrs)};
}

// --- concat, stack
// ------------------------------------------------------------------------------------

// (C4), when operand i's own dim (concat's) is taken out.
std::optional<ShapeResult> unlike(const Graph& g, Values operands, const Dims& own) {
  const Type& first = g.type(operands[0]);
  for (size_t i = 1; i < operands.size(); ++i) {
    const Type& x = g.type(operands[i]);
    const int operand = static_cast<int>(i);
    if (x.dtype != first.dtype) {
      return failed(Code::kDType, operand, {},
                    fmt::format("the operands are `{}` and `{}`", dtype_name(first.dtype),
                                dtype_name(x.dtype)));
    }
    const Dims a = own.empty() ? first.dims : without(first.dims, {own[0]});
    const Dims b = own.empty() ? x.dims : without(x.dims, {own[i]});
    if (!same_set(a, b)) {
      const Dims apart = joined(without(a, b), without(b, a));
      return failed(Code::kNotSubset, operand, apart,
                    fmt::format("{} and {} differ in {}", g.str(first), g.str(x), names(g, apart)));
    }
  }
  return std::nullopt;
}

ShapeResult concat_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (operands.empty() || attrs.dims.size() != operands.size()) {
    return failed(Code::kOther, -1, {},
                  fmt::format("{} dims for {} operands", attrs.dims.size(), operands.size()));
  }
  for (const Dims& dims : {attrs.dims, Dims{attrs.to}}) {
    if (auto wrong = unknown(g, dims)) return *wrong;
  }
  Size sum = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (auto wrong = missing(g, operands, static_cast<int>(i), {attrs.dims[i]})) return *wrong;
    sum = sum + g.dim(attrs.dims[i]).size;
  }
  if (auto wrong = unlike(g, operands, attrs.dims)) return *wrong;
  const Type& first = g.type(operands[0]);
  ShapeResult result = typed(first.dtype, replaced(first.dims, attrs.dims[0], {attrs.to}));
  if (auto wrong = repeated(g, result.types[0].dims)) return *wrong;
  require_equal(result, sum, g.dim(attrs.to).size, joined(attrs.dims, {attrs.to}),
                fmt::format("sum of {} and {}", names(g, attrs.dims), names(g, {attrs.to})));
  return result;
}

std::vector<Tensor> concat_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  Tensor out = filled(g, result_type(g, n), context.bindings, 0);
  int64_t start = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    copy_shifted(g, operand_type(g, n, i), *in[i], result_type(g, n), out, n.attrs.dims[i],
                 n.attrs.to, -start, context.bindings);
    start += extent_of(g, n.attrs.dims[i], context.bindings);
  }
  return {out};
}

// operand i: g's slice
std::vector<ValueId> concat_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  std::vector<ValueId> result(n.operands.size());
  if (!is_float(result_type(b.graph(), n).dtype)) return result;
  Attrs attrs;
  attrs.dim = n.attrs.to;
  for (size_t i = 0; i < n.operands.size(); ++i) {
    attrs.to = n.attrs.dims[i];
    result[i] =
        b.ordered(b.make(Op::kSlice, {grads[0]}, attrs), Dims(operand_type(b.graph(), n, i).dims));
    attrs.start = attrs.start + b.graph().dim(attrs.to).size;
  }
  return result;
}

ShapeResult stack_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (operands.empty()) return failed(Code::kOther, -1, {}, "`stack` of nothing");
  if (auto wrong = unknown(g, {attrs.to})) return *wrong;
  if (auto wrong = unlike(g, operands, {})) return *wrong;
  const Type& first = g.type(operands[0]);
  Dims dims{attrs.to};
  dims.insert(dims.end(), first.dims.begin(), first.dims.end());
  ShapeResult result = typed(first.dtype, dims);
  if (auto wrong = repeated(g, dims)) return *wrong;
  require_equal(result, g.dim(attrs.to).size, static_cast<int64_t>(operands.size()), {attrs.to},
                fmt::format("{} and the number of operands", names(g, {attrs.to})));
  return result;
}

std::vector<Tensor> stack_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  const Type& type = result_type(g, n);
  Tensor out = filled(g, type, context.bindings, 0);
  const Axes axes = axes_of(g, {type.dims.begin() + 1, type.dims.end()}, context.bindings);
  size_t at = 0;
  for (size_t k = 0; k < in.size(); ++k) {
    const Named x(axes, operand_type(g, n, k).dims, *in[k]);
    walk(axes, [&](const Index& i) { out.data[at++] = x(i); });
  }
  return {out};
}

// operand i: g at i
std::vector<ValueId> stack_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  std::vector<ValueId> result(n.operands.size());
  if (!is_float(result_type(b.graph(), n).dtype)) return result;
  Attrs attrs;
  attrs.dim = n.attrs.to;
  for (size_t i = 0; i < n.operands.size(); ++i) {
    ValueId number = b.constant(static_cast<double>(i), DType::kI32);
    result[i] = b.ordered(b.make(Op::kSelect, {grads[0], number}, attrs),
                          Dims(operand_type(b.graph(), n, i).dims));
  }
  return result;
}

// --- flip, transpose
// ----------------------------------------------------------------------------------

ShapeResult flip_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kAny})) return *wrong;
  if (auto wrong = unknown(g, {attrs.dim})) return *wrong;
  if (auto wrong = missing(g, operands, 0, {attrs.dim})) return *wrong;
  return typed(g.type(operands[0]));
}

std::vector<Tensor> flip_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  const Type& type = result_type(g, n);
  Tensor out = filled(g, type, context.bindings, 0);
  const Axes axes = axes_of(g, type.dims, context.bindings);
  const Named x(axes, type.dims, *in[0], {n.attrs.dim});
  const auto axis = static_cast<size_t>(axes.position(n.attrs.dim));
  size_t at = 0;
  walk(axes, [&](const Index& i) {
    out.data[at++] = x(i, (axes.extents[axis] - 1 - i[axis]) * x.stride(n.attrs.dim));
  });
  return {out};
}

// dx = g flipped
std::vector<ValueId> flip_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  if (!is_float(result_type(b.graph(), n).dtype)) return {{}};
  return {b.make(Op::kFlip, {grads[0]}, n.attrs)};
}

ShapeResult transpose_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kAny})) return *wrong;
  if (auto wrong = unknown(g, attrs.dims)) return *wrong;
  const Type& x = g.type(operands[0]);
  if (!same_set(x.dims, attrs.dims)) {
    return failed(Code::kMissingDim, 0,
                  joined(without(x.dims, attrs.dims), without(attrs.dims, x.dims)),
                  fmt::format("{} are not the dims of {}", names(g, attrs.dims), g.str(x)));
  }
  return typed(x.dtype, attrs.dims);
}

std::vector<Tensor> transpose_eval(const Graph& g, const Node& n, Operands in,
                                   EvalContext& context) {
  Tensor out = filled(g, result_type(g, n), context.bindings, 0);
  const Axes axes = axes_of(g, result_type(g, n).dims, context.bindings);
  const Named x(axes, operand_type(g, n, 0).dims, *in[0]);
  size_t at = 0;
  walk(axes, [&](const Index& i) { out.data[at++] = x(i); });
  return {out};
}

// dx = g in x's order
std::vector<ValueId> transpose_grad(Builder& b, NodeId node, Values grads) {
  const Type x = b.graph().type(b.graph().node(node).operands[0]);
  if (!is_float(x.dtype)) return {{}};
  return {b.ordered(grads[0], x.dims)};
}

}  // namespace

const OpInfo kRenameInfo{"dims under other names of equal size",
                         rename_shape,
                         regroup_grad,
                         regroup_eval,
                         free_cost,
                         regroup_sharding};
const OpInfo kReshapeInfo{"split a dim, merge dims, add or drop a unit dim",
                          reshape_shape,
                          regroup_grad,
                          regroup_eval,
                          free_cost,
                          regroup_sharding};
const OpInfo kSliceInfo{"a stretch of a dim as a new dim",
                        slice_shape,
                        exchange_grad,
                        slice_eval,
                        picked_cost,
                        kept_sharding};
const OpInfo kPadInfo{"a dim inside a larger one, the rest a constant",
                      pad_shape,
                      exchange_grad,
                      pad_eval,
                      copy_cost,
                      kept_sharding};
const OpInfo kConcatInfo{"operands one after the other along a dim",
                         concat_shape,
                         concat_grad,
                         concat_eval,
                         copy_cost,
                         kept_sharding};
const OpInfo kStackInfo{"operands along a new first dim",
                        stack_shape,
                        stack_grad,
                        stack_eval,
                        copy_cost,
                        kept_sharding};
const OpInfo kFlipInfo{"a dim backwards", flip_shape, flip_grad,
                       flip_eval,         copy_cost,  kept_sharding};
const OpInfo kTransposeInfo{"another storage order", transpose_shape, transpose_grad,
                            transpose_eval,          copy_cost,       pointwise_sharding};

}  // namespace cad::ir
