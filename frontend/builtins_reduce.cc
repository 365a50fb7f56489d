// frontend/builtins_reduce.cc -- reductions name what they remove; without brackets they remove
// everything. `max(a, b)` and `min(a, b)` of two values are elementwise.
#include <algorithm>

#include "frontend/builtins.h"

namespace cad::frontend {

using ir::Attrs;
using ir::DType;
using ir::Op;
using ir::ValueId;

EValue pairwise_max(Elaborator& e, Call& call);
EValue pairwise_min(Elaborator& e, Call& call);

namespace {

// The dims of the brackets, checked against x; all of x's without brackets.
std::optional<DimList> reduced(Elaborator& e, const Call& call, const EValue& shown, ValueId x) {
  if (call.dims == nullptr) return e.type(x).dims;
  auto dims = e.dims_of_items(call);
  if (!dims || !has_dims(e, call, shown, x, *dims)) return std::nullopt;
  return dims;
}

// The operand of a reduction and the dims that go.
struct Operand {
  ValueId x;
  DimList dims;
};
std::optional<Operand> operand(Elaborator& e, const Call& call, const BuiltinArgs& a) {
  if (!a.ok) return std::nullopt;
  const auto x = tensor(e, call, a[0]);
  if (!x) return std::nullopt;
  auto dims = reduced(e, call, *a[0], *x);
  if (!dims) return std::nullopt;
  return Operand{*x, std::move(*dims)};
}

// Sums, means and exponentials in f32 whatever the precision.
ValueId wide(Elaborator& e, ValueId x) {
  const DType d = e.type(x).dtype;
  return d == DType::kBF16 || d == DType::kF16 ? e.as_f32(x) : x;
}

EValue reduce(Elaborator& e, Call& call, Op op) {
  const BuiltinArgs a = take(e, call, {"x"}, 1);
  const auto from = operand(e, call, a);
  if (!from) return {};
  const ValueId x = op == Op::kSum || op == Op::kLogSumExp ? wide(e, from->x) : from->x;
  if (op == Op::kLogSumExp && !ir::is_float(e.type(x).dtype)) {
    float_tensor(e, call, a[0]);
    return {};
  }
  if (from->dims.empty())
    return e.tensor_of(
        op == Op::kSum && e.type(x).dtype == DType::kBool ? e.cast(x, DType::kI32) : x, call.span);
  Attrs attrs;
  attrs.dims = from->dims;
  return result(e, call, e.make(op, {x}, std::move(attrs), site(call, {a[0]})));
}

bool two_values(const Call& call) {
  return call.dims == nullptr && call.args.size() == 2;
}

}  // namespace

EValue builtin_sum(Elaborator& e, Call& call) {
  return reduce(e, call, Op::kSum);
}
EValue builtin_logsumexp(Elaborator& e, Call& call) {
  return reduce(e, call, Op::kLogSumExp);
}
EValue builtin_max(Elaborator& e, Call& call) {
  return two_values(call) ? pairwise_max(e, call) : reduce(e, call, Op::kReduceMax);
}
EValue builtin_min(Elaborator& e, Call& call) {
  return two_values(call) ? pairwise_min(e, call) : reduce(e, call, Op::kReduceMin);
}

EValue builtin_mean(Elaborator& e, Call& call) {
  const BuiltinArgs a = take(e, call, {"x", "weight"}, 1);
  const auto from = operand(e, call, a);
  if (!from) return {};
  ValueId x = ir::is_float(e.type(from->x).dtype) ? wide(e, from->x) : e.as_f32(from->x);
  Attrs attrs;
  attrs.dims = from->dims;
  if (a[1] == nullptr) {
    if (attrs.dims.empty()) return e.tensor_of(x, call.span);
    return result(e, call, e.make(Op::kMean, {x}, std::move(attrs), site(call, {a[0]})));
  }
  auto w = tensor(e, call, a[1], DType::kF32);
  if (!w) return {};
  w = e.as_f32(*w);
  x = e.as_f32(x);
  // sum(x * w) / sum(w): a weight with fewer dims counts for each element alike.
  const ir::Type &tx = e.type(x), &tw = e.type(*w);
  const bool inside =
      std::all_of(tw.dims.begin(), tw.dims.end(), [&](ir::DimId d) { return tx.has(d); });
  if (!inside) {
    e.make(Op::kMul, {x, *w}, {}, site(call, {a[0], a[1]}));
    if (!e.failed()) {
      e.error(DiagId::E0203, a.spans[1], "a weight has no dims that the values lack",
              e.describe(*a[1]));
    }
    return {};
  }
  if (tw.dims.size() != tx.dims.size()) w = e.broadcast(*w, DimList(tx.dims));
  return result(e, call, e.make(Op::kMean, {x, *w}, std::move(attrs), site(call, {a[0], a[1]})));
}

EValue builtin_argmax(Elaborator& e, Call& call) {
  const BuiltinArgs a = take(e, call, {"x"}, 1);
  const auto from = operand(e, call, a);
  if (!from) return {};
  if (call.dims != nullptr ? call.dims->size() != 1 : from->dims.size() != 1) {
    e.error(DiagId::E0110, call.dims != nullptr ? call.dims_span : call.name_span,
            "`argmax` takes one dim", "in brackets");
    return {};
  }
  ir::DimId one{};
  const ValueId x = e.merged(from->x, from->dims, &one);
  Attrs attrs;
  attrs.dims = {one};
  return result(e, call, e.make(Op::kArgmax, {x}, std::move(attrs), site(call, {a[0]})));
}

namespace {

// The operand of a function over rows, floats, and the dims in its brackets, which must be there.
struct Rows {
  ValueId x;
  DimList dims;
};
std::optional<Rows> rows(Elaborator& e, Call& call, const BuiltinArgs& a, const char* form) {
  if (!a.ok) return std::nullopt;
  const auto x = float_tensor(e, call, a[0]);
  if (!x) return std::nullopt;
  if (call.dims == nullptr) {
    dim_items(e, call, 1, false, form);
    return std::nullopt;
  }
  auto dims = reduced(e, call, *a[0], *x);
  if (!dims) return std::nullopt;
  return Rows{*x, std::move(*dims)};
}

}  // namespace

EValue builtin_softmax(Elaborator& e, Call& call) {
  const BuiltinArgs a = take(e, call, {"x"}, 1);
  auto r = rows(e, call, a, "S");
  if (!r) return {};
  if (r->dims.empty()) {  // rows of one element: 1, and NaN stays NaN
    const DType dtype = e.type(r->x).dtype;
    const ValueId zero = e.node(Op::kMul, {r->x, e.constant(ir::Scalar(0.0), dtype)});
    return e.tensor_of(e.node(Op::kAdd, {zero, e.constant(ir::Scalar(1.0), dtype)}), call.span);
  }
  Attrs attrs;
  attrs.dims = std::move(r->dims);
  return result(e, call, e.make(Op::kSoftmax, {r->x}, std::move(attrs), site(call, {a[0]})));
}

EValue builtin_log_softmax(Elaborator& e, Call& call) {
  const BuiltinArgs a = take(e, call, {"x"}, 1);
  auto r = rows(e, call, a, "V");
  if (!r) return {};
  const ValueId x = wide(e, r->x);
  if (r->dims.empty()) return e.tensor_of(e.node(Op::kSub, {x, x}), call.span);
  Attrs attrs;
  attrs.dims = std::move(r->dims);
  return result(e, call, e.node(Op::kSub, {x, e.node(Op::kLogSumExp, {x}, std::move(attrs))}));
}

EValue builtin_cumsum(Elaborator& e, Call& call) {
  if (!dim_items(e, call, 1, false, "T")) return {};
  const BuiltinArgs a = take(e, call, {"x"}, 1);
  if (!a.ok) return {};
  auto x = tensor(e, call, a[0]);
  if (!x) return {};
  auto dims = reduced(e, call, *a[0], *x);
  if (!dims) return {};
  if (e.type(*x).dtype == DType::kBool) x = e.cast(*x, DType::kI32);
  ir::DimId one{};
  x = e.merged(*x, *dims, &one);
  Attrs attrs;
  attrs.dim = one;
  auto r = e.make(Op::kCumSum, {*x}, std::move(attrs), site(call, {a[0]}));
  if (!r) return {};
  return e.tensor_of(dims->size() == 1 ? *r : e.regroup(*r, {one}, *dims), call.span);
}

}  // namespace cad::frontend
