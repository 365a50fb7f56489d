// cli/load_program.cc -- see load_program.h.
#include "cli/load_program.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <utility>

#include "frontend/parse.h"

namespace cad::cli {
namespace {

struct DiskReader : frontend::FileReader {
  Result<std::string> read(const std::string& path) override { return read_file(path); }
};

// "B=64" in two; the text of VALUE is for the front end to read.
Result<frontend::Setting> split_setting(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    Diagnostic error =
        make_error(DiagId::E0503, fmt::format("`--set {}` sets nothing", text), kExitUsage);
    error.help("write `--set NAME=VALUE`, for example `--set B=64`");
    return error;
  }
  return frontend::Setting{text.substr(0, equals), text.substr(equals + 1)};
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  std::stringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  struct stat info {};
  const bool found = stat(path.c_str(), &info) == 0;
  std::string reason = found ? "" : std::strerror(errno);
  if (found && S_ISDIR(info.st_mode)) reason = "it is a folder";
  if (reason.empty()) {
    errno = 0;
    std::ifstream in(path, std::ios::binary);
    if (in.good()) text << in.rdbuf();
    if (in.good() || (in.eof() && !in.bad()) || (in.is_open() && info.st_size == 0))
      return text.str();
    reason = errno != 0 ? std::strerror(errno) : "it cannot be read";
  }
  return make_error(DiagId::E0601, fmt::format("cannot read `{}`: {}", path, reason), kExitNoInput);
}

namespace {

// What is wrong goes to program.diagnostics.
int read_source(const CommonOptions& common, LoadedProgram& program) {
  program.timings.start("read");
  const auto failed = [&](const Diagnostic& error) {
    program.diagnostics.add(error);
    return error.exit_code;
  };
  Result<std::string> text = read_file(common.file);
  if (!text.ok()) return failed(text.error());
  const std::string path = common.file == "-" ? "<stdin>" : common.file;
  Result<FileId> file = frontend::load_source(program.sources, path, std::move(*text));
  if (!file.ok()) return failed(file.error());
  program.file = *file;
  program.timings.stop();
  return kExitOk;
}

int check_program(const CommonOptions& common, LoadedProgram& program) {
  if (const int status = read_source(common, program); status != kExitOk) return status;
  frontend::CheckOptions options;
  options.train = common.train;
  options.model = common.model;
  for (const std::string& text : common.set) {
    Result<frontend::Setting> setting = split_setting(text);
    if (!setting.ok()) {
      program.diagnostics.add(setting.error());
      return kExitUsage;
    }
    options.settings.push_back(std::move(*setting));
  }
  if (common.seed) options.settings.push_back({"seed", std::to_string(*common.seed)});
  program.timings.start("check");
  DiskReader reader;
  program.module =
      frontend::check(program.sources, program.file, reader, options, program.diagnostics);
  program.timings.stop();
  if (!program.diagnostics.has_errors()) return kExitOk;
  for (const Diagnostic& diagnostic : program.diagnostics.all()) {
    if (diag_level(diagnostic.id) == Level::kError) return diagnostic.exit_code;
  }
  return kExitProgram;
}

}  // namespace

int load_source_file(const CommonOptions& common, LoadedProgram& program) {
  const int status = read_source(common, program);
  print_diagnostics(common, program.sources, program.diagnostics);
  return status;
}

int load_program(const CommonOptions& common, LoadedProgram& program, bool show) {
  const int status = check_program(common, program);
  if (show) print_diagnostics(common, program.sources, program.diagnostics);
  return status;
}

}  // namespace cad::cli
