// backend/spmd/convert.cc -- see convert.h. cut() and join() are the views: a dim D of a device's
// part becomes (each/axis, D/axis), and back. What a collective gathers or scatters is the dim
// `each/axis`, wherever it stands. A permute has no views: its parts are named by their dims.
#include "backend/spmd/convert.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cad::backend {

using ir::DimId;
using ir::Op;
using ir::ValueId;
using planner::Layout;
using planner::Step;

namespace {

uint32_t bit(int8_t axis) {
  return 1U << axis;
}

// The axes that `longer` has after those of `shorter`; CAD_CHECKs that it begins like it.
AxisOrder rest(const AxisOrder& longer, const AxisOrder& shorter) {
  CAD_CHECK(
      longer.size() >= shorter.size() && std::equal(shorter.begin(), shorter.end(), longer.begin()),
      "axes do not nest");
  return {longer.begin() + static_cast<std::ptrdiff_t>(shorter.size()), longer.end()};
}

bool ascending(const AxisOrder& axes) {
  return std::is_sorted(axes.begin(), axes.end());
}

std::vector<AxisOrder> state_of(const Layout& layout, const ir::Type& whole) {
  std::vector<AxisOrder> state;
  for (size_t p = 0; p < whole.rank(); ++p) state.push_back(axis_order(layout, p));
  return state;
}

bool moves(Step::Kind kind) {
  return kind == Step::Kind::kAllToAll || kind == Step::Kind::kPermute;
}

ValueId reshape(ir::Builder& b, ValueId x, std::vector<DimId> from, std::vector<DimId> to) {
  ir::Attrs attrs;
  attrs.groups.push_back({std::move(from), std::move(to)});
  return b.make(Op::kReshape, {x}, std::move(attrs));
}

ValueId resize(ir::Builder& b, Op op, ValueId x, DimId from, DimId to) {
  ir::Attrs attrs;
  attrs.dim = from;
  attrs.to = to;
  attrs.start = ir::Size(0);
  return b.make(op, {x}, std::move(attrs));
}

}  // namespace

// D/axes becomes (each/axis, D/axes+axis).
ValueId Converter::cut(ir::Builder& b, ValueId x, DimId whole, AxisOrder& axes, int8_t axis) {
  DimId now = dims_.part(whole, axes);
  axes.push_back(axis);
  const DimId part = dims_.part(whole, axes);
  const int64_t size = dims_.size(part) * dims_.axis_size(axis);
  if (size != dims_.size(now)) {
    const DimId wide = dims_.padded(now, size);
    x = resize(b, Op::kPad, x, now, wide);
    now = wide;
  }
  return reshape(b, x, {now}, {dims_.group(bit(axis)), part});
}

// The other way, for the innermost axis.
ValueId Converter::join(ir::Builder& b, ValueId x, DimId whole, AxisOrder& axes) {
  const DimId part = dims_.part(whole, axes);
  const int8_t axis = axes.back();
  axes.pop_back();
  const DimId now = dims_.part(whole, axes);
  const int64_t size = dims_.size(part) * dims_.axis_size(axis);
  if (size == dims_.size(now)) return reshape(b, x, {dims_.group(bit(axis)), part}, {now});
  const DimId wide = dims_.padded(now, size);
  return resize(b, Op::kSlice, reshape(b, x, {dims_.group(bit(axis)), part}, {wide}), wide, now);
}

