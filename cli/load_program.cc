// cli/load_program.cc -- see load_program.h.
#include "cli/load_program.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
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

Result<std::string> read_file(const std::string& path, int64_t most) {
  const auto failed = [&](const std::string& reason) {
    return make_error(DiagId::E0601, fmt::format("cannot read `{}`: {}", path, reason),
                      kExitNoInput);
  };
  std::ifstream file;
  if (path != "-") {
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) return failed(std::strerror(errno));
    if (S_ISDIR(info.st_mode)) return failed("it is a folder");
    errno = 0;
    file.open(path, std::ios::binary);
    if (!file.is_open()) return failed(errno != 0 ? std::strerror(errno) : "it cannot be read");
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::string text, part(1 << 16, '\0');
  do {
    in.read(part.data(), static_cast<std::streamsize>(part.size()));
    text.append(part, 0, static_cast<size_t>(in.gcount()));
    if (static_cast<int64_t>(text.size()) > most)
      return failed(fmt::format("it is larger than {} MiB", most >> 20));
  } while (in.good());
  if (in.bad()) return failed(errno != 0 ? std::strerror(errno) : "it cannot be read");
  return text;
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
  // `--save DIR --set save.every=10` makes the section that the program lacks.
  const auto named = [&](const std::string& start) {
    return std::any_of(
        options.settings.begin(), options.settings.end(),
        [&](const frontend::Setting& setting) { return setting.name.rfind(start, 0) == 0; });
  };
  if (!common.save.empty() && named("save.") && !named("save.to"))
    options.settings.push_back({"save.to", common.save});
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
