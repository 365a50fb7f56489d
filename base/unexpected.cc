// base/unexpected.cc -- see unexpected.h.
#include "base/unexpected.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <system_error>

#include "base/exit_code.h"

namespace cad {
namespace {

[[noreturn]] void end() {
  int status = kExitBug;
  const std::exception_ptr current = std::current_exception();
  if (current == nullptr) std::abort();
  try {
    std::rethrow_exception(current);
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) {
      status = kExitRunFailed;
      std::fputs("error[E0703]: not enough memory: an allocation was refused\n", stderr);
    } else {
      std::fprintf(stderr, "internal error: %s\nthis is a bug in colauto, not in the program\n",
                   error.what());
    }
  } catch (...) {
    std::fputs("internal error: an unknown exception\n", stderr);
  }
  _exit(status);
}

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  return system != nullptr && (system->code() == std::errc::resource_unavailable_try_again ||
                               system->code() == std::errc::not_enough_memory);
}

std::string unexpected_text(const std::exception& error) {
  if (!is_out_of_memory(error)) return std::string("internal error: ") + error.what();
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr
             ? "not enough memory: an allocation was refused"
             : "not enough memory: another thread could not be started";
}

void report_on_terminate() {
  std::set_terminate(end);
}

}  // namespace cad
