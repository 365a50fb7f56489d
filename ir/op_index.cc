// ir/op_index.cc -- ops that address elements by data or by a stride: gather, select, windows,
// top-k, slots, and their adjoints, with all their rules.
//
// (C1) indices are i32; select's has rank 0, gather's rank at least 1. (C2) attrs.dim is x's.
// (C3) the result has no dim twice. (C4) an adjoint's attrs.dims are the dims that the forward op
// had as operand. (C5) window: Y2 = (Y + 2 pad - dilation (KY - 1) - 1) // stride + 1, stride and
// dilation at least 1, pad at least 0. (C6) top-k takes no more than there are. (C7) slots: A is
// one of the dims of `expert`.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/op_rules.h"  // defines: Axes, Named, walk, shape helpers

namespace cad::ir {

using Code = ShapeError::Code;

namespace {

// An index value as a whole number; anything that is none is outside every dim.
int64_t as_index(double value) {
  return value >= -1 && value < 2147483648.0 ? static_cast<int64_t>(value) : -1;
}

// The same within a part of a dim that begins at `offset`.
int64_t as_index(double value, int64_t offset) {
  return as_index(value) - offset;
}

// --- gather, scatter_add
// ------------------------------------------------------------------------------

// out[.., ids' own dims.., ..] = w[.., V = ids, ..]. A dim of ids that w has (but V) is aligned.
ShapeResult gather_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kAny, Accepts::kI32})) return *wrong;
  if (auto wrong = unknown(g, {attrs.dim})) return *wrong;
  if (auto wrong = missing(g, operands, 0, {attrs.dim})) return *wrong;
  const Type &w = g.type(operands[0]), &ids = g.type(operands[1]);
  if (ids.rank() == 0) return failed(Code::kRank, 1, {}, "indices of rank at least 1 are wanted");
  const Dims rest = without(w.dims, {attrs.dim});
  return typed(w.dtype, replaced(w.dims, attrs.dim, without(ids.dims, rest)));
}

std::vector<Tensor> gather_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  const Type& type = result_type(g, n);
  Tensor out = filled(g, type, context.bindings, 0);
  const Axes axes = axes_of(g, type.dims, context.bindings);
  const Named w(axes, operand_type(g, n, 0).dims, *in[0], {n.attrs.dim});
  const Named ids(axes, operand_type(g, n, 1).dims, *in[1]);
  const int64_t extent = extent_of(g, n.attrs.dim, context.bindings),
                stride = w.stride(n.attrs.dim);
  const int64_t offset = shard_of(g, n.attrs.dim, context).offset;
  size_t at = 0;
  walk(axes, [&](const Index& i) {
    const int64_t v = as_index(ids(i), offset);
    out.data[at++] = v >= 0 && v < extent ? w(i, v * stride) : 0;
  });
  return {out};
}

// dw: a pick (all dims of ids are w's) is pointwise, g where v = ids; else a scatter-add.
std::vector<ValueId> gather_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  const Type w = operand_type(b.graph(), n, 0), ids = operand_type(b.graph(), n, 1);
  if (!is_float(w.dtype)) return {{}, {}};
  Attrs attrs;
  attrs.dim = n.attrs.dim;
  if (contains_all(without(w.dims, {n.attrs.dim}), ids.dims)) {
    Attrs over;
    over.dims = w.dims;
    ValueId here = b.make(Op::kEq, {b.make(Op::kIota, {}, attrs), n.operands[1]}, over);
    return {b.where(here, grads[0], b.constant(0.0, w.dtype)), {}};
  }
  attrs.dims = w.dims;
  return {b.make(Op::kScatterAdd, {grads[0], n.operands[1]}, attrs), {}};
}

ShapeResult scatter_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kFloat, Accepts::kI32})) return *wrong;
  if (auto wrong = unknown(g, joined(attrs.dims, {attrs.dim}))) return *wrong;
  if (auto wrong = repeated(g, attrs.dims)) return *wrong;
  const Type &grad = g.type(operands[0]), &ids = g.type(operands[1]);
  const Dims rest = without(attrs.dims, {attrs.dim});
  if (!contains(attrs.dims, attrs.dim) || ids.rank() == 0 ||
      !same_set(grad.dims, joined(rest, without(ids.dims, rest)))) {
    return failed(Code::kMissingDim, 0, attrs.dims,
                  fmt::format("{} is not what a gather along {} by {} gives", g.str(grad),
                              names(g, {attrs.dim}), g.str(ids)));
  }
  return typed(grad.dtype, attrs.dims);
}

