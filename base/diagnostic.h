// base/diagnostic.h -- what the user is told. A Diagnostic is a value: an id from
// base/diagnostics.def, one lower-case fact, labelled spans, notes (facts) and helps (changes to
// make). It may have no span (a flag, a data file). Rendering is in base/render.h.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/exit_code.h"
#include "base/source.h"

namespace cad {

enum class Level { kError, kWarning, kLint };

// One enumerator a row of diagnostics.def: DiagId::E0203.
enum class DiagId {
#define CAD_DIAGNOSTIC(id, level, title) id,
#include "base/diagnostics.def"
#undef CAD_DIAGNOSTIC
};

const char* diag_name(DiagId id);  // "E0203"
Level diag_level(DiagId id);
const char* diag_title(DiagId id);  // the registry's one-line description
size_t diag_count();                // rows of the registry; DiagId counts from 0

struct Label {
  Span span;
  std::string text;  // may be empty
};

// A suggested edit; `replacement` set when a tool can apply it.
struct Help {
  std::string text;
  std::optional<Span> span;
  std::optional<std::string> replacement;
};

struct Diagnostic {
  DiagId id;
  std::string message;
  std::optional<Label> primary;  // the narrowest span the fact is about
  std::vector<Label> secondary;  // where the facts came from
  std::vector<std::string> notes;
  std::vector<Help> helps;
  int exit_code = kExitProgram;  // status of a run that ends with this

  Diagnostic& label(Span span, std::string text);
  Diagnostic& note(std::string text);
  Diagnostic& help(std::string text);
};

Diagnostic make_diagnostic(DiagId id, Span span, std::string message, std::string label = "");
Diagnostic make_error(DiagId id, std::string message, int exit_code);  // without a span

// Collects diagnostics of one run. At most one root error per statement is the reporter's duty;
// the limit of 20 a run and the order by position are applied when rendering.
class Diagnostics {
 public:
  Diagnostic& add(Diagnostic diagnostic);
  [[nodiscard]] bool has_errors() const { return errors_ > 0; }
  [[nodiscard]] size_t errors() const { return errors_; }
  [[nodiscard]] const std::vector<Diagnostic>& all() const { return list_; }

 private:
  std::vector<Diagnostic> list_;
  size_t errors_ = 0;
};

}  // namespace cad
