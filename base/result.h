// base/result.h -- Result<T>: a value or a Diagnostic. Errors are values across phases;
// CAD_TRY(x, expr) unwraps or returns the error.
#pragma once

#include <utility>
#include <variant>

#include "base/diagnostic.h"

namespace cad {

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}           // NOLINT: implicit by design
  Result(Diagnostic error) : state_(std::move(error)) {}  // NOLINT
  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() { return std::get<0>(state_); }
  const T& value() const { return std::get<0>(state_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  Diagnostic& error() { return std::get<1>(state_); }
  const Diagnostic& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Diagnostic> state_;
};

struct Ok {};
using Status = Result<Ok>;

}  // namespace cad

#define CAD_CONCAT_INNER(a, b) a##b
#define CAD_CONCAT(a, b) CAD_CONCAT_INNER(a, b)
#define CAD_TRY(var, expr)                                   \
  auto CAD_CONCAT(result_, __LINE__) = (expr);               \
  if (!CAD_CONCAT(result_, __LINE__).ok())                   \
    return std::move(CAD_CONCAT(result_, __LINE__).error()); \
  auto var = std::move(CAD_CONCAT(result_, __LINE__).value())
#define CAD_TRY_VOID(expr)                                        \
  do {                                                            \
    if (auto r_ = (expr); !r_.ok()) return std::move(r_.error()); \
  } while (false)
