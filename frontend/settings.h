// frontend/settings.h -- what is given from outside the program's dim and let lines: `--set
// NAME=VALUE` (any dim, let or setting) and the dims that the chosen train section binds. Runs
// before dims are resolved; settings of the section are written into its syntax tree, so that the
// rest of the front end sees one program.
//
// --set beats train beats dim. The sections themselves are checked in sections.h.
#pragma once

#include <string>
#include <vector>

#include "frontend/module_data.h"

namespace cad::frontend {

// Fills module.set_overrides and module.train_overrides, chooses the train section.
void read_settings(Module& module, Diagnostics& diagnostics);

// The train sections of the program in order, and the chosen one (--train NAME, else the last);
// nullptr when there is none.
std::vector<SectionId> train_sections(const Ast& ast);
const Section* chosen_train(const Module& module);

}  // namespace cad::frontend
