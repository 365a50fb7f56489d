// backend/comm/mpi_session.h -- MPI as this process has it, from its start to its end: ranks,
// hosts, the mutex that every call is under, messages under way. Only in builds with MPI. Who else
// lives: mpi_peers.h; collectives: mpi_world.h.
#pragma once

#ifdef COLAUTO_MPI

#include <mpi.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/comm/mpi_lines.h"
#include "backend/host_figures.h"

namespace cad::backend {

struct MpiSession {
  int rank = 0, ranks = 1;
  int sharing = 1;    // ranks with the host and the affinity mask of this one, itself included
  HostFigures least;  // of all ranks
  bool serialized = false;
  double limit_s;                  // of MPI's start and end
  std::vector<std::string> hosts;  // by rank
  // By rank: what turns readable when that process ends, for those of this host that the kernel
  // lets us watch; else -1.
  std::vector<int> watched;
  mutable RankLines lines;  // to the others
  std::mutex mpi;           // around every call, and around what follows
  // Of transfers that will never end, since a rank is gone: MPI may look at them for ever.
  std::deque<std::vector<char>> abandoned;
  std::deque<std::string> texts;
  std::deque<std::shared_ptr<void>> kept;

  explicit MpiSession(double limit_s);
  // "rank 2", on several hosts "rank 2 on b".
  [[nodiscard]] std::string name_of(int rank) const;
  // The rank's process has ended, as far as that can be seen from here.
  [[nodiscard]] bool ended(int rank) const;
  // Whether MPI may be called. Not when a rank of another host has ended: its transport may end
  // this process then, before it has said why.
  [[nodiscard]] bool usable() const { return !lines.any_ended(); }
  // Tells all other ranks why this one cannot go on: MpiPeers hears it, as long as MPI may be
  // called. `mpi` is held.
  void tell(const std::string& why);
  // What a rank has told, if one has; `mpi` is held.
  std::optional<std::string> told();
  // Somebody in this process knows of the failure and says it: who failed, or asked for it. What
  // came when nobody asked any more is left to end().
  std::atomic<bool> passed_on{false};
  // This process's last part: MPI ends when all ranks are there. Where one of them fails or ends
  // without a word, this one says so and ends with status 1. Where a failure has been said and the
  // others are gone, it returns, and the process ends with the status that it has.
  void end();
  // Another rank was the first to tell of a failure; `mpi` is held.
  [[nodiscard]] bool was_told() const { return reason_ && !told_; }

 private:
  std::optional<std::string> reason_;  // the first failure that this rank told or was told
  bool told_ = false;                  // by this one; both under `mpi`
  void exchange_hosts();
  void name_what_lacks(const std::vector<char>& unwatched);
};

// The process's session; nullptr before mpi_session().
MpiSession* started_mpi_session();
// Starts MPI the first time. Ranks that do not all start, or end, within `limit_s` (of the first
// call) end with status 1.
MpiSession& mpi_session(double limit_s);

// Messages of one exchange. What has not left when the world fails stays where it is.
class MpiOutbox {
 public:
  explicit MpiOutbox(MpiSession& session) : session_(session) {}
  ~MpiOutbox();
  MpiOutbox(const MpiOutbox&) = delete;
  MpiOutbox& operator=(const MpiOutbox&) = delete;
  void send(std::vector<char> data, int rank, int tag);
  int waits_for();  // a rank that has not taken its message; -1: all have

 private:
  MpiSession& session_;
  std::vector<std::vector<char>> data_;
  std::vector<int> ranks_;
  std::vector<MPI_Request> requests_;
};

}  // namespace cad::backend

#endif
