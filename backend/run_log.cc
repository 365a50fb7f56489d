// backend/run_log.cc -- see backend/run_log.h.
#include "backend/run_log.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/plan_text.h"

namespace cad::backend {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string rates_json(const std::vector<double>& rates) {
  if (rates.size() == 1) return json_number(rates[0]);
  std::string text;
  for (const double rate : rates) text += (text.empty() ? "" : ",") + json_number(rate);
  return "[" + text + "]";
}

// The round number that gives at most about 50 lines.
int64_t nice_interval(int64_t steps) {
  for (int64_t decade = 1;; decade *= 10) {
    for (const int64_t factor : {1, 2, 5}) {
      if (steps <= 50 * decade * factor) return decade * factor;
    }
  }
}

std::string duration(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f}s", seconds);
  const auto total = static_cast<int64_t>(seconds + 0.5);
  if (total < 60) return fmt::format("{}s", total);
  if (total < 3600) return fmt::format("{}m{:02}s", total / 60, total % 60);
  return fmt::format("{}h{:02}m", total / 3600, total / 60 % 60);
}

}  // namespace

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  return fmt::format("{:.9g}", value);
}

std::string short_count(double value) {
  static const char* const units[] = {"", "k", "M", "G", "T"};
  int unit = 0;
  while (value >= 1000 && unit < 4) {
    value /= 1000;
    ++unit;
  }
  const int digits = unit == 0 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, digits, units[unit]);
}

std::string micro_batches_text(int64_t count, int64_t rows) {
  if (count == 1) return "";
  return " in " +
         planner::micro_batches_text(static_cast<double>(count), static_cast<double>(rows));
}

Result<RunLog> RunLog::open(const RunLogOptions& options) {
  RunLog log;
  log.options_ = options;
  if (options.file.empty()) return log;
  log.file_ = std::fopen(options.file.c_str(), options.append ? "ae" : "we");
  if (log.file_ == nullptr) {
    return make_error(DiagId::E0602,
                      fmt::format("cannot write `{}`: {}", options.file, std::strerror(errno)),
                      kExitRunFailed);
  }
  return log;
}

RunLog::RunLog(RunLog&& other) noexcept
    : options_(std::move(other.options_)), file_(other.file_), error_(other.error_) {
  other.file_ = nullptr;
}

RunLog::~RunLog() {
  if (file_ != nullptr) std::fclose(file_);
}

Status RunLog::status() const {
  if (error_ == 0) return Ok{};
  return make_error(DiagId::E0602,
                    fmt::format("cannot write {}: {}",
                                options_.file.empty() ? "to stdout" : "`" + options_.file + "`",
                                std::strerror(error_)),
                    kExitRunFailed);
}

void RunLog::line(const std::string& json) {
  for (std::FILE* to : {file_, options_.json ? stdout : nullptr}) {
    if (to == nullptr) continue;
    // Flushed line by line: whoever follows the file sees every step, and a full disk shows here.
    const bool bad = std::fwrite(json.data(), 1, json.size(), to) != json.size() ||
                     std::fputc('\n', to) == EOF || std::fflush(to) != 0;
    if (bad && error_ == 0) error_ = errno != 0 ? errno : EIO;
  }
}

void RunLog::say(const std::string& text) {
  if (options_.quiet) return;
  if (live_) std::fputs("\r\x1b[K", stderr);
  live_ = false;
  std::fputs((text + "\n").c_str(), stderr);
}

void RunLog::start(const Trainer& trainer, int64_t stop_at) {
  stop_at_ = stop_at;
  unit_ = trainer.data().tokens_per_row() > 1 ? "tok" : "rows";
  every_ = nice_interval(stop_at - trainer.steps_done());
  std::string axes;
  for (const planner::Axis& axis : trainer.mesh().axes) {
    axes += fmt::format(R"({}{{"name":{},"size":{}}})", axes.empty() ? "" : ",", quoted(axis.name),
                        axis.size);
  }
  const std::string where = trainer.devices() == 1
                                ? "on one device"
                                : fmt::format("on each of {} devices", trainer.devices());
  line(fmt::format(
      R"({{"event":"start","schema":1,"devices":{},"mesh":{{"axes":[{}]}},"params":{},"seed":{},"first_step":{},"steps":{},"rows_per_step":{},"micro_batches":{},"predicted_peak_bytes":{}}})",
      trainer.devices(), axes, trainer.parameters().count(), trainer.spec().seed,
      trainer.steps_done() + 1, trainer.total_steps(), trainer.rows_per_step(),
      trainer.spec().accumulate, trainer.memory().total));
  const MemoryReport m = trainer.memory();
  say(
      fmt::format("{}: {} parameters, {} row{} a step{}, {} {} ({} parameters, {} optimizer, {} "
                  "gradients, {} step)",
                  trainer.spec().name.empty() ? "train" : trainer.spec().name,
                  short_count(static_cast<double>(trainer.parameters().count())),
                  trainer.rows_per_step(), trainer.rows_per_step() == 1 ? "" : "s",
                  micro_batches_text(trainer.spec().accumulate, trainer.data().batch()),
                  bytes_text(m.total), where, bytes_text(m.parameters + m.average),
                  bytes_text(m.optimizer), bytes_text(m.gradients), bytes_text(m.region)));
}

