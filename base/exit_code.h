// base/exit_code.h -- the program's exit statuses, as documented in docs/commands.md.
#pragma once

namespace cad {

enum ExitCode : int {
  kExitOk = 0,
  kExitRunFailed = 1,     // NaN loss, bad data, full disk, device error
  kExitUsage = 2,         // unknown flag, bad value
  kExitNoPlan = 3,        // no feasible plan
  kExitProgram = 65,      // errors in the .cad program
  kExitNoInput = 66,      // a file is missing or unreadable
  kExitBug = 70,          // CAD_CHECK failed
  kExitInterrupted = 130  // SIGINT: the step was finished and saved
};

}  // namespace cad
