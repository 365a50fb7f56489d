// frontend/signature.cc -- types as written, with their names looked up: a dim parameter, a dim of
// the body, or a dim of the file. Only names stand in the brackets of types; the help for anything
// else is the `dim` line to write.
#include <fmt/format.h>

#include "base/suggest.h"
#include "frontend/elaborator.h"

namespace cad::frontend {

namespace {

// What other languages call our dtypes.
const char* common_name(const std::string& name, bool tensor) {
  if (name == "float" || name == "float32" || name == "double") return "f32";
  if (name == "bfloat16") return "bf16";
  if (name == "half" || name == "float16") return "f16";
  if (name == "int" || name == "integer" || name == "int32" || name == "int64" || name == "long")
    return tensor ? "i32" : "int";
  if (name == "boolean") return "bool";
  return nullptr;
}

class TypeResolver {
 public:
  TypeResolver(const Module& module, const Unit& unit, const Signature* signature,
               const std::function<bool(const std::string&)>& is_local, Diagnostics& diagnostics)
      : module_(module),
        unit_(unit),
        signature_(signature),
        is_local_(is_local),
        diagnostics_(diagnostics) {}

  TypePattern resolve(TypeId id, bool allow_constant) {
    TypePattern pattern;
    if (!id.valid()) return pattern;
    const TypeNode& node = unit_.ast.type(id);
    pattern.span = node.span;
    switch (node.kind) {
      case TypeKind::kError:
        return pattern;
      case TypeKind::kTuple:
        diagnostics_.add(
            make_diagnostic(DiagId::E0117, node.span, "one type is wanted here", "several types"));
        return pattern;
      case TypeKind::kName:
        return constant(node, std::move(pattern), allow_constant);
      case TypeKind::kTensor:
        return tensor(node, std::move(pattern));
    }
    return pattern;
  }

 private:
  TypePattern constant(const TypeNode& node, TypePattern pattern, bool allowed) {
    static const std::map<std::string, TypePattern::Constant> kinds = {
        {"int", TypePattern::Constant::kInt},    {"f32", TypePattern::Constant::kFloat},
        {"bool", TypePattern::Constant::kBool},  {"i32", TypePattern::Constant::kInt},
        {"bf16", TypePattern::Constant::kFloat}, {"f16", TypePattern::Constant::kFloat}};
    auto at = kinds.find(node.dtype.text);
    if (at == kinds.end()) {
      Diagnostic d = make_diagnostic(DiagId::E0117, node.span,
                                     fmt::format("unknown type `{}`", node.dtype.text));
      std::vector<std::string> names;
      for (const auto& [name, kind] : kinds) names.push_back(name);
      if (const char* known = common_name(node.dtype.text, false)) {
        d.help(fmt::format("write `{}`", known));
      } else if (auto near = suggest(node.dtype.text, names)) {
        d.help(fmt::format("did you mean `{}`?", *near));
      } else {
        d.help(fmt::format("a tensor type has brackets: `[{}]`", node.dtype.text));
      }
      diagnostics_.add(std::move(d));
      return pattern;
    }
    if (!allowed) {
      Diagnostic d = make_diagnostic(
          DiagId::E0117, node.span,
          fmt::format("`{}` without brackets is the type of a constant argument", node.dtype.text),
          "a tensor type is wanted");
      d.help(fmt::format("a tensor of rank 0 is `{}[]`",
                         node.dtype.text == "int" ? "i32" : node.dtype.text));
      diagnostics_.add(std::move(d));
      return pattern;
    }
    pattern.kind = TypePattern::Kind::kConstant;
    pattern.constant = at->second;
    return pattern;
  }

