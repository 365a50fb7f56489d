// cli/training_common.cc -- see cli/training_common.h.
#include "cli/training_common.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "base/suggest.h"
#include "ir/split_rows.h"

namespace cad::cli {
namespace {

namespace fs = std::filesystem;

std::string absolute(const std::string& path) {
  return fs::absolute(path).lexically_normal().string();
}

// In --micro-batches parts.
Result<ir::TrainSpec> in_parts(ir::TrainSpec spec, int64_t parts) {
  if (parts == 1) return spec;
  const int64_t rows = ir::micro_batch_rows(spec);
  std::string why = ir::against_split(spec);
  if (why.empty() && (rows == 0 || rows % parts != 0))
    why = fmt::format("{} rows are not so many equal parts", rows);
  if (why.empty()) return ir::split_rows(spec, parts);
  Diagnostic error =
      make_error(DiagId::E0503, fmt::format("`--micro-batches {}`: {}", parts, why), kExitUsage);
  return error.help("leave it out, or change `B` and `accumulate` of the program");
}

}  // namespace

void add_trained_flag(CLI::App& app, CommonOptions& common) {
  app.add_option("--init", common.init, "the trained model: a file, or a folder of `save`")
      ->type_name("FILE")
      ->allow_extra_args(false);
}

void add_one_device_flags(CLI::App& app, CommonOptions& common) {
  app.add_option("--devices", common.devices, "1: this command runs on one device")
      ->type_name("N")
      ->check(at_least(1));
  app.add_option("--threads-per-device", common.threads_per_device, "threads (default: all cores)")
      ->type_name("N")
      ->check(thread_count());
}

std::optional<Diagnostic> check_one_device(const CommonOptions& common, const char* command) {
  const char* ranks = std::getenv("OMPI_COMM_WORLD_SIZE");
  const bool several = ranks != nullptr && std::strtol(ranks, nullptr, 10) > 1;
  if (common.devices.value_or(1) == 1 && !several) return std::nullopt;
  Diagnostic error = make_error(
      DiagId::E0504,
      several ? fmt::format("`{}` runs on one device, not in {} ranks", command, ranks)
              : fmt::format("`{}` runs on one device, not on {}", command, *common.devices),
      kExitUsage);
  error.note("`run` and `eval` take `--devices`, and what they save is read by one device too");
  error.help(several ? "start it without `mpirun`; one device uses all cores"
                     : "leave `--devices` out; one device uses all cores");
  return error;
}

Result<int64_t> memory_budget(const CommonOptions& common) {
  if (common.budget.empty()) return int64_t{0};
  // Decimal and binary units; `kB` as the SI writes it, and `KB` as most people do.
  static const std::map<std::string, double> units = {
      {"", 1},         {"B", 1},        {"kB", 1e3},     {"KB", 1e3},
      {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {"%", 0.01},
      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  const auto wrong = [&](const std::string& why) {
    Diagnostic error =
        make_error(DiagId::E0503, fmt::format("`--budget {}`: {}", common.budget, why), kExitUsage);
    error.help("write `--budget 8GiB`, or `--budget 60%` of this machine");
    return error;
  };
  char* end = nullptr;
  const double number = std::strtod(common.budget.c_str(), &end);
  const bool decimal = common.budget.find_first_of("xX") == std::string::npos;
  if (end == common.budget.c_str() || !decimal) return wrong("no amount of memory");
  std::string unit(end);
  unit.erase(0, std::min(unit.size(), unit.find_first_not_of(' ')));
  const auto found = units.find(unit);
  if (found == units.end()) {
    std::vector<std::string> names;
    for (const auto& [name, factor] : units) names.push_back(name);
    Diagnostic error = wrong(fmt::format("unknown unit `{}`", unit));
    if (const auto near = suggest(unit, names))
      error.help(fmt::format("did you mean `{}`?", *near));
    return error;
  }
  if (!(number > 0)) return wrong("the amount is above 0");
  if (unit == "%" && number > 100) return wrong("this machine has 100%");
  const double whole = unit == "%" ? static_cast<double>(backend::RunMemory::machine_bytes()) : 1;
  const double bytes = number * found->second * whole;
  if (!(bytes < 9e18)) return wrong("more bytes than 64 bits can count");
  return std::max<int64_t>(1, static_cast<int64_t>(bytes));
}

Result<ir::TrainSpec> train_spec(const CommonOptions& common, const LoadedProgram& program) {
  CAD_TRY(spec, frontend::lower_train(*program.module));
  if (common.file == "-") spec.program_path.clear();
  if (!common.init.empty()) spec.init = init_files(common.init);
  return in_parts(std::move(spec), common.micro_batches.value_or(1));
}

std::string save_folder(const CommonOptions& common, const ir::TrainSpec& spec) {
  if (!common.save.empty()) return common.save;
  if (spec.save.to.empty()) return "";
  return (fs::path(spec.program_path).parent_path() / spec.save.to).string();
}

std::vector<ir::InitFile> init_files(const std::vector<std::string>& flags) {
  std::vector<ir::InitFile> files;
  for (const std::string& flag : flags) {
    ir::InitFile file;
    file.file = absolute(flag);
    files.push_back(std::move(file));
  }
  return files;
}

std::vector<ir::InitFile> trained_files(const CommonOptions& common, const std::string& save_folder,
                                        bool average) {
  std::error_code ignored;
  std::vector<std::string> names = common.init;
  if (names.empty() && !save_folder.empty() &&
      fs::exists(fs::path(save_folder) / "model.safetensors", ignored)) {
    names.push_back(save_folder);
  }
  for (std::string& name : names) {
    const fs::path beside = fs::path(name) / "ema.safetensors";
    if (average && fs::exists(beside, ignored)) name = beside.string();
  }
  return init_files(names);
}

std::optional<Diagnostic> unbound_dim(const ir::Graph& graph, const ir::Bindings& bindings) {
  const auto check = [&](const ir::Type& type) -> std::optional<Diagnostic> {
    for (const ir::DimId id : type.dims) {
      const ir::Dim& dim = graph.dim(id);
      const auto value = dim.size.evaluate(bindings);
      if (value.ok()) continue;
      Diagnostic error = make_error(
          DiagId::E0323, fmt::format("the dim `{}` has no size", dim.name), kExitProgram);
      const std::string name = value.detail.empty() ? dim.name : value.detail;
      error.help(fmt::format("give it one: `--set {}=64`", name));
      return error;
    }
    return std::nullopt;
  };
  for (const ir::Input& input : graph.inputs) {
    if (auto error = check(graph.type(input.value))) return error;
  }
  for (const ir::ValueId result : graph.regions[0].results) {
    if (auto error = check(graph.type(result))) return error;
  }
  return std::nullopt;
}

Status probe_output(const std::string& path) {
  std::error_code ignored;
  const bool there = fs::exists(path, ignored);
  // A pipe or terminal is not opened for a try: its reader would see it closed.
  if (there && !fs::is_regular_file(path, ignored) && !fs::is_directory(path, ignored)) return Ok{};
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) {
    return make_error(DiagId::E0602,
                      fmt::format("cannot write `{}`: {}", path, std::strerror(errno)),
                      kExitRunFailed);
  }
  ::close(file);
  if (!there) ::unlink(path.c_str());
  return Ok{};
}

void print_warnings(const CommonOptions& common, const Sources& sources,
                    const std::vector<Diagnostic>& warnings) {
  if (warnings.empty()) return;
  Diagnostics list;
  for (const Diagnostic& warning : warnings) list.add(warning);
  print_diagnostics(common, sources, list);
}

}  // namespace cad::cli
