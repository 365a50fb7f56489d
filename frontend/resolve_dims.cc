// frontend/resolve_dims.cc -- sizes of dims and values of lets, on demand, circles reported.
// `--set` beats `train` beats the declaration; free dims get values for `bindings` only, so that
// definitions are checked for every value they may take.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/suggest.h"
#include "frontend/resolve.h"

namespace cad::frontend {

namespace {

class Resolver {
 public:
  Resolver(Module& module, Diagnostics& diagnostics) : module_(module), diagnostics_(diagnostics) {}

  Constant name(const Unit& unit, const std::string& text, Span span) {
    if (auto at = unit.lets.find(text); at != unit.lets.end()) {
      return let(const_cast<LetDecl&>(at->second));
    }
    if (unit.dims.count(text) != 0) {
      DimDecl& decl = module_.dims.at(text);
      if (!dim(decl)) return {};
      return Constant::of(ir::Scalar::size(decl.size), true);
    }
    unknown(unit, text, span);
    return {};
  }

  bool dim(DimDecl& decl) {
    using State = DimDecl::State;
    if (decl.state == State::kResolving) {
      circle("dim", decl.name, decl.span);
      decl.state = State::kFailed;
    }
    if (decl.state == State::kUnresolved) resolve({&decl, nullptr});
    return decl.state == State::kResolved;
  }

  Constant let(LetDecl& decl) {
    using State = LetDecl::State;
    if (decl.state == State::kResolving) {
      circle("let", decl.name, decl.span);
      decl.state = State::kFailed;
    }
    if (decl.state == State::kUnresolved) resolve({nullptr, &decl});
    if (decl.state == State::kFailed) return {};
    if (decl.is_bool) return Constant::of(decl.bool_value);
    return Constant::of(decl.scalar, decl.scalar.is_whole());
  }

  ConstantLookup names(const Unit& unit) {
    return [this, &unit](const std::string& text, Span span) { return name(unit, text, span); };
  }

 private:
  struct Declared {  // one of the two
    DimDecl* dim = nullptr;
    LetDecl* let = nullptr;
  };
  struct Visit {
    Declared what;
    std::vector<Declared> needs;
    size_t next = 0;
  };

  // What the declaration is made of comes first, on a stack of our own: chains may be of any
  // length. A need that is met while it waits on that stack is found to be a circle by dim() and
  // let() when the declaration that needs it is evaluated.
  void resolve(Declared root) {
    std::vector<Visit> path;
    const auto enter = [&](Declared d) {
      if (d.dim != nullptr) d.dim->state = DimDecl::State::kResolving;
      if (d.let != nullptr) d.let->state = LetDecl::State::kResolving;
      path.push_back({d, needs_of(d), 0});
    };
    enter(root);
    while (!path.empty()) {
      Visit& visit = path.back();
      if (visit.next < visit.needs.size()) {
        const Declared need = visit.needs[visit.next++];
        if (need.dim != nullptr ? need.dim->state == DimDecl::State::kUnresolved
                                : need.let->state == LetDecl::State::kUnresolved)
          enter(need);
        continue;
      }
      const Declared done = visit.what;
      path.pop_back();
      done.dim != nullptr ? finish(*done.dim) : finish(*done.let);
    }
  }

  std::vector<Declared> needs_of(Declared d) {
    const Unit& unit = d.dim != nullptr ? *d.dim->unit : *d.let->unit;
    std::set<std::string> names;
    if (d.dim != nullptr || !override_of(*d.let))
      collect_names(unit.ast, d.dim != nullptr ? d.dim->value : d.let->value, names);
    std::vector<Declared> needs;
    for (const std::string& name : names) {
      if (auto let = unit.lets.find(name); let != unit.lets.end()) {
        needs.push_back({nullptr, const_cast<LetDecl*>(&let->second)});
      } else if (unit.dims.count(name) != 0) {
        needs.push_back({&module_.dims.at(name), nullptr});
      }
    }
    return needs;
  }

  void finish(DimDecl& decl) {
    const bool ok = size_of(decl) && decl.state != DimDecl::State::kFailed;
    decl.state = ok ? DimDecl::State::kResolved : DimDecl::State::kFailed;
  }

