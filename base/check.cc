#include "base/check.h"

#include <cstdio>
#include <cstdlib>

#include "base/exit_code.h"

namespace cad {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::fflush(stdout);
  std::fprintf(
      stderr,
      "internal error: %s\n  at %s:%d: `%s` does not hold\n"
      "  this is a bug in colauto, not in your program; please report it with the program\n",
      message.c_str(), file, line, condition);
  std::fflush(stderr);
  std::_Exit(kExitBug);
}

}  // namespace cad
