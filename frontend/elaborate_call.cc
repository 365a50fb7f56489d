// frontend/elaborate_call.cc -- calls: what is called, dims in the brackets, arguments against the
// signature. The same matching serves checking (results by signature) and lowering (expand, in
// elaborate_expand.cc).
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

// The definition a callee expression names, or nullptr; `name` as written.
const Definition* Elaborator::find_callee(ExprId callee, std::string& name, Span& span) {
  const Expr& e = body->ast->expr(callee);
  span = e.span;
  if (e.kind == ExprKind::kName) {
    name = e.text;
    return module.find(*body->unit, name);
  }
  const Expr& left = body->ast->expr(e.left);
  name = left.text + "." + e.member.text;
  return left.kind == ExprKind::kName ? module.find_member(*body->unit, left.text, e.member.text) : nullptr;
}

EValue Elaborator::call_expression(ExprId callee, const Expr* dims, const Expr* call_expr, const EValue* piped,
                                   Span span) {
  Call call;
  call.callee = callee;
  call.span = span;
  if (dims != nullptr) {
    call.dims = &dims->dims;
    call.dims_span = dims->op_span;
  }
  const Expr& name = body->ast->expr(callee);
  Instance* instance = nullptr;
  if (!find_instance(callee, instance)) return {};
  const Definition* definition = nullptr;
  const BuiltinInfo* builtin = nullptr;
  if (instance == nullptr) {
    definition = find_callee(callee, call.name, call.name_span);
    if (definition == nullptr && name.kind == ExprKind::kName) builtin = find_builtin(name.text);
    if (definition == nullptr && builtin == nullptr) return unknown_callee(callee, call);
  } else {
    call.name = std::string(module.sources->text(name.span));
    call.name_span = name.span;
  }
  if (piped != nullptr) {
    call.args.push_back({Name{}, *piped, piped->span});
  }
  if (call_expr != nullptr && !arguments(*call_expr, call)) return {};
  if (instance != nullptr) return call_instance(*instance, call);
  if (builtin != nullptr) return call_builtin(*builtin, call);
  return call_definition(*definition, call);
}

// An instance by name, or a member of one (`block.ln`). False when an error was reported.
bool Elaborator::find_instance(ExprId callee, Instance*& out) {
  const Expr& e = body->ast->expr(callee);
  if (e.kind == ExprKind::kName) {
    auto at = body->values.find(e.text);
    if (at == body->values.end()) return true;
    if (at->second.value.error()) {
      // A value that failed hides nothing that can be called.
      statement_failed_ = true;
      return module.find(*body->unit, e.text) != nullptr || find_builtin(e.text) != nullptr;
    }
    if (at->second.value.kind == EValue::Kind::kInstance) out = at->second.value.instance;
    return true;
  }
  const Expr& left = body->ast->expr(e.left);
  if (left.kind == ExprKind::kName && body->values.count(left.text) == 0) return true;  // an import
  EValue v = eval(e.left);
  if (v.error()) return false;
  EValue m = member(v, e);
  if (m.error()) return false;
  if (m.kind != EValue::Kind::kInstance) {
    error(DiagId::E0112, e.span, fmt::format("`{}` is not an instance", e.member.text), "cannot be called");
    return false;
  }
  out = m.instance;
  return true;
}

bool Elaborator::arguments(const Expr& e, Call& call) {
  bool ok = true;
  for (const Arg& a : e.args) {
    EValue v = eval(a.value);
    const Span span = body->ast->expr(a.value).span;
    if (v.error()) {
      ok = false;
      continue;
    }
    if (v.kind == EValue::Kind::kMany && a.name.empty()) {
      for (EValue& part : *v.many) call.args.push_back({Name{}, part, span});
      continue;
    }
    if (!call.args.empty() && !call.args.back().name.empty() && a.name.empty()) {
      error(DiagId::E0109, span, "a positional argument after a named one", "give its name, or move it to the front");
      return false;
    }
    call.args.push_back({a.name, std::move(v), span});
  }
  // A piped value with several results is several arguments, too.
  if (!call.args.empty() && call.args[0].value.kind == EValue::Kind::kMany && call.args[0].name.empty()) {
    const auto many = call.args[0].value.many;
    const Span span = call.args[0].span;
    call.args.erase(call.args.begin());
    for (size_t i = many->size(); i-- > 0;) call.args.insert(call.args.begin(), {Name{}, (*many)[i], span});
  }
  return ok;
}

