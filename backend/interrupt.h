// backend/interrupt.h -- SIGINT and SIGTERM while a run is on: the first asks it to finish the step
// and save, the second ends the process at once (exit 128 + signal).
#pragma once

namespace cad::backend {

class InterruptGuard {
 public:
  InterruptGuard();   // installs the handlers
  ~InterruptGuard();  // puts the old ones back
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static int signal();  // the one received; 0: none
};

}  // namespace cad::backend
