// backend/device_part.cc -- see backend/device_part.h.
#include "backend/device_part.h"

#include <algorithm>

#include "backend/program_impl.h"
#include "base/check.h"
#include "ir/collective.h"
#include "ir/interpreter.h"
#include "ir/shard.h"

namespace cad::backend {

int64_t CollectivePlan::bytes() const {
  return call.in_elements() * ir::dtype_bytes(call.dtype);
}

namespace {

CollectiveKind kind_of(const ir::Node& node) {
  if (ir::moves_parts(node)) return CollectiveKind::kPermute;
  switch (node.op) {
    case ir::Op::kAllReduce:
      return CollectiveKind::kAllReduce;
    case ir::Op::kAllGather:
      return CollectiveKind::kAllGather;
    case ir::Op::kReduceScatter:
      return CollectiveKind::kReduceScatter;
    case ir::Op::kAllToAll:
      return CollectiveKind::kAllToAll;
    default:
      CAD_CHECK(false, "op `{}` is no collective", ir::op_name(node.op));
  }
}

Reduction reduction_of(ir::Reduction r) {
  return r == ir::Reduction::kMax   ? Reduction::kMax
         : r == ir::Reduction::kMin ? Reduction::kMin
                                    : Reduction::kSum;
}

std::string axes_text(const ir::Graph& g, uint32_t axes) {
  std::string text;
  for (size_t a = 0; a < g.mesh.size(); ++a) {
    if ((axes >> a & 1) != 0) text += (text.empty() ? "" : ",") + g.mesh[a].name;
  }
  return text;
}

int64_t product(std::span<const int64_t> extents) {
  int64_t n = 1;
  for (const int64_t extent : extents) n *= extent;
  return n;
}

// An all-to-all that removes the dim at `removed` and puts one before the dim at `inserted` of what
// remains. Both are whole dims of n: one element of each goes to, or comes from, every member.
AllToAll exchange(std::span<const int64_t> rest, size_t removed, size_t inserted) {
  AllToAll x;
  const size_t first = std::min(removed, inserted), second = std::max(removed, inserted);
  x.join_first = inserted < removed;
  x.a = product(rest.subspan(0, first));
  x.b = product(rest.subspan(first, second - first));
  x.c = product(rest.subspan(second));
  return x;
}

// Dims that nobody gives up go together with their neighbours.
Parts parts_of(const ir::Graph& g, const ir::Node& node, std::span<const int64_t> in,
               std::span<const int64_t> out) {
  const std::vector<ir::MovedPart> moved = ir::moved_parts(g, node);
  const auto members = static_cast<size_t>(ir::mesh_size(g, node.attrs.axes));
  const std::vector<ir::DimId>& dims = g.type(node.operands[0]).dims;
  Parts parts;
  bool open = false;  // the last dim is one that everybody keeps
  for (size_t d = 0; d < dims.size(); ++d) {
    const auto part = std::find_if(moved.begin(), moved.end(),
                                   [&](const ir::MovedPart& p) { return p.from == dims[d]; });
    if (part == moved.end()) {
      if (!open) parts.dims.emplace_back();
      open = true;
      parts.dims.back().in *= in[d];
      parts.dims.back().out *= in[d];
      continue;
    }
    open = false;
    Parts::Dim dim{in[d], out[d], {}, {}};
    for (const ir::PartRange& r : part->had) dim.had.push_back({r.begin, r.end});
    for (const ir::PartRange& r : part->gets) dim.gets.push_back({r.begin, r.end});
    parts.dims.push_back(std::move(dim));
  }
  for (Parts::Dim& dim : parts.dims) {
    if (dim.had.empty()) dim.had.assign(members, {0, dim.in});
    if (dim.gets.empty()) dim.gets.assign(members, {0, dim.out});
  }
  return parts;
}

}  // namespace

CollectivePlan plan_collective(const ir::Graph& g, ir::NodeId id, const ir::Bindings& bindings) {
  const ir::Node& node = g.node(id);
  CollectivePlan plan;
  plan.node = id;
  plan.axes = node.attrs.axes;
  CollectiveCall& call = plan.call;
  const ir::Type& from = g.type(node.operands[0]);
  const ir::Type& to = g.type(node.results[0]);
  const std::vector<int64_t> in = ir::extents_of(g, from, bindings),
                             out = ir::extents_of(g, to, bindings);
  call.kind = kind_of(node);
  call.dtype = from.dtype;
  call.reduction = reduction_of(node.attrs.reduction);
  call.axis = axes_text(g, plan.axes);
  call.members = group_of(g, plan.axes, std::vector<int>(g.mesh.size()));  // as many as any group's
  const ir::Value& value = g.value(node.results[0]);
  const ir::Value& operand = g.value(node.operands[0]);
  call.label = !value.name.empty() ? value.name : operand.name;
  if (!node.scope.empty()) call.label += (call.label.empty() ? "" : " of ") + node.scope;
  const auto split = [](const std::vector<int64_t>& extents, int at, int skip) {
    const std::span<const int64_t> all(extents);
    return std::pair(product(all.subspan(0, static_cast<size_t>(at))),
                     product(all.subspan(static_cast<size_t>(at + skip))));
  };
  switch (call.kind) {
    case CollectiveKind::kAllGather:
      std::tie(call.outer, call.inner) = split(out, to.position(node.attrs.to), 1);
      break;
    case CollectiveKind::kReduceScatter:
      std::tie(call.outer, call.inner) = split(in, from.position(node.attrs.dim), 1);
      break;
    case CollectiveKind::kAllToAll: {
      std::vector<int64_t> rest = in;
      const int removed = from.position(node.attrs.dim);
      rest.erase(rest.begin() + removed);
      call.all_to_all = exchange(rest, static_cast<size_t>(removed),
                                 static_cast<size_t>(to.position(node.attrs.to)));
      break;
    }
    case CollectiveKind::kPermute:
      call.parts = parts_of(g, node, in, out);
      break;
    default:
      call.inner = product(in);
  }
  return plan;
}

std::vector<int> group_of(const ir::Graph& g, uint32_t axes, std::span<const int> coordinates) {
  // Asked for every device of a large mesh: one allocation, nothing visited that is no member.
  std::vector<int> members{0};
  members.reserve(static_cast<size_t>(ir::mesh_size(g, axes)));
  for (size_t a = 0; a < g.mesh.size(); ++a) {
    const auto size = static_cast<size_t>(g.mesh[a].size);
    const bool all = (axes >> a & 1) != 0;
    if (!all) {
      for (int& m : members) m = m * static_cast<int>(size) + coordinates[a];
      continue;
    }
    const size_t before = members.size();
    members.resize(before * size);
    for (size_t m = before; m-- > 0;) {  // from the end: what is still to be read stays
      const int first = members[m] * static_cast<int>(size);
      for (size_t i = 0; i < size; ++i) members[m * size + i] = first + static_cast<int>(i);
    }
  }
  return members;
}

DevicePart device_part(const ProgramImpl& program, std::span<const int> coordinates) {
  const ir::Graph& g = program.graph;
  CAD_CHECK(coordinates.size() == g.mesh.size(), "{} coordinates on a mesh of {} axes",
            coordinates.size(), g.mesh.size());
  DevicePart part;
  for (const CollectivePlan& plan : program.collectives) {
    part.calls.push_back(plan.call);
    part.calls.back().members = group_of(g, plan.axes, coordinates);
  }
  for (const uint32_t axes : program.axis_indices)
    part.axis_indices.push_back(static_cast<int32_t>(ir::axis_index(g, axes, coordinates)));
  part.ints_of.assign(program.calls.size(), -1);
  for (size_t c = 0; c < program.calls.size(); ++c) {
    const KernelCall& call = program.calls[c];
    if (call.device_ints.empty()) continue;
    const size_t begin = part.ints.size();
    part.ints_of[c] = static_cast<int64_t>(begin);
    part.ints.insert(part.ints.end(), call.ints.begin(), call.ints.end());
    for (const DeviceInt& own : call.device_ints) {
      for (const ShardTerm& term : own.terms) {
        part.ints[begin + static_cast<size_t>(own.slot)] +=
            term.stride * ir::shard_offset(g, term.dim, coordinates, program.bindings);
      }
    }
  }
  return part;
}

}  // namespace cad::backend