// The gather's own loop with the copy turned round.
std::vector<Tensor> scatter_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  const Type& type = result_type(g, n);
  Tensor out = filled(g, type, context.bindings, 0);
  const Axes axes = axes_of(g, operand_type(g, n, 0).dims, context.bindings);
  const Named w(axes, type.dims, out, {n.attrs.dim});
  const Named ids(axes, operand_type(g, n, 1).dims, *in[1]);
  const int64_t extent = extent_of(g, n.attrs.dim, context.bindings),
                stride = w.stride(n.attrs.dim);
  const int64_t offset = shard_of(g, n.attrs.dim, context).offset;
  size_t at = 0;
  walk(axes, [&](const Index& i) {
    const int64_t v = as_index(ids(i), offset);
    if (v >= 0 && v < extent) w(i, v * stride) += in[0]->data[at];
    ++at;
  });
  return {out};
}

// dg = gather of the cotangent
std::vector<ValueId> scatter_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  const Type g = operand_type(b.graph(), n, 0);
  Attrs attrs;
  attrs.dim = n.attrs.dim;
  return {b.ordered(b.make(Op::kGather, {grads[0], n.operands[1]}, attrs), g.dims), {}};
}

// --- select, unselect
// -----------------------------------------------------------------------------------

std::optional<ShapeResult> wrong_number(const Graph& g, Values operands) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kAny, Accepts::kI32})) return wrong;
  const Type& i = g.type(operands[1]);
  if (i.rank() == 0) return std::nullopt;
  return failed(Code::kRank, 1, i.dims,
                fmt::format("an index of rank 0 is wanted, this is {}", g.str(i)));
}

ShapeResult select_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_number(g, operands)) return *wrong;
  if (auto wrong = unknown(g, {attrs.dim})) return *wrong;
  if (auto wrong = missing(g, operands, 0, {attrs.dim})) return *wrong;
  const Type& x = g.type(operands[0]);
  return typed(x.dtype, without(x.dims, {attrs.dim}));
}

std::vector<Tensor> select_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  const Type& type = result_type(g, n);
  Tensor out = filled(g, type, context.bindings, 0);
  const int64_t at = as_index(in[1]->data[0], shard_of(g, n.attrs.dim, context).offset);
  if (at < 0 || at >= extent_of(g, n.attrs.dim, context.bindings)) return {out};
  const Axes axes = axes_of(g, type.dims, context.bindings);
  const Named x(axes, operand_type(g, n, 0).dims, *in[0]);
  size_t next = 0;
  walk(axes, [&](const Index& i) { out.data[next++] = x(i, at * x.stride(n.attrs.dim)); });
  return {out};
}

// dx = zeros but g at i
std::vector<ValueId> select_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  const Type x = operand_type(b.graph(), n, 0);
  if (!is_float(x.dtype)) return {{}, {}};
  Attrs attrs;
  attrs.dim = n.attrs.dim;
  attrs.dims = x.dims;
  return {b.make(Op::kUnselect, {grads[0], n.operands[1]}, attrs), {}};
}

ShapeResult unselect_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_number(g, operands)) return *wrong;
  if (auto wrong = unknown(g, joined(attrs.dims, {attrs.dim}))) return *wrong;
  if (auto wrong = repeated(g, attrs.dims)) return *wrong;
  const Type& grad = g.type(operands[0]);
  if (!contains(attrs.dims, attrs.dim) || !same_set(grad.dims, without(attrs.dims, {attrs.dim}))) {
    return failed(
        Code::kMissingDim, 0, attrs.dims,
        fmt::format("{} is not what a select along {} gives", g.str(grad), names(g, {attrs.dim})));
  }
  return typed(grad.dtype, attrs.dims);
}

std::vector<Tensor> unselect_eval(const Graph& g, const Node& n, Operands in,
                                  EvalContext& context) {
  const Type& type = result_type(g, n);
  Tensor out = filled(g, type, context.bindings, 0);
  const int64_t at = as_index(in[1]->data[0], shard_of(g, n.attrs.dim, context).offset);
  if (at < 0 || at >= extent_of(g, n.attrs.dim, context.bindings)) return {out};
  const Axes axes = axes_of(g, operand_type(g, n, 0).dims, context.bindings);
  const Named x(axes, type.dims, out);
  size_t next = 0;
  walk(axes, [&](const Index& i) { x(i, at * x.stride(n.attrs.dim)) = in[0]->data[next++]; });
  return {out};
}

// dg = the cotangent at i
std::vector<ValueId> unselect_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  const Type g = operand_type(b.graph(), n, 0);
  if (!is_float(g.dtype)) return {{}, {}};
  Attrs attrs;
  attrs.dim = n.attrs.dim;
  return {b.ordered(b.make(Op::kSelect, {grads[0], n.operands[1]}, attrs), g.dims), {}};
}

// --- window, unwindow
// -----------------------------------------------------------------------------------

