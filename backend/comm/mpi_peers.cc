// backend/comm/mpi_peers.cc -- see mpi_peers.h.
#include "backend/comm/mpi_peers.h"

#ifdef COLAUTO_MPI

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "backend/comm/world.h"
#include "backend/interrupt.h"
#include "base/render.h"

namespace cad::backend {
namespace {

constexpr int kBeatTag = 2;
// A launcher that ends the others when a rank has died gives them a second or two.
constexpr double kMostBetweenBeats = 0.4, kToReport = 0.5;

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
  if (!session_.usable()) return;  // nothing goes on after this
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
  const double every = std::clamp(timeout_s_ / 10, 0.02, kMostBetweenBeats);
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
    const bool signal = signalled_ == 0 && InterruptGuard::signal() != 0;
    if (signal) signalled_ = now;
    if (now >= next || signal) {
      send_beats(false);
      next = now + every;
    }
    take_beats();
    heard();
    miss_ended(now);
    answer_signal(now);
    lock.lock();
    stopped_.wait_for(lock, nap, [&] { return stop_; });
  }
}

// One at a time to each: a rank that does not take them gets no more.
void MpiPeers::send_beats(bool leaves) {
  const std::lock_guard lock(session_.mpi);
  if (!session_.usable()) return;
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
  while (session_.usable()) {
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

template <class F>
std::string MpiPeers::names_where(const F& f) const {
  std::string names;
  for (int r = 0; r < session_.ranks; ++r) {
    const Peer& peer = peers_[static_cast<size_t>(r)];
    if (r == session_.rank || peer.gone || !f(r, peer)) continue;
    names += fmt::format("{}{} (the last was: {})", names.empty() ? "" : ", ", session_.name_of(r),
                         peer.doing);
  }
  return names;
}

// Ranks whose processes have ended although they have neither left nor failed. All that is known of
// them goes to all; where the devices do not come to say it, it is said here,
// before the launcher ends this process.
void MpiPeers::miss_ended(double now) {
  if (missed_ == 0) {
    const auto ended = [&](int r, const Peer&) { return session_.ended(r); };
    const auto named = [&] {
      const std::lock_guard lock(session_.mpi);
      return told_ ? std::string() : names_where(ended);
    };
    if (named().empty()) return;
    take_beats();  // its last words
    heard();
    const std::string names = named();
    if (names.empty()) return;
    missing_ = names + " ended without a word: killed, or crashed";
    missed_ = now;
    if (tell(missing_)) on_failure_(missing_);
  }
  if (now - missed_ < kToReport || !at_work_) return;
  std::fputs(render_human(ended_by_another(missing_), Sources()).c_str(), stderr);
  std::fflush(stderr);
  session_.lines.say_goodbye();
  std::_Exit(kExitRunFailed);
}

// Told to end, as a launcher tells all when one has died: who lives has shown it since.
void MpiPeers::answer_signal(double now) {
  if (signalled_ == 0 || answered_ || now - signalled_ < kToReport) return;
  answered_ = true;
  std::string names;
  {
    const std::lock_guard lock(session_.mpi);
    if (told_ || !at_work_) return;
    names = names_where([&](int, const Peer& peer) { return peer.heard < signalled_; });
  }
  if (names.empty()) return;
  fmt::print(stderr, "note: told to end by a signal; nothing was heard since of {}\n", names);
  std::fflush(stderr);
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
  session_.tell(why);
  return true;
}

bool MpiPeers::heard() {
  std::optional<std::string> why;
  {
    const std::lock_guard lock(session_.mpi);
    if (!session_.usable()) return false;
    why = session_.told();
    told_ = told_ || why.has_value();  // the first to fail has told everybody
  }
  if (why) on_failure_(*why);
  return why.has_value();
}

}  // namespace cad::backend

#endif
