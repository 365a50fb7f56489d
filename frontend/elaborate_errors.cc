// frontend/elaborate_errors.cc -- how the elaborator speaks: types with their sizes, where a value
// came from, and the diagnostics for operands that do not fit. One root error a statement.
#include <algorithm>

#include "base/check.h"
#include "frontend/elaborator.h"
#include "frontend/size_limits.h"

namespace cad::frontend {

using ir::ShapeError;

// A second error of a statement goes nowhere: it would mostly follow from the first.
Diagnostic& Elaborator::error(DiagId id, Span span, std::string message, std::string label) {
  Diagnostic d = make_diagnostic(id, span, std::move(message), std::move(label));
  if (statement_reported_) {
    swallowed_ = std::make_unique<Diagnostic>(std::move(d));
    return *swallowed_;
  }
  statement_reported_ = true;
  statement_failed_ = true;
  return diagnostics->add(std::move(d));
}

std::string Elaborator::show(const DimList& dims) const {
  std::string text;
  for (ir::DimId d : dims) text += (text.empty() ? "" : ", ") + graph.dim(d).name;
  return text;
}

std::string Elaborator::show(const ir::Type& t) const {
  const std::string dims = fmt::format("[{}]", show(t.dims));
  if (t.dtype == ir::DType::kF32 || t.dtype == options.compute)
    return t.dims.empty() ? "f32[]" : dims;
  return ir::dtype_name(t.dtype) + dims;
}

std::string Elaborator::known_size(ir::DimId d) const {
  const ir::Dim& dim = graph.dim(d);
  if (auto c = with_known(dim.size, *known).constant()) return std::to_string(*c);
  const std::string text = reader_text(dim.size);
  return text == dim.name || dim.pack ? "" : text;
}

bool Elaborator::too_large(const DimList& dims) const {
  bool too_large = false;
  int64_t elements = 1;
  for (ir::DimId d : dims) {
    const auto size = with_known(graph.dim(d).size, *known).constant();
    if (!size) continue;  // free: at least one
    if (*size <= 0) return false;
    too_large = too_large || elements > kMostElements / *size;
    if (!too_large) elements *= *size;
  }
  return too_large;
}

std::string Elaborator::show_size(const ir::Size& s) const {
  return reader_text(s);
}

std::string Elaborator::dim_text(ir::DimId d) const {
  const std::string size = known_size(d);
  return size.empty() ? fmt::format("`{}`", graph.dim(d).name)
                      : fmt::format("`{}` ({})", graph.dim(d).name, size);
}

std::string Elaborator::sizes_of(const DimList& dims) const {
  std::string text;
  for (ir::DimId d : dims) {
    const std::string size = known_size(d);
    text += (text.empty() ? "" : ", ") + graph.dim(d).name + (size.empty() ? "" : " = " + size);
  }
  return text;
}

int Elaborator::line_of(Span span) const {
  if (!span.valid()) return 0;
  const Span at = module.sources->origin(span);
  return module.sources->line_column(at.file, at.begin).line;
}

// "[B, T, F], F = 3072, from `gelu` at line 20"
std::string Elaborator::describe(const EValue& v) const {
  using Kind = EValue::Kind;
  std::string text;
  switch (v.kind) {
    case Kind::kTensor: {
      text = show(v.value);
      std::string sizes;
      for (ir::DimId d : type(v.value).dims) {
        const std::string size = known_size(d);
        if (!size.empty()) sizes += ", " + graph.dim(d).name + " = " + size;
      }
      text += sizes;
      break;
    }
    case Kind::kNumber:
      text = v.whole ? "a whole number" : "a number";
      break;
    case Kind::kBool:
      text = "a constant bool";
      break;
    case Kind::kMany:
      text = fmt::format("{} values", v.many->size());
      break;
    case Kind::kInstance:
      text = "an instance";
      break;
    case Kind::kError:
      return "";
  }
  if (!v.from.empty() && v.bound.valid()) {
    text += fmt::format(", from {} at line {}", v.from, line_of(v.bound));
  }
  return text;
}

EValue Elaborator::type_clash(const std::string& op, Span span, const EValue& a, const EValue& b) {
  auto kind = [&](const EValue& v) -> std::string {
    if (v.is_number()) return "a number";
    if (v.kind == EValue::Kind::kBool) return "`bool`";
    return v.tensor() ? fmt::format("`{}`", ir::dtype_name(type(v.value).dtype)) : "a value";
  };
  const std::string x = kind(a), y = kind(b);
  const bool logical = op == "`and`" || op == "`or`" || op == "`not`";
  std::string fact = x == y ? fmt::format("{} does not take {}", op, x)
                            : fmt::format("{} cannot combine {} and {}", op, x, y);
  if (logical) fact = fmt::format("{} takes `bool`, not {}", op, x == "`bool`" ? y : x);
  Diagnostic& d = error(DiagId::E0205, span, std::move(fact));
  if (a.span.valid()) d.label(a.span, describe(a));
  if (b.span.valid() && b.span != a.span) d.label(b.span, describe(b));
  const bool has_bool = x == "`bool`" || y == "`bool`";
  if (logical) {
    d.help("compare first: `x > 0`");
  } else if (has_bool) {
    d.help("cast the bool: `f32(..)` or `i32(..)`");
  } else {
    d.help("cast one side: `f32(..)` or `i32(..)`");
  }
  return {};
}

namespace {

std::string each(const std::vector<std::string>& parts) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  }
  return text;
}

}  // namespace