std::optional<ShapeResult> wrong_window(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kNumber})) return wrong;
  if (auto wrong = unknown(g, {attrs.dim, attrs.to, attrs.window})) return wrong;
  if (attrs.stride < 1 || attrs.dilation < 1 || attrs.pad < 0) {
    return failed(Code::kOther, -1, {},
                  fmt::format("stride {}, dilation {}, pad {}: at least 1, 1 and 0 are wanted",
                              attrs.stride, attrs.dilation, attrs.pad));
  }
  return std::nullopt;
}

void require_windows(ShapeResult& result, const Graph& g, const Attrs& attrs) {
  const Size reach = Size(attrs.dilation) * (g.dim(attrs.window).size - 1) + 1;
  const Size fit = Size::floor_div(g.dim(attrs.dim).size + 2 * attrs.pad - reach, attrs.stride) + 1;
  require_equal(result, fit, g.dim(attrs.to).size, {attrs.dim, attrs.to, attrs.window},
                fmt::format("windows of {} and {}", names(g, {attrs.dim}), names(g, {attrs.to})));
}

ShapeResult window_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_window(g, operands, attrs)) return *wrong;
  if (auto wrong = missing(g, operands, 0, {attrs.dim})) return *wrong;
  const Type& x = g.type(operands[0]);
  ShapeResult result = typed(x.dtype, replaced(x.dims, attrs.dim, {attrs.to, attrs.window}));
  if (auto wrong = repeated(g, result.types[0].dims)) return *wrong;
  require_windows(result, g, attrs);
  return result;
}

ShapeResult unwindow_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_window(g, operands, attrs)) return *wrong;
  if (auto wrong = missing(g, operands, 0, {attrs.to, attrs.window})) return *wrong;
  const Type& x = g.type(operands[0]);
  ShapeResult result =
      typed(x.dtype, replaced(without(x.dims, {attrs.window}), attrs.to, {attrs.dim}));
  if (auto wrong = repeated(g, result.types[0].dims)) return *wrong;
  require_windows(result, g, attrs);
  return result;
}

// Calls body(index over the windowed dims, y) for each element; y may lie outside.
template <class F>
void walk_windows(const Axes& axes, const Attrs& attrs, F&& body) {
  const auto to = static_cast<size_t>(axes.position(attrs.to));
  const auto window = static_cast<size_t>(axes.position(attrs.window));
  walk(axes, [&](const Index& i) {
    body(i, i[to] * attrs.stride + i[window] * attrs.dilation - attrs.pad);
  });
}

std::vector<Tensor> window_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  const Type& type = result_type(g, n);
  Tensor out = filled(g, type, context.bindings, evaluated(n.attrs.scalar, context.bindings));
  const Axes axes = axes_of(g, type.dims, context.bindings);
  const Named x(axes, operand_type(g, n, 0).dims, *in[0], {n.attrs.dim});
  const int64_t extent = extent_of(g, n.attrs.dim, context.bindings),
                stride = x.stride(n.attrs.dim);
  size_t at = 0;
  walk_windows(axes, n.attrs, [&](const Index& i, int64_t y) {
    if (y >= 0 && y < extent) out.data[at] = x(i, y * stride);
    ++at;
  });
  return {out};
}

std::vector<Tensor> unwindow_eval(const Graph& g, const Node& n, Operands in,
                                  EvalContext& context) {
  Tensor out = filled(g, result_type(g, n), context.bindings, 0);
  const Axes axes = axes_of(g, operand_type(g, n, 0).dims, context.bindings);
  const Named x(axes, result_type(g, n).dims, out, {n.attrs.dim});
  const int64_t extent = extent_of(g, n.attrs.dim, context.bindings),
                stride = x.stride(n.attrs.dim);
  size_t at = 0;
  walk_windows(axes, n.attrs, [&](const Index& i, int64_t y) {
    if (y >= 0 && y < extent) x(i, y * stride) += in[0]->data[at];
    ++at;
  });
  return {out};
}

// window and unwindow are each other's adjoint (outside: nothing)
std::vector<ValueId> window_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  const Type x = operand_type(b.graph(), n, 0);
  if (!is_float(x.dtype)) return {{}};
  Attrs attrs = n.attrs;
  attrs.scalar = 0.0;
  const Op adjoint = n.op == Op::kWindow ? Op::kUnwindow : Op::kWindow;
  return {b.ordered(b.make(adjoint, {grads[0]}, attrs), x.dims)};
}

// --- topk
// ---------------------------------------------------------------------------------------------

