// frontend/elaborate_arguments.cc -- a call against a signature: dims in the brackets, arguments by
// position and name, `..`, constants and defaults. What the call then gives: elaborate_expand.cc.
#include <algorithm>
#include <cmath>

#include "base/suggest.h"
#include "frontend/elaborator.h"

namespace cad::frontend {

using ir::DType;
using ir::ValueId;

namespace {

std::string quoted_list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "`" : ", `") + n + "`";
  return text;
}

}  // namespace

// ------------------------------------------------------------------------- dims in the brackets

bool Elaborator::bind_formals(const Definition& d, const std::vector<DimItem>* items,
                              Span items_span, Span where, std::vector<DimList>& out) {
  const std::vector<Formal>& formals = d.signature.formals;
  auto expected = [&] {
    std::string text = d.name + "[";
    for (size_t i = 0; i < formals.size(); ++i) {
      if (i > 0) text += formals[i].arrow_of >= 0 ? " -> " : ", ";
      text += formals[i].name;
    }
    return text + "]";
  };
  if (items == nullptr) {
    if (formals.empty()) return true;
    Diagnostic& e = error(DiagId::E0110, where,
                          fmt::format("`{}` needs its dims in brackets", d.name), "no brackets");
    e.note(fmt::format("it is `{}`; none of them is inferred", expected()));
    return false;
  }
  auto wrong = [&](Span span, const std::string& label) {
    Diagnostic& e = error(DiagId::E0110, span,
                          fmt::format("the dims in brackets do not fit `{}`", d.name), label);
    if (formals.empty()) {
      e.note(fmt::format("`{}` has no dim parameters", d.name));
    } else {
      e.note(fmt::format("it is `{}`", expected()));
    }
    return false;
  };
  size_t at = 0;
  for (const DimItem& item : *items) {
    if (item.kind == DimItemKind::kDots) return wrong(item.span, "`..` is not bound in brackets");
    if (item.kind == DimItemKind::kIndex || item.kind == DimItemKind::kSlice)
      return wrong(item.span, "not a dim");
    if (at >= formals.size()) return wrong(item.span, "one too many");
    const bool arrow = item.kind == DimItemKind::kArrow;
    if (arrow && !formals[at].arrow)
      return wrong(item.span, fmt::format("`{}` has no arrow", formals[at].name));
    if (!arrow && formals[at].arrow) return wrong(item.span, "an arrow is missing");
    auto left = dims_of_side(item.left, "a call");
    if (!left) return false;
    out.push_back(*left);
    ++at;
    if (!arrow) continue;
    auto right = dims_of_side(item.right, "a call");
    if (!right) return false;
    out.push_back(*right);
    ++at;
  }
  if (at < formals.size())
    return wrong(items_span, fmt::format("`{}` is missing", formals[at].name));
  return true;
}

// ------------------------------------------------------------------------------------ arguments

// The dims of a signature's type for the bound dims; nullopt when a file dim is unknown.
std::optional<DimList> Elaborator::pattern_dims(const TypePattern& t,
                                                const std::vector<DimList>& formals,
                                                const DimList& pack, const Unit* unit) {
  (void)unit;
  DimList dims;
  for (const TypePattern::Term& term : t.terms) {
    if (term.dots) {
      dims.insert(dims.end(), pack.begin(), pack.end());
    } else if (term.formal >= 0) {
      const DimList& list = formals[static_cast<size_t>(term.formal)];
      dims.insert(dims.end(), list.begin(), list.end());
    } else if (auto at = body->local_dims.find(term.name);
               at != body->local_dims.end() && unit == nullptr) {
      dims.insert(dims.end(), at->second.begin(), at->second.end());
    } else {
      dims.push_back(file_dim(term.name));
    }
  }
  return dims;
}

