// frontend/sections.h -- the sections of a program (train, device, cluster, mesh, plan), checked
// against tables of keys (section_tables.h) and turned into plain structs. What lowers a train
// section into an ir::TrainSpec is lower_train.cc; settings from the command line come before,
// settings.h.
#pragma once

#include "frontend/module_data.h"

namespace cad::frontend {

void check_sections(Module& module, Diagnostics& diagnostics);

}  // namespace cad::frontend
