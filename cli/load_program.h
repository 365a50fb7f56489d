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

// A program is checked in some hundred times its size: without a bound, a file that is none (a disk
// image, a device without an end) would take all memory before the first error.
constexpr int64_t kMostProgramBytes = int64_t{16} << 20;
constexpr int64_t kMostPlanBytes = int64_t{256} << 20;
// "-": stdin. E0601, also beyond `most` bytes.
Result<std::string> read_file(const std::string& path, int64_t most = kMostProgramBytes);

}  // namespace cad::cli
