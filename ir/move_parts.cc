// ir/move_parts.cc -- the all-to-all of parts: a tensor that the members hold in parts of some dims
// is held in parts of others afterwards, and every member sends exactly what another one lacks.
// Which elements these are follows from Dim::whole and Dim::axes (ir/shard.h); nothing is summed.
// The all-to-all of equal slices is in op_comm.cc.
//
// (P1) attrs.groups are pairs of one dim each, parts of the same whole dim (or that dim itself); x
// has the first, the result has the second in its place. (P2) Axes that both parts begin with stay
// as they are; the others are those of attrs.axes, each once among the first dims and once among
// the second ones: the members hold the same elements before and after.
#include <algorithm>
#include <array>
#include <limits>

#include "ir/collective.h"
#include "ir/op_rules.h"
#include "ir/shard.h"

namespace cad::ir {

using Code = ShapeError::Code;

namespace {

DimId whole_of(const Graph& g, DimId dim) {
  return g.dim(dim).whole.valid() ? g.dim(dim).whole : dim;
}

std::span<const int8_t> split_by(const Graph& g, DimId dim) {
  const Dim& d = g.dim(dim);
  return d.whole.valid() ? std::span<const int8_t>(d.axes) : std::span<const int8_t>();
}

size_t shared_axes(std::span<const int8_t> a, std::span<const int8_t> b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

// What a member holds of a stretch that these axes split, outermost first.
PartRange range_of(const Graph& g, int64_t stretch, std::span<const int8_t> axes,
                   std::span<const int> coordinates) {
  PartRange own{0, stretch};
  for (const int8_t a : axes) {
    const auto axis = static_cast<size_t>(static_cast<unsigned char>(a));  // not negative
    const std::array<int8_t, 1> one{a};
    stretch = part_extent(g, stretch, one);
    own.begin = std::min(own.end, own.begin + stretch * coordinates[axis]);
    own.end = std::min(own.end, own.begin + stretch);
  }
  return own;
}

// Coordinates of a member: 0 on all axes that are not the group's.
std::vector<int> member_coordinates(const Graph& g, uint32_t axes, int64_t member) {
  std::vector<int> at(g.mesh.size());
  for (size_t a = g.mesh.size(); a-- > 0;) {
    if ((axes >> a & 1) == 0) continue;
    at[a] = static_cast<int>(member % g.mesh[a].size);
    member /= g.mesh[a].size;
  }
  return at;
}

// Adds axes to a set; false when one is there already.
bool add_axes(std::span<const int8_t> axes, uint32_t& seen) {
  for (const int8_t a : axes) {
    const uint32_t bit = 1U << static_cast<unsigned>(a);
    if ((seen & bit) != 0) return false;
    seen |= bit;
  }
  return true;
}

}  // namespace

ShapeResult move_parts_shape(const Graph& g, const Type& x, const Attrs& attrs) {
  Dims dims = x.dims;
  uint32_t had = 0, gets = 0;
  for (const DimGroup& group : attrs.groups) {
    if (group.from.size() != 1 || group.to.size() != 1)
      return failed(Code::kOther, 0, {}, "a part becomes one other part");
    const DimId from = group.from[0], to = group.to[0];
    if (auto wrong = unknown(g, {from, to})) return *wrong;
    if (!contains(x.dims, from))
      return failed(Code::kMissingDim, 0, {from}, fmt::format("no {} here", names(g, {from})));
    if (whole_of(g, from) != whole_of(g, to))
      return failed(Code::kOther, 0, {from, to},
                    fmt::format("{} are not parts of one dim", names(g, {from, to})));
    const auto a = split_by(g, from), b = split_by(g, to);
    const size_t shared = shared_axes(a, b);
    if (!add_axes(a.subspan(shared), had) || !add_axes(b.subspan(shared), gets))
      return failed(Code::kOther, 0, {from, to}, "an axis splits two dims");
    *std::find(dims.begin(), dims.end(), from) = to;
  }
  if (had != attrs.axes || gets != attrs.axes)
    return failed(Code::kOther, 0, {}, "the parts that change are not those of the group's axes");
  if (auto wrong = repeated(g, dims)) return *wrong;
  return typed(x.dtype, std::move(dims));
}

std::vector<MovedPart> moved_parts(const Graph& g, const Node& node) {
  const int64_t members = mesh_size(g, node.attrs.axes);
  std::vector<MovedPart> moved;
  for (const DimGroup& group : node.attrs.groups) {
    MovedPart part{group.from[0], group.to[0], {}, {}};
    const auto a = split_by(g, part.from), b = split_by(g, part.to);
    const size_t shared = shared_axes(a, b);
    const auto whole = g.dim(whole_of(g, part.from)).size.constant();
    CAD_CHECK(whole.has_value(), "parts of a dim without a size");
    const int64_t stretch = part_extent(g, *whole, a.first(shared));
    for (int64_t m = 0; m < members; ++m) {
      const std::vector<int> at = member_coordinates(g, node.attrs.axes, m);
      part.had.push_back(range_of(g, stretch, a.subspan(shared), at));
      part.gets.push_back(range_of(g, stretch, b.subspan(shared), at));
    }
    moved.push_back(std::move(part));
  }
  return moved;
}

// Every element of every member goes where the member `own` has it afterwards, if it does. The rest
// of the result is beyond the own part: NaN, or 0.
Tensor move_parts_result(const Graph& g, const Node& node, std::span<const Tensor* const> members,
                         int64_t own) {
  const std::vector<MovedPart> moved = moved_parts(g, node);
  const Type& x = operand_type(g, node, 0);
  Tensor out = filled(g, result_type(g, node), {},
                      is_float(x.dtype) ? std::numeric_limits<double>::quiet_NaN() : 0.0);
  const auto me = static_cast<size_t>(own);
  for (size_t m = 0; m < members.size(); ++m) {
    const Axes from{x.dims, members[m]->extents};
    size_t at = 0;
    walk(from, [&](const Index& index) {
      const double value = members[m]->data[at++];
      int64_t to = 0;
      for (size_t i = 0; i < index.size(); ++i) {
        int64_t place = index[i];
        const auto part = std::find_if(moved.begin(), moved.end(),
                                       [&](const MovedPart& p) { return p.from == from.dims[i]; });
        if (part != moved.end()) {
          place += part->had[m].begin;
          if (place >= part->had[m].end || place < part->gets[me].begin ||
              place >= part->gets[me].end)
            return;
          place -= part->gets[me].begin;
        }
        to = to * out.extents[i] + place;
      }
      out.data[static_cast<size_t>(to)] = value;
    });
  }
  return out;
}

}  // namespace cad::ir
