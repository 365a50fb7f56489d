// cli/fmt.cc -- `colauto fmt`: rewrites files in the one style, in place; `-` from standard input
// to standard output; --check only says which would change. A file with syntax errors is left
// alone.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "cli/load_program.h"
#include "frontend/format.h"
#include "frontend/parse.h"

namespace cad::cli {
namespace {

struct FmtFlags {
  std::vector<std::string> files;
  bool check = false;
};

// Beside the file, then renamed over it: no half-written program, whatever happens.
Status replace_file(const std::string& path, const std::string& text) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path target = fs::is_symlink(path, error) ? fs::canonical(path, error) : fs::path(path);
  const fs::path temporary = target.string() + ".tmp";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  bool ok = !out.fail();
  if (ok) {
    fs::permissions(temporary, fs::status(target, error).permissions(), error);
    fs::rename(temporary, target, error);
    ok = !error;
  }
  if (ok) return Ok{};
  fs::remove(temporary, error);
  return make_error(DiagId::E0602, fmt::format("cannot write `{}`", path), kExitNoInput);
}

int format_one(const FmtFlags& flags, CommonOptions& common, const std::string& path) {
  LoadedProgram program;
  common.file = path;
  if (const int status = load_source_file(common, program); status != kExitOk) return status;
  const frontend::Ast ast = frontend::parse(program.sources, program.file, program.diagnostics);
  if (print_diagnostics(common, program.sources, program.diagnostics)) return kExitProgram;
  const std::string formatted = frontend::format(ast, program.sources, program.file);
  if (path == "-" && !flags.check) {
    print(formatted);
    return kExitOk;
  }
  Result<std::string> now =
      path == "-" ? Result<std::string>(program.sources.file(program.file).text) : read_file(path);
  if (!now.ok()) return fail(common, now.error());
  if (*now == formatted) return kExitOk;
  if (flags.check) {
    Diagnostic error = make_error(DiagId::E0506, fmt::format("`{}` is not in the one style", path),
                                  kExitRunFailed);
    error.help(fmt::format("`colauto fmt {}` rewrites it", path));
    return fail(common, error);
  }
  if (Status written = replace_file(path, formatted); !written.ok())
    return fail(common, written.error());
  message(common, fmt::format("formatted {}", path));
  return kExitOk;
}

int run_fmt(const FmtFlags& flags, CommonOptions& common) {
  int status = kExitOk;
  for (const std::string& path : flags.files) {
    const int one = format_one(flags, common, path);
    if (status == kExitOk) status = one;
  }
  return status;
}

}  // namespace

Action declare_fmt(CLI::App& app, CommonOptions& common) {
  auto own = std::make_shared<FmtFlags>();
  app.add_option("FILE", own->files, "programs; - is standard input, then standard output")
      ->required();
  app.add_flag("--check", own->check,
               "change nothing; status 1 when a file is not in the one style");
  return [own, &common] { return run_fmt(*own, common); };
}

}  // namespace cad::cli
