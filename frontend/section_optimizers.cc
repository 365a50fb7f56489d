// frontend/section_optimizers.cc -- `optimizer: adamw(lr: .., decay: 0.1, of: "h.*")` or a list of
// entries into OptimizerUses: which definition, which parameters, which constants. What the update
// computes is lowered in lower_train_optimizer.cc.
#include <algorithm>

#include <fmt/format.h>

#include "base/suggest.h"
#include "frontend/elaborate.h"
#include "frontend/section_checker.h"

namespace cad::frontend {

namespace {

// Adafactor relates the elements of a parameter to each other and is part of the trainer.
const std::vector<std::string> kAdafactor = {"decay", "eps1", "eps2", "d", "beta2_decay"};

constexpr int kFirstConstant = 4;  // of an optimizer's parameters: behind p, g, lr and step

bool is_tensor(const TypePattern& type, ir::DType dtype, bool dots) {
  if (type.kind != TypePattern::Kind::kTensor || type.dtype != dtype) return false;
  return dots ? type.terms.size() == 1 && type.terms[0].dots : type.terms.empty();
}

}  // namespace

// (p: [..], g: [..], lr: f32[], step: i32[], constants..) -> [..]
bool is_optimizer(const Definition& definition) {
  const Signature& s = definition.signature;
  if (s.parameters.size() < kFirstConstant || s.results.size() != 1 || !s.formals.empty())
    return false;
  const auto f32 = ir::DType::kF32;
  const bool front = is_tensor(s.parameters[0].type, f32, true) &&
                     is_tensor(s.parameters[1].type, f32, true) &&
                     is_tensor(s.parameters[2].type, f32, false) &&
                     is_tensor(s.parameters[3].type, ir::DType::kI32, false);
  const bool rest =
      std::all_of(s.parameters.begin() + kFirstConstant, s.parameters.end(),
                  [](const Parameter& p) { return p.type.kind == TypePattern::Kind::kConstant; });
  return front && rest && is_tensor(s.results[0], f32, true);
}

// (t: f32[], steps: f32[], constants..) -> f32[]
bool is_schedule(const Definition& definition) {
  const Signature& s = definition.signature;
  if (s.parameters.size() < 2 || s.results.size() != 1 || !s.formals.empty()) return false;
  const auto f32 = ir::DType::kF32;
  return is_tensor(s.parameters[0].type, f32, false) &&
         is_tensor(s.parameters[1].type, f32, false) && is_tensor(s.results[0], f32, false) &&
         std::all_of(s.parameters.begin() + 2, s.parameters.end(), [](const Parameter& p) {
           return p.type.kind == TypePattern::Kind::kConstant;
         });
}

void SectionChecker::read_optimizers(const Key& key, ExprId value, TrainUse& train) {
  for (const Arg& arg : elements(value)) {
    if (!arg.name.empty()) return read_.wrong_form(key, value);
    if (auto use = read_optimizer(key, arg.value)) train.optimizers.push_back(std::move(*use));
  }
}

std::optional<OptimizerUse> SectionChecker::read_optimizer(const Key& key, ExprId value) {
  const Expr& e = expr(strip_parens(module_.main().ast, value));
  const bool bare = e.kind == ExprKind::kName || e.kind == ExprKind::kMember;
  if (e.kind != ExprKind::kCall && !bare) {
    read_.wrong_form(key, value);
    return std::nullopt;
  }
  OptimizerUse use;
  use.span = e.span;
  const Expr& callee = bare ? e : expr(e.left);
  if (callee.kind == ExprKind::kName && callee.text == "frozen") {
    use.frozen = true;
    use.name = "frozen";
  } else if (!find_optimizer(use, callee)) {
    return std::nullopt;
  }
  bool fine = true;
  for (size_t i = 0; i < e.args.size() && !bare; ++i)
    fine = read_optimizer_argument(use, e.args[i], i == 0) && fine;
  if (!fine) return std::nullopt;
  if (!use.frozen && !use.lr.valid()) {
    read_
        .report(DiagId::E0315, callee.span,
                fmt::format("`{}` lacks its learning rate `lr`", use.name))
        .help(fmt::format("write `{}(lr: 1e-3)`", use.name));
    return std::nullopt;
  }
  return use;
}

bool SectionChecker::find_optimizer(OptimizerUse& use, const Expr& callee) {
  use.name = std::string(module_.sources->text(callee.span));
  const Definition* found = find_definition(module_, use.name);
  if (found == nullptr && use.name == "adafactor") {
    use.built_in = true;
    return true;
  }
  if (found == nullptr) {
    std::vector<std::string> names = {"frozen", "sgd", "adam", "adamw", "lion", "adafactor"};
    for (const auto& definition : module_.definitions) {
      if (is_optimizer(*definition)) names.push_back(definition->name);
    }
    Diagnostic& d = read_.report(DiagId::E0313, callee.span,
                                 fmt::format("there is no optimizer `{}`", use.name));
    if (auto near = suggest(use.name, names)) {
      d.help(fmt::format("did you mean `{}`?", *near));
    } else {
      d.note("the standard library has `sgd`, `adam`, `adamw`, `lion` and `adafactor`");
    }
    return false;
  }
  if (!ensure_checked(module_, const_cast<Definition&>(*found), diagnostics_) ||
      found->signature.broken)
    return false;
  if (!is_optimizer(*found)) {
    read_.report(DiagId::E0314, callee.span, fmt::format("`{}` is no optimizer", use.name))
        .label(found->name_span(), "declared here")
        .note(
            "an optimizer is `layer name(p: [..], g: [..], lr: f32[], step: i32[], constants ..) "
            "-> [..]`");
    return false;
  }
  use.definition = found;
  return true;
}

bool SectionChecker::read_optimizer_argument(OptimizerUse& use, const Arg& arg, bool first) {
  const std::string& name = arg.name.text;
  const Expr& v = expr(strip_parens(module_.main().ast, arg.value));
  if (v.kind == ExprKind::kError) return false;
  if (name == "of") return read_paths(use, arg);
  if (use.frozen) {
    read_.report(DiagId::E0315, arg.span, "`frozen` takes `of` alone");
    return false;
  }
  if (name == "lr" || (first && arg.name.empty())) {
    use.lr = arg.value;
    return true;
  }
  if (name == "decay_all") {
    auto on = read_.on_off({"decay_all", KeyKind::kSwitch, false, {}}, arg.value);
    use.decay_all = on.value_or(false);
    return on.has_value();
  }
  if (use.built_in) return read_built_in_argument(use, arg);
  const Signature& signature = use.definition->signature;
  if (name == "decay" && signature.find_parameter("decay") >= 0) {
    auto number = constant_expression(module_, module_.main(), arg.value, diagnostics_);
    if (!number) return false;
    use.decay = number->evaluate(module_.bindings);
    if (!use.decay || !(*use.decay >= 0) || *use.decay > 1e9) {
      read_.report(DiagId::E0304, v.span, "`decay` wants a number, at least 0");
      return false;
    }
    return true;
  }
  if (v.kind == ExprKind::kTuple && name.size() > 1 && name.back() == 's')
    return read_numbered_constants(use, arg, v);
  const int at = name.empty() ? kFirstConstant : signature.find_parameter(name);
  if (at < kFirstConstant) {
    unknown_argument(use, arg);
    return false;
  }
  use.args.push_back(arg);
  return true;
}

// of: "h.*", or a list of such patterns.
bool SectionChecker::read_paths(OptimizerUse& use, const Arg& arg) {
  for (const Arg& part : elements(arg.value)) {
    const Expr& pattern = expr(part.value);
    if (pattern.kind != ExprKind::kString || pattern.text.empty()) {
      read_.report(DiagId::E0315, pattern.span,
                   "`of` wants path patterns in quotes such as `\"h.*\"`, or a list of them");
      return false;
    }
    use.of.push_back(pattern.text);
  }
  return true;
}

// betas: (a, b) are the constants beta1 and beta2.
bool SectionChecker::read_numbered_constants(OptimizerUse& use, const Arg& arg, const Expr& tuple) {
  const std::string& name = arg.name.text;
  const std::string stem = name.substr(0, name.size() - 1);
  for (size_t i = 0; i < tuple.args.size(); ++i) {
    const std::string constant = fmt::format("{}{}", stem, i + 1);
    if (use.definition->signature.find_parameter(constant) < kFirstConstant) {
      read_.report(DiagId::E0315, arg.span,
                   fmt::format("`{}` takes no {} `{}`", use.name,
                               i == 0 ? "constants" : "further one of", name));
      return false;
    }
    auto number = constant_expression(module_, module_.main(), tuple.args[i].value, diagnostics_);
    if (!number) return false;
    const auto known = number->evaluate(module_.bindings);
    if (!known || !(*known >= 0) || !(*known < 1)) {
      read_.report(DiagId::E0304, expr(tuple.args[i].value).span,
                   fmt::format("`{}` wants numbers from 0 up to and without 1", name));
      return false;
    }
    use.constants.emplace_back(constant, *known);
  }
  return true;
}

void SectionChecker::unknown_argument(const OptimizerUse& use, const Arg& arg) {
  const Signature& signature = use.definition->signature;
  std::vector<std::string> names = {"lr", "of", "decay_all"};
  if (signature.find_parameter("beta1") >= kFirstConstant) names.push_back("betas");
  for (size_t i = kFirstConstant; i < signature.parameters.size(); ++i)
    names.push_back(signature.parameters[i].name);
  Diagnostic& d = read_.report(DiagId::E0315, arg.name.span,
                               fmt::format("`{}` takes no `{}`", use.name, arg.name.text));
  if (auto near = suggest(arg.name.text, names)) d.help(fmt::format("did you mean `{}`?", *near));
}

bool SectionChecker::read_built_in_argument(OptimizerUse& use, const Arg& arg) {
  if (std::count(kAdafactor.begin(), kAdafactor.end(), arg.name.text) == 0) {
    Diagnostic& d = read_.report(DiagId::E0315, arg.name.empty() ? arg.span : arg.name.span,
                                 fmt::format("`{}` takes no `{}`", use.name,
                                             arg.name.empty() ? "second argument" : arg.name.text));
    if (auto near = suggest(arg.name.text, kAdafactor))
      d.help(fmt::format("did you mean `{}`?", *near));
    return false;
  }
  auto number = constant_expression(module_, module_.main(), arg.value, diagnostics_);
  if (!number) return false;
  const auto known = number->evaluate(module_.bindings);
  const bool fine =
      known && (arg.name.text == "beta2_decay" ? *known < 0 : *known >= 0 && *known < 1e9);
  if (!fine) {
    read_.report(DiagId::E0304, expr(arg.value).span,
                 fmt::format("`{}` wants a number {}", arg.name.text,
                             arg.name.text == "beta2_decay" ? "below 0" : "of at least 0"));
    return false;
  }
  if (arg.name.text == "decay") {
    use.decay = known;
  } else {
    use.constants.emplace_back(arg.name.text, *known);
  }
  return true;
}

}  // namespace cad::frontend
