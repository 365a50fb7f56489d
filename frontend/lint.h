// frontend/lint.h -- what is right but likely not meant, or not in the common style. Lints never
// change the exit status.
#pragma once

#include "frontend/module_data.h"

namespace cad::frontend {

void lint(const Module& module, Diagnostics& diagnostics);

}  // namespace cad::frontend
