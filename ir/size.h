// ir/size.h -- dim algebra. A Size is a rational function num/den of dim symbols with integer
// coefficients, kept canonical (common monomial and integer content removed, positive leading
// coefficient of den, exact division carried out where it goes). `//` is an atom of its own.
// Equality is that of rational functions (cross-multiplied), so H * (D / H) == D.
//
// Symbols stand for whole numbers. Not here: scalars with fractions (ir/scalar.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace cad::ir {

// What a symbol stands for when evaluated: name -> whole number.
using Bindings = std::map<std::string, int64_t>;

struct SizeRep;  // the rational function: size.cc

class Size {
 public:
  Size() = default;       // 0
  Size(int64_t constant)  // NOLINT: implicit by design
      : constant_(constant) {}
  static Size symbol(const std::string& name);
  static Size floor_div(const Size& a, const Size& b);

  friend Size operator+(const Size& a, const Size& b);
  friend Size operator-(const Size& a, const Size& b);
  friend Size operator*(const Size& a, const Size& b);
  friend Size operator/(const Size& a, const Size& b);  // exact; checked when evaluated
  friend bool operator==(const Size& a, const Size& b);

  [[nodiscard]] bool is_constant() const;
  [[nodiscard]] std::optional<int64_t> constant() const;
  // True when no division is left, so every binding gives a whole number (`//` is whole).
  [[nodiscard]] bool is_polynomial() const;
  [[nodiscard]] std::vector<std::string> symbols() const;  // sorted, unique
  [[nodiscard]] Size substitute(const std::map<std::string, Size>& by) const;
  // Whole number for the bindings; an error value when a symbol is free, a division is not exact,
  // the result is negative (`value` is set then), or 64 bits overflow. (EvalError, not Diagnostic:
  // the caller knows the place.)
  enum class EvalError { kFree, kInexact, kNegative, kOverflow, kZeroDivision };
  struct Evaluated {
    int64_t value = 0;
    std::optional<EvalError> error;
    std::string detail;  // the free symbol, or "768 / 10"
    [[nodiscard]] bool ok() const { return !error; }
  };
  [[nodiscard]] Evaluated evaluate(const Bindings& bindings) const;
  // num / den in double, for scalars: nullopt when a symbol is free.
  [[nodiscard]] std::optional<double> evaluate_real(const Bindings& bindings) const;
  [[nodiscard]] std::string str() const;  // "8*B*D^2*T + 4*B*D*S*T", "D/H", "(Y + 1)//2"
  static Result<Size> parse(const std::string& text);  // inverse of str()

 private:
  friend struct SizeImpl;
  int64_t constant_ = 0;                // the value when rep_ is null: most sizes cost nothing
  std::shared_ptr<const SizeRep> rep_;  // never a plain constant
};

}  // namespace cad::ir