EValue Elaborator::unknown_callee(ExprId callee, const Call& call) {
  statement_failed_ = true;
  const Expr& e = body->ast->expr(callee);
  const Unit& unit = *body->unit;
  if (unit.lost || unit.silent(call.name) || body->broken_names.count(call.name) != 0) return {};
  if (e.kind == ExprKind::kMember) {
    const Expr& left = body->ast->expr(e.left);
    auto import = unit.imports.find(left.text);
    if (import == unit.imports.end()) {
      Diagnostic& d = error(DiagId::E0101, left.span, fmt::format("unknown name `{}`", left.text), "neither a value nor an import");
      std::vector<std::string> names;
      for (const auto& [alias, u] : unit.imports) names.push_back(alias);
      for (const auto& [name, b] : body->values) names.push_back(name);
      if (auto near = suggest(left.text, names)) d.help(fmt::format("did you mean `{}`?", *near));
      return {};
    }
    if (import->second == nullptr || import->second->ast.lost_items) return {};  // it could not be loaded
    Diagnostic& d = error(DiagId::E0102, e.member.span, fmt::format("`{}` has no definition `{}`", left.text, e.member.text),
                          "not defined there");
    std::vector<std::string> names;
    for (const auto& [name, def] : import->second->definitions) names.push_back(name);
    if (auto near = suggest(e.member.text, names)) d.help(fmt::format("did you mean `{}.{}`?", left.text, *near));
    return {};
  }
  auto value = body->values.find(e.text);
  if (value != body->values.end()) {
    Diagnostic& d = error(DiagId::E0112, e.span, fmt::format("`{}` is a value, not a function", e.text), "cannot be called");
    d.label(value->second.span, "bound here");
    return {};
  }
  if (find_dims(e.text)) {
    error(DiagId::E0112, e.span, fmt::format("`{}` is a dim, not a function", e.text), "cannot be called");
    return {};
  }
  Diagnostic& d = error(DiagId::E0102, e.span, fmt::format("unknown function or layer `{}`", e.text), "not defined");
  std::vector<std::string> names = builtin_names();
  for (const auto& [name, def] : unit.definitions) names.push_back(name);
  names.insert(names.end(), module.library_names.begin(), module.library_names.end());
  for (const auto& [name, b] : body->values) {
    if (b.value.kind == EValue::Kind::kInstance) names.push_back(name);
  }
  if (auto near = suggest(e.text, names)) {
    d.help(fmt::format("did you mean `{}`?", *near));
  } else {
    for (const auto& [alias, imported] : unit.imports) {
      if (imported != nullptr && imported->definitions.count(e.text) != 0) {
        d.help(fmt::format("imported names need their alias: `{}.{}`", alias, e.text));
      }
    }
  }
  return {};
}

// ------------------------------------------------------------------------- dims in the brackets

bool Elaborator::bind_formals(const Definition& d, const std::vector<DimItem>* items, Span items_span, Span where,
                              std::vector<DimList>& out) {
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
    Diagnostic& e = error(DiagId::E0110, where, fmt::format("`{}` needs its dims in brackets", d.name), "no brackets");
    e.note(fmt::format("it is `{}`; none of them is inferred", expected()));
    return false;
  }
  auto wrong = [&](Span span, const std::string& label) {
    Diagnostic& e = error(DiagId::E0110, span, fmt::format("the dims in brackets do not fit `{}`", d.name), label);
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
    if (item.kind == DimItemKind::kIndex || item.kind == DimItemKind::kSlice) return wrong(item.span, "not a dim");
    if (at >= formals.size()) return wrong(item.span, "one too many");
    const bool arrow = item.kind == DimItemKind::kArrow;
    if (arrow && !formals[at].arrow) return wrong(item.span, fmt::format("`{}` has no arrow", formals[at].name));
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
  if (at < formals.size()) return wrong(items_span, fmt::format("`{}` is missing", formals[at].name));
  return true;
}

// ------------------------------------------------------------------------------------ arguments

// The dims of a signature's type for the bound dims; nullopt when a file dim is unknown.
std::optional<DimList> Elaborator::pattern_dims(const TypePattern& t, const std::vector<DimList>& formals,
                                                const DimList& pack, const Unit* unit) {
  (void)unit;
  DimList dims;
  for (const TypePattern::Term& term : t.terms) {
    if (term.dots) {
      dims.insert(dims.end(), pack.begin(), pack.end());
    } else if (term.formal >= 0) {
      const DimList& list = formals[static_cast<size_t>(term.formal)];
      dims.insert(dims.end(), list.begin(), list.end());
    } else if (auto at = body->local_dims.find(term.name); at != body->local_dims.end() && unit == nullptr) {
      dims.insert(dims.end(), at->second.begin(), at->second.end());
    } else {
      dims.push_back(file_dim(term.name));
    }
  }
  return dims;
}

