// backend/comm/mpi_world.h -- devices spread over the ranks of an MPI job, the same number on each,
// numbered rank by rank. Members of a group that share a process meet as threads do; one of them
// carries what crosses processes, in non-blocking messages that it polls. Pieces and order of sums
// are those of threads, so a program gives the same bits either way. Every process shows the others
// that it lives, whatever it is busy with: one that is stopped, dead or cut off is named after the
// time-out, one that is slow is waited for. Only in builds with MPI; mpi_available() tells.
#pragma once

#include <memory>

#include "backend/comm/world.h"
#include "backend/host_figures.h"
#include "base/result.h"

namespace cad::backend {

bool mpi_available();  // this build has MPI
bool mpi_launched();   // this process was started by mpirun or srun

// Starts MPI, once a process; mpi_rank() and the like are known then. Ranks that do not all start
// within kCommPatience times the time-out end with status 1.
Status mpi_start(double timeout_s = kCommTimeout);
// Starts MPI if need be. Every rank must ask for the same number of devices.
Result<std::unique_ptr<World>> make_mpi_world(int devices_per_rank,
                                              double timeout_s = kCommTimeout);
// Rank and number of ranks of a started MPI; 0 and 1 without.
int mpi_rank();
int mpi_ranks();
// Ranks that run on the very cores of this one (same host, same affinity), itself included.
int mpi_sharing_ranks();
// Of each figure the least that a rank has, the same at every rank; this process's before MPI has
// started. Ranks on hosts that differ plan and compile for these: they must come to one program.
HostFigures least_host();
// Another rank has told this one why it cannot go on.
bool mpi_was_told();
// Ends every rank now, with this status. For failures: a rank that is stuck would keep the job.
[[noreturn]] void mpi_abort(int status);

}  // namespace cad::backend
