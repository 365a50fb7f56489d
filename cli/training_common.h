// cli/training_common.h -- what run, eval, predict, generate and params share: a train section with
// the flags applied, where parameters come from, one device.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/trainer.h"
#include "cli/command.h"
#include "cli/load_program.h"
#include "ir/training.h"

namespace cad::cli {

// `--init` of a command that uses a trained model.
void add_trained_flag(CLI::App& app, CommonOptions& common);
// `--devices` of a command that runs on one device, and E0504 when it is asked for more, or was
// started as several ranks.
void add_one_device_flags(CLI::App& app, CommonOptions& common);
std::optional<Diagnostic> check_one_device(const CommonOptions& common, const char* command);

// `--budget`: "8GiB", "512 MB", "3072" (bytes) or "60%" of this machine; 0 when not given. E0503.
Result<int64_t> memory_budget(const CommonOptions& common);

// The chosen train section, --init and --micro-batches applied (E0503). Relative names of flags
// are relative to the current folder, those of the program to its own.
Result<ir::TrainSpec> train_spec(const CommonOptions& common, const LoadedProgram& program);
std::string save_folder(const CommonOptions& common, const ir::TrainSpec& spec);  // empty: none
std::vector<ir::InitFile> init_files(const std::vector<std::string>& flags);

// Files that a trained model is read from: --init, else the newest of the save folder, if any.
// `average`: prefer ema.safetensors where it lies beside the model.
std::vector<ir::InitFile> trained_files(const CommonOptions& common, const std::string& save_folder,
                                        bool average);

// E0323 for the first dim of `graph` that `bindings` does not bind.
std::optional<Diagnostic> unbound_dim(const ir::Graph& graph, const ir::Bindings& bindings);

// E0602 when `path` cannot be written: found before the work whose result it takes. Leaves no file.
Status probe_output(const std::string& path);

void print_warnings(const CommonOptions& common, const Sources& sources,
                    const std::vector<Diagnostic>& warnings);

}  // namespace cad::cli