// A shape rule's refusal in the user's terms.
void Elaborator::report(const ShapeError& e, ir::Op op, const Site& site) {
  std::vector<std::string> dims;
  for (ir::DimId d : e.dims) dims.push_back(dim_text(d));
  std::vector<const EValue*> tensors;
  for (const EValue* v : site.values) {
    if (v != nullptr && v->tensor()) tensors.push_back(v);
  }
  auto label_operands = [&](Diagnostic& d) {
    for (const EValue* v : site.values) {
      if (v != nullptr && v->span.valid() && !v->error()) d.label(v->span, describe(*v));
    }
  };
  switch (e.code) {
    case ShapeError::Code::kNotSubset:
      report_not_subset(e, site, dims, tensors);
      return;
    case ShapeError::Code::kMissingDim: {
      const bool left = e.operand <= 0;
      const std::string side =
          op == ir::Op::kContract ? left ? "the left side" : "the right side" : "the operand";
      Diagnostic& d = error(DiagId::E0202, site.span, fmt::format("{} lacks {}", side, each(dims)),
                            fmt::format("{} names it", site.what));
      label_operands(d);
      if (tensors.size() == 2 && op == ir::Op::kContract) {
        std::string shared, inner;
        for (ir::DimId x : type(tensors[0]->value).dims) {
          if (!type(tensors[1]->value).has(x)) continue;
          inner = graph.dim(x).name;
          shared += (shared.empty() ? "`" : ", `") + inner + "`";
        }
        d.note(shared.empty() ? "the sides share no dim"
                              : fmt::format("both sides have {}", shared));
        // the innermost is what most contractions sum
        if (!inner.empty()) d.help(fmt::format("sum a dim of both sides: `@[{}]`?", inner));
      } else if (!tensors.empty()) {
        d.note(fmt::format("the dims are {}", sizes_of(type(tensors[0]->value).dims)));
      }
      return;
    }
    case ShapeError::Code::kDuplicateDim: {
      Diagnostic& d =
          error(DiagId::E0204, site.span,
                fmt::format("the result of {} would hold {} twice", site.what, each(dims)));
      label_operands(d);
      if (!e.dims.empty()) {
        const std::string name = graph.dim(e.dims[0]).name;
        d.help(fmt::format("use an alias: `dim {}2 = {}`", name, name));
      }
      return;
    }
    case ShapeError::Code::kSizeMismatch: {
      Diagnostic& d =
          error(DiagId::E0206, site.span, fmt::format("sizes must agree: {}", e.detail));
      label_operands(d);
      return;
    }
    case ShapeError::Code::kDType: {
      Diagnostic& d = error(DiagId::E0205, site.span, fmt::format("{}: {}", site.what, e.detail));
      label_operands(d);
      d.help("cast it: `f32(..)` or `i32(..)`");
      return;
    }
    case ShapeError::Code::kRank: {
      Diagnostic& d = error(DiagId::E0216, site.span, fmt::format("{}: {}", site.what, e.detail));
      label_operands(d);
      return;
    }
    case ShapeError::Code::kOther: {
      Diagnostic& d = error(DiagId::E0215, site.span, fmt::format("{}: {}", site.what, e.detail));
      label_operands(d);
      return;
    }
  }
}

void Elaborator::report_not_subset(const ShapeError& e, const Site& site,
                                   const std::vector<std::string>& dims,
                                   const std::vector<const EValue*>& tensors) {
  std::vector<std::string> shapes;
  for (const EValue* v : tensors) shapes.push_back(show(v->value));
  Diagnostic& d =
      error(DiagId::E0203, site.span, fmt::format("{} cannot combine {}", site.what, each(shapes)));
  for (const EValue* v : site.values) {
    if (v != nullptr && v->span.valid() && !v->error()) d.label(v->span, describe(*v));
  }
  if (tensors.size() > 2) {
    d.note("the dims of one of them must contain those of the others");
    return;
  }
  d.note(fmt::format("one side's dims must contain the other's; {} {} on one side only", each(dims),
                     dims.size() == 1 ? "appears" : "each appear"));
  if (tensors.size() != 2 || e.dims.empty()) return;
  const ir::Type &a = type(tensors[0]->value), &b = type(tensors[1]->value);
  DimList only_a, only_b;
  for (ir::DimId x : a.dims) {
    if (!b.has(x)) only_a.push_back(x);
  }
  for (ir::DimId x : b.dims) {
    if (!a.has(x)) only_b.push_back(x);
  }
  DimList all = a.dims;
  all.insert(all.end(), only_b.begin(), only_b.end());
  if (only_a.size() == 1 && only_b.size() == 1 && a.rank() > 1 && b.rank() > 1 &&
      ir::is_float(a.dtype)) {
    const std::string from = graph.dim(only_b[0]).name, to = graph.dim(only_a[0]).name;
    if (decide_equal(graph.dim(only_a[0]).size, graph.dim(only_b[0]).size, *known) ==
        Decision::kYes) {
      d.help(fmt::format("rename one side: `[{} -> {}]`", from, to));
      return;
    }
    if (known_size(only_a[0]).empty() || known_size(only_b[0]).empty()) return;
    const std::string_view text =
        tensors[1]->span.valid() ? module.sources->text(tensors[1]->span) : std::string_view{};
    if (!text.empty() && text.size() < 30) {
      d.help(fmt::format("project first: `Linear[{} -> {}]({})`", from, to, text));
      return;
    }
  }
  ir::Type whole;
  whole.dtype = a.dtype;
  whole.dims = all;
  const bool comparison = site.what == "`<`" || site.what == "`<=`" || site.what == "`>`" ||
                          site.what == "`>=`" || site.what == "`==`" || site.what == "`!=`";
  if (comparison) whole.dtype = ir::DType::kBool;
  d.help(fmt::format("say the dims of the result with a typed binding: `m: {} = ..`", show(whole)));
}

}  // namespace cad::frontend
