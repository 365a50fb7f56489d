// backend/interrupt.cc -- see backend/interrupt.h. Signals are process-wide, hence the one global.
#include "backend/interrupt.h"

#include <unistd.h>
#include <csignal>

namespace cad::backend {
namespace {

volatile std::sig_atomic_t received = 0;
struct sigaction old_int, old_term;

void handle(int number) {
  if (received != 0) ::_exit(128 + number);
  received = number;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  received = 0;
  struct sigaction action {};
  action.sa_handler = handle;
  ::sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &old_int);
  ::sigaction(SIGTERM, &action, &old_term);
}

InterruptGuard::~InterruptGuard() {
  ::sigaction(SIGINT, &old_int, nullptr);
  ::sigaction(SIGTERM, &old_term, nullptr);
}

int InterruptGuard::signal() {
  return received;
}

}  // namespace cad::backend
