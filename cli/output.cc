// cli/output.cc -- diagnostics, messages, results and timings on their streams.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/render.h"
#include "base/unexpected.h"
#include "cli/command.h"

namespace cad::cli {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

bool use_color(const CommonOptions& common, int descriptor) {
  if (common.color != ColorMode::kAuto) return common.color == ColorMode::kAlways;
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  return isatty(descriptor) == 1;
}

int report_unexpected(const std::exception& bug) {
  if (is_out_of_memory(bug)) {
    fmt::print(stderr, "error[E0703]: {}\n", unexpected_text(bug));
    return kExitRunFailed;
  }
  fmt::print(stderr, "{}\nthis is a bug in colauto, not in the program\n", unexpected_text(bug));
  return kExitBug;
}

bool print_diagnostics(const CommonOptions& common, const Sources& sources,
                       const Diagnostics& diagnostics) {
  if (diagnostics.all().empty()) return false;
  RenderOptions options;
  options.color = use_color(common, STDERR_FILENO);
  std::string text;
  switch (common.error_format) {
    case ErrorFormat::kHuman:
      text = render_human(diagnostics, sources, options);
      break;
    case ErrorFormat::kShort:
      text = render_short(diagnostics, sources, options);
      break;
    case ErrorFormat::kJson:
      text = render_json(diagnostics, sources, options).dump() + "\n";
      break;
  }
  if (!text.empty() && text.back() != '\n') text += '\n';
  std::fwrite(text.data(), 1, text.size(), stderr);
  return diagnostics.has_errors();
}

int fail(const CommonOptions& common, const Sources& sources, const Diagnostic& diagnostic) {
  Diagnostics one;
  one.add(diagnostic);
  print_diagnostics(common, sources, one);
  return diagnostic.exit_code;
}

int fail(const CommonOptions& common, const Diagnostic& diagnostic) {
  return fail(common, Sources{}, diagnostic);
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size()) return;
  std::fputs("error[E0505]: cannot write to standard output\n", stderr);
  std::_Exit(kExitRunFailed);
}

void message(const CommonOptions& common, std::string_view text) {
  if (common.quiet) return;
  std::string line(text);
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void Timings::start(std::string phase) {
  stop();
  entries_.push_back({std::move(phase), 0});
  started_ = now();
}

void Timings::stop() {
  if (started_ >= 0) entries_.back().seconds = now() - started_;
  started_ = -1;
}

void Timings::report(const CommonOptions& common) {
  stop();
  if (!common.timings) return;
  double total = 0;
  for (const Entry& entry : entries_) {
    fmt::print(stderr, "{:<12} {:9.3f} ms\n", entry.phase, entry.seconds * 1e3);
    total += entry.seconds;
  }
  fmt::print(stderr, "{:<12} {:9.3f} ms\n", "total", total * 1e3);
}

}  // namespace cad::cli
