// ir/op_comm.cc -- collectives between the devices of a mesh, and the number of a device on it.
// A graph with them is one program that all devices run; EvalContext::collective brings the
// operands of all members together, collective_result() says what comes of them.
//
// (C1) attrs.axes are axes of Graph::mesh, at least one; n is the product of their sizes.
// (C2) all_reduce and reduce_scatter take numbers. (C3) attrs.dim of reduce_scatter and all_to_all
// is a dim of x, of size n. (C4) attrs.to of all_gather and all_to_all has size n and is not among
// the result's other dims. (C5) the dim before which attrs.to goes, if any, is one of these. An
// all_to_all with attrs.groups has no other dims: its rules are in move_parts.cc.
//
// Gradients are those of the sum of all devices' losses, with respect to one device's x: a value
// that all devices have alike has a cotangent of which each holds a summand, and the cotangent of a
// summand is alike on all. So each rule is local, and linear in g.
#include <algorithm>

#include "ir/collective.h"
#include "ir/op_rules.h"  // defines: typed, failed, without, contains, reduce_cost, copy_cost
#include "ir/shard.h"

namespace cad::ir {

using Code = ShapeError::Code;

namespace {

// (C1)
std::optional<ShapeResult> wrong_axes(const Graph& g, uint32_t axes) {
  if (axes == 0) return failed(Code::kOther, -1, {}, "no axis of the mesh is named");
  const size_t count = std::min(g.mesh.size(), kMaxMeshAxes);
  if (count < kMaxMeshAxes && axes >> count != 0)
    return failed(Code::kOther, -1, {}, fmt::format("the mesh has {} axes", count));
  return std::nullopt;
}

// (C3)
std::optional<ShapeResult> wrong_removed(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = unknown(g, {attrs.dim})) return wrong;
  return missing(g, operands, 0, {attrs.dim});
}

// (C4), (C5): `dims` with attrs.to before `at`; that is where it goes.
ShapeResult inserted(const Graph& g, DType dtype, Dims dims, DimId to, DimId at) {
  if (auto wrong = unknown(g, {to})) return *wrong;
  if (at.valid() && !contains(dims, at))
    return failed(Code::kMissingDim, 0, {at},
                  fmt::format("the result has no dim {} to stand before", at.index));
  dims.insert(at.valid() ? std::find(dims.begin(), dims.end(), at) : dims.begin(), to);
  if (auto wrong = repeated(g, dims)) return *wrong;
  return typed(dtype, std::move(dims));
}

void require_members(ShapeResult& result, const Graph& g, DimId dim, uint32_t axes) {
  require_equal(result, g.dim(dim).size, mesh_size(g, axes), {dim},
                fmt::format("{} and the number of devices", names(g, {dim})));
}

ShapeResult axis_index_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {})) return *wrong;
  if (auto wrong = wrong_axes(g, attrs.axes)) return *wrong;
  return typed(DType::kI32, {});
}

ShapeResult all_reduce_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kNumber})) return *wrong;
  if (auto wrong = wrong_axes(g, attrs.axes)) return *wrong;
  return typed(g.type(operands[0]));
}

ShapeResult all_gather_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kAny})) return *wrong;
  if (auto wrong = wrong_axes(g, attrs.axes)) return *wrong;
  const Type& x = g.type(operands[0]);
  ShapeResult result = inserted(g, x.dtype, x.dims, attrs.to, attrs.dim);
  if (result.errors.empty()) require_members(result, g, attrs.to, attrs.axes);
  return result;
}

ShapeResult reduce_scatter_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kNumber})) return *wrong;
  if (auto wrong = wrong_axes(g, attrs.axes)) return *wrong;
  if (auto wrong = wrong_removed(g, operands, attrs)) return *wrong;
  const Type& x = g.type(operands[0]);
  ShapeResult result = typed(x.dtype, without(x.dims, {attrs.dim}));
  require_members(result, g, attrs.dim, attrs.axes);
  return result;
}

ShapeResult all_to_all_shape(const Graph& g, Values operands, const Attrs& attrs) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kAny})) return *wrong;
  if (auto wrong = wrong_axes(g, attrs.axes)) return *wrong;
  if (!attrs.groups.empty()) return move_parts_shape(g, g.type(operands[0]), attrs);
  if (auto wrong = wrong_removed(g, operands, attrs)) return *wrong;
  const Type& x = g.type(operands[0]);
  ShapeResult result = inserted(g, x.dtype, without(x.dims, {attrs.dim}), attrs.to, attrs.window);
  if (!result.errors.empty()) return result;
  require_members(result, g, attrs.dim, attrs.axes);
  require_members(result, g, attrs.to, attrs.axes);
  return result;
}

// --- reference semantics -------------------------------------------------------------------------

std::vector<Tensor> axis_index_eval(const Graph& g, const Node& n, Operands, EvalContext& context) {
  const auto index = static_cast<double>(axis_index(g, n.attrs.axes, context.coordinates));
  return {filled(g, result_type(g, n), context.bindings, index)};
}