void RunLog::step(const StepReport& report, double ms, double tokens_per_s) {
  line(fmt::format(
      R"({{"event":"step","step":{},"loss":{},"grad_norm":{},"lr":{},"ms":{:.3f},"tokens_per_s":{:.1f}{}}})",
      report.step, json_number(report.loss), json_number(report.grad_norm),
      rates_json(report.rates), ms, tokens_per_s, report.skipped ? R"(,"skipped":true)" : ""));
  if (options_.quiet) return;
  if (first_step_ < 0) first_step_ = report.step;
  seconds_ += ms / 1000;
  const bool permanent =
      report.step == first_step_ || report.step == stop_at_ || report.step % every_ == 0;
  if (!permanent && !options_.terminal) return;
  const double left = seconds_ / static_cast<double>(report.step - first_step_ + 1) *
                      static_cast<double>(stop_at_ - report.step);
  const std::string total = std::to_string(stop_at_);
  const std::string text =
      fmt::format("step {:>{}}/{}  loss {:.4f}  norm {:.3g}  lr {:.2e}  {:.{}f} ms  {} {}/s{}{}",
                  report.step, total.size(), total, report.loss, report.grad_norm,
                  report.rates.empty() ? 0.0 : report.rates[0], ms,
                  ms < 10    ? 2
                  : ms < 100 ? 1
                             : 0,
                  short_count(tokens_per_s), unit_, report.skipped ? "  overflow: skipped" : "",
                  report.step < stop_at_ ? "  eta " + duration(left) : "");
  if (permanent) return say(text);
  std::fputs(("\r" + text + "\x1b[K").c_str(), stderr);
  std::fflush(stderr);
  live_ = true;
}

void RunLog::eval(const EvalReport& report, int64_t step) {
  std::string fields, text;
  for (const auto& [name, value] : report.values) {
    fields += fmt::format(",{}:{}", quoted(name), json_number(value));
    text += fmt::format("  {} {:.4f}", name, value);
  }
  line(fmt::format(R"({{"event":"eval","name":{},"step":{},"rows":{}{}}})", quoted(report.name),
                   step, report.rows, fields));
  say(fmt::format("{} at step {}{}  ({} row{})", report.name, step, text, report.rows,
                  report.rows == 1 ? "" : "s"));
}

void RunLog::saved(const std::string& folder, int64_t step) {
  line(fmt::format(R"({{"event":"save","step":{},"folder":{}}})", step, quoted(folder)));
  say(fmt::format("saved {}", folder));
}

void RunLog::end(const EndReport& report) {
  line(fmt::format(
      R"({{"event":"end","steps":{},"wall_s":{:.3f},"tokens_per_s":{:.1f},"peak_bytes":[{}],"predicted_peak_bytes":{},"predicted_step_s":{}{}}})",
      report.steps, report.wall_s, report.tokens_per_s, fmt::join(report.peak_bytes, ","),
      report.predicted_peak_bytes, json_number(report.predicted_step_s),
      report.interrupted.empty() ? "" : R"(,"interrupted":)" + quoted(report.interrupted)));
  // After `--resume` the steps before it are no part of the time; of no step there is no speed.
  const std::string made =
      report.made == 0
          ? fmt::format("no step made, {} done before", report.steps)
          : fmt::format("{} step{} in {}, {} {}/s", report.made, report.made == 1 ? "" : "s",
                        duration(report.wall_s), short_count(report.tokens_per_s), unit_);
  say(fmt::format("{}, peak {}{}", made,
                  bytes_text(*std::max_element(report.peak_bytes.begin(), report.peak_bytes.end())),
                  report.interrupted.empty() ? "" : ", interrupted by " + report.interrupted));
}

}  // namespace cad::backend