// Takes axes away from the dims that `to` splits less: by gathering, or by zeros around the part.
ValueId Converter::shrink(ir::Builder& b, ValueId x, const ir::Type& whole, State& at,
                          const State& to, bool collective) {
  for (size_t p = 0; p < at.size(); ++p) {
    if (at[p].size() <= to[p].size()) continue;
    const DimId dim = whole.dims[p];
    AxisOrder removed = rest(at[p], to[p]);
    if (collective && removed.size() > 1 && ascending(removed)) {  // in one go
      ir::Attrs attrs;
      attrs.axes = set_of(removed);
      attrs.dim = dims_.part(dim, at[p]);
      attrs.to = dims_.group(attrs.axes);
      x = b.make(Op::kAllGather, {x}, attrs);
      std::vector<DimId> each;
      for (const int8_t axis : removed) each.push_back(dims_.group(bit(axis)));
      x = reshape(b, x, {attrs.to}, each);
      while (at[p].size() > to[p].size()) x = join(b, x, dim, at[p]);
      continue;
    }
    while (at[p].size() > to[p].size()) {
      const uint32_t axes = bit(at[p].back());
      const DimId part = dims_.part(dim, at[p]);
      ir::Attrs attrs;
      if (collective) {
        attrs.axes = axes;
        attrs.dim = part;
        attrs.to = dims_.group(axes);
        x = b.make(Op::kAllGather, {x}, std::move(attrs));
      } else {
        attrs.dim = dims_.group(axes);
        for (const DimId d : b.graph().type(x).dims) {
          if (d == part) attrs.dims.push_back(attrs.dim);
          attrs.dims.push_back(d);
        }
        x = b.make(Op::kUnselect, {x, axis_index(b, axes)}, std::move(attrs));
      }
      x = join(b, x, dim, at[p]);
    }
  }
  return x;
}

// Splits the dims that `to` splits more: takes the device's slice, of the sum if `reduce`.
ValueId Converter::grow(ir::Builder& b, ValueId x, const ir::Type& whole, State& at,
                        const State& to, bool reduce) {
  for (size_t p = 0; p < at.size(); ++p) {
    const AxisOrder added = at[p].size() < to[p].size() ? rest(to[p], at[p]) : AxisOrder{};
    const DimId dim = whole.dims[p];
    if (reduce && added.size() > 1 && ascending(added)) {
      std::vector<DimId> each;
      for (const int8_t axis : added) {
        x = cut(b, x, dim, at[p], axis);
        each.push_back(dims_.group(bit(axis)));
      }
      ir::Attrs attrs;
      attrs.axes = set_of(added);
      attrs.dim = dims_.group(attrs.axes);
      x = b.make(Op::kReduceScatter, {reshape(b, x, each, {attrs.dim})}, attrs);
      continue;
    }
    for (const int8_t axis : added) {
      x = cut(b, x, dim, at[p], axis);
      ir::Attrs attrs;
      attrs.dim = dims_.group(bit(axis));
      if (reduce) {
        attrs.axes = bit(axis);
        x = b.make(Op::kReduceScatter, {x}, std::move(attrs));
      } else {
        x = b.make(Op::kSelect, {x, axis_index(b, bit(axis))}, std::move(attrs));
      }
    }
  }
  return x;
}

// Moves axes from the dims that lose them to those that gain them, one at a time, or several that
// stay together. False when the order does not allow it.
bool Converter::exchange(ir::Builder& b, ValueId& x, const ir::Type& whole, State& at,
                         const State& to) {
  while (at != to) {
    bool moved = false;
    for (size_t q = 0; q < at.size() && !moved; ++q) {
      if (at[q].size() >= to[q].size()) continue;
      AxisOrder axes{to[q][at[q].size()]};
      for (size_t p = 0; p < at.size() && !moved; ++p) {
        const auto found = std::find(at[p].begin(), at[p].end(), axes[0]);
        if (found == at[p].end()) continue;
        AxisOrder tail(found, at[p].end());
        if (tail.size() > 1) {
          const AxisOrder wanted = rest(to[q], at[q]);
          if (wanted.size() < tail.size() || !ascending(tail) ||
              !std::equal(tail.begin(), tail.end(), wanted.begin()))
            continue;
          axes = std::move(tail);
        }
        ir::Attrs attrs;
        attrs.axes = set_of(axes);
        std::vector<DimId> each;
        for (const int8_t axis : axes) {
          x = cut(b, x, whole.dims[q], at[q], axis);
          each.push_back(dims_.group(bit(axis)));
        }
        const DimId group = dims_.group(attrs.axes);
        if (axes.size() > 1) x = reshape(b, x, each, {group});
        // the dim that comes in needs another name while the one that goes out is there
        attrs.dim = group;
        attrs.to = dims_.padded(group, dims_.size(group));
        attrs.window = dims_.part(whole.dims[p], at[p]);
        const DimId incoming = attrs.to;
        x = b.make(Op::kAllToAll, {x}, std::move(attrs));
        ir::Attrs rename;
        rename.groups.push_back({{incoming}, {group}});
        x = b.make(Op::kRename, {x}, std::move(rename));
        if (axes.size() > 1) x = reshape(b, x, {group}, each);
        for (size_t k = 0; k < axes.size(); ++k) x = join(b, x, whole.dims[p], at[p]);
        moved = true;
      }
    }
    if (!moved) return false;
  }
  return true;
}