  TypePattern tensor(const TypeNode& node, TypePattern pattern) {
    static const std::map<std::string, ir::DType> dtypes = {{"f32", ir::DType::kF32},
                                                            {"bf16", ir::DType::kBF16},
                                                            {"f16", ir::DType::kF16},
                                                            {"i32", ir::DType::kI32},
                                                            {"bool", ir::DType::kBool}};
    if (!node.dtype.empty()) {
      auto at = dtypes.find(node.dtype.text);
      if (at == dtypes.end()) {
        Diagnostic d = make_diagnostic(DiagId::E0117, node.dtype.span,
                                       fmt::format("unknown type `{}`", node.dtype.text));
        std::vector<std::string> names;
        for (const auto& [name, kind] : dtypes) names.push_back(name);
        if (const char* known = common_name(node.dtype.text, true)) {
          d.help(fmt::format("write `{}`", known));
        } else if (auto near = suggest(node.dtype.text, names)) {
          d.help(fmt::format("did you mean `{}`?", *near));
        }
        diagnostics_.add(std::move(d));
        return pattern;
      }
      pattern.dtype = at->second;
      pattern.plain = false;
    }
    bool ok = true;
    for (const DimTerm& t : node.terms) ok = term(t, pattern) && ok;
    if (ok) pattern.kind = TypePattern::Kind::kTensor;
    return pattern;
  }

  bool term(const DimTerm& t, TypePattern& pattern) {
    TypePattern::Term out;
    out.span = t.span;
    if (t.dots) {
      if (signature_ == nullptr || !dots_allowed()) {
        diagnostics_.add(make_diagnostic(DiagId::E0107, t.span, "`..` has no meaning here",
                                         "no argument of this definition has `..`"));
        return false;
      }
      out.dots = true;
      out.name = "..";
      return twice(pattern, out) && (pattern.terms.push_back(out), true);
    }
    const ExprId id = strip_parens(unit_.ast, t.dim);
    const Expr& e = unit_.ast.expr(id);
    if (e.kind == ExprKind::kError) return false;
    if (e.kind != ExprKind::kName) return expression(e);
    out.name = e.text;
    out.formal = signature_ == nullptr ? -1 : signature_->find_formal(e.text);
    if (is_local_ && is_local_(e.text)) out.formal = -1;
    if (out.formal < 0 && !(is_local_ && is_local_(e.text)) && unit_.dims.count(e.text) == 0) {
      unknown_dim(e);
      return false;
    }
    return twice(pattern, out) && (pattern.terms.push_back(out), true);
  }

  bool dots_allowed() const { return signature_->dots; }

  bool twice(const TypePattern& pattern, const TypePattern::Term& term) {
    for (const TypePattern::Term& other : pattern.terms) {
      if (other.name != term.name) continue;
      Diagnostic d =
          make_diagnostic(DiagId::E0204, term.span,
                          fmt::format("a tensor never holds `{}` twice", term.name), "again");
      d.label(other.span, "here first");
      if (!term.dots) {
        d.help(fmt::format("declare a second dim of the same size: `dim {}2 = {}`", term.name,
                           term.name));
      }
      diagnostics_.add(std::move(d));
      return false;
    }
    return true;
  }

  bool expression(const Expr& e) {
    const std::string text(module_.sources->text(e.span));
    Diagnostic d =
        make_diagnostic(DiagId::E0214, e.span, "only names stand in the brackets of a type",
                        e.kind == ExprKind::kNumber ? "a number" : "an expression");
    d.help(fmt::format("name it with a line `dim N = {}` and write `N` here", text));
    diagnostics_.add(std::move(d));
    return false;
  }

  void unknown_dim(const Expr& e) {
    if (unit_.silent(e.text)) return;
    Diagnostic d = make_diagnostic(DiagId::E0107, e.span, fmt::format("unknown dim `{}`", e.text),
                                   "not declared");
    std::vector<std::string> names;
    if (signature_ != nullptr) {
      for (const Formal& f : signature_->formals) names.push_back(f.name);
    }
    for (const auto& [name, span] : unit_.dims) names.push_back(name);
    if (auto near = suggest(e.text, names)) {
      auto at = unit_.dims.find(*near);
      d.help(fmt::format("a dim with a similar name exists: `{}`", *near));
      if (at != unit_.dims.end()) d.label(at->second, fmt::format("`{}` is declared here", *near));
    } else {
      d.help(fmt::format("declare it: `dim {}`", e.text));
    }
    diagnostics_.add(std::move(d));
  }

