#include "base/diagnostic.h"

namespace cad {
namespace {

struct Row {
  const char* name;
  Level level;
  const char* title;
};

constexpr Row kRows[] = {
#define CAD_DIAGNOSTIC(id, level, title) {#id, Level::level, title},
#include "base/diagnostics.def"
#undef CAD_DIAGNOSTIC
};

const Row& row(DiagId id) {
  return kRows[static_cast<size_t>(id)];
}

}  // namespace

const char* diag_name(DiagId id) {
  return row(id).name;
}
Level diag_level(DiagId id) {
  return row(id).level;
}
const char* diag_title(DiagId id) {
  return row(id).title;
}
size_t diag_count() {
  return std::size(kRows);
}

Diagnostic& Diagnostic::label(Span span, std::string text) {
  if (span.valid()) secondary.push_back({span, std::move(text)});
  return *this;
}

Diagnostic& Diagnostic::note(std::string text) {
  notes.push_back(std::move(text));
  return *this;
}

Diagnostic& Diagnostic::help(std::string text) {
  helps.push_back({std::move(text), std::nullopt, std::nullopt});
  return *this;
}

Diagnostic make_diagnostic(DiagId id, Span span, std::string message, std::string label) {
  Diagnostic d;
  d.id = id;
  d.message = std::move(message);
  if (span.valid()) d.primary = Label{span, std::move(label)};
  return d;
}

Diagnostic make_error(DiagId id, std::string message, int exit_code) {
  Diagnostic d;
  d.id = id;
  d.message = std::move(message);
  d.exit_code = exit_code;
  return d;
}

Diagnostic& Diagnostics::add(Diagnostic diagnostic) {
  if (diag_level(diagnostic.id) == Level::kError) ++errors_;
  list_.push_back(std::move(diagnostic));
  return list_.back();
}

}  // namespace cad
