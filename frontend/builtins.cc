// frontend/builtins.cc -- the table of builtin functions and their shared argument handling.
#include "frontend/builtins.h"

#include <algorithm>
#include <cmath>

#include "base/suggest.h"

namespace cad::frontend {

using ir::DType;
using ir::ValueId;

namespace {

const BuiltinInfo kBuiltins[] = {
#define CAD_BUILTIN_ROW(name) {#name, builtin_##name},
    CAD_BUILTINS(CAD_BUILTIN_ROW)
#undef CAD_BUILTIN_ROW
};

}  // namespace

const BuiltinInfo* find_builtin(const std::string& name) {
  for (const BuiltinInfo& b : kBuiltins) {
    if (name == b.name) return &b;
  }
  return nullptr;
}

std::vector<std::string> builtin_names() {
  std::vector<std::string> names{"iota", "collect"};
  for (const BuiltinInfo& b : kBuiltins) names.emplace_back(b.name);
  return names;
}

EValue Elaborator::call_builtin(const BuiltinInfo& builtin, Call& call) {
  for (const ArgValue& a : call.args) {
    if (a.value.error()) return {};
  }
  builder.span = call.span;
  EValue v = builtin.run(*this, call);
  if (!v.error()) v.span = call.span;
  return v;
}

BuiltinArgs take(Elaborator& e, const Call& call, std::initializer_list<const char*> names,
                 size_t required) {
  BuiltinArgs out;
  out.values.resize(names.size(), nullptr);
  out.spans.resize(names.size(), call.name_span);
  size_t next = 0;
  for (const ArgValue& a : call.args) {
    size_t at = next;
    if (a.name.empty()) {
      if (next >= names.size()) {
        e.error(DiagId::E0109, a.span,
                fmt::format("`{}` takes {} argument{}", call.name, names.size(),
                            names.size() == 1 ? "" : "s"),
                "one too many");
        return out;
      }
      ++next;
    } else {
      const auto found =
          std::find_if(names.begin(), names.end(), [&](const char* n) { return a.name.text == n; });
      if (found == names.end()) {
        Diagnostic& d =
            e.error(DiagId::E0108, a.name.span,
                    fmt::format("`{}` has no argument `{}`", call.name, a.name.text), "unknown");
        const std::vector<std::string> all(names.begin(), names.end());
        if (auto near = suggest(a.name.text, all)) {
          d.help(fmt::format("did you mean `{}`?", *near));
        } else {
          std::string text;
          for (const std::string& n : all) text += (text.empty() ? "`" : ", `") + n + "`";
          d.note("its arguments are " + text);
        }
        return out;
      }
      at = static_cast<size_t>(found - names.begin());
    }
    if (out.values[at] != nullptr) {
      e.error(DiagId::E0109, a.span,
              fmt::format("argument `{}` is given twice", *(names.begin() + at)), "again");
      return out;
    }
    out.values[at] = &a.value;
    out.spans[at] = a.span;
  }
  for (size_t i = 0; i < required; ++i) {
    if (out.values[i] != nullptr) continue;
    e.error(DiagId::E0109, call.name_span,
            fmt::format("`{}` needs argument `{}`", call.name, *(names.begin() + i)), "not given");
    return out;
  }
  out.ok = true;
  return out;
}

bool no_dims(Elaborator& e, const Call& call) {
  if (call.dims == nullptr) return true;
  e.error(DiagId::E0110, call.dims_span, fmt::format("`{}` takes no dims", call.name),
          "in brackets");
  return false;
}

bool dim_items(Elaborator& e, const Call& call, size_t count, bool arrows, const char* form) {
  bool ok = call.dims != nullptr && call.dims->size() == count;
  if (ok) {
    for (const DimItem& item : *call.dims) {
      ok = ok && item.kind == (arrows ? DimItemKind::kArrow : DimItemKind::kPlain);
    }
  }
  if (ok) return true;
  e.error(DiagId::E0110, call.dims != nullptr ? call.dims_span : call.name_span,
          fmt::format("the dims in brackets do not fit `{}`", call.name),
          call.dims != nullptr ? "not of this form" : "no brackets")
      .note(fmt::format("it is `{}[{}](..)`", call.name, form));
  return false;
}

std::optional<DimList> side(Elaborator& e, const Call& call, const DimSide& s) {
  return e.dims_of_side(s, fmt::format("`{}`", call.name));
}

std::optional<ValueId> tensor(Elaborator& e, const Call& call, const EValue* v,
                              std::optional<DType> like) {
  return e.as_tensor(*v, like, call.name_span, fmt::format("`{}`", call.name));
}

std::optional<ValueId> float_tensor(Elaborator& e, const Call& call, const EValue* v) {
  auto x = tensor(e, call, v);
  if (!x || ir::is_float(e.type(*x).dtype)) return x;
  Diagnostic& d = e.error(
      DiagId::E0205, v->span.valid() ? v->span : call.name_span,
      fmt::format("`{}` takes floats, not `{}`", call.name, ir::dtype_name(e.type(*x).dtype)),
      e.describe(*v));
  d.help("cast it: `f32(..)`");
  return std::nullopt;
}

std::optional<ir::Scalar> number(Elaborator& e, const Call& call, const EValue* v, const char* name,
                                 double fallback) {
  if (v == nullptr) return ir::Scalar(fallback);
  if (v->is_number()) return *v->number;
  e.error(DiagId::E0208, v->span.valid() ? v->span : call.name_span,
          fmt::format("argument `{}` of `{}` is a constant number", name, call.name),
          e.describe(*v));
  return std::nullopt;
}

std::optional<ir::Size> whole(Elaborator& e, const Call& call, const EValue* v, const char* name,
                              int64_t fallback) {
  if (v == nullptr) return ir::Size(fallback);
  auto n = number(e, call, v, name, 0);
  if (!n) return std::nullopt;
  if (auto s = n->as_size()) return s;
  if (auto value = e.value_of(*n);
      value && std::floor(*value) == *value && std::abs(*value) < 9e15) {
    return ir::Size(static_cast<int64_t>(*value));
  }
  e.error(DiagId::E0208, v->span.valid() ? v->span : call.name_span,
          fmt::format("argument `{}` of `{}` is a whole number", name, call.name),
          "has a fraction");
  return std::nullopt;
}

std::optional<int64_t> known_whole(Elaborator& e, const Call& call, const ir::Size& s,
                                   const char* name) {
  const ir::Size::Evaluated value = s.evaluate(*e.known);
  if (value.ok()) return value.value;
  e.error(DiagId::E0208, call.span,
          fmt::format("`{}` needs to know `{}`: {}", call.name, name, reader_text(s)),
          value.detail);
  return std::nullopt;
}

Elaborator::Site site(const Call& call, std::initializer_list<const EValue*> values) {
  return {fmt::format("`{}`", call.name), call.name_span, std::vector<const EValue*>(values)};
}

EValue result(Elaborator& e, const Call& call, std::optional<ValueId> v) {
  return v ? e.tensor_of(*v, call.span) : EValue{};
}

bool has_dims(Elaborator& e, const Call& call, const EValue& shown, ValueId v,
              const DimList& dims) {
  DimList missing;
  for (ir::DimId d : dims) {
    if (!e.type(v).has(d)) missing.push_back(d);
  }
  if (missing.empty()) return true;
  Diagnostic& d = e.error(
      DiagId::E0202, call.dims != nullptr ? call.dims_span : call.name_span,
      fmt::format("`{}` names {}, which {} lacks", call.name, e.dims_text(missing), e.show(v)));
  if (shown.span.valid()) d.label(shown.span, e.describe(shown));
  // An alias that was to be renamed to: `causal[T, S]` of scores whose keys are still along T.
  for (ir::DimId x : e.type(v).dims) {
    const ir::Dim &has = e.graph.dim(x), &lacks = e.graph.dim(missing[0]);
    if (has.size.str() != lacks.size.str() || has.size.constant()) continue;
    d.help(fmt::format(
        "`{0}` is `{1}` by another name: rename where both are to stand, `x[{1} -> {0}]`",
        lacks.name, has.name));
    break;
  }
  return false;
}

}  // namespace cad::frontend