std::vector<Tensor> comm_eval(const Graph& g, const Node& n, Operands in, EvalContext& context) {
  Tensor result;
  if (context.collective) {
    result = context.collective(n, *in[0]);
  } else {
    CAD_CHECK(mesh_size(g, n.attrs.axes) == 1, "`{}` without the other devices", op_name(n.op));
    result = collective_result(g, n, in, 0);
  }
  CAD_CHECK(result.extents == extents_of(g, result_type(g, n), context.bindings),
            "`{}` gave a tensor of other extents", op_name(n.op));
  return {std::move(result)};
}

double combined(Reduction reduction, double a, double b) {
  switch (reduction) {
    case Reduction::kSum:
      return a + b;
    case Reduction::kMax:
      return a > b || a != a ? a : b;
    case Reduction::kMin:
      return a < b || a != a ? a : b;
  }
  return a;
}

// Elements of a row-major block before and from position `at` on.
struct Cut {
  size_t outer = 1, inner = 1;
};
Cut cut_at(const std::vector<int64_t>& extents, size_t at) {
  Cut cut;
  for (size_t i = 0; i < extents.size(); ++i)
    (i < at ? cut.outer : cut.inner) *= static_cast<size_t>(extents[i]);
  return cut;
}

size_t place_of(const Type& type, DimId dim) {
  return dim.valid() ? static_cast<size_t>(type.position(dim)) : 0;
}

// x at `index` of dim number `at`.
Tensor at_index(const Tensor& x, size_t at, int64_t index) {
  const auto count = static_cast<size_t>(x.extents[at]);
  const Cut cut = cut_at(x.extents, at);
  const size_t inner = count == 0 ? 0 : cut.inner / count;
  Tensor out;
  out.dtype = x.dtype;
  out.extents = x.extents;
  out.extents.erase(out.extents.begin() + static_cast<ptrdiff_t>(at));
  for (size_t o = 0; o < cut.outer; ++o) {
    const auto from =
        x.data.begin() + static_cast<ptrdiff_t>((o * count + static_cast<size_t>(index)) * inner);
    out.data.insert(out.data.end(), from, from + static_cast<ptrdiff_t>(inner));
  }
  return out;
}

// Parts of equal extents side by side along a new dim number `at`.
Tensor side_by_side(const std::vector<Tensor>& parts, size_t at) {
  const Cut cut = cut_at(parts[0].extents, at);
  Tensor out;
  out.dtype = parts[0].dtype;
  out.extents = parts[0].extents;
  out.extents.insert(out.extents.begin() + static_cast<ptrdiff_t>(at),
                     static_cast<int64_t>(parts.size()));
  for (size_t o = 0; o < cut.outer; ++o) {
    for (const Tensor& part : parts) {
      const auto from = part.data.begin() + static_cast<ptrdiff_t>(o * cut.inner);
      out.data.insert(out.data.end(), from, from + static_cast<ptrdiff_t>(cut.inner));
    }
  }
  return out;
}

Tensor folded(const std::vector<Tensor>& parts, Reduction reduction) {
  Tensor out = parts[0];
  for (size_t m = 1; m < parts.size(); ++m) {
    for (size_t i = 0; i < out.data.size(); ++i)
      out.data[i] = combined(reduction, out.data[i], parts[m].data[i]);
  }
  return out;
}

// --- gradients -----------------------------------------------------------------------------------

ValueId all_reduced(Builder& b, ValueId x, uint32_t axes, Reduction reduction) {
  Attrs attrs;
  attrs.axes = axes;
  attrs.reduction = reduction;
  return b.make(Op::kAllReduce, {x}, attrs);
}

// sum: dx = the sum of all members' g. Extremes: that sum at the first member whose x is the
// result, as reduce_max does.
std::vector<ValueId> all_reduce_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  const uint32_t axes = n.attrs.axes;
  const ValueId total = all_reduced(b, grads[0], axes, Reduction::kSum);
  if (n.attrs.reduction == Reduction::kSum) return {total};
  Attrs attrs;
  attrs.axes = axes;
  const ValueId own = b.make(Op::kAxisIndex, {}, attrs);
  const ValueId none = b.constant(static_cast<double>(mesh_size(b.graph(), axes)), DType::kI32);
  const ValueId hit = b.make(Op::kEq, {n.operands[0], n.results[0]});
  const ValueId first = all_reduced(b, b.where(hit, own, none), axes, Reduction::kMin);
  const ValueId chosen = b.make(Op::kAnd, {hit, b.make(Op::kEq, {first, own})});
  return {b.where(chosen, total, b.constant(0.0, b.graph().type(total).dtype))};
}

// The dim that follows `dim`, if any: before that it is put back.
DimId after(const Dims& dims, DimId dim) {
  const auto at = std::find(dims.begin(), dims.end(), dim);
  return at + 1 == dims.end() ? DimId{} : at[1];
}

