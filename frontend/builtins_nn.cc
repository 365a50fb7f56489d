// frontend/builtins_nn.cc -- causal masks, rotary positions, losses of classification, and the
// load balance of experts. Losses are computed in f32; their means stay kMean nodes, so that
// exact_means (ir) can take them over the whole step.
#include <algorithm>

#include "frontend/builtins.h"

namespace cad::frontend {

using ir::Attrs;
using ir::DType;
using ir::Op;
using ir::Scalar;
using ir::ValueId;

// where(position of T >= position of S, s, -inf).
EValue builtin_causal(Elaborator& e, Call& call) {
  if (!dim_items(e, call, 2, false, "T, S")) return {};
  const BuiltinArgs a = take(e, call, {"s"}, 1);
  if (!a.ok) return {};
  auto s = float_tensor(e, call, a[0]);
  if (!s) return {};
  auto t = side(e, call, (*call.dims)[0].left), k = side(e, call, (*call.dims)[1].left);
  if (!t || !k) return {};
  DimList both = *t;
  both.insert(both.end(), k->begin(), k->end());
  if (!has_dims(e, call, *a[0], *s, both)) return {};
  const ValueId visible =
      e.node(Op::kGe, {e.broadcast(e.iota(*t), both), e.broadcast(e.iota(*k), both)});
  const ValueId hidden =
      e.constant(Scalar(-std::numeric_limits<double>::infinity()), e.type(*s).dtype);
  return result(e, call, e.make(Op::kWhere, {visible, *s, hidden}, {}, site(call, {a[0]})));
}

// Pairs (k, k + K/2) turned by position * base^(-2k/K).
EValue builtin_rope(Elaborator& e, Call& call) {
  if (!dim_items(e, call, 2, false, "T, K")) return {};
  const BuiltinArgs a = take(e, call, {"x", "base"}, 1);
  if (!a.ok) return {};
  auto x = float_tensor(e, call, a[0]);
  auto base = number(e, call, a[1], "base", 10000);
  if (!x || !base) return {};
  auto t = side(e, call, (*call.dims)[0].left), k = side(e, call, (*call.dims)[1].left);
  if (!t || !k) return {};
  DimList both = *t;
  both.insert(both.end(), k->begin(), k->end());
  if (!has_dims(e, call, *a[0], *x, both)) return {};
  const ir::Size size = e.size(*k), half_size = size / ir::Size(2);
  Elaborator::Need n;
  n.what = "half of the dim that `rope` turns";
  n.span = call.span;
  if (!e.need_whole(half_size, n)) return {};
  ir::DimId one{};
  ValueId v = e.merged(*x, *k, &one);
  const ir::DimId half = e.local_dim(e.graph.dim(one).name + "h", half_size);
  auto part = [&](const ir::Size& start) {
    Attrs attrs;
    attrs.dim = one;
    attrs.to = half;
    attrs.start = start;
    return e.node(Op::kSlice, {v}, std::move(attrs));
  };
  const ValueId first = part(ir::Size(0)), second = part(half_size);
  // base^(-2k/K) = exp(k * (-2 log(base) / K))
  const Scalar rate = Scalar::call(
      "div",
      {Scalar::call("mul", {Scalar(-2.0), Scalar::call("log", {*base})}), Scalar::size(size)});
  const ValueId frequency = e.node(
      Op::kExp, {e.node(Op::kMul, {e.as_f32(e.iota({half})), e.constant(rate, DType::kF32)})});
  const ValueId angle = e.union_op(Op::kMul, e.as_f32(e.iota(*t)), frequency);
  const ValueId cosine = e.node(Op::kCos, {angle}), sine = e.node(Op::kSin, {angle});
  const DType dtype = e.type(v).dtype;
  const ValueId f = e.as_f32(first), g = e.as_f32(second);
  auto mul = [&](ValueId p, ValueId q) { return e.node(Op::kMul, {p, q}); };
  const ValueId low = e.cast(e.node(Op::kSub, {mul(f, cosine), mul(g, sine)}), dtype);
  const ValueId high = e.cast(e.node(Op::kAdd, {mul(g, cosine), mul(f, sine)}), dtype);
  Attrs attrs;
  attrs.dims = {half, half};
  attrs.to = one;
  const ValueId joined = e.node(Op::kConcat, {low, high}, std::move(attrs));
  return e.tensor_of(k->size() == 1 ? joined : e.regroup(joined, {one}, *k), call.span);
}

namespace {

struct Labelled {
  ValueId loss, present;  // both with the labels' dims: f32, bool
};

// -log softmax[V](logits)[V = labels], 0 where the label is -1.
std::optional<Labelled> label_loss(Elaborator& e, Call& call) {
  if (!dim_items(e, call, 1, false, "V")) return std::nullopt;
  const BuiltinArgs a = take(e, call, {"logits", "labels"}, 2);
  if (!a.ok) return std::nullopt;
  auto z = float_tensor(e, call, a[0]);
  if (!z) return std::nullopt;
  auto y = tensor(e, call, a[1], DType::kI32);
  if (!y) return std::nullopt;
  auto dims = side(e, call, (*call.dims)[0].left);
  if (!dims || !has_dims(e, call, *a[0], *z, *dims)) return std::nullopt;
  if (e.type(*y).dtype != DType::kI32) {
    e.error(DiagId::E0205, a.spans[1], fmt::format("labels are `i32`, these are {}", e.show(*y)),
            e.describe(*a[1]))
        .help("cast them: `i32(..)`");
    return std::nullopt;
  }
  DimList rest;
  for (ir::DimId d : e.type(*z).dims) {
    if (!e.contains(*dims, d)) rest.push_back(d);
  }
  const DimList labels = e.type(*y).dims;
  const bool same =
      rest.size() == labels.size() &&
      std::all_of(rest.begin(), rest.end(), [&](ir::DimId d) { return e.contains(labels, d); });
  if (!same) {
    Diagnostic& d = e.error(
        DiagId::E0201, a.spans[1],
        fmt::format("labels of {} are i32[{}], not {}", e.show(*z), e.show(rest), e.show(*y)),
        e.describe(*a[1]));
    if (a[0]->span.valid()) d.label(a[0]->span, e.describe(*a[0]));
    return std::nullopt;
  }
  ir::DimId one{};
  const ValueId wide = e.merged(e.as_f32(*z), *dims, &one);
  Attrs sum, pick;
  sum.dims = {one};
  pick.dim = one;
  const ValueId total = e.node(Op::kLogSumExp, {wide}, std::move(sum));
  const ValueId chosen = e.type(*y).rank() == 0 ? e.node(Op::kSelect, {wide, *y}, std::move(pick))
                                                : e.node(Op::kGather, {wide, *y}, std::move(pick));
  Labelled out;
  out.present = e.node(Op::kNe, {*y, e.constant(Scalar(-1.0), DType::kI32)});
  const ValueId raw = e.node(Op::kSub, {total, chosen});
  out.loss = e.node(Op::kWhere, {out.present, raw, e.constant(Scalar(0.0), DType::kF32)});
  return out;
}

}  // namespace

EValue builtin_nll(Elaborator& e, Call& call) {
  auto l = label_loss(e, call);
  return l ? e.tensor_of(l->loss, call.span) : EValue{};
}

EValue builtin_cross_entropy(Elaborator& e, Call& call) {
  auto l = label_loss(e, call);
  if (!l) return {};
  if (e.type(l->loss).rank() == 0) return e.tensor_of(l->loss, call.span);
  Attrs attrs;
  attrs.dims = e.type(l->loss).dims;
  return e.tensor_of(e.node(Op::kMean, {l->loss, e.as_f32(l->present)}, std::move(attrs)),
                     call.span);
}

namespace {

ValueId mean_of_all(Elaborator& e, ValueId x) {
  x = e.as_f32(x);
  if (e.type(x).rank() == 0) return x;
  Attrs attrs;
  attrs.dims = e.type(x).dims;
  return e.node(Op::kMean, {x}, std::move(attrs));
}

// Both operands as f32 tensors of the same dims.
bool same_dims(Elaborator& e, Call& call, const BuiltinArgs& a, ValueId& x, ValueId& y) {
  auto p = tensor(e, call, a[0], DType::kF32);
  auto q = p ? tensor(e, call, a[1], DType::kF32) : std::nullopt;
  if (!q) return false;
  x = *p;
  y = *q;
  const DimList dx = e.type(x).dims, dy = e.type(y).dims;
  const bool constant = !a[0]->tensor() || !a[1]->tensor();
  if (constant || (dx.size() == dy.size() && std::all_of(dx.begin(), dx.end(), [&](ir::DimId d) {
                     return e.contains(dy, d);
                   }))) {
    return true;
  }
  Diagnostic& d = e.error(DiagId::E0201, call.name_span,
                          fmt::format("`{}` compares values of the same dims, not {} and {}",
                                      call.name, e.show(x), e.show(y)));
  if (a[0]->span.valid()) d.label(a[0]->span, e.describe(*a[0]));
  if (a[1]->span.valid()) d.label(a[1]->span, e.describe(*a[1]));
  return false;
}

}  // namespace

EValue builtin_mse(Elaborator& e, Call& call) {
  if (!no_dims(e, call)) return {};
  const BuiltinArgs a = take(e, call, {"a", "b"}, 2);
  ValueId x{}, y{};
  if (!a.ok || !same_dims(e, call, a, x, y)) return {};
  if (e.type(x).dtype == DType::kBool || e.type(y).dtype == DType::kBool)
    return e.type_clash("`mse`", call.name_span, *a[0], *a[1]);
  const ValueId d = e.node(Op::kSub, {e.as_f32(x), e.as_f32(y)});
  return e.tensor_of(mean_of_all(e, e.node(Op::kMul, {d, d})), call.span);
}

// softplus(z) - z * y: stable for any logit.
EValue builtin_bce(Elaborator& e, Call& call) {
  if (!no_dims(e, call)) return {};
  const BuiltinArgs a = take(e, call, {"logits", "y"}, 2);
  ValueId z{}, y{};
  if (!a.ok || !same_dims(e, call, a, z, y)) return {};
  z = e.as_f32(z);
  const ValueId loss =
      e.node(Op::kSub, {e.node(Op::kSoftplus, {z}), e.node(Op::kMul, {z, e.as_f32(y)})});
  return e.tensor_of(mean_of_all(e, loss), call.span);
}

EValue builtin_one_hot(Elaborator& e, Call& call) {
  if (!dim_items(e, call, 1, false, "V")) return {};
  const BuiltinArgs a = take(e, call, {"ids"}, 1);
  if (!a.ok) return {};
  auto ids = tensor(e, call, a[0], DType::kI32);
  auto dims = ids ? side(e, call, (*call.dims)[0].left) : std::nullopt;
  if (!dims) return {};
  if (e.type(*ids).dtype != DType::kI32) {
    e.error(DiagId::E0205, a.spans[0], fmt::format("`one_hot` takes `i32`, not {}", e.show(*ids)),
            e.describe(*a[0]))
        .help("cast it: `i32(..)`");
    return {};
  }
  for (ir::DimId d : *dims) {
    if (!e.type(*ids).has(d)) continue;
    e.error(DiagId::E0204, call.dims_span,
            fmt::format("the result of `one_hot` would hold {} twice", e.dim_text(d)),
            e.describe(*a[0]));
    return {};
  }
  return e.tensor_of(e.cast(e.union_op(Op::kEq, *ids, e.iota(*dims)), e.options.compute),
                     call.span);
}

// E times the sum over e of (share of rows whose top choice is e) * (mean probability of e).
EValue builtin_load_balance(Elaborator& e, Call& call) {
  if (!dim_items(e, call, 1, false, "E")) return {};
  const BuiltinArgs a = take(e, call, {"probs"}, 1);
  if (!a.ok) return {};
  auto p = float_tensor(e, call, a[0]);
  auto dims = p ? side(e, call, (*call.dims)[0].left) : std::nullopt;
  if (!dims || !has_dims(e, call, *a[0], *p, *dims)) return {};
  ir::DimId one{};
  const ValueId probs = e.merged(e.as_f32(*p), *dims, &one);
  DimList rest;
  for (ir::DimId d : e.type(probs).dims) {
    if (d != one) rest.push_back(d);
  }
  Attrs top;
  top.dims = {one};
  const ValueId best = e.node(Op::kArgmax, {probs}, std::move(top));
  ValueId hot = e.as_f32(e.union_op(Op::kEq, best, e.iota({one})));
  ValueId mean = probs;
  if (!rest.empty()) {
    Attrs over;
    over.dims = rest;
    hot = e.node(Op::kMean, {hot}, over);
    mean = e.node(Op::kMean, {probs}, over);
  }
  Attrs sum;
  sum.dims = {one};
  const ValueId total = e.node(Op::kSum, {e.node(Op::kMul, {hot, mean})}, std::move(sum));
  return e.tensor_of(
      e.node(Op::kMul, {total, e.constant(Scalar::size(e.size(*dims)), DType::kF32)}), call.span);
}

}  // namespace cad::frontend
