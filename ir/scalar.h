// ir/scalar.h -- constant scalar expressions over numbers and dim sizes, such as 0.02 / sqrt(2 *
// L). They have no dtype until they meet a tensor. Evaluated in double once dims are bound.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/size.h"

namespace cad::ir {

class Scalar {
 public:
  enum class Kind { kNumber, kSize, kCall };
  Scalar() : Scalar(0.0) {}
  Scalar(double number);  // NOLINT: implicit by design
  static Scalar size(Size size);
  // fn: add sub mul div pow neg floordiv mod exp log sqrt rsqrt abs sin cos tanh min max floor
  static Scalar call(std::string fn, std::vector<Scalar> args);

  [[nodiscard]] Kind kind() const;
  [[nodiscard]] std::optional<double> number() const;  // folded value when no symbol is left
  [[nodiscard]] std::optional<double> evaluate(
      const Bindings& bindings) const;  // nullopt: a free symbol
  [[nodiscard]] std::optional<Size> as_size()
      const;                            // when it is +,-,*,/,// over sizes and whole numbers
  [[nodiscard]] bool is_whole() const;  // no fraction for any binding (7, L * 2; not 1 / 2)
  [[nodiscard]] Scalar substitute(const std::map<std::string, Size>& by) const;
  [[nodiscard]] std::string str() const;  // "0.02 / sqrt(2*L)"
  static Result<Scalar> parse(const std::string& text);
  friend bool operator==(const Scalar& a, const Scalar& b);

 private:
  struct Node;
  std::shared_ptr<const Node> node_;
};

}  // namespace cad::ir
