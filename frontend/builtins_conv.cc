// frontend/builtins_conv.cc -- convolution and pooling: windows over the spatial dims, then a
// contraction or a reduction. The output's size is a condition whose help is the `dim` line.
//
//   y2 = (y + 2 pad - dilation (kernel - 1) - 1) // stride + 1
#include <algorithm>
#include <limits>

#include "frontend/builtins.h"

namespace cad::frontend {

using ir::Attrs;
using ir::DType;
using ir::Op;
using ir::Scalar;
using ir::Size;
using ir::ValueId;

namespace {

// One spatial dim of a convolution or pooling.
struct Axis {
  ir::DimId from, to;  // Y, Y2 (may be Y again)
  ir::DimId kernel;    // KY
  Size kernel_size, stride = 1, pad = 0, dilation = 1;
  Span span;
};

Size out_size(const Elaborator& e, const Axis& x) {
  const Size reach = x.dilation * (x.kernel_size - Size(1));
  return Size::floor_div(e.size({x.from}) + Size(2) * x.pad - reach - Size(1), x.stride) + Size(1);
}

bool need_output(Elaborator& e, const Call& call, const Axis& x) {
  DefCondition c;
  c.left = e.size({x.to});
  c.right = out_size(e, x);
  c.what = fmt::format("the output of `{}` along `{}`", call.name, e.graph.dim(x.from).name);
  c.dim = e.graph.dim(x.to).name;
  c.span = x.span;
  return e.need(std::move(c));
}

// Windows of x along the axis: Y gives way to `to`, the kernel dim stands behind it.
std::optional<ValueId> window(Elaborator& e, const Call& call, const EValue* shown, ValueId x,
                              const Axis& axis, ir::DimId to, double outside) {
  auto stride = known_whole(e, call, axis.stride, "stride");
  auto pad = stride ? known_whole(e, call, axis.pad, "pad") : std::nullopt;
  auto dilation = pad ? known_whole(e, call, axis.dilation, "dilation") : std::nullopt;
  if (!dilation) return std::nullopt;
  Attrs attrs;
  attrs.dim = axis.from;
  attrs.to = to;
  attrs.window = axis.kernel;
  attrs.stride = *stride;
  attrs.pad = *pad;
  attrs.dilation = *dilation;
  attrs.scalar = Scalar(outside);
  return e.make(Op::kWindow, {x}, std::move(attrs), site(call, {shown}));
}

// A dim for the output of an axis: a stand-in where x still has it (`Y -> Y`).
ir::DimId output_dim(Elaborator& e, ValueId x, const Axis& axis) {
  if (axis.to != axis.from && !e.type(x).has(axis.to)) return axis.to;
  return e.alternate(axis.to, [&](ir::DimId d) { return e.type(x).has(d); });
}

struct Conv {
  ir::DimId in, out;
  std::vector<Axis> axes;
  Size groups = 1;
  const EValue *x = nullptr, *w = nullptr;
};

std::optional<ir::DimId> only(Elaborator& e, const Call& call, const DimList& dims, Span span) {
  if (dims.size() == 1) return dims[0];
  e.error(DiagId::E0110, span, fmt::format("`{}` takes one dim here", call.name), "not one");
  return std::nullopt;
}

bool conv_items(Elaborator& e, const Call& call, Conv& conv) {
  bool ok = call.dims != nullptr && call.dims->size() >= 2;
  for (size_t i = 0; ok && i < call.dims->size(); ++i) {
    const DimItem& item = (*call.dims)[i];
    ok = item.kind == DimItemKind::kArrow && item.left.dims.size() == (i == 0 ? 1 : 2) &&
         item.right.dims.size() == 1;
  }
  if (!ok) {
    dim_items(e, call, 99, true, "C -> O, (Y, KY) -> Y2, (X, KX) -> X2");
    return false;
  }
  for (size_t i = 0; i < call.dims->size(); ++i) {
    const DimItem& item = (*call.dims)[i];
    auto left = side(e, call, item.left), right = side(e, call, item.right);
    if (!left || !right) return false;
    auto to = only(e, call, *right, item.right.span);
    if (!to) return false;
    if (i == 0) {
      auto in = only(e, call, *left, item.left.span);
      if (!in) return false;
      conv.in = *in;
      conv.out = *to;
      continue;
    }
    if (left->size() != 2) {
      e.error(DiagId::E0110, item.left.span, "`conv` takes a dim and its kernel's dim here",
              "not two");
      return false;
    }
    Axis axis;
    axis.from = (*left)[0];
    axis.kernel = (*left)[1];
    axis.to = *to;
    axis.kernel_size = e.size({axis.kernel});
    axis.span = item.span;
    conv.axes.push_back(axis);
  }
  return true;
}

// The weight's one dim that is neither O nor a kernel dim: C, or C / groups.
std::optional<ir::DimId> weight_input(Elaborator& e, const Call& call, const Conv& conv,
                                      ValueId w) {
  DimList rest;
  for (ir::DimId d : e.type(w).dims) {
    const bool kernel = std::any_of(conv.axes.begin(), conv.axes.end(),
                                    [&](const Axis& a) { return a.kernel == d; });
    if (d != conv.out && !kernel) rest.push_back(d);
  }
  DimList wanted{conv.out};
  for (const Axis& a : conv.axes) wanted.push_back(a.kernel);
  if (!has_dims(e, call, *conv.w, w, wanted)) return std::nullopt;
  if (rest.size() == 1) return rest[0];
  e.error(DiagId::E0201, conv.w->span.valid() ? conv.w->span : call.name_span,
          fmt::format("the weight of `conv` has one more dim besides [{}]: the channels of a group",
                      e.show(wanted)),
          e.describe(*conv.w));
  return std::nullopt;
}

ValueId contract(Elaborator& e, ValueId x, ValueId w, const DimList& dims) {
  if (e.options.compute != DType::kF32) {
    x = e.cast(x, e.options.compute);
    w = e.cast(w, e.options.compute);
  } else {
    e.unify_floats(x, w);
  }
  Attrs attrs;
  attrs.dims = dims;
  return e.node(Op::kContract, {x, w}, std::move(attrs));
}

EValue lower_conv(Elaborator& e, Call& call, const Conv& conv, ValueId x, ValueId w,
                  ir::DimId channels) {
  std::vector<std::pair<ir::DimId, ir::DimId>> back;
  DimList summed{channels};
  for (const Axis& axis : conv.axes) {
    const auto stride = axis.stride.evaluate(*e.known),
               kernel = axis.kernel_size.evaluate(*e.known);
    const bool plain =
        kernel.ok() && kernel.value == 1 && stride.ok() && stride.value == 1 && axis.pad == Size(0);
    if (plain && axis.from == axis.to) {
      // A 1 x 1 kernel looks at one place: its dim of size 1 goes away from the weight.
      w = e.regroup(w, {axis.kernel}, {});
      continue;
    }
    const ir::DimId to = output_dim(e, x, axis);
    auto made = window(e, call, conv.x, x, axis, to, 0);
    if (!made) return {};
    x = *made;
    summed.push_back(axis.kernel);
    if (to != axis.to) back.emplace_back(to, axis.to);
  }
  const auto groups = conv.groups.evaluate(*e.known);
  if (groups.ok() && groups.value == 1) {
    if (channels != conv.in) x = e.rename(x, {{conv.in, channels}});
    x = contract(e, x, w, summed);
    return e.tensor_of(e.rename(x, back), call.span);
  }
  const ir::DimId group = e.local_dim("G", conv.groups);
  const ir::DimId each = e.local_dim("O", e.size({conv.out}) / conv.groups);
  x = e.regroup(x, {conv.in}, {group, channels});
  w = e.regroup(w, {conv.out}, {group, each});
  x = contract(e, x, w, summed);
  x = e.regroup(x, {group, each}, {conv.out});
  return e.tensor_of(e.rename(x, back), call.span);
}

// Types and conditions alone: kernel sizes may be constant arguments of the definition.
EValue check_conv(Elaborator& e, Call& call, const Conv& conv, ValueId x) {
  ir::Type t = e.type(x);
  auto replace = [&](ir::DimId from, ir::DimId to) {
    std::replace(t.dims.begin(), t.dims.end(), from, to);
  };
  replace(conv.in, conv.out);
  for (const Axis& a : conv.axes) replace(a.from, a.to);
  return e.tensor_of(e.opaque(t, ""), call.span);
}

bool result_dims_apart(Elaborator& e, const Call& call, ValueId x,
                       const std::vector<std::pair<ir::DimId, ir::DimId>>& moves) {
  for (const auto& [from, to] : moves) {
    const ir::DimId target = to;
    const bool goes =
        std::any_of(moves.begin(), moves.end(), [&](const auto& m) { return m.first == target; });
    if (from != to && e.type(x).has(to) && !goes) {
      e.error(DiagId::E0204, call.dims_span,
              fmt::format("the result of `{}` would hold {} twice", call.name, e.dim_text(to)),
              e.show(x))
          .help(fmt::format("use an alias: `dim {}2 = {}`", e.graph.dim(to).name,
                            e.graph.dim(to).name));
      return false;
    }
  }
  return true;
}

}  // namespace

EValue builtin_conv(Elaborator& e, Call& call) {
  Conv conv;
  if (!conv_items(e, call, conv)) return {};
  const BuiltinArgs a = take(e, call, {"x", "w", "stride", "pad", "dilation", "groups"}, 2);
  if (!a.ok) return {};
  conv.x = a[0];
  conv.w = a[1];
  auto x = float_tensor(e, call, a[0]);
  auto w = x ? float_tensor(e, call, a[1]) : std::nullopt;
  auto stride = w ? whole(e, call, a[2], "stride", 1) : std::nullopt;
  auto pad = stride ? whole(e, call, a[3], "pad", 0) : std::nullopt;
  auto dilation = pad ? whole(e, call, a[4], "dilation", 1) : std::nullopt;
  auto groups = dilation ? whole(e, call, a[5], "groups", 1) : std::nullopt;
  if (!groups) return {};
  conv.groups = *groups;
  DimList wanted{conv.in};
  std::vector<std::pair<ir::DimId, ir::DimId>> moves{{conv.in, conv.out}};
  for (Axis& axis : conv.axes) {
    axis.stride = *stride;
    axis.dilation = *dilation;
    axis.pad = a[3] != nullptr ? *pad : Size::floor_div(axis.kernel_size - Size(1), Size(2));
    wanted.push_back(axis.from);
    moves.emplace_back(axis.from, axis.to);
  }
  if (!has_dims(e, call, *a[0], *x, wanted) || !result_dims_apart(e, call, *x, moves)) return {};
  auto channels = weight_input(e, call, conv, *w);
  if (!channels) return {};
  Elaborator::Need n;
  n.span = call.span;
  n.what = fmt::format("the channels of a group, `{}`, and `{} / groups`",
                       e.graph.dim(*channels).name, e.graph.dim(conv.in).name);
  if (!e.need_equal(e.size({*channels}) * conv.groups, e.size({conv.in}), n)) return {};
  n.what = fmt::format("`{} / groups`", e.graph.dim(conv.out).name);
  if (!e.need_whole(e.size({conv.out}) / conv.groups, n)) return {};
  for (const Axis& axis : conv.axes) {
    if (!need_output(e, call, axis)) return {};
  }
  if (e.mode == Elaborator::Mode::kCheck) return check_conv(e, call, conv, *x);
  return lower_conv(e, call, conv, *x, *w, *channels);
}

namespace {

EValue pool(Elaborator& e, Call& call, bool maximum) {
  const char* form = "Y -> Y2, X -> X2";
  if (call.dims == nullptr || call.dims->empty()) {
    dim_items(e, call, 99, true, form);
    return {};
  }
  if (!dim_items(e, call, call.dims->size(), true, form)) return {};
  const BuiltinArgs a = take(e, call, {"x", "kernel", "stride", "pad"}, 2);
  if (!a.ok) return {};
  auto x = float_tensor(e, call, a[0]);
  auto kernel = x ? whole(e, call, a[1], "kernel", 1) : std::nullopt;
  auto pad = kernel ? whole(e, call, a[3], "pad", 0) : std::nullopt;
  if (!pad) return {};
  auto stride = a[2] != nullptr ? whole(e, call, a[2], "stride", 1) : kernel;
  if (!stride) return {};
  std::vector<Axis> axes;
  DimList wanted;
  std::vector<std::pair<ir::DimId, ir::DimId>> moves;
  for (const DimItem& item : *call.dims) {
    auto left = side(e, call, item.left), right = side(e, call, item.right);
    if (!left || !right) return {};
    auto from = only(e, call, *left, item.left.span), to = only(e, call, *right, item.right.span);
    if (!from || !to) return {};
    Axis axis;
    axis.from = *from;
    axis.to = *to;
    axis.kernel_size = *kernel;
    axis.stride = *stride;
    axis.pad = *pad;
    axis.span = item.span;
    axes.push_back(axis);
    wanted.push_back(*from);
    moves.emplace_back(*from, *to);
  }
  if (!has_dims(e, call, *a[0], *x, wanted) || !result_dims_apart(e, call, *x, moves)) return {};
  for (const Axis& axis : axes) {
    if (!need_output(e, call, axis)) return {};
  }
  if (e.mode == Elaborator::Mode::kCheck) {
    ir::Type t = e.type(*x);
    for (const Axis& axis : axes) std::replace(t.dims.begin(), t.dims.end(), axis.from, axis.to);
    return e.tensor_of(e.opaque(t, ""), call.span);
  }
  ValueId v = *x;
  DimList kernels;
  std::vector<std::pair<ir::DimId, ir::DimId>> back;
  const double outside = maximum ? -std::numeric_limits<double>::infinity() : 0.0;
  for (Axis& axis : axes) {
    axis.kernel = e.local_dim("K" + e.graph.dim(axis.from).name, axis.kernel_size);
    const ir::DimId to = output_dim(e, v, axis);
    auto made = window(e, call, a[0], v, axis, to, outside);
    if (!made) return {};
    v = *made;
    kernels.push_back(axis.kernel);
    if (to != axis.to) back.emplace_back(to, axis.to);
  }
  Attrs attrs;
  attrs.dims = kernels;
  v = e.node(maximum ? Op::kReduceMax : Op::kMean, {v}, std::move(attrs));
  return e.tensor_of(e.rename(v, back), call.span);
}

}  // namespace

EValue builtin_max_pool(Elaborator& e, Call& call) {
  return pool(e, call, true);
}
EValue builtin_avg_pool(Elaborator& e, Call& call) {
  return pool(e, call, false);
}

}  // namespace cad::frontend