  void finish(LetDecl& decl) {
    Constant value;
    if (auto set = override_of(decl)) {
      value = Constant::of(ir::Scalar(*set), std::floor(*set) == *set);
      decl.overridden = true;
    } else {
      value = evaluate_constant(decl.unit->ast, decl.value, names(*decl.unit), diagnostics_);
    }
    const bool failed = value.kind == Constant::Kind::kError ||
                        decl.state == LetDecl::State::kFailed ||
                        too_long(value.number.str(), "value", decl.name, decl.span);
    decl.state = failed ? LetDecl::State::kFailed : LetDecl::State::kResolved;
    if (failed) return;
    decl.is_bool = value.kind == Constant::Kind::kBool;
    decl.bool_value = value.flag == 1;
    decl.scalar = value.number;
  }

  // Expressions that grow from declaration to declaration, as in `dim A = B // 2 + 1` a thousand
  // times over: walks over them recurse, and their text may grow like the square.
  bool too_long(const std::string& text, const char* what, const std::string& name, Span span) {
    constexpr size_t kLongest = 20'000;
    if (text.size() <= kLongest) return false;
    Diagnostic d = make_diagnostic(
        DiagId::E0005, span, fmt::format("the {} of `{}` is too long an expression", what, name),
        fmt::format("over {} characters when written out", kLongest));
    d.help("give a number to a dim that it is made of");
    diagnostics_.add(std::move(d));
    return true;
  }

  std::optional<double> override_of(const LetDecl& decl) const {
    if (decl.unit != &module_.main()) return std::nullopt;
    auto at = module_.set_overrides.find(decl.name);
    if (at == module_.set_overrides.end()) return std::nullopt;
    return at->second.number;
  }

  bool size_of(DimDecl& decl) {
    decl.base = true;
    decl.size = ir::Size::symbol(decl.name);
    if (decl.value.valid()) {
      const Constant value =
          evaluate_constant(decl.unit->ast, decl.value, names(*decl.unit), diagnostics_);
      if (value.kind == Constant::Kind::kError) return false;
      const auto size =
          value.kind == Constant::Kind::kNumber ? value.number.as_size() : std::nullopt;
      if (!size) {
        Diagnostic d = make_diagnostic(DiagId::E0220, decl.unit->ast.expr(decl.value).span,
                                       fmt::format("`{}` is no size", decl.name),
                                       "not a whole number of dims");
        d.note("sizes are whole numbers and `+ - * / //` of dims");
        diagnostics_.add(std::move(d));
        return false;
      }
      if (!size->symbols().empty()) {
        if (too_long(size->str(), "size", decl.name, decl.span)) return false;
        decl.base = false;
        decl.size = *size;
        return true;
      }
      const ir::Size::Evaluated e = size->evaluate({});
      if (!e.ok()) {
        diagnostics_.add(
            size_error(module_, decl.name, *size, e, decl.unit->ast.expr(decl.value).span));
        return false;
      }
      module_.declared[decl.name] = e.value;
    }
    apply_overrides(decl);
    return true;
  }

  void apply_overrides(DimDecl& decl) {
    const bool number = module_.declared.count(decl.name) != 0;
    for (const auto* from : {&module_.train_overrides, &module_.set_overrides}) {
      auto at = from->find(decl.name);
      if (at == from->end()) continue;
      const auto value = static_cast<int64_t>(at->second.number);
      module_.bindings[decl.name] = value;
      if (number) module_.declared[decl.name] = value;
      decl.from = at->second.from;
    }
  }

  void circle(const char* what, const std::string& name, Span span) {
    diagnostics_.add(make_diagnostic(DiagId::E0119, span,
                                     fmt::format("{} `{}` is defined through itself", what, name),
                                     "in a circle"));
  }

