// frontend/section_values.h -- reading the values of section keys: numbers, quantities, switches,
// texts, with an error that says what the key wants. One reader serves a whole check.
#pragma once

#include <optional>
#include <string>

#include "frontend/module_data.h"
#include "frontend/section_tables.h"

namespace cad::frontend {

// A number made of numbers, lets, sized dims and arithmetic; before dims are resolved (settings.cc)
// and after. nullopt when a name is unknown or the form is another.
std::optional<double> plain_number(const Module& module, const Ast& ast, ExprId expr,
                                   int depth = 0);

class ValueReader {
 public:
  ValueReader(const Module& module, Diagnostics& diagnostics)
      : module_(module), diagnostics_(diagnostics) {}

  std::optional<double> number(const Key& key, ExprId value);  // kCount .. kOpenFraction
  std::optional<int64_t> whole(const Key& key, ExprId value);
  std::optional<bool> on_off(const Key& key, ExprId value);
  std::optional<std::string> choice(const Key& key, ExprId value);
  std::optional<std::string> text(const Key& key, ExprId value);
  std::optional<std::string> name(const Key& key, ExprId value);
  std::optional<double> quantity(const Key& key, ExprId value);  // in base units

  // E0303: the value of `key` has another form than wanted.
  void wrong_form(const Key& key, ExprId value);
  // Adds an error; one about a `--set` text ends the run as a usage error.
  Diagnostic& report(DiagId id, Span span, std::string message, std::string label = "");
  [[nodiscard]] const Expr& expr(ExprId id) const { return module_.main().ast.expr(id); }
  [[nodiscard]] const Ast& ast() const { return module_.main().ast; }
  [[nodiscard]] std::string source(ExprId id) const;

 private:
  const Module& module_;
  Diagnostics& diagnostics_;
};

// Factor of a unit in base units and what it measures, e.g. "GiB" -> {2^30, kBytes}.
struct UnitOfMeasure {
  const char* name;
  double factor;
  enum class Measure { kBytes, kFlops, kBandwidth, kTime, kCount } measure;
};
const UnitOfMeasure* find_unit(const std::string& name);

}  // namespace cad::frontend