bool Elaborator::match_constant(const Parameter& p, EValue& v, Span span, const std::string& callee) {
  using Constant = TypePattern::Constant;
  const bool wants_bool = p.type.constant == Constant::kBool;
  const char* wanted = wants_bool ? "bool" : p.type.constant == Constant::kInt ? "int" : "f32";
  if (!(v.is_number() && !wants_bool) && !(v.kind == EValue::Kind::kBool && wants_bool)) {
    Diagnostic& d = error(DiagId::E0208, span, fmt::format("argument `{}` of `{}` is a constant `{}`", p.name, callee, wanted),
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

bool Elaborator::match_argument(const Definition& d, const Parameter& p, EValue& v, Bound& bound, bool& pack_set,
                                Span span) {
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
    Diagnostic& e = error(DiagId::E0205, span, fmt::format("{} is `{}`, not `{}`", what, ir::dtype_name(p.type.dtype),
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
        Diagnostic& e = error(DiagId::E0204, span, fmt::format("{} would hold {} twice", what, dim_text(dim)), "for these dims");
        e.label(p.span, "declared here");
        e.help(fmt::format("use an alias: `dim {}2 = {}`", graph.dim(dim).name, graph.dim(dim).name));
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
  if (!missing.empty() || (!dots && !rest.empty())) return argument_misfit(d, p, v, named, missing, dots ? DimList{} : rest, span);
  if (!dots) return true;
  if (!pack_set) {
    pack_set = true;
    bound.pack = rest;
    bound.pack_argument = p.name;
    return true;
  }
  const bool same = rest.size() == bound.pack.size() &&
                    std::all_of(rest.begin(), rest.end(), [&](ir::DimId dim) { return contains(bound.pack, dim); });
  if (same) return true;
  Diagnostic& e = error(DiagId::E0201, span, fmt::format("`..` of `{}` is one list of dims", d.name), describe(v));
  e.note(fmt::format("in argument `{}` it is [{}], in `{}` [{}]", bound.pack_argument, show(bound.pack), p.name, show(rest)));
  return false;
}

bool Elaborator::argument_misfit(const Definition& d, const Parameter& p, const EValue& v, const DimList& named,
                                 const DimList& missing, const DimList& extra, Span span) {
  const std::string wanted = p.type.dots() ? named.empty() ? "[..]" : "[.., " + show(named) + "]" : "[" + show(named) + "]";
  Diagnostic& e = error(DiagId::E0201, span, fmt::format("argument `{}` of `{}` is {}, not {}", p.name, d.name, wanted, show(v.value)),
                        describe(v));
  e.label(p.span, "declared here");
  auto each = [&](const DimList& dims) {
    std::string text;
    for (ir::DimId dim : dims) text += (text.empty() ? "" : ", ") + dim_text(dim);
    return text;
  };
  if (!missing.empty()) e.note(fmt::format("it lacks {}", each(missing)));
  if (!extra.empty()) e.note(fmt::format("{} {} too many", each(extra), extra.size() == 1 ? "is" : "are"));
  if (missing.size() == 1 && extra.size() == 1) {
    const std::string from = graph.dim(extra[0]).name, to = graph.dim(missing[0]).name;
    if (decide_equal(graph.dim(extra[0]).size, graph.dim(missing[0]).size, *known) == Decision::kYes) {
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
        Diagnostic& e = error(DiagId::E0109, a.span, fmt::format("`{}` takes {} argument{}", d.name, s.parameters.size(),
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
      Diagnostic& e = error(DiagId::E0108, a.name.span, fmt::format("`{}` has no argument `{}`", d.name, a.name.text), "unknown");
      if (auto near = suggest(a.name.text, names)) {
        e.help(fmt::format("did you mean `{}`?", *near));
      } else if (!names.empty()) {
        e.note(fmt::format("its arguments are {}", quoted_list(names)));
      }
      return false;
    }
    if (given[static_cast<size_t>(at)] != nullptr || bound.args.count(a.name.text) != 0) {
      error(DiagId::E0109, a.name.span, fmt::format("argument `{}` is given twice", a.name.text), "again");
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
      Diagnostic& e = error(DiagId::E0109, call.name_span, fmt::format("`{}` needs argument `{}`", d.name, p.name), "not given");
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