ValueId Converter::apply(ir::Builder& b, ValueId x, const ir::Type& whole, const Step& step) {
  State at = state_of(step.from, whole);
  const State to = state_of(step.to, whole);
  switch (step.kind) {
    case Step::Kind::kAllReduce: {
      ir::Attrs attrs;
      attrs.axes = step.axes;
      return b.make(Op::kAllReduce, {x}, std::move(attrs));
    }
    case Step::Kind::kKeepOne: {
      const ValueId zero = b.constant(ir::Scalar(0.0), ir::DType::kI32);
      const ValueId first = b.make(Op::kEq, {axis_index(b, step.axes), zero});
      return b.where(first, x, b.constant(ir::Scalar(0.0), b.graph().type(x).dtype));
    }
    case Step::Kind::kAllGather:
      return shrink(b, x, whole, at, to, true);
    case Step::Kind::kPad:
      return shrink(b, x, whole, at, to, false);
    case Step::Kind::kReduceScatter:
      return grow(b, x, whole, at, to, true);
    case Step::Kind::kSlice:
      return grow(b, x, whole, at, to, false);
    case Step::Kind::kAllToAll:
      if (exchange(b, x, whole, at, to)) return x;
      break;
    case Step::Kind::kPermute:
      break;
  }
  return permute(b, x, whole, at, to);
}

// Between layouts that split over the same axes. Axes that a dim's parts begin with in both stay.
ValueId Converter::permute(ir::Builder& b, ValueId x, const ir::Type& whole, const State& from,
                           const State& to) {
  ir::Attrs attrs;
  for (size_t p = 0; p < whole.rank(); ++p) {
    const AxisOrder &had = from[p], &gets = to[p];
    if (had == gets) continue;
    const auto [a, z] = std::mismatch(had.begin(), had.end(), gets.begin(), gets.end());
    attrs.axes |= set_of(AxisOrder(a, had.end())) | set_of(AxisOrder(z, gets.end()));
    attrs.groups.push_back({{dims_.part(whole.dims[p], had)}, {dims_.part(whole.dims[p], gets)}});
  }
  return attrs.groups.empty() ? x : b.make(Op::kAllToAll, {x}, std::move(attrs));
}

ValueId Converter::convert(ir::Builder& b, ValueId x, const ir::Type& whole, const Layout& from,
                           const Layout& to) {
  if (from == to) return x;
  std::vector<int64_t> extents;
  for (const DimId d : whole.dims) extents.push_back(dims_.size(d));
  const planner::ConversionTable& table =
      conversions_.table(extents, ir::dtype_bytes(whole.dtype), ir::is_float(whole.dtype));
  const std::vector<Step> steps = table.path(from, to);
  for (size_t s = 0; s < steps.size();) {
    // parts that move several times go at once, the shortest way
    size_t end = s;
    while (end < steps.size() && moves(steps[end].kind)) ++end;
    if (end - s > 1) {
      x = permute(b, x, whole, state_of(steps[s].from, whole), state_of(steps[end - 1].to, whole));
      s = end;
    } else {
      x = apply(b, x, whole, steps[s++]);
    }
  }
  return x;
}

}  // namespace cad::backend
