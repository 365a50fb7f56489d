// frontend/resolve_dims.cc -- sizes of dims and values of lets, on demand, circles reported.
// `--set` beats `train` beats the declaration; free dims get values for `bindings` only, so that
// definitions are checked for every value they may take.
#include <cmath>

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
    if (decl.state == State::kResolved) return true;
    if (decl.state == State::kFailed) return false;
    if (decl.state == State::kResolving) {
      circle("dim", decl.name, decl.span);
      decl.state = State::kFailed;
      return false;
    }
    decl.state = State::kResolving;
    const bool ok = size_of(decl);
    if (decl.state == State::kFailed) return false;
    decl.state = ok ? State::kResolved : State::kFailed;
    return ok;
  }

  Constant let(LetDecl& decl) {
    using State = LetDecl::State;
    if (decl.state == State::kResolving) {
      circle("let", decl.name, decl.span);
      decl.state = State::kFailed;
    }
    if (decl.state == State::kFailed) return {};
    if (decl.state == State::kUnresolved) {
      decl.state = State::kResolving;
      Constant value;
      if (auto set = override_of(decl)) {
        value = Constant::of(ir::Scalar(*set), std::floor(*set) == *set);
        decl.overridden = true;
      } else {
        value = evaluate_constant(decl.unit->ast, decl.value, names(*decl.unit), diagnostics_);
      }
      if (value.kind == Constant::Kind::kError || decl.state == State::kFailed) {
        decl.state = State::kFailed;
        return {};
      }
      decl.is_bool = value.kind == Constant::Kind::kBool;
      decl.bool_value = value.flag == 1;
      decl.scalar = value.number;
      decl.state = State::kResolved;
    }
    if (decl.is_bool) return Constant::of(decl.bool_value);
    return Constant::of(decl.scalar, decl.scalar.is_whole());
  }

  ConstantLookup names(const Unit& unit) {
    return [this, &unit](const std::string& text, Span span) { return name(unit, text, span); };
  }

 private:
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
  for (const std::string& name : module.dim_order) {
    const DimDecl& decl = module.dims.at(name);
    if (decl.state != DimDecl::State::kResolved || decl.base) continue;
    const ir::Size::Evaluated e = decl.size.evaluate(module.bindings);
    if (e.ok()) {
      module.bindings[name] = e.value;
    } else if (*e.error != ir::Size::EvalError::kFree) {
      diagnostics.add(size_error(module, name, decl.size, e, decl.unit->ast.expr(decl.value).span));
    }
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
