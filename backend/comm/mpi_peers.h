// backend/comm/mpi_peers.h -- the other processes of an MPI job, as far as this one hears of them.
// A thread of its own shows them that this one lives, takes their signs of life, hears when one of
// them has failed and sees when one of them has ended, whatever the devices are busy with.
// Only in builds with MPI.
#pragma once

#ifdef COLAUTO_MPI

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backend/comm/mpi_session.h"

namespace cad::backend {

class MpiPeers {
 public:
  // `on_failure`: with the reason of the first rank to tell one; on any thread that asks heard().
  MpiPeers(MpiSession& session, double timeout_s,
           std::function<void(const std::string&)> on_failure);
  ~MpiPeers();  // says that this process has ended its part
  MpiPeers(const MpiPeers&) = delete;
  MpiPeers& operator=(const MpiPeers&) = delete;

  // What others read of this process when it does not come.
  void doing(std::string what);
  // Seconds that this process has been running: what waits count in.
  double clock();
  struct Lost {
    double seconds;
    std::string why;  // "no sign of rank 2"
  };
  // Whether who has waited for `rank` since then is to give up: nothing was heard of it for the
  // time-out, or it lives and does not come for kCommPatience times as long.
  std::optional<Lost> lost(int rank, double since);
  // Another rank has told that it failed.
  bool heard();
  // Tells all others, unless this process has told or heard before: then false.
  bool tell(const std::string& why);
  // Whether this process's devices are at work, or are yet to be: then nobody else here reports
  // that a rank is gone.
  void at_work(bool yes) { at_work_ = yes; }

 private:
  struct Beat {          // a sign of life
    int32_t leaves = 0;  // 1: the last one
    char doing[240] = {};
  };
  struct Peer {
    double heard = 0;  // of clock_
    bool gone = false;
    std::string doing = "starting";
    Beat beat;  // on its way there
    MPI_Request request = MPI_REQUEST_NULL;
  };
  void serve();
  void send_beats(bool leaves);
  void take_beats();
  // "rank 2, rank 3 on b": those of which f holds; session_.mpi is held.
  template <class F>
  std::string names_where(const F& f) const;
  void miss_ended(double now);
  void answer_signal(double now);

  MpiSession& session_;
  double timeout_s_;
  std::function<void(const std::string&)> on_failure_;
  // under session_.mpi:
  bool told_ = false;
  double clock_ = 0;
  std::vector<Peer> peers_;  // by rank
  std::string doing_ = "preparing";

  std::atomic<bool> at_work_{true};
  // of the service's thread:
  std::string missing_;                // what was told of ranks that ended
  double missed_ = 0, signalled_ = 0;  // when that, and a signal to end, was first seen; 0: not yet
  bool answered_ = false;              // the signal

  std::mutex stop_mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread service_;
};

}  // namespace cad::backend

#endif
