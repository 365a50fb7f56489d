// cli/load_program.h -- from FILE and --set to a checked module, the same for every command.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "cli/command.h"
#include "frontend/module.h"

namespace cad::cli {

struct LoadedProgram {
  Sources sources;
  FileId file;
  Diagnostics diagnostics;
  std::shared_ptr<const frontend::Module> module;
  Timings timings;
};

// Reads FILE ("-": stdin), checks it with --set, --seed, --train and --model, prints what it found.
// kExitOk, or the status to end with: 65 when there are errors, 66 when the file cannot be read.
// `program` must outlive the module. With `show` false the diagnostics are only collected.
int load_program(const CommonOptions& common, LoadedProgram& program, bool show = true);

// Only source and parse: for fmt and --emit=ast.
int load_source_file(const CommonOptions& common, LoadedProgram& program);

Result<std::string> read_file(const std::string& path);  // "-": stdin

}  // namespace cad::cli