  void unknown(const Unit& unit, const std::string& text, Span span) {
    if (unit.silent(text)) return;
    Diagnostic d = make_diagnostic(DiagId::E0101, span, fmt::format("unknown name `{}`", text),
                                   "not a dim or let");
    std::vector<std::string> candidates;
    for (const auto& [name, where] : unit.dims) candidates.push_back(name);
    for (const auto& [name, decl] : unit.lets) candidates.push_back(name);
    if (auto near = suggest(text, candidates)) d.help(fmt::format("did you mean `{}`?", *near));
    diagnostics_.add(std::move(d));
  }

  Module& module_;
  Diagnostics& diagnostics_;
};

}  // namespace

ConstantLookup constant_names(Module& module, const Unit& unit, Diagnostics& diagnostics) {
  auto resolver = std::make_shared<Resolver>(module, diagnostics);
  return [resolver, &unit](const std::string& text, Span span) {
    return resolver->name(unit, text, span);
  };
}

void resolve_dims_and_lets(Module& module, Diagnostics& diagnostics) {
  Resolver resolver(module, diagnostics);
  for (const std::string& name : module.dim_order) resolver.dim(module.dims.at(name));
  for (auto& unit : module.units) {
    for (auto& [name, let] : unit->lets) resolver.let(let);
  }
  for (const auto& [name, value] : module.declared) module.bindings.emplace(name, value);
  std::map<std::string, ir::Size::Evaluated> wrong;
  for (const std::string& name : module.dim_order) {
    const DimDecl& decl = module.dims.at(name);
    if (decl.state != DimDecl::State::kResolved || decl.base) continue;
    const ir::Size::Evaluated e = decl.size.evaluate(module.bindings);
    if (e.ok()) {
      module.bindings[name] = e.value;
    } else if (*e.error != ir::Size::EvalError::kFree) {
      wrong.emplace(name, e);
    }
  }
  // One that is made of another wrong one would only say the same again.
  for (const std::string& name : module.dim_order) {
    const auto at = wrong.find(name);
    if (at == wrong.end()) continue;
    const DimDecl& decl = module.dims.at(name);
    std::set<std::string> parts;
    collect_names(decl.unit->ast, decl.value, parts);
    const bool follows = std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
      return decl.unit->dims.count(part) != 0 && wrong.count(part) != 0;
    });
    if (follows) continue;
    diagnostics.add(
        size_error(module, name, decl.size, at->second, decl.unit->ast.expr(decl.value).span));
  }
}

void note_origins(const Module& module, const ir::Size& size, Diagnostic& diagnostic) {
  for (const std::string& symbol : size.symbols()) {
    auto decl = module.dims.find(symbol);
    auto value = module.bindings.find(symbol);
    if (decl == module.dims.end() || value == module.bindings.end()) continue;
    if (!decl->second.from.empty()) {
      diagnostic.note(
          fmt::format("`{} = {}` comes from {}", symbol, value->second, decl->second.from));
    } else if (decl->second.span.valid()) {
      diagnostic.label(decl->second.span, fmt::format("`{}` is {}", symbol, value->second));
    }
  }
}

Diagnostic size_error(const Module& module, const std::string& name, const ir::Size& size,
                      const ir::Size::Evaluated& evaluated, Span span) {
  using EvalError = ir::Size::EvalError;
  const std::string text = reader_text(size);
  Diagnostic d = [&] {
    switch (*evaluated.error) {
      case EvalError::kInexact:
        return make_diagnostic(DiagId::E0211, span,
                               fmt::format("`{}` is not whole: {}", text, evaluated.detail),
                               fmt::format("the size of `{}`", name));
      case EvalError::kNegative:
        return make_diagnostic(DiagId::E0220, span,
                               fmt::format("the size of `{}` is negative: {}", name, text),
                               evaluated.detail);
      case EvalError::kZeroDivision:
        return make_diagnostic(DiagId::E0220, span,
                               fmt::format("the size of `{}` divides by zero", name), text);
      default:
        return make_diagnostic(DiagId::E0220, span,
                               fmt::format("the size of `{}` does not fit 64 bits", name), text);
    }
  }();
  note_origins(module, size, d);
  if (*evaluated.error == EvalError::kInexact) d.help("`//` rounds down");
  return d;
}

}  // namespace cad::frontend
