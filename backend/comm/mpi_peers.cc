// backend/comm/mpi_peers.cc -- see mpi_peers.h.
#include "backend/comm/mpi_peers.h"

#ifdef COLAUTO_MPI

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "backend/comm/world.h"

namespace cad::backend {
namespace {

constexpr int kFailureTag = 1, kBeatTag = 2;
constexpr size_t kMostText = 1500;  // of a failure: short enough to go at once

}  // namespace

MpiPeers::MpiPeers(MpiSession& session, double timeout_s,
                   std::function<void(const std::string&)> on_failure)
    : session_(session),
      timeout_s_(timeout_s),
      on_failure_(std::move(on_failure)),
      peers_(static_cast<size_t>(session.ranks)) {
  if (session_.ranks > 1) service_ = std::thread([this] { serve(); });
}

MpiPeers::~MpiPeers() {
  if (!service_.joinable()) return;
  {
    const std::lock_guard lock(stop_mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  service_.join();
  send_beats(true);
  const std::lock_guard lock(session_.mpi);
  for (Peer& peer : peers_) {
    int done = 1;
    if (peer.request != MPI_REQUEST_NULL) MPI_Test(&peer.request, &done, MPI_STATUS_IGNORE);
    if (done != 0) continue;
    // MPI goes on reading it
    session_.kept.push_back(std::make_shared<std::vector<Peer>>(std::move(peers_)));
    return;
  }
}

void MpiPeers::serve() {
  const double every = std::clamp(timeout_s_ / 10, 0.02, 2.0);
  const auto nap = std::chrono::duration<double>(std::min(0.1, every / 2));
  Waited running;
  double next = 0;
  std::unique_lock lock(stop_mutex_);
  while (!stop_) {
    lock.unlock();
    const double now = running.seconds();
    {
      const std::lock_guard mpi(session_.mpi);
      clock_ = now;
    }
    if (now >= next) {
      send_beats(false);
      next = now + every;
    }
    take_beats();
    heard();
    lock.lock();
    stopped_.wait_for(lock, nap, [&] { return stop_; });
  }
}

// One at a time to each: a rank that does not take them gets no more.
void MpiPeers::send_beats(bool leaves) {
  const std::lock_guard lock(session_.mpi);
  for (int r = 0; r < session_.ranks; ++r) {
    if (r == session_.rank) continue;
    Peer& peer = peers_[static_cast<size_t>(r)];
    int done = 1;
    if (peer.request != MPI_REQUEST_NULL) MPI_Test(&peer.request, &done, MPI_STATUS_IGNORE);
    if (done == 0) continue;
    peer.beat.leaves = leaves ? 1 : 0;
    std::snprintf(peer.beat.doing, sizeof peer.beat.doing, "%s", doing_.c_str());
    MPI_Isend(&peer.beat, sizeof peer.beat, MPI_BYTE, r, kBeatTag, MPI_COMM_WORLD, &peer.request);
  }
}

void MpiPeers::take_beats() {
  const std::lock_guard lock(session_.mpi);
  for (;;) {
    int there = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kBeatTag, MPI_COMM_WORLD, &there, &status);
    if (there == 0) return;
    Beat beat;
    MPI_Recv(&beat, sizeof beat, MPI_BYTE, status.MPI_SOURCE, kBeatTag, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    Peer& peer = peers_[static_cast<size_t>(status.MPI_SOURCE)];
    peer.heard = clock_;
    peer.gone = beat.leaves != 0;
    peer.doing = beat.doing;
  }
}

double MpiPeers::clock() {
  const std::lock_guard lock(session_.mpi);
  return clock_;
}

void MpiPeers::doing(std::string what) {
  const std::lock_guard lock(session_.mpi);
  doing_ = std::move(what);
}

std::optional<MpiPeers::Lost> MpiPeers::lost(int rank, double since) {
  const std::lock_guard lock(session_.mpi);
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  const double waited = clock_ - since, silent = clock_ - std::max(since, peer.heard);
  if (waited <= timeout_s_) return std::nullopt;
  const std::string name = session_.name_of(rank);
  if (peer.gone)
    return Lost{timeout_s_, fmt::format("no sign of {}, which has ended its part", name)};
  if (silent > timeout_s_)
    return Lost{timeout_s_, fmt::format("no sign of {}; the last was: {}", name, peer.doing)};
  const double patience = kCommPatience * timeout_s_;
  if (waited <= patience) return std::nullopt;
  return Lost{patience, fmt::format("{} lives ({}), but does not come", name, peer.doing)};
}

bool MpiPeers::tell(const std::string& why) {
  const std::lock_guard lock(session_.mpi);
  if (told_) return false;
  told_ = true;
  session_.texts.push_back(why.substr(0, kMostText));
  const std::string& text = session_.texts.back();
  for (int r = 0; r < session_.ranks; ++r) {
    if (r == session_.rank) continue;
    MPI_Request request;
    MPI_Isend(text.data(), static_cast<int>(text.size()), MPI_CHAR, r, kFailureTag, MPI_COMM_WORLD,
              &request);
    MPI_Request_free(&request);
  }
  return true;
}

bool MpiPeers::heard() {
  int there = 0;
  MPI_Status status;
  std::string why;
  {
    const std::lock_guard lock(session_.mpi);
    MPI_Iprobe(MPI_ANY_SOURCE, kFailureTag, MPI_COMM_WORLD, &there, &status);
    if (there != 0) {
      int count = 0;
      MPI_Get_count(&status, MPI_CHAR, &count);
      why.resize(static_cast<size_t>(count));
      MPI_Recv(why.data(), count, MPI_CHAR, status.MPI_SOURCE, kFailureTag, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
      told_ = true;  // the first to fail has told everybody
    }
  }
  if (there != 0) on_failure_(why);
  return there != 0;
}

}  // namespace cad::backend

#endif