bool Elaborator::match_constant(const Parameter& p, EValue& v, Span span,
                                const std::string& callee) {
  using Constant = TypePattern::Constant;
  const bool wants_bool = p.type.constant == Constant::kBool;
  const char* wanted = wants_bool ? "bool" : p.type.constant == Constant::kInt ? "int" : "f32";
  if (!(v.is_number() && !wants_bool) && !(v.kind == EValue::Kind::kBool && wants_bool)) {
    Diagnostic& d =
        error(DiagId::E0208, span,
              fmt::format("argument `{}` of `{}` is a constant `{}`", p.name, callee, wanted),
              v.tensor() ? fmt::format("{}, a tensor", show(v.value)) : describe(v));
    d.label(p.span, "declared here");
    d.note("constants are numbers, `let`s, dims in value position and arithmetic on them");
    return false;
  }
  if (p.type.constant != Constant::kInt || v.whole) return true;
  const auto n = value_of(*v.number);
  if (n && std::floor(*n) == *n) {
    v.whole = true;
    return true;
  }
  if (!n && mode == Mode::kCheck) {
    if (auto s = v.number->as_size()) {
      Need need;
      need.what = fmt::format("argument `{}` of `{}`", p.name, callee);
      need.span = span;
      v.whole = true;
      return need_whole(*s, need);
    }
  }
  error(DiagId::E0208, span, fmt::format("argument `{}` of `{}` is a whole number", p.name, callee),
        n ? fmt::format("{:g}", *n) : "has a fraction")
      .label(p.span, "declared `int` here");
  return false;
}

bool Elaborator::match_argument(const Definition& d, const Parameter& p, EValue& v, Bound& bound,
                                bool& pack_set, Span span) {
  if (p.type.kind == TypePattern::Kind::kConstant) return match_constant(p, v, span, d.name);
  const std::string what = fmt::format("argument `{}` of `{}`", p.name, d.name);
  auto x = as_tensor(v, p.type.dtype, span, what);
  if (!x) return false;
  EValue shown = v;
  v = tensor_of(*x, v.span);
  v.bound = shown.bound;
  v.from = shown.from;
  const DType dtype = type(*x).dtype;
  const bool both_float = ir::is_float(dtype) && ir::is_float(p.type.dtype);
  if (!both_float && dtype != p.type.dtype) {
    Diagnostic& e = error(DiagId::E0205, span,
                          fmt::format("{} is `{}`, not `{}`", what, ir::dtype_name(p.type.dtype),
                                      ir::dtype_name(dtype)),
                          describe(v));
    e.label(p.span, "declared here");
    e.help(fmt::format("cast it: `{}(..)`", ir::dtype_name(p.type.dtype)));
    return false;
  }
  if (!p.type.plain && both_float && dtype != p.type.dtype) v.value = *x = cast(*x, p.type.dtype);
  DimList named;
  for (const TypePattern::Term& term : p.type.terms) {
    if (term.dots) continue;
    TypePattern one;
    one.terms.push_back(term);
    const DimList dims = *pattern_dims(one, bound.formals, {}, d.unit);
    for (ir::DimId dim : dims) {
      if (contains(named, dim)) {
        Diagnostic& e =
            error(DiagId::E0204, span, fmt::format("{} would hold {} twice", what, dim_text(dim)),
                  "for these dims");
        e.label(p.span, "declared here");
        e.help(
            fmt::format("use an alias: `dim {}2 = {}`", graph.dim(dim).name, graph.dim(dim).name));
        return false;
      }
      named.push_back(dim);
    }
  }
  DimList missing, rest;
  for (ir::DimId dim : named) {
    if (!type(*x).has(dim)) missing.push_back(dim);
  }
  for (ir::DimId dim : type(*x).dims) {
    if (!contains(named, dim)) rest.push_back(dim);
  }
  const bool dots = p.type.dots();
  if (!missing.empty() || (!dots && !rest.empty()))
    return argument_misfit(d, p, v, named, missing, dots ? DimList{} : rest, span);
  if (!dots) return true;
  if (!pack_set) {
    pack_set = true;
    bound.pack = rest;
    bound.pack_argument = p.name;
    return true;
  }
  const bool same = rest.size() == bound.pack.size() &&
                    std::all_of(rest.begin(), rest.end(),
                                [&](ir::DimId dim) { return contains(bound.pack, dim); });
  if (same) return true;
  Diagnostic& e = error(DiagId::E0201, span,
                        fmt::format("`..` of `{}` is one list of dims", d.name), describe(v));
  e.note(fmt::format("in argument `{}` it is [{}], in `{}` [{}]", bound.pack_argument,
                     show(bound.pack), p.name, show(rest)));
  return false;
}

