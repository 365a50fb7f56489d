// frontend/sections.cc -- see sections.h.
#include "frontend/sections.h"

namespace cad::frontend {

void check_sections(Module&, Diagnostics&) {}

}  // namespace cad::frontend
