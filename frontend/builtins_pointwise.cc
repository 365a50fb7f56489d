// frontend/builtins_pointwise.cc -- functions of single elements: folded on constants, one node or
// a short composition on tensors.
#include <cmath>

#include "frontend/builtins.h"

namespace cad::frontend {

using ir::Attrs;
using ir::DType;
using ir::Op;
using ir::Scalar;
using ir::ValueId;

namespace {

EValue unary(Elaborator& e, Call& call, Op op, bool integers = false) {
  if (!no_dims(e, call)) return {};
  const BuiltinArgs a = take(e, call, {"x"}, 1);
  if (!a.ok) return {};
  if (a[0]->is_number() && folds(call.name)) {
    const bool whole = call.name == "abs" && a[0]->whole;
    return e.number_of(Scalar::call(call.name, {*a[0]->number}), whole, call.span);
  }
  auto x = integers ? tensor(e, call, a[0]) : float_tensor(e, call, a[0]);
  if (!x) return {};
  return result(e, call, e.make(op, {*x}, {}, site(call, {a[0]})));
}

ValueId scaled(Elaborator& e, ValueId x, double factor) {
  return e.node(Op::kMul, {x, e.constant(Scalar(factor), e.type(x).dtype)});
}

}  // namespace

EValue builtin_exp(Elaborator& e, Call& call) {
  return unary(e, call, Op::kExp);
}
EValue builtin_log(Elaborator& e, Call& call) {
  return unary(e, call, Op::kLog);
}
EValue builtin_sqrt(Elaborator& e, Call& call) {
  return unary(e, call, Op::kSqrt);
}
EValue builtin_rsqrt(Elaborator& e, Call& call) {
  return unary(e, call, Op::kRsqrt);
}
EValue builtin_abs(Elaborator& e, Call& call) {
  return unary(e, call, Op::kAbs, true);
}
EValue builtin_sin(Elaborator& e, Call& call) {
  return unary(e, call, Op::kSin);
}
EValue builtin_cos(Elaborator& e, Call& call) {
  return unary(e, call, Op::kCos);
}
EValue builtin_tanh(Elaborator& e, Call& call) {
  return unary(e, call, Op::kTanh);
}
EValue builtin_erf(Elaborator& e, Call& call) {
  return unary(e, call, Op::kErf);
}
EValue builtin_sigmoid(Elaborator& e, Call& call) {
  return unary(e, call, Op::kSigmoid);
}
EValue builtin_softplus(Elaborator& e, Call& call) {
  return unary(e, call, Op::kSoftplus);
}

EValue builtin_stop(Elaborator& e, Call& call) {
  if (!no_dims(e, call)) return {};
  const BuiltinArgs a = take(e, call, {"x"}, 1);
  if (!a.ok) return {};
  if (!a[0]->tensor()) return *a[0];
  return result(e, call, e.make(Op::kStop, {*tensor(e, call, a[0])}, {}, site(call, {a[0]})));
}

// max(0, x): a tie is the first operand's, so the gradient at 0 is 0.
EValue builtin_relu(Elaborator& e, Call& call) {
  if (!no_dims(e, call)) return {};
  const BuiltinArgs a = take(e, call, {"x"}, 1);
  if (!a.ok) return {};
  auto x = float_tensor(e, call, a[0]);
  if (!x) return {};
  return result(e, call, e.node(Op::kMax, {e.constant(Scalar(0.0), e.type(*x).dtype), *x}));
}

EValue builtin_gelu(Elaborator& e, Call& call) {
  if (!no_dims(e, call)) return {};
  const BuiltinArgs a = take(e, call, {"x", "tanh"}, 1);
  if (!a.ok) return {};
  auto x = float_tensor(e, call, a[0]);
  if (!x) return {};
  bool approximate = false;
  if (a[1] != nullptr) {
    if (a[1]->kind != EValue::Kind::kBool) {
      e.error(DiagId::E0208, a.spans[1], "argument `tanh` of `gelu` is a constant bool",
              e.describe(*a[1]));
      return {};
    }
    approximate = a[1]->flag == 1;
  }
  const DType dtype = e.type(*x).dtype;
  ValueId inner{};
  if (approximate) {
    const ValueId cube = e.node(Op::kMul, {e.node(Op::kMul, {*x, *x}), *x});
    const ValueId sum = e.node(Op::kAdd, {*x, scaled(e, cube, 0.044715)});
    inner = e.node(Op::kTanh, {scaled(e, sum, std::sqrt(2.0 / 3.14159265358979323846))});
  } else {
    inner = e.node(Op::kErf, {scaled(e, *x, std::sqrt(0.5))});
  }
  const ValueId one = e.node(Op::kAdd, {inner, e.constant(Scalar(1.0), dtype)});
  return result(e, call, e.node(Op::kMul, {scaled(e, *x, 0.5), one}));
}

EValue builtin_silu(Elaborator& e, Call& call) {
  if (!no_dims(e, call)) return {};
  const BuiltinArgs a = take(e, call, {"x"}, 1);
  if (!a.ok) return {};
  auto x = float_tensor(e, call, a[0]);
  if (!x) return {};
  return result(e, call, e.node(Op::kMul, {*x, e.node(Op::kSigmoid, {*x})}));
}

EValue builtin_clamp(Elaborator& e, Call& call) {
  if (!no_dims(e, call)) return {};
  const BuiltinArgs a = take(e, call, {"x", "lo", "hi"}, 3);
  if (!a.ok) return {};
  if (a[0]->is_number() && a[1]->is_number() && a[2]->is_number()) {
    return e.number_of(
        Scalar::call("min", {Scalar::call("max", {*a[0]->number, *a[1]->number}), *a[2]->number}),
        a[0]->whole && a[1]->whole && a[2]->whole, call.span);
  }
  auto x = tensor(e, call, a[0]);
  if (!x) return {};
  for (size_t i : {size_t{1}, size_t{2}}) {
    auto bound = tensor(e, call, a[i], e.type(*x).dtype);
    if (!bound) return {};
    e.unify_floats(*x, *bound);
    x = e.make(i == 1 ? Op::kMax : Op::kMin, {*x, *bound}, {}, site(call, {a[0], a[i]}));
    if (!x) return {};
  }
  return result(e, call, x);
}

namespace {

EValue pair(Elaborator& e, Call& call, Op op) {
  const BuiltinArgs a = take(e, call, {"a", "b"}, 2);
  if (!a.ok) return {};
  if (a[0]->is_number() && a[1]->is_number()) {
    return e.number_of(Scalar::call(call.name, {*a[0]->number, *a[1]->number}),
                       a[0]->whole && a[1]->whole, call.span);
  }
  const EValue* typed = a[0]->tensor() ? a[0] : a[1];
  if (!typed->tensor()) return e.type_clash("`" + call.name + "`", call.name_span, *a[0], *a[1]);
  const DType like = e.type(typed->value).dtype;
  auto x = tensor(e, call, a[0], like);
  auto y = x ? tensor(e, call, a[1], like) : std::nullopt;
  if (!y) return {};
  e.unify_floats(*x, *y);
  if (e.type(*x).dtype != e.type(*y).dtype || e.type(*x).dtype == DType::kBool) {
    return e.type_clash("`" + call.name + "`", call.name_span, *a[0], *a[1]);
  }
  return result(e, call, e.make(op, {*x, *y}, {}, site(call, {a[0], a[1]})));
}

}  // namespace

EValue pairwise_max(Elaborator& e, Call& call) {
  return pair(e, call, Op::kMax);
}
EValue pairwise_min(Elaborator& e, Call& call) {
  return pair(e, call, Op::kMin);
}

namespace {

bool constant(const EValue& v) {
  return v.is_number() || v.kind == EValue::Kind::kBool;
}

// A constant condition takes one branch, with the dims that both together have.
EValue chosen(Elaborator& e, Call& call, const BuiltinArgs& a) {
  const EValue& v = a[0]->flag == 1 ? *a[1] : *a[2];
  const EValue& other = a[0]->flag == 1 ? *a[2] : *a[1];
  if (constant(v) && constant(other)) return v;
  const EValue* typed = v.tensor() ? &v : &other;
  auto x = tensor(e, call, &v, e.type(typed->value).dtype);
  if (!x) return {};
  if (!other.tensor()) return e.tensor_of(*x, call.span);
  const DimList mine = e.type(*x).dims, dims = e.type(other.value).dims;
  bool grows = false;
  for (ir::DimId d : dims) grows = grows || !e.contains(mine, d);
  if (!grows) return e.tensor_of(*x, call.span);
  for (ir::DimId d : mine) {
    if (e.contains(dims, d)) continue;
    auto y = tensor(e, call, &other, e.type(*x).dtype);  // let the shape rule say why not
    return result(e, call,
                  y ? e.make(Op::kMax, {*x, *y}, {}, site(call, {a[1], a[2]})) : std::nullopt);
  }
  return e.tensor_of(e.broadcast(*x, dims), call.span);
}

}  // namespace

EValue builtin_where(Elaborator& e, Call& call) {
  if (!no_dims(e, call)) return {};
  const BuiltinArgs a = take(e, call, {"c", "a", "b"}, 3);
  if (!a.ok) return {};
  const bool known = a[0]->kind == EValue::Kind::kBool;
  if (a[0]->is_number()) return e.type_clash("`where`", call.name_span, *a[0], *a[0]);
  if (known && a[0]->flag >= 0) return chosen(e, call, a);
  if (known && constant(*a[1]) && constant(*a[2])) {
    if (a[1]->kind != a[2]->kind) return e.type_clash("`where`", call.name_span, *a[1], *a[2]);
    if (a[1]->kind == EValue::Kind::kBool)
      return e.flag_of(a[1]->flag == a[2]->flag ? a[1]->flag : -1, call.span);
    // Which of the two is not known yet: a constant still, of its own.
    return e.number_of(
        ir::Scalar::size(ir::Size::symbol("$where" + std::to_string(call.span.begin))),
        a[1]->whole && a[2]->whole, call.span);
  }
  auto c = tensor(e, call, a[0]);
  if (!c) return {};
  const EValue* typed = a[1]->tensor() ? a[1] : a[2];
  const std::optional<DType> like =
      typed->tensor() ? std::optional(e.type(typed->value).dtype) : std::nullopt;
  auto x = tensor(e, call, a[1], like);
  auto y = x ? tensor(e, call, a[2], like) : std::nullopt;
  if (!y) return {};
  e.unify_floats(*x, *y);
  if (e.type(*c).dtype != DType::kBool) {
    e.error(DiagId::E0205, a.spans[0],
            fmt::format("the condition of `where` is `bool`, this is {}", e.show(*c)),
            e.describe(*a[0]))
        .help("compare: `x > 0`");
    return {};
  }
  if (e.type(*x).dtype != e.type(*y).dtype)
    return e.type_clash("`where`", call.name_span, *a[1], *a[2]);
  return result(e, call, e.make(Op::kWhere, {*c, *x, *y}, {}, site(call, {a[0], a[1], a[2]})));
}

namespace {

EValue cast_to(Elaborator& e, Call& call, DType dtype) {
  if (!no_dims(e, call)) return {};
  const BuiltinArgs a = take(e, call, {"x"}, 1);
  if (!a.ok) return {};
  if (a[0]->is_number()) {
    if (dtype == DType::kI32) {
      const auto n = e.value_of(*a[0]->number);
      if (n && !e.fits_i32(Scalar(std::trunc(*n)), a.spans[0])) return {};
      if (n) return e.tensor_of(e.constant(Scalar(std::trunc(*n)), dtype), call.span);
      if (a[0]->whole) return e.tensor_of(e.constant(*a[0]->number, dtype), call.span);
      return e.tensor_of(e.cast(e.constant(*a[0]->number, DType::kF32), dtype), call.span);
    }
    if (dtype == DType::kBool) {
      return e.tensor_of(e.cast(e.constant(*a[0]->number, DType::kF32), dtype), call.span);
    }
    return e.tensor_of(e.constant(*a[0]->number, dtype), call.span);
  }
  if (a[0]->kind == EValue::Kind::kBool && a[0]->flag >= 0 && dtype != DType::kBool) {
    return e.tensor_of(e.constant(Scalar(a[0]->flag == 1 ? 1.0 : 0.0), dtype), call.span);
  }
  auto x = tensor(e, call, a[0]);
  if (!x) return {};
  return result(e, call, e.cast(*x, dtype));
}

}  // namespace

EValue builtin_f32(Elaborator& e, Call& call) {
  return cast_to(e, call, DType::kF32);
}
EValue builtin_bf16(Elaborator& e, Call& call) {
  return cast_to(e, call, DType::kBF16);
}
EValue builtin_f16(Elaborator& e, Call& call) {
  return cast_to(e, call, DType::kF16);
}
EValue builtin_i32(Elaborator& e, Call& call) {
  return cast_to(e, call, DType::kI32);
}
EValue builtin_bool(Elaborator& e, Call& call) {
  return cast_to(e, call, DType::kBool);
}

}  // namespace cad::frontend
