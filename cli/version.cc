// cli/version.cc -- `colauto version`: the version and the optional parts of this build.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "backend/comm/mpi_world.h"
#include "cli/command.h"

#ifndef COLAUTO_VERSION
#define COLAUTO_VERSION "0.1.0"
#endif

namespace cad::cli {
namespace {

#ifdef COLAUTO_CUDA
constexpr bool kCuda = true;
#else
constexpr bool kCuda = false;
#endif

int run_version(const CommonOptions& common) {
  const bool mpi = backend::mpi_available();
  if (common.json) {
    print(nlohmann::json{{"schema", 1}, {"version", COLAUTO_VERSION}, {"cuda", kCuda}, {"mpi", mpi}}
              .dump(2) +
          "\n");
    return kExitOk;
  }
  std::string text = fmt::format("colauto {}\n", COLAUTO_VERSION);
  text +=
      fmt::format("CUDA  {}\n", kCuda ? "yes" : "no: --gpus needs a build with the CUDA toolkit");
  text += fmt::format("MPI   {}\n", mpi ? "yes" : "no: several hosts need a build with OpenMPI");
  print(text);
  return kExitOk;
}

}  // namespace

Action declare_version(CLI::App& app, CommonOptions& common) {
  add_json_flag(app, common);
  return [&common] { return run_version(common); };
}

}  // namespace cad::cli
