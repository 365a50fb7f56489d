// backend/host_figures.h -- what a process has of its host, as far as plans and programs depend on
// it. Of all ranks of a job: least_host(), comm/mpi_world.h.
#pragma once

#include <cstdint>

namespace cad::backend {

struct HostFigures {
  int cores = 1;       // that a process may use
  int rank_cores = 1;  // a rank's share, where several use the same; 0: there are more ranks
  int64_t memory = 0;  // bytes
  int lanes = 8;       // f32 of a vector register
};
HostFigures own_host();

}  // namespace cad::backend
