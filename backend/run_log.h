// backend/run_log.h -- what a run says while it is on: a progress line on stderr (redrawn in place
// on a terminal, permanent lines elsewhere) and one JSON object a line in a file or on stdout.
// The JSON's schema is docs/schema/run-log.json; numbers of a loss have 9 significant digits.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "backend/trainer.h"
#include "base/result.h"

namespace cad::backend {

struct RunLogOptions {
  std::string file;       // --log; empty: none
  bool append = false;    // a resumed run goes on in the same file
  bool json = false;      // the same lines on stdout
  bool quiet = false;     // no progress
  bool terminal = false;  // stderr is a terminal
};

struct EndReport {
  int64_t steps = 0;  // done in all
  int64_t made = 0;   // by this run, in wall_s
  double wall_s = 0, tokens_per_s = 0;
  std::vector<int64_t> peak_bytes;   // of each device
  int64_t predicted_peak_bytes = 0;  // of any
  double predicted_step_s = 0;       // of the plan; NaN: nothing was predicted
  std::string interrupted;           // "SIGINT", or empty
};

// " in 4 micro-batches of 2 rows"; of one, nothing.
std::string micro_batches_text(int64_t count, int64_t rows);

class RunLog {
 public:
  static Result<RunLog> open(const RunLogOptions& options);
  RunLog(RunLog&& other) noexcept;
  RunLog& operator=(RunLog&&) = delete;
  ~RunLog();

  void start(const Trainer& trainer, int64_t stop_at);
  void step(const StepReport& report, double ms, double tokens_per_s);
  void eval(const EvalReport& report, int64_t step);
  void saved(const std::string& folder, int64_t step);
  void end(const EndReport& report);
  // False once the log could not be written (full disk, closed pipe): the run fails with it.
  [[nodiscard]] Status status() const;

 private:
  RunLog() = default;
  void line(const std::string& json);
  void say(const std::string& text);  // a permanent progress line
  RunLogOptions options_;
  std::FILE* file_ = nullptr;
  int error_ = 0;      // errno of the first write that failed
  bool live_ = false;  // a live line stands on the terminal
  int64_t stop_at_ = 0, every_ = 1, first_step_ = -1;
  double seconds_ = 0;
  const char* unit_ = "tok";  // what tokens_per_s counts
};

std::string json_number(double value);  // 9 significant digits; null when not finite
std::string short_count(double value);  // "1.27M"

}  // namespace cad::backend
