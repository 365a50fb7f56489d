// backend/cpu/executor.h -- runs a Program on one CPU device: its steps in order, each over all the
// threads of a pool. Results do not depend on timing; they are bit-equal from run to run for the
// same number of threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/program.h"

namespace cad::backend {

class Communicator;
class ThreadPool;

int64_t now_ns();  // of the steady clock

struct TraceEvent {
  int32_t step = 0;                  // index into Program::steps()
  int64_t start_ns = 0, end_ns = 0;  // steady clock
  enum class Kind : uint8_t {
    kStep,
    kCollective,  // of a device's communicator, beside its steps
    kWait         // the device stood still until a collective was done
  } kind = Kind::kStep;
};

struct Run {
  std::vector<void*> inputs;   // parallel to Program::inputs(); only read, unless also an output
  std::vector<void*> outputs;  // parallel to Program::outputs()
  void* arena = nullptr;       // Program::transient_bytes(), 64-byte aligned
  uint64_t seed = 0;
  int64_t step = 0;        // counted from 0
  int64_t row_offset = 0;  // first row of this micro-batch within the step
  int64_t step_rows = 0;   // rows of the whole step; 0: those of this batch
  // Of a program for the devices of Graph::mesh: this device's coordinates, and its end of the
  // world. No communicator: a program without collectives.
  std::vector<int> coordinates;
  Communicator* comm = nullptr;
  bool accumulate = false;                   // see CompileOptions::accumulate
  bool debug_nan = false;                    // check every step's float results
  std::vector<TraceEvent>* trace = nullptr;  // appended to when set
};

// The first step whose float results were not all finite (debug_nan).
struct NonFinite {
  std::string op, scope, value;
  Span span;
  int64_t number = 0;  // how many steps of the run came before: orders the finds of several devices
};

// With debug_nan one device stops at the first find; one of several goes on to the end, so that all
// meet the same collectives. Throws WorldFailed (backend/comm/world.h) when the world has failed.
std::optional<NonFinite> execute(const Program& program, ThreadPool& pool, const Run& run);

}  // namespace cad::backend
