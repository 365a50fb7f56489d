// cli/command.h -- how a subcommand is made. Each lives in its own file and has a row in
// commands.def; main.cc parses the flags and runs it. A command's file defines
//
//   Action declare_NAME(CLI::App& app, CommonOptions& common) {
//     add_program_flags(app, common);                       // the groups it understands
//     auto own = std::make_shared<NameOptions>();            // its own flags
//     app.add_option("--prompt", own->prompt, "text to go on from");
//     return [own, &common] { return run_name(*own, common); };
//   }
//
// The action returns an exit status of base/exit_code.h. Results go to stdout, messages to stderr
// (print_diagnostics). Check whole numbers with ->check(at_least(1)); texts of CLI11's own checks
// are put in plain words by main.cc.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/diagnostic.h"
#include "base/source.h"

namespace cad::cli {

enum class ErrorFormat { kHuman, kShort, kJson };
enum class ColorMode { kAuto, kAlways, kNever };

// Flags that several commands share. A command sees only the groups that it adds.
struct CommonOptions {
  // every command
  ErrorFormat error_format = ErrorFormat::kHuman;
  ColorMode color = ColorMode::kAuto;
  bool quiet = false;
  int verbose = 0;
  // program
  std::string file;              // "-": standard input
  std::vector<std::string> set;  // "B=64"
  std::string train, model;
  bool timings = false;
  bool json = false;
  std::vector<std::string> emit;
  // devices and planning
  std::optional<int64_t> devices, gpus, threads_per_device;
  std::string cluster, mesh, budget;
  std::optional<int64_t> micro_batches;
  std::string plan = "auto";
  // training
  std::optional<int64_t> steps;
  std::optional<uint64_t> seed;  // also a setting: load_program() passes it on
  std::string log, save;
  std::vector<std::string> init;
  std::optional<std::string> resume;  // empty text: the newest in save.to
  bool overwrite = false;
  bool dry_run = false;
  std::string trace;
};

using Action = std::function<int()>;

struct Command {
  const char* name;
  const char* summary;
  const char* examples;  // lines, shown first by --help
  Action (*declare)(CLI::App& app, CommonOptions& common);
};
const std::vector<Command>& commands();  // sorted as in commands.def

CLI::Validator thread_count();           // 1 to 1024
CLI::Validator finite_from_zero();       // a number, at least 0, neither inf nor nan
CLI::Validator fraction();               // a number from 0 to 1
CLI::Validator at_least(int64_t least);  // a whole number in digits, not below `least`

void add_program_flags(CLI::App& app,
                       CommonOptions& common);             // FILE --set --train --model --timings
void add_json_flag(CLI::App& app, CommonOptions& common);  // --json
void add_emit_flag(CLI::App& app, CommonOptions& common, const std::vector<std::string>& kinds);
void add_device_flags(CLI::App& app,
                      CommonOptions& common);  // --devices --gpus --threads-per-device ..
void add_training_flags(CLI::App& app,
                        CommonOptions& common);  // --steps --seed --log --save --init ..

// Prints to stderr in the chosen format. True when there are errors.
bool print_diagnostics(const CommonOptions& common, const Sources& sources,
                       const Diagnostics& diagnostics);
// Prints one and returns the exit status it asks for.
int fail(const CommonOptions& common, const Sources& sources, const Diagnostic& diagnostic);
int fail(const CommonOptions& common, const Diagnostic& diagnostic);

// Reports what nobody expected, a bug of ours or that memory ran out; returns the exit status.
int report_unexpected(const std::exception& bug);

bool use_color(const CommonOptions& common, int descriptor);  // 1 stdout, 2 stderr
void print(std::string_view text);  // to stdout; a failed write ends the program with status 1
void message(const CommonOptions& common,
             std::string_view text);  // a line on stderr, unless --quiet

// Phases timed for --timings; report() prints them to stderr when asked for.
class Timings {
 public:
  void start(std::string phase);
  void stop();
  void report(const CommonOptions& common);

 private:
  struct Entry {
    std::string phase;
    double seconds = 0;
  };
  std::vector<Entry> entries_;
  double started_ = -1;
};

}  // namespace cad::cli
