// frontend/builtins_index.cc -- joining, padding and picking: concat, stack, pad, flip, topk, the
// routing of experts (dispatch, combine), packed triangles, nearest upsampling.
#include <algorithm>

#include "frontend/builtins.h"

namespace cad::frontend {

using ir::Attrs;
using ir::DType;
using ir::Op;
using ir::Scalar;
using ir::ValueId;

namespace {

std::optional<ir::DimId> single(Elaborator& e, const Call& call, const DimSide& s) {
  auto dims = side(e, call, s);
  if (!dims) return std::nullopt;
  if (dims->size() == 1) return (*dims)[0];
  e.error(DiagId::E0110, s.span, fmt::format("`{}` takes one dim here", call.name), "not one");
  return std::nullopt;
}

// All arguments as tensors of one dtype.
std::optional<std::vector<ValueId>> tensors(Elaborator& e, const Call& call) {
  std::optional<DType> like;
  for (const ArgValue& a : call.args) {
    if (!a.name.empty()) {
      e.error(DiagId::E0108, a.name.span,
              fmt::format("`{}` has no argument `{}`", call.name, a.name.text), "unknown");
      return std::nullopt;
    }
    if (a.value.tensor() && !like) like = e.type(a.value.value).dtype;
    if (a.value.tensor() && ir::is_float(e.type(a.value.value).dtype) &&
        e.type(a.value.value).dtype == DType::kF32)
      like = DType::kF32;
  }
  std::vector<ValueId> out;
  for (const ArgValue& a : call.args) {
    auto v = tensor(e, call, &a.value, like);
    if (!v) return std::nullopt;
    if (like && ir::is_float(*like) && ir::is_float(e.type(*v).dtype)) v = e.cast(*v, *like);
    out.push_back(*v);
  }
  return out;
}

Elaborator::Site site_of_all(const Call& call) {
  Elaborator::Site s = site(call, {});
  for (const ArgValue& a : call.args) s.values.push_back(&a.value);
  return s;
}

}  // namespace

EValue builtin_concat(Elaborator& e, Call& call) {
  bool ok =
      call.dims != nullptr && !call.dims->empty() && call.dims->back().kind == DimItemKind::kArrow;
  std::vector<const DimSide*> sides;
  if (ok) {
    for (const DimItem& item : *call.dims) {
      ok = ok && (item.kind == DimItemKind::kPlain || (&item == &call.dims->back()));
      sides.push_back(&item.left);
    }
  }
  if (!ok) {
    dim_items(e, call, 99, true, "A, B -> C");
    return {};
  }
  Attrs attrs;
  for (const DimSide* s : sides) {
    if (s->tuple) {
      auto dims = side(e, call, *s);
      if (!dims) return {};
      attrs.dims.insert(attrs.dims.end(), dims->begin(), dims->end());
      continue;
    }
    auto d = single(e, call, *s);
    if (!d) return {};
    attrs.dims.push_back(*d);
  }
  auto to = single(e, call, call.dims->back().right);
  auto values = to ? tensors(e, call) : std::nullopt;
  if (!values) return {};
  attrs.to = *to;
  if (values->size() != attrs.dims.size()) {
    e.error(DiagId::E0109, call.span,
            fmt::format("`concat` of {} dims takes {} values, not {}", attrs.dims.size(),
                        attrs.dims.size(), values->size()));
    return {};
  }
  return result(e, call, e.make(Op::kConcat, *values, std::move(attrs), site_of_all(call)));
}

EValue builtin_stack(Elaborator& e, Call& call) {
  if (!dim_items(e, call, 1, false, "N")) return {};
  auto to = single(e, call, (*call.dims)[0].left);
  auto values = to ? tensors(e, call) : std::nullopt;
  if (!values) return {};
  if (values->empty()) {
    e.error(DiagId::E0109, call.span, "`stack` takes at least one value");
    return {};
  }
  Attrs attrs;
  attrs.to = *to;
  return result(e, call, e.make(Op::kStack, *values, std::move(attrs), site_of_all(call)));
}

EValue builtin_pad(Elaborator& e, Call& call) {
  if (!dim_items(e, call, 1, true, "N -> T")) return {};
  const BuiltinArgs a = take(e, call, {"x", "before", "value"}, 1);
  if (!a.ok) return {};
  auto x = tensor(e, call, a[0]);
  auto from = x ? single(e, call, (*call.dims)[0].left) : std::nullopt;
  auto to = from ? single(e, call, (*call.dims)[0].right) : std::nullopt;
  auto before = to ? whole(e, call, a[1], "before", 0) : std::nullopt;
  auto value = before ? number(e, call, a[2], "value", 0) : std::nullopt;
  if (!value) return {};
  Attrs attrs;
  attrs.dim = *from;
  attrs.to = *to;
  attrs.start = *before;
  attrs.scalar = *value;
  if (*from == *to) return e.tensor_of(*x, call.span);
  return result(e, call, e.make(Op::kPad, {*x}, std::move(attrs), site(call, {a[0]})));
}

EValue builtin_flip(Elaborator& e, Call& call) {
  if (!dim_items(e, call, 1, false, "X")) return {};
  const BuiltinArgs a = take(e, call, {"x"}, 1);
  if (!a.ok) return {};
  auto x = tensor(e, call, a[0]);
  auto dims = x ? side(e, call, (*call.dims)[0].left) : std::nullopt;
  if (!dims || !has_dims(e, call, *a[0], *x, *dims)) return {};
  ValueId v = *x;
  for (ir::DimId d : *dims) {
    Attrs attrs;
    attrs.dim = d;
    v = e.node(Op::kFlip, {v}, std::move(attrs));
  }
  return e.tensor_of(v, call.span);
}

EValue builtin_topk(Elaborator& e, Call& call) {
  if (!dim_items(e, call, 1, true, "E -> A")) return {};
  const BuiltinArgs a = take(e, call, {"x"}, 1);
  if (!a.ok) return {};
  auto x = float_tensor(e, call, a[0]);
  auto from = x ? single(e, call, (*call.dims)[0].left) : std::nullopt;
  auto to = from ? single(e, call, (*call.dims)[0].right) : std::nullopt;
  if (!to || !has_dims(e, call, *a[0], *x, {*from})) return {};
  Attrs attrs;
  attrs.dim = *from;
  attrs.to = *to;
  auto made = e.make_all(Op::kTopK, {*x}, std::move(attrs), site(call, {a[0]}));
  if (!made) return {};
  return e.several({e.tensor_of((*made)[0], call.span), e.tensor_of((*made)[1], call.span)},
                   call.span);
}

namespace {

struct Routing {
  ir::DimId e, m, a, slots;  // experts, rows of one, choices, e * m
  ValueId ids;               // i32 of expert's dims: e * M + m, or -1
};

// The slot of every choice; the same node for dispatch and combine.
std::optional<Routing> routing(Elaborator& e, Call& call, const EValue& expert, ValueId ids) {
  Routing r;
  auto E = single(e, call, (*call.dims)[0].left);
  auto M = E ? single(e, call, (*call.dims)[1].left) : std::nullopt;
  auto A = M ? single(e, call, (*call.dims)[2].left) : std::nullopt;
  if (!A) return std::nullopt;
  if (e.type(ids).dtype != DType::kI32 || !e.type(ids).has(*A)) {
    e.error(DiagId::E0201, expert.span.valid() ? expert.span : call.name_span,
            fmt::format("argument `expert` of `{}` is i32[.., {}], not {}", call.name,
                        e.graph.dim(*A).name, e.show(ids)),
            e.describe(expert));
    return std::nullopt;
  }
  Attrs attrs;
  attrs.dim = r.e = *E;
  attrs.to = r.m = *M;
  attrs.window = r.a = *A;
  auto made = e.make(Op::kSlots, {ids}, std::move(attrs), site(call, {&expert}));
  if (!made) return std::nullopt;
  r.ids = *made;
  r.slots = e.local_dim("N", e.size({r.e, r.m}));
  return r;
}

}  // namespace

// Rows to the slots of their experts: [E, M, ..]. Dropped rows go nowhere.
EValue builtin_dispatch(Elaborator& e, Call& call) {
  if (!dim_items(e, call, 3, false, "E, M, A")) return {};
  const BuiltinArgs a = take(e, call, {"x", "expert"}, 2);
  if (!a.ok) return {};
  auto x = float_tensor(e, call, a[0]);
  auto ids = x ? tensor(e, call, a[1], DType::kI32) : std::nullopt;
  auto r = ids ? routing(e, call, *a[1], *ids) : std::nullopt;
  if (!r) return {};
  DimList rows = e.type(*ids).dims, kept, spread = rows;
  DimList row_dims;
  for (ir::DimId d : rows) {
    if (d != r->a) row_dims.push_back(d);
  }
  if (!has_dims(e, call, *a[0], *x, row_dims)) return {};
  for (ir::DimId d : e.type(*x).dims) {
    if (!e.contains(rows, d)) {
      kept.push_back(d);
      spread.push_back(d);
    }
  }
  Attrs attrs;
  attrs.dim = r->slots;
  attrs.dims = {r->slots};
  attrs.dims.insert(attrs.dims.end(), kept.begin(), kept.end());
  auto sum = e.make(Op::kScatterAdd, {e.broadcast(*x, spread), r->ids}, std::move(attrs),
                    site(call, {a[0], a[1]}));
  if (!sum) return {};
  return e.tensor_of(e.regroup(*sum, {r->slots}, {r->e, r->m}), call.span);
}

// Rows back from their slots, weighted by the gates and summed over the choices.
EValue builtin_combine(Elaborator& e, Call& call) {
  if (!dim_items(e, call, 3, false, "E, M, A")) return {};
  const BuiltinArgs a = take(e, call, {"h", "expert", "gate"}, 3);
  if (!a.ok) return {};
  auto h = float_tensor(e, call, a[0]);
  auto ids = h ? tensor(e, call, a[1], DType::kI32) : std::nullopt;
  auto gate = ids ? float_tensor(e, call, a[2]) : std::nullopt;
  auto r = gate ? routing(e, call, *a[1], *ids) : std::nullopt;
  if (!r) return {};
  if (!has_dims(e, call, *a[0], *h, {r->e, r->m}) ||
      !has_dims(e, call, *a[2], *gate, e.type(*ids).dims))
    return {};
  const ValueId flat = e.regroup(*h, {r->e, r->m}, {r->slots});
  Attrs pick;
  pick.dim = r->slots;
  auto rows = e.make(Op::kGather, {flat, r->ids}, std::move(pick), site(call, {a[0], a[1]}));
  if (!rows) return {};
  ValueId p = *rows, q = *gate;
  e.unify_floats(p, q);
  Attrs sum;
  sum.dims = {r->a};
  return result(e, call, e.make(Op::kContract, {p, q}, std::move(sum), site(call, {a[0], a[2]})));
}

// The strict lower triangle of [N, N2], row by row, as one dim of N * (N - 1) / 2.
EValue builtin_tril(Elaborator& e, Call& call) {
  const bool ok = call.dims != nullptr && call.dims->size() == 2 &&
                  (*call.dims)[0].kind == DimItemKind::kPlain &&
                  (*call.dims)[1].kind == DimItemKind::kArrow;
  if (!ok) {
    dim_items(e, call, 99, true, "N, N2 -> F");
    return {};
  }
  const BuiltinArgs a = take(e, call, {"x"}, 1);
  if (!a.ok) return {};
  auto x = tensor(e, call, a[0]);
  auto n = x ? single(e, call, (*call.dims)[0].left) : std::nullopt;
  auto n2 = n ? single(e, call, (*call.dims)[1].left) : std::nullopt;
  auto f = n2 ? single(e, call, (*call.dims)[1].right) : std::nullopt;
  if (!f || !has_dims(e, call, *a[0], *x, {*n, *n2})) return {};
  Elaborator::Need need;
  need.span = call.span;
  need.what = "the rows and columns of a triangle";
  if (!e.need_equal(e.size({*n}), e.size({*n2}), need)) return {};
  need.what = "the elements of a triangle";
  if (!e.need_equal(e.size({*f}), e.size({*n}) * (e.size({*n}) - ir::Size(1)) / ir::Size(2), need))
    return {};
  // Element f lies in row i = floor((1 + sqrt(1 + 8 f)) / 2), column f - i (i - 1) / 2; the root is
  // taken at f + 1/2 (as 8 f + 5), away from the whole values where rounding could tip it.
  auto i32 = [&](double c) { return e.constant(Scalar(c), DType::kI32); };
  auto f32 = [&](double c) { return e.constant(Scalar(c), DType::kF32); };
  const ValueId at = e.iota({*f});
  const ValueId root =
      e.node(Op::kSqrt, {e.node(Op::kAdd, {e.node(Op::kMul, {e.as_f32(at), f32(8)}), f32(5)})});
  const ValueId row =
      e.cast(e.node(Op::kMul, {e.node(Op::kAdd, {root, f32(1)}), f32(0.5)}), DType::kI32);
  const ValueId before =
      e.node(Op::kFloorDiv, {e.node(Op::kMul, {row, e.node(Op::kSub, {row, i32(1)})}), i32(2)});
  const ValueId column = e.node(Op::kSub, {at, before});
  const ir::DimId one = e.local_dim("N", e.size({*n, *n2}));
  const ValueId flat = e.regroup(*x, {*n, *n2}, {one});
  Attrs pick;
  pick.dim = one;
  const ValueId ids = e.node(
      Op::kAdd,
      {e.node(Op::kMul, {row, e.constant(Scalar::size(e.size({*n2})), DType::kI32)}), column});
  return result(e, call, e.make(Op::kGather, {flat, ids}, std::move(pick), site(call, {a[0]})));
}

// Nearest neighbour: element y of Y2 is element y * Y // Y2 of Y.
EValue builtin_upsample(Elaborator& e, Call& call) {
  if (call.dims == nullptr || call.dims->empty() ||
      !dim_items(e, call, call.dims->size(), true, "Y -> Y2, X -> X2")) {
    if (call.dims == nullptr || call.dims->empty())
      dim_items(e, call, 99, true, "Y -> Y2, X -> X2");
    return {};
  }
  const BuiltinArgs a = take(e, call, {"x"}, 1);
  if (!a.ok) return {};
  auto x = tensor(e, call, a[0]);
  if (!x) return {};
  ValueId v = *x;
  for (const DimItem& item : *call.dims) {
    auto from = single(e, call, item.left);
    auto to = from ? single(e, call, item.right) : std::nullopt;
    if (!to || !has_dims(e, call, *a[0], v, {*from})) return {};
    if (*from == *to) continue;
    const ValueId scaled =
        e.node(Op::kMul, {e.iota({*to}), e.constant(Scalar::size(e.size({*from})), DType::kI32)});
    const ValueId ids =
        e.node(Op::kFloorDiv, {scaled, e.constant(Scalar::size(e.size({*to})), DType::kI32)});
    Attrs pick;
    pick.dim = *from;
    auto r = e.make(Op::kGather, {v, ids}, std::move(pick), site(call, {a[0]}));
    if (!r) return {};
    v = *r;
  }
  return e.tensor_of(v, call.span);
}

}  // namespace cad::frontend