bool Elaborator::argument_misfit(const Definition& d, const Parameter& p, const EValue& v,
                                 const DimList& named, const DimList& missing, const DimList& extra,
                                 Span span) {
  const std::string wanted = p.type.dots() ? named.empty() ? "[..]" : "[.., " + show(named) + "]"
                                           : "[" + show(named) + "]";
  Diagnostic& e = error(
      DiagId::E0201, span,
      fmt::format("argument `{}` of `{}` is {}, not {}", p.name, d.name, wanted, show(v.value)),
      describe(v));
  e.label(p.span, "declared here");
  auto each = [&](const DimList& dims) {
    std::string text;
    for (ir::DimId dim : dims) text += (text.empty() ? "" : ", ") + dim_text(dim);
    return text;
  };
  if (!missing.empty()) e.note(fmt::format("it lacks {}", each(missing)));
  if (!extra.empty())
    e.note(fmt::format("{} {} too many", each(extra), extra.size() == 1 ? "is" : "are"));
  if (missing.size() == 1 && extra.size() == 1) {
    const std::string from = graph.dim(extra[0]).name, to = graph.dim(missing[0]).name;
    if (decide_equal(graph.dim(extra[0]).size, graph.dim(missing[0]).size, *known) ==
        Decision::kYes) {
      e.help(fmt::format("rename it: `[{} -> {}]`", from, to));
    } else {
      e.help(fmt::format("project it: `Linear[{} -> {}](..)`", from, to));
    }
  }
  return false;
}

bool Elaborator::bind_arguments(const Definition& d, Call& call, Bound& bound) {
  const Signature& s = d.signature;
  std::vector<const ArgValue*> given(s.parameters.size(), nullptr);
  size_t next = 0;
  for (const ArgValue& a : call.args) {
    if (a.name.empty()) {
      while (next < s.parameters.size() && bound.args.count(s.parameters[next].name) != 0) ++next;
      if (next >= s.parameters.size()) {
        Diagnostic& e = error(DiagId::E0109, a.span,
                              fmt::format("`{}` takes {} argument{}", d.name, s.parameters.size(),
                                          s.parameters.size() == 1 ? "" : "s"),
                              "one too many");
        e.label(d.name_span(), "defined here");
        return false;
      }
      given[next++] = &a;
      continue;
    }
    const int at = s.find_parameter(a.name.text);
    if (at < 0) {
      std::vector<std::string> names;
      for (const Parameter& p : s.parameters) names.push_back(p.name);
      Diagnostic& e =
          error(DiagId::E0108, a.name.span,
                fmt::format("`{}` has no argument `{}`", d.name, a.name.text), "unknown");
      if (auto near = suggest(a.name.text, names)) {
        e.help(fmt::format("did you mean `{}`?", *near));
      } else if (!names.empty()) {
        e.note(fmt::format("its arguments are {}", quoted_list(names)));
      }
      return false;
    }
    if (given[static_cast<size_t>(at)] != nullptr || bound.args.count(a.name.text) != 0) {
      error(DiagId::E0109, a.name.span, fmt::format("argument `{}` is given twice", a.name.text),
            "again");
      return false;
    }
    given[static_cast<size_t>(at)] = &a;
  }
  bool pack_set = false;
  for (size_t i = 0; i < given.size(); ++i) {
    const Parameter& p = s.parameters[i];
    if (given[i] == nullptr) continue;
    EValue v = given[i]->value;
    if (v.error()) return false;
    if (!match_argument(d, p, v, bound, pack_set, given[i]->span)) return false;
    bound.args[p.name] = std::move(v);
  }
  for (const Parameter& p : s.parameters) {
    if (bound.args.count(p.name) != 0) continue;
    if (!p.value.valid()) {
      Diagnostic& e = error(DiagId::E0109, call.name_span,
                            fmt::format("`{}` needs argument `{}`", d.name, p.name), "not given");
      e.label(p.span, "declared here");
      return false;
    }
    EValue v = default_value(d, p, bound);
    if (v.error()) return false;
    if (!match_argument(d, p, v, bound, pack_set, call.name_span)) return false;
    bound.args[p.name] = std::move(v);
  }
  return true;
}

// A default stands in the definition's own file and may name its dims and earlier constants.
EValue Elaborator::default_value(const Definition& d, const Parameter& p, const Bound& bound) {
  BodyFrame frame;
  frame.definition = &d;
  frame.unit = d.unit;
  frame.ast = &d.unit->ast;
  frame.formals = bound.formals;
  for (const auto& [name, v] : bound.args) {
    Binding b;
    b.kind = BindKind::kArgument;
    b.value = v;
    frame.values[name] = std::move(b);
  }
  BodyFrame* saved = body;
  body = &frame;
  EValue v = eval(p.value);
  body = saved;
  return v;
}

}  // namespace cad::frontend
