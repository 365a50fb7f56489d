// backend/host_figures.cc -- see host_figures.h.
#include "backend/host_figures.h"

#include "backend/cpu/thread_pool.h"
#include "backend/jit.h"
#include "backend/run_memory.h"

namespace cad::backend {

HostFigures own_host() {
  const int cores = ThreadPool::available_cores();
  return {cores, cores, RunMemory::machine_bytes(), host_lanes()};
}

}  // namespace cad::backend