  const Module& module_;
  const Unit& unit_;
  const Signature* signature_;
  const std::function<bool(const std::string&)>& is_local_;
  Diagnostics& diagnostics_;
};

void formals_of(const Def& def, Signature& s, Diagnostics& diagnostics) {
  auto add = [&](const Name& name, int arrow_of) {
    if (name.empty()) return;
    if (int first = s.find_formal(name.text); first >= 0) {
      Diagnostic d =
          make_diagnostic(DiagId::E0103, name.span,
                          fmt::format("dim parameter `{}` is there twice", name.text), "again");
      d.label(s.formals[static_cast<size_t>(first)].span, "here first");
      d.help(
          "the two sides of an arrow are dims of their own, equal or not when called: give them "
          "two names");
      diagnostics.add(std::move(d));
      s.broken = true;
      return;
    }
    Formal f;
    f.name = name.text;
    f.arrow_of = arrow_of;
    f.span = name.span;
    s.formals.push_back(std::move(f));
  };
  for (const DimParam& p : def.dims) {
    const auto at = static_cast<int>(s.formals.size());
    add(p.from, -1);
    if (p.to.empty()) continue;
    if (static_cast<size_t>(at) < s.formals.size()) s.formals[static_cast<size_t>(at)].arrow = true;
    add(p.to, at);
  }
}

bool mentions_dots(const Ast& ast, TypeId id) {
  if (!id.valid()) return false;
  const TypeNode& node = ast.type(id);
  for (const DimTerm& t : node.terms) {
    if (t.dots) return true;
  }
  for (TypeId e : node.elements) {
    if (mentions_dots(ast, e)) return true;
  }
  return false;
}

}  // namespace

TypePattern resolve_type(const Module& module, const Unit& unit, const Signature* signature,
                         const std::function<bool(const std::string&)>& is_local, TypeId type,
                         bool allow_constant, Diagnostics& diagnostics) {
  return TypeResolver(module, unit, signature, is_local, diagnostics).resolve(type, allow_constant);
}

void resolve_signature(Module& module, Definition& definition, Diagnostics& reported) {
  if (definition.state != Definition::State::kUnresolved) return;
  definition.state = Definition::State::kResolved;
  const Def& def = definition.def();
  Diagnostics silent;  // a header that did not parse says nothing reliable
  Diagnostics& diagnostics = def.broken ? silent : reported;
  const Ast& ast = definition.unit->ast;
  Signature& s = definition.signature;
  s.broken = def.broken;
  formals_of(def, s, diagnostics);
  for (const Param& p : def.params) s.dots = s.dots || mentions_dots(ast, p.type);
  const std::function<bool(const std::string&)> none;
  for (const Param& p : def.params) {
    Parameter out;
    out.name = p.name.text;
    out.span = p.name.span;
    out.value = p.value;
    out.type = resolve_type(module, *definition.unit, &s, none, p.type, true, diagnostics);
    if (out.type.kind == TypePattern::Kind::kError) s.broken = true;
    if (int first = s.find_parameter(out.name); first >= 0 && !out.name.empty()) {
      Diagnostic d = make_diagnostic(
          DiagId::E0103, out.span, fmt::format("argument `{}` is there twice", out.name), "again");
      d.label(s.parameters[static_cast<size_t>(first)].span, "here first");
      diagnostics.add(std::move(d));
      s.broken = true;
    }
    if (s.find_formal(out.name) >= 0 || definition.unit->dims.count(out.name) != 0) {
      Diagnostic d = make_diagnostic(DiagId::E0104, out.span,
                                     fmt::format("argument `{}` is named like a dim", out.name),
                                     "dims and values share one namespace");
      d.help("by convention values are lower case");
      diagnostics.add(std::move(d));
      s.broken = true;
    }
    s.parameters.push_back(std::move(out));
  }
  if (!def.result.valid()) {
    s.broken = true;
    return;
  }
  const TypeNode& result = ast.type(def.result);
  const std::vector<TypeId> types =
      result.kind == TypeKind::kTuple ? result.elements : std::vector<TypeId>{def.result};
  for (TypeId t : types) {
    s.results.push_back(resolve_type(module, *definition.unit, &s, none, t, false, diagnostics));
    if (s.results.back().kind == TypePattern::Kind::kError) s.broken = true;
  }
}

}  // namespace cad::frontend
