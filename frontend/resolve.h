// frontend/resolve.h -- from files to names: loads the program, its imports and the standard
// library, collects definitions, dims and lets, and gives dims and lets their sizes and values.
// Bodies are not looked at here (check.cc).
#pragma once

#include "frontend/constants.h"
#include "frontend/module_data.h"

namespace cad::frontend {

// Parses `file` and what it imports into module.units; false when the program cannot be parsed.
void load_units(Module& module, FileId file, FileReader& reader, Diagnostics& diagnostics);
// Parses those files of the standard library that define a name which the program mentions.
void load_library(Module& module, Diagnostics& diagnostics);
// Names of the devices that the standard library describes, without parsing it.
std::vector<std::string> library_devices();
// Sizes of all dims and values of all lets, with overrides; fills declared and bindings.
void resolve_dims_and_lets(Module& module, Diagnostics& diagnostics);
// What a name in a constant expression of `unit` stands for.
ConstantLookup constant_names(Module& module, const Unit& unit, Diagnostics& diagnostics);
// Error texts about a size that does not evaluate: "`K = D / H` is not whole: 768 / 10".
Diagnostic size_error(const Module& module, const std::string& name, const ir::Size& size,
                      const ir::Size::Evaluated& evaluated, Span span);
// "`H = 10` comes from `--set H=10`" for each symbol that has such an origin.
void note_origins(const Module& module, const ir::Size& size, Diagnostic& diagnostic);

}  // namespace cad::frontend
