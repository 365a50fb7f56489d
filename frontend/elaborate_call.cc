// frontend/elaborate_call.cc -- what is called: an instance, a definition of the file, an import or
// the library, a builtin; and its arguments' values. Matching them against the signature is
// elaborate_arguments.cc, what comes of it elaborate_expand.cc.
#include "base/suggest.h"
#include "frontend/elaborator.h"

namespace cad::frontend {

using ir::DType;
using ir::ValueId;

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
  return left.kind == ExprKind::kName ? module.find_member(*body->unit, left.text, e.member.text)
                                      : nullptr;
}

EValue Elaborator::call_expression(ExprId callee, const Expr* dims, const Expr* call_expr,
                                   const EValue* piped, Span span) {
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
    error(DiagId::E0112, e.span, fmt::format("`{}` is not an instance", e.member.text),
          "cannot be called");
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
      error(DiagId::E0109, span, "a positional argument after a named one",
            "give its name, or move it to the front");
      return false;
    }
    call.args.push_back({a.name, std::move(v), span});
  }
  // A piped value with several results is several arguments, too.
  if (!call.args.empty() && call.args[0].value.kind == EValue::Kind::kMany &&
      call.args[0].name.empty()) {
    const auto many = call.args[0].value.many;
    const Span span = call.args[0].span;
    call.args.erase(call.args.begin());
    for (size_t i = many->size(); i-- > 0;)
      call.args.insert(call.args.begin(), {Name{}, (*many)[i], span});
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
      Diagnostic& d = error(DiagId::E0101, left.span, fmt::format("unknown name `{}`", left.text),
                            "neither a value nor an import");
      std::vector<std::string> names;
      for (const auto& [alias, u] : unit.imports) names.push_back(alias);
      for (const auto& [name, b] : body->values) names.push_back(name);
      if (auto near = suggest(left.text, names)) d.help(fmt::format("did you mean `{}`?", *near));
      return {};
    }
    if (import->second == nullptr || import->second->ast.lost_items)
      return {};  // it could not be loaded
    Diagnostic& d = error(DiagId::E0102, e.member.span,
                          fmt::format("`{}` has no definition `{}`", left.text, e.member.text),
                          "not defined there");
    std::vector<std::string> names;
    for (const auto& [name, def] : import->second->definitions) names.push_back(name);
    if (auto near = suggest(e.member.text, names))
      d.help(fmt::format("did you mean `{}.{}`?", left.text, *near));
    return {};
  }
  auto value = body->values.find(e.text);
  if (value != body->values.end()) {
    Diagnostic& d =
        error(DiagId::E0112, e.span, fmt::format("`{}` is a value, not a function", e.text),
              "cannot be called");
    d.label(value->second.span, "bound here");
    return {};
  }
  if (find_dims(e.text)) {
    error(DiagId::E0112, e.span, fmt::format("`{}` is a dim, not a function", e.text),
          "cannot be called");
    return {};
  }
  Diagnostic& d = error(DiagId::E0102, e.span,
                        fmt::format("unknown function or layer `{}`", e.text), "not defined");
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

}  // namespace cad::frontend