// dx = the sum of all members' g at the own index
std::vector<ValueId> all_gather_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  if (!is_float(operand_type(b.graph(), n, 0).dtype)) return {{}};
  Attrs attrs;
  attrs.axes = n.attrs.axes;
  attrs.dim = n.attrs.to;
  return {b.make(Op::kReduceScatter, {grads[0]}, attrs)};
}

// dx = all members' g side by side
std::vector<ValueId> reduce_scatter_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  const Dims dims = operand_type(b.graph(), n, 0).dims;
  Attrs attrs;
  attrs.axes = n.attrs.axes;
  attrs.to = n.attrs.dim;
  attrs.dim = after(dims, n.attrs.dim);
  return {b.ordered(b.make(Op::kAllGather, {grads[0]}, attrs), dims)};
}

// dx = the slices, or parts, sent back
std::vector<ValueId> all_to_all_grad(Builder& b, NodeId node, Values grads) {
  const Node n = b.graph().node(node);
  const Type x = operand_type(b.graph(), n, 0);
  if (!is_float(x.dtype)) return {{}};
  Attrs attrs;
  attrs.axes = n.attrs.axes;
  if (moves_parts(n)) {
    for (const DimGroup& group : n.attrs.groups) attrs.groups.push_back({group.to, group.from});
    return {b.ordered(b.make(Op::kAllToAll, {grads[0]}, attrs), x.dims)};
  }
  attrs.dim = n.attrs.to;
  attrs.to = n.attrs.dim;
  attrs.window = after(x.dims, n.attrs.dim);
  return {b.ordered(b.make(Op::kAllToAll, {grads[0]}, attrs), x.dims)};
}

// --- attach: a parameter that is read, and what takes its gradient
// --------------------------------

ShapeResult attach_shape(const Graph& g, Values operands, const Attrs&) {
  if (auto wrong = wrong_operands(g, operands, {Accepts::kAny, Accepts::kAny})) return *wrong;
  const Type &x = g.type(operands[0]), &z = g.type(operands[1]);
  if (x != z) {
    return failed(Code::kOther, 1, z.dims,
                  fmt::format("{} is to take the gradient of {}", g.str(z), g.str(x)));
  }
  return typed(x);
}

std::vector<ValueId> attach_grad(Builder&, NodeId, Values grads) {
  return {{}, grads[0]};
}

std::vector<Tensor> attach_eval(const Graph&, const Node&, Operands in, EvalContext&) {
  return {*in[0]};
}

}  // namespace

Tensor collective_result(const Graph& g, const Node& node, std::span<const Tensor* const> members,
                         int64_t own) {
  CAD_CHECK(static_cast<int64_t>(members.size()) == mesh_size(g, node.attrs.axes),
            "{} members of a collective between {}", members.size(), mesh_size(g, node.attrs.axes));
  if (moves_parts(node)) return move_parts_result(g, node, members, own);
  const Type& x = operand_type(g, node, 0);
  const bool takes_own = node.op == Op::kReduceScatter || node.op == Op::kAllToAll;
  std::vector<Tensor> parts;
  for (const Tensor* member : members) {
    CAD_CHECK(member->extents == members[0]->extents, "members of `{}` hold other extents",
              op_name(node.op));
    parts.push_back(takes_own ? at_index(*member, place_of(x, node.attrs.dim), own) : *member);
  }
  switch (node.op) {
    case Op::kAllReduce:
      return folded(parts, node.attrs.reduction);
    case Op::kReduceScatter:
      return folded(parts, Reduction::kSum);
    case Op::kAllGather:
      return side_by_side(parts, place_of(x, node.attrs.dim));
    case Op::kAllToAll: {
      const Type left{x.dtype, without(x.dims, {node.attrs.dim})};
      return side_by_side(parts, place_of(left, node.attrs.window));
    }
    default:
      CAD_CHECK(false, "op `{}` is no collective", op_name(node.op));
      return {};
  }
}

const OpInfo kAxisIndexInfo{"the number of the device along axes of the mesh",
                            axis_index_shape,
                            nullptr,
                            axis_index_eval,
                            free_cost,
                            whole_sharding};
const OpInfo kAllReduceInfo{"sum, maximum or minimum over devices, given to all",
                            all_reduce_shape,
                            all_reduce_grad,
                            comm_eval,
                            reduce_cost,
                            whole_sharding};
const OpInfo kAllGatherInfo{"all devices' tensors side by side, given to all",
                            all_gather_shape,
                            all_gather_grad,
                            comm_eval,
                            copy_cost,
                            whole_sharding};
const OpInfo kReduceScatterInfo{"the sum over devices, a slice to each",
                                reduce_scatter_shape,
                                reduce_scatter_grad,
                                comm_eval,
                                reduce_cost,
                                whole_sharding};
const OpInfo kAllToAllInfo{"a slice of each device to each other",
                           all_to_all_shape,
                           all_to_all_grad,
                           comm_eval,
                           copy_cost,
                           whole_sharding};
const OpInfo kAttachInfo{"a tensor whose gradient goes to another one",
                         attach_shape,
                         attach_grad,
                         attach_eval,
                         free_cost,
                         whole_sharding};

}  // namespace cad::ir
