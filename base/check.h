// base/check.h -- CAD_CHECK: a broken invariant is our bug, never the user's. It prints what
// broke and where, and exits with 70 (see base/exit_code.h). User errors are Diagnostics.
#pragma once

#include <string>

namespace cad {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace cad

// CAD_CHECK(cond, "op `{}` in pass {}", ...): the message is a {fmt} format string.
#define CAD_CHECK(cond, ...)                                                                 \
  do {                                                                                       \
    if (!(cond)) ::cad::check_failed(__FILE__, __LINE__, #cond, ::fmt::format(__VA_ARGS__)); \
  } while (false)

#include <fmt/format.h>  // defines: fmt::format for CAD_CHECK
