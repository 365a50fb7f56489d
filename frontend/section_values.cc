// frontend/section_values.cc -- see section_values.h.
#include "frontend/section_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/suggest.h"
#include "frontend/elaborate.h"

namespace cad::frontend {

namespace {

constexpr int kMaxLets = 200;  // lets that refer to lets: a cycle is reported elsewhere

using Measure = UnitOfMeasure::Measure;
constexpr double kKi = 1024;
constexpr std::array<UnitOfMeasure, 23> kUnits = {{
    {"B", 1, Measure::kBytes},
    {"KB", 1e3, Measure::kBytes},
    {"MB", 1e6, Measure::kBytes},
    {"GB", 1e9, Measure::kBytes},
    {"TB", 1e12, Measure::kBytes},
    {"KiB", kKi, Measure::kBytes},
    {"MiB", kKi* kKi, Measure::kBytes},
    {"GiB", kKi* kKi* kKi, Measure::kBytes},
    {"TiB", kKi* kKi* kKi* kKi, Measure::kBytes},
    {"MB/s", 1e6, Measure::kBandwidth},
    {"GB/s", 1e9, Measure::kBandwidth},
    {"TB/s", 1e12, Measure::kBandwidth},
    {"Gb/s", 1e9 / 8, Measure::kBandwidth},
    {"GFLOPS", 1e9, Measure::kFlops},
    {"TFLOPS", 1e12, Measure::kFlops},
    {"PFLOPS", 1e15, Measure::kFlops},
    {"ns", 1e-9, Measure::kTime},
    {"us", 1e-6, Measure::kTime},
    {"ms", 1e-3, Measure::kTime},
    {"s", 1, Measure::kTime},
    {"min", 60, Measure::kTime},
    {"h", 3600, Measure::kTime},
    {"steps", 1, Measure::kCount},
}};

Measure measure_of(KeyKind kind) {
  switch (kind) {
    case KeyKind::kFlops:
      return Measure::kFlops;
    case KeyKind::kBandwidth:
      return Measure::kBandwidth;
    case KeyKind::kSteps:
      return Measure::kCount;
    default:
      return Measure::kBytes;
  }
}

std::optional<double> named_number(const Module& module, const std::string& name, int depth) {
  if (name == "inf") return std::numeric_limits<double>::infinity();
  if (auto set = module.set_overrides.find(name); set != module.set_overrides.end())
    return set->second.number;
  if (auto train = module.train_overrides.find(name); train != module.train_overrides.end()) {
    return train->second.number;
  }
  const Unit& main = module.main();
  if (auto let = main.lets.find(name); let != main.lets.end()) {
    return plain_number(module, main.ast, let->second.value, depth + 1);
  }
  if (auto dim = module.dims.find(name); dim != module.dims.end() && dim->second.value.valid()) {
    return plain_number(module, dim->second.unit->ast, dim->second.value, depth + 1);
  }
  return std::nullopt;
}

std::optional<double> apply(AstOp op, double a, double b) {
  switch (op) {
    case AstOp::kAdd:
      return a + b;
    case AstOp::kSub:
      return a - b;
    case AstOp::kMul:
      return a * b;
    case AstOp::kDiv:
      return a / b;
    case AstOp::kFloorDiv:
      return std::floor(a / b);
    case AstOp::kMod:
      return a - std::floor(a / b) * b;
    case AstOp::kPow:
      return std::pow(a, b);
    default:
      return std::nullopt;
  }
}

std::optional<double> call_number(const std::string& function, double x) {
  if (function == "sqrt") return std::sqrt(x);
  if (function == "exp") return std::exp(x);
  if (function == "log") return std::log(x);
  return std::nullopt;
}

}  // namespace

const UnitOfMeasure* find_unit(const std::string& name) {
  for (const UnitOfMeasure& unit : kUnits) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

std::optional<double> plain_number(const Module& module, const Ast& ast, ExprId id, int depth) {
  if (depth > kMaxLets || !id.valid()) return std::nullopt;
  std::optional<double> value;
  for (ExprId part : left_spine(ast, id)) {
    const Expr& expr = ast.expr(part);
    switch (expr.kind) {
      case ExprKind::kNumber:
        value = expr.number;
        break;
      case ExprKind::kName:
        value = named_number(module, expr.text, depth);
        break;
      case ExprKind::kParen:
        value = plain_number(module, ast, expr.left, depth);
        break;
      case ExprKind::kUnary: {
        if (expr.op != AstOp::kNeg) return std::nullopt;
        auto inner = plain_number(module, ast, expr.right, depth);
        if (!inner) return std::nullopt;
        value = -*inner;
        break;
      }
      case ExprKind::kBinary: {
        auto right = plain_number(module, ast, expr.right, depth);
        if (!value || !right) return std::nullopt;
        value = apply(expr.op, *value, *right);
        break;
      }
      case ExprKind::kCall: {
        const Expr& callee = ast.expr(expr.left);
        if (callee.kind != ExprKind::kName || expr.args.size() != 1) return std::nullopt;
        auto inner = plain_number(module, ast, expr.args[0].value, depth);
        if (!inner) return std::nullopt;
        value = call_number(callee.text, *inner);
        break;
      }
      default:
        return std::nullopt;
    }
  }
  return value;
}

std::string ValueReader::source(ExprId id) const {
  return std::string(module_.sources->text(expr(id).span));
}

Diagnostic& ValueReader::report(DiagId id, Span span, std::string message, std::string label) {
  Diagnostic& added =
      diagnostics_.add(make_diagnostic(id, span, std::move(message), std::move(label)));
  if (span.valid() && module_.sources->file(span.file).path.rfind("--set", 0) == 0) {
    added.exit_code = kExitUsage;
  }
  return added;
}

void ValueReader::wrong_form(const Key& key, ExprId value) {
  if (expr(value).kind == ExprKind::kError) return;
  report(DiagId::E0303, expr(value).span, fmt::format("`{}` wants {}", key.name, wanted(key)));
}

std::optional<double> ValueReader::number(const Key& key, ExprId value) {
  const Expr& e = expr(strip_parens(ast(), value));
  if (e.kind == ExprKind::kError) return std::nullopt;
  std::optional<double> read;
  if (e.kind == ExprKind::kQuantity) {
    if (key.kind != KeyKind::kSteps || e.unit.text != "steps") {
      report(DiagId::E0305, e.span,
             fmt::format("`{}` wants {}, without a unit", key.name, wanted(key)),
             fmt::format("`{}`", e.unit.text));
      return std::nullopt;
    }
    read = e.number;
  } else if (e.kind == ExprKind::kString || e.kind == ExprKind::kTuple) {
    wrong_form(key, value);
    return std::nullopt;
  } else {
    auto scalar = constant_expression(module_, module_.main(), value, diagnostics_);
    if (!scalar) return std::nullopt;  // reported
    read = scalar->evaluate(module_.bindings);
    if (!read) {
      report(DiagId::E0323, e.span,
             fmt::format("`{}` needs the size of a dim that has none", key.name));
      return std::nullopt;
    }
  }
  const double x = *read;
  const bool whole = x == std::floor(x) && std::abs(x) < 9.2e18;
  bool fine = std::isfinite(x);
  switch (key.kind) {
    case KeyKind::kCount:
    case KeyKind::kSteps:
      fine = fine && whole && x >= 1;
      break;
    case KeyKind::kWhole:
      fine = fine && whole && x >= 0;
      break;
    case KeyKind::kPositive:
      fine = fine && x > 0;
      break;
    case KeyKind::kOpenFraction:
      fine = fine && x > 0 && x < 1;
      break;
    default:
      break;
  }
  if (!fine) {
    const std::string shown = e.kind == ExprKind::kNumber ? "" : fmt::format(", not {}", x);
    report(DiagId::E0304, expr(value).span,
           fmt::format("`{}` wants {}{}", key.name, wanted(key), shown));
    return std::nullopt;
  }
  return read;
}

std::optional<int64_t> ValueReader::whole(const Key& key, ExprId value) {
  auto x = number(key, value);
  if (!x) return std::nullopt;
  const Expr& e = expr(strip_parens(ast(), value));
  if (e.kind == ExprKind::kNumber && e.integer) return e.whole;  // beyond 2^53 too
  return static_cast<int64_t>(*x);
}

std::optional<bool> ValueReader::on_off(const Key& key, ExprId value) {
  const Expr& e = expr(strip_parens(ast(), value));
  if (e.kind == ExprKind::kName) {
    if (e.text == "on" || e.text == "true") return true;
    if (e.text == "off" || e.text == "false") return false;
  }
  wrong_form(key, value);
  return std::nullopt;
}

std::optional<std::string> ValueReader::choice(const Key& key, ExprId value) {
  const Expr& e = expr(strip_parens(ast(), value));
  if (e.kind != ExprKind::kName) {
    wrong_form(key, value);
    return std::nullopt;
  }
  if (std::find(key.choices.begin(), key.choices.end(), e.text) != key.choices.end()) return e.text;
  Diagnostic& d =
      report(DiagId::E0303, e.span,
             fmt::format("`{}` cannot be `{}`: it wants {}", key.name, e.text, wanted(key)));
  if (auto near = suggest(e.text, key.choices)) d.help(fmt::format("did you mean `{}`?", *near));
  return std::nullopt;
}

std::optional<std::string> ValueReader::text(const Key& key, ExprId value) {
  const Expr& e = expr(strip_parens(ast(), value));
  if (e.kind == ExprKind::kString && !e.text.empty()) return e.text;
  if (e.kind == ExprKind::kString) {
    report(DiagId::E0304, e.span, fmt::format("`{}` is empty", key.name));
    return std::nullopt;
  }
  wrong_form(key, value);
  return std::nullopt;
}

std::optional<std::string> ValueReader::name(const Key& key, ExprId value) {
  const Expr& e = expr(strip_parens(ast(), value));
  if (e.kind == ExprKind::kName) return e.text;
  wrong_form(key, value);
  return std::nullopt;
}

// Of bytes, bytes a second and operations a second: what lies outside is no machine, and costs made
// of it are no numbers.
constexpr double kLeastAmount = 1, kMostAmount = 1e24;

std::optional<double> ValueReader::quantity(const Key& key, ExprId value) {
  const Expr& e = expr(strip_parens(ast(), value));
  if (e.kind == ExprKind::kNumber) {
    report(DiagId::E0305, e.span,
           fmt::format("`{}` has no unit: it wants {}", key.name, wanted(key)));
    return std::nullopt;
  }
  if (e.kind != ExprKind::kQuantity) {
    const bool negative = e.kind == ExprKind::kUnary && e.op == AstOp::kNeg &&
                          expr(e.right).kind == ExprKind::kQuantity;
    if (negative) {
      report(DiagId::E0304, e.span, fmt::format("`{}` is above 0", key.name));
    } else {
      wrong_form(key, value);
    }
    return std::nullopt;
  }
  const UnitOfMeasure* unit = find_unit(e.unit.text);
  if (unit == nullptr || unit->measure != measure_of(key.kind)) {
    report(DiagId::E0305, e.unit.span,
           fmt::format("`{}` is not a unit for `{}`: it wants {}", e.unit.text, key.name,
                       wanted(key)));
    return std::nullopt;
  }
  if (!(e.number > 0) || !std::isfinite(e.number)) {
    report(DiagId::E0304, e.span, fmt::format("`{}` is above 0", key.name));
    return std::nullopt;
  }
  const double amount = e.number * unit->factor;
  if (!(amount >= kLeastAmount && amount <= kMostAmount)) {
    report(DiagId::E0304, e.span,
           fmt::format("`{}` is out of range: it is {:.3g} to {:.3g} {}", key.name,
                       kLeastAmount / unit->factor, kMostAmount / unit->factor, e.unit.text));
    return std::nullopt;
  }
  return amount;
}

}  // namespace cad::frontend
