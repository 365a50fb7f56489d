// frontend/builtins_random.cc -- random values and dropout. A stream is keyed by the call's site
// (the path of the body and a name for the call in source order) and the numbers of the loops
// around it.
#include <cmath>

#include "frontend/builtins.h"

namespace cad::frontend {

using ir::Attrs;
using ir::DType;
using ir::Op;
using ir::Scalar;
using ir::ValueId;

std::string Elaborator::random_site(const Call& call) const {
  const std::string name = component(call.callee, call.name);
  return body->site.empty() ? name : body->site + "." + name;
}

EValue builtin_dropout(Elaborator& e, Call& call) {
  if (!no_dims(e, call)) return {};
  const BuiltinArgs a = take(e, call, {"x", "p"}, 2);
  if (!a.ok) return {};
  auto x = float_tensor(e, call, a[0]);
  auto p = x ? number(e, call, a[1], "p", 0) : std::nullopt;
  if (!p) return {};
  const auto value = e.value_of(*p);
  if (value && (*value < 0 || *value >= 1)) {
    e.error(DiagId::E0215, a.spans[1], fmt::format("the probability of `dropout` is {:g}", *value),
            "it lies in [0, 1)");
    return {};
  }
  const bool off =
      e.mode == Elaborator::Mode::kLower && (!e.options.training || !e.options.dropout);
  if (off || (value && *value == 0)) return e.tensor_of(*x, call.span);
  if (e.mode == Elaborator::Mode::kCheck) return e.tensor_of(e.opaque(e.type(*x), ""), call.span);
  Attrs attrs;
  attrs.scalar = *p;
  attrs.site = e.random_site(call);
  std::vector<ValueId> operands{*x};
  for (ValueId n : e.loop_numbers()) operands.push_back(n);
  return result(e, call,
                e.make(Op::kDropout, std::move(operands), std::move(attrs), site(call, {a[0]})));
}

namespace {

// Arguments that are tensors are not known here, and neither are sizes without a number.
bool in_range(Elaborator& e, const Call& call, Op op, const BuiltinArgs& a) {
  std::vector<std::optional<double>> known;
  for (const EValue* v : a.values)
    known.push_back(v != nullptr && v->is_number() ? e.value_of(*v->number) : std::nullopt);
  const auto refuse = [&](size_t i, const char* wanted) {
    e.error(DiagId::E0215, a.spans[i],
            fmt::format("`{}` cannot draw with {}", call.name, *known[i]), wanted);
    return false;
  };
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i] && !std::isfinite(*known[i])) return refuse(i, "a finite number is wanted");
  }
  if (op == Op::kNormal && known[0] && *known[0] < 0)
    return refuse(0, "the deviation is at least 0");
  if (op == Op::kBernoulli && known[0] && (*known[0] < 0 || *known[0] > 1))
    return refuse(0, "a probability lies in [0, 1]");
  if (op == Op::kUniform && known[0] && known[1] && *known[1] < *known[0])
    return refuse(1, "below the lower end");
  return true;
}

EValue draw(Elaborator& e, Call& call, Op op, std::initializer_list<const char*> names,
            std::vector<double> defaults) {
  if (call.dims == nullptr) {
    Diagnostic& d =
        e.error(DiagId::E0110, call.name_span,
                fmt::format("`{}` needs its dims in brackets", call.name), "no brackets");
    if (op != Op::kBernoulli)
      d.note(
          fmt::format("without brackets `{}` is an initialiser of `param` and `state`", call.name));
    return {};
  }
  size_t required = 0;
  for (double d : defaults) required += d != d ? 1 : 0;
  const BuiltinArgs a = take(e, call, names, required);
  if (!a.ok) return {};
  auto dims = e.dims_of_items(call);
  if (!dims) return {};
  if (!in_range(e, call, op, a)) return {};
  std::vector<ValueId> operands;
  for (size_t i = 0; i < a.values.size(); ++i) {
    if (a[i] == nullptr) {
      operands.push_back(e.constant(Scalar(defaults[i]), DType::kF32));
      continue;
    }
    auto v = tensor(e, call, a[i], DType::kF32);
    if (!v) return {};
    if (e.type(*v).rank() != 0 || !ir::is_float(e.type(*v).dtype)) {
      e.error(DiagId::E0216, a.spans[i],
              fmt::format("argument `{}` of `{}` is one number", *(names.begin() + i), call.name),
              e.describe(*a[i]));
      return {};
    }
    operands.push_back(e.as_f32(*v));
  }
  Attrs attrs;
  attrs.dims = *dims;
  attrs.site = e.random_site(call);
  for (ValueId n : e.loop_numbers()) operands.push_back(n);
  auto r = e.make(op, std::move(operands), std::move(attrs), site(call, {}));
  if (!r) return {};
  return e.tensor_of(op == Op::kBernoulli ? *r : e.cast(*r, e.options.compute), call.span);
}

constexpr double kRequired = std::numeric_limits<double>::quiet_NaN();

}  // namespace

EValue builtin_normal(Elaborator& e, Call& call) {
  return draw(e, call, Op::kNormal, {"s"}, {1.0});
}
EValue builtin_uniform(Elaborator& e, Call& call) {
  return draw(e, call, Op::kUniform, {"lo", "hi"}, {kRequired, kRequired});
}
EValue builtin_bernoulli(Elaborator& e, Call& call) {
  return draw(e, call, Op::kBernoulli, {"p"}, {kRequired});
}

}  // namespace cad::frontend
