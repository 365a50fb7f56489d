// cli/flags.cc -- the flags that several commands share, one function a group.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <system_error>

#include "cli/command.h"

namespace cad::cli {

CLI::Validator at_least(int64_t least) {
  const auto check = [least](const std::string& text) -> std::string {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range) return fmt::format("`{}` is too large", text);
    if (error != std::errc() || end != text.data() + text.size()) {
      return fmt::format("`{}` is not a whole number", text);
    }
    if (value < least) return fmt::format("`{}` is below {}", text, least);
    return "";
  };
  return CLI::Validator(check, "");
}

namespace {

// A number of which `wrong` says what is wrong with it, or nothing: "is below 0".
CLI::Validator number(std::string (*wrong)(double)) {
  const auto check = [wrong](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const std::string why = text.empty() || *end != '\0' ? "is not a number" : wrong(value);
    return why.empty() ? why : fmt::format("`{}` {}", text, why);
  };
  return CLI::Validator(check, "");
}

}  // namespace

CLI::Validator finite_from_zero() {
  return number([](double value) -> std::string {
    if (!std::isfinite(value)) return "is not finite";
    return value < 0 ? "is below 0" : "";
  });
}

CLI::Validator fraction() {
  return number([](double value) -> std::string {
    return value >= 0 && value <= 1 ? "" : "is not between 0 and 1";
  });
}

CLI::Validator thread_count() {
  const auto check = [](const std::string& text) -> std::string {
    constexpr int64_t kMost = 1024;  // more are a slip, and the system may refuse them
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end != text.data() + text.size())
      return fmt::format("`{}` is not a whole number", text);
    if (error == std::errc::invalid_argument)
      return fmt::format("`{}` is not a whole number", text);
    if (error == std::errc::result_out_of_range || value > kMost)
      return fmt::format("`{}` is above {}", text, kMost);
    return value < 1 ? fmt::format("`{}` is below 1", text) : "";
  };
  return CLI::Validator(check, "");
}

void add_program_flags(CLI::App& app, CommonOptions& common) {
  app.add_option("FILE", common.file, "the program; - is standard input")->required();
  app.add_option("--set", common.set,
                 "NAME=VALUE: a dim, a let or a setting (B=64, eval.every=10); repeatable")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("--train", common.train, "the train section to use (default: the last)")
      ->type_name("NAME");
  app.add_option("--model", common.model, "the model to use (default: the last)")
      ->type_name("NAME");
  app.add_flag("--timings", common.timings, "print how long each phase took");
}

void add_json_flag(CLI::App& app, CommonOptions& common) {
  app.add_flag("--json", common.json, "print the result as JSON");
}

void add_emit_flag(CLI::App& app, CommonOptions& common, const std::vector<std::string>& kinds) {
  app.add_option("--emit", common.emit, "print an intermediate form")
      ->type_name("FORM")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(kinds));
}

void add_device_flags(CLI::App& app, CommonOptions& common) {
  auto* devices = app.add_option("--devices", common.devices, "devices of this host (default 1)")
                      ->type_name("N")
                      ->check(at_least(1));
  app.add_option("--gpus", common.gpus, "GPUs to use")
      ->type_name("N")
      ->check(at_least(1))
      ->excludes(devices);
  app.add_option("--threads-per-device", common.threads_per_device,
                 "threads of a CPU device (default: its share of the cores)")
      ->type_name("N")
      ->check(thread_count());
  app.add_option("--cluster", common.cluster, "the machine to plan for (default: this one)")
      ->type_name("NAME");
  app.add_option("--mesh", common.mesh, "mesh axes: dp=2,tp=4")->type_name("AXES");
  app.add_option("--budget", common.budget, "memory a device: 8GiB, or 60%")->type_name("SIZE");
  app.add_option("--micro-batches", common.micro_batches,
                 "read a batch of B rows in N parts (default: 1, or more where memory is short)")
      ->type_name("N")
      ->check(at_least(1));
  app.add_option("--plan", common.plan, "auto, single, dp, zero1 .., or a plan file")
      ->type_name("PLAN");
}

void add_training_flags(CLI::App& app, CommonOptions& common) {
  app.add_option("--steps", common.steps, "stop this run after step N; schedules use the program's")
      ->type_name("N")
      ->check(at_least(0));
  app.add_option("--seed", common.seed, "the seed, instead of the program's")
      ->type_name("N")
      ->check(at_least(0));
  app.add_option("--log", common.log, "write events as JSON lines")->type_name("FILE");
  app.add_option("--save", common.save, "folder for checkpoints, instead of save.to")
      ->type_name("DIR");
  app.add_option("--init", common.init, "a file or folder to start from")
      ->type_name("FILE")
      ->allow_extra_args(false);
  auto* resume = app.add_option("--resume", common.resume,
                                "go on from a checkpoint (alone: the newest in save.to)")
                     ->type_name("[DIR]")
                     ->expected(0, 1)
                     ->default_str("");
  app.add_flag("--overwrite", common.overwrite, "replace another run's checkpoints")
      ->excludes(resume);
  app.add_flag("--dry-run", common.dry_run, "print what would run, without running it");
  app.add_option("--trace", common.trace, "write a trace for chrome://tracing")->type_name("FILE");
}

}  // namespace cad::cli