ShapeResult topk_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kNumber})) return *wrong;
  if (auto wrong = unknown(g, {attrs.dim, attrs.to})) return *wrong;
  if (auto wrong = missing(g, operands, 0, {attrs.dim})) return *wrong;
  const Type& x = g.type(operands[0]);
  ShapeResult result = typed(x.dtype, replaced(x.dims, attrs.dim, {attrs.to}));
  if (auto wrong = repeated(g, result.types[0].dims)) return *wrong;
  Type indices = result.types[0];
  indices.dtype = DType::kI32;
  result.types.push_back(std::move(indices));
  require_at_most(result, g.dim(attrs.to).size, g.dim(attrs.dim).size, {attrs.to, attrs.dim},
                  fmt::format("the top {} of {}", names(g, {attrs.to}), names(g, {attrs.dim})));
  return result;
}

std::vector<Tensor> topk_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  Tensor values = filled(g, result_type(g, n, 0), context.bindings, 0);
  Tensor indices = filled(g, result_type(g, n, 1), context.bindings, 0);
  const Dims& dims = operand_type(g, n, 0).dims;
  const Axes rows = axes_of(g, without(dims, {n.attrs.dim}), context.bindings);
  const Named x(rows, dims, *in[0]);
  const Named top(rows, result_type(g, n).dims, values);
  const int64_t count = extent_of(g, n.attrs.to, context.bindings), from = x.stride(n.attrs.dim);
  std::vector<int64_t> order(static_cast<size_t>(extent_of(g, n.attrs.dim, context.bindings)));
  walk(rows, [&](const Index& row) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const double left = x(row, a * from), right = x(row, b * from);
      // NaN counts as the largest: an order must order everything.
      return left > right || (std::isnan(left) && !std::isnan(right));
    });
    for (int64_t k = 0; k < count; ++k) {
      const auto at = static_cast<size_t>(top.offset(row) + k * top.stride(n.attrs.to));
      const int64_t index = order[static_cast<size_t>(k)];
      values.data[at] = x(row, index * from);
      indices.data[at] = static_cast<double>(index);
    }
  });
  return {values, indices};
}

// dx = the values' cotangent scattered to the indices
std::vector<ValueId> topk_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  const Type x = operand_type(b.graph(), n, 0);
  if (!is_float(x.dtype) || !grads[0].valid()) return {{}};
  Attrs attrs;
  attrs.dim = n.attrs.dim;
  attrs.dims = x.dims;
  return {b.make(Op::kScatterAdd, {grads[0], n.results[1]}, attrs)};
}

// --- slots
// --------------------------------------------------------------------------------------------

ShapeResult slots_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kI32})) return *wrong;
  if (auto wrong = unknown(g, {attrs.dim, attrs.to, attrs.window})) return *wrong;
  if (auto wrong = missing(g, operands, 0, {attrs.window})) return *wrong;
  return typed(g.type(operands[0]));
}

// In row-major order each choice takes the next of its expert's M slots; those too late get -1.
std::vector<Tensor> slots_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  Tensor out = *in[0];
  const int64_t experts = extent_of(g, n.attrs.dim, context.bindings);
  const int64_t capacity = extent_of(g, n.attrs.to, context.bindings);
  std::vector<int64_t> used(static_cast<size_t>(experts), 0);
  for (double& slot : out.data) {
    const int64_t e = as_index(slot);
    const bool fits = e >= 0 && e < experts && used[static_cast<size_t>(e)] < capacity;
    slot = fits ? static_cast<double>(e * capacity + used[static_cast<size_t>(e)]++) : -1;
  }
  return {out};
}

}  // namespace

const OpInfo kGatherInfo{"entries along a dim picked by indices",
                         gather_shape,
                         gather_grad,
                         gather_eval,
                         gather_cost,
                         gather_sharding};
const OpInfo kScatterAddInfo{"adjoint of gather", scatter_shape, scatter_grad,
                             scatter_eval,        scatter_cost,  scatter_sharding};
const OpInfo kSelectInfo{"one index of a dim, which goes",
                         select_shape,
                         select_grad,
                         select_eval,
                         picked_cost,
                         gather_sharding};
const OpInfo kUnselectInfo{"adjoint of select", unselect_shape, unselect_grad,
                           unselect_eval,       copy_cost,      scatter_sharding};
const OpInfo kWindowInfo{
    "sliding windows of a dim", window_shape, window_grad, window_eval, copy_cost, kept_sharding};
const OpInfo kUnwindowInfo{"adjoint of window", unwindow_shape, window_grad,
                           unwindow_eval,       scatter_cost,   kept_sharding};
const OpInfo kTopKInfo{"the largest along a dim, and where they are",
                       topk_shape,
                       topk_grad,
                       topk_eval,
                       topk_cost,
                       kept_sharding};
const OpInfo kSlotsInfo{"places of tokens in their expert's slots",
                        slots_shape,
                        nullptr,
                        slots_eval,
                        copy_cost,
                        whole_sharding};

}  // namespace cad::ir
