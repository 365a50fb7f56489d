// backend/schedule.h -- from a partition to blocks of instructions: who lives where and how long,
// what is written in place, where copies are needed. Uses no device. The arena's offsets come from
// backend/arena.h; compile.cc puts the pieces together.
#pragma once

#include "backend/program_impl.h"

namespace cad::backend {

// Where a result of the top level has to go.
struct OutputPlace {
  bool accumulate = false;     // CompileOptions::accumulate
  int32_t aliased_input = -1;  // CompileOptions::in_place: index of the input with the same memory
};

// Fills program.blocks, calls, plans, infos, buffers and transient_bytes. program.graph, inputs and
// outputs are there already; `outputs` is parallel to the graph's. `overlap`: collectives may start
// before their place in the order and be awaited after it, beside other steps; the arena is never
// larger for it, or with `slack` a little, so that small ones go together.
void schedule(ProgramImpl& program, const Partition& partition,
              const std::vector<OutputPlace>& outputs, int threads, bool overlap = true,
              bool slack = true);

}  // namespace cad::backend
