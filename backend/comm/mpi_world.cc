// backend/comm/mpi_world.cc -- see mpi_world.h. All MPI calls are under one mutex and none blocks,
// so MPI_THREAD_SERIALIZED is enough and a dead peer costs a time-out, not a hang.
#include "backend/comm/mpi_world.h"

#include <cstdlib>

#include "base/check.h"
#include "base/unexpected.h"

#ifdef COLAUTO_MPI
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "backend/comm/mpi_peers.h"
#include "backend/comm/mpi_session.h"
#include "backend/comm/thread_world.h"
#endif

namespace cad::backend {

bool mpi_launched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

#ifndef COLAUTO_MPI

bool mpi_available() {
  return false;
}
HostFigures least_host() {
  return own_host();
}
bool mpi_was_told() {
  return false;
}
Status mpi_start(double) {
  Diagnostic d = make_error(DiagId::E0504, "this build has no MPI", kExitUsage);
  d.help("install libopenmpi-dev and openmpi-bin and build again");
  return d;
}
Result<std::unique_ptr<World>> make_mpi_world(int, double timeout_s) {
  return mpi_start(timeout_s).error();
}
int mpi_rank() {
  return 0;
}
int mpi_ranks() {
  return 1;
}
int mpi_sharing_ranks() {
  return 1;
}
void mpi_abort(int status) {
  std::_Exit(status);
}

#else

namespace {

constexpr size_t kWords = 240;  // of a header's text

// Goes before the data of every message, so that both sides of a disagreement can be named.
struct Header {
  uint64_t sequence = 0;
  int32_t phase = 0, device = 0;
  uint64_t call = 0;  // digest of everything that must be equal
  char text[kWords] = {};
};

uint64_t mix(uint64_t h, uint64_t x) {
  return (h ^ x) * 0x9E3779B97F4A7C15ULL ^ (h >> 29);
}

uint64_t digest(const CollectiveCall& c) {
  uint64_t h = 1469598103934665603ULL;
  for (int m : c.members) h = mix(h, static_cast<uint64_t>(m));
  for (const Parts::Dim& dim : c.parts.dims) {
    h = mix(mix(h, static_cast<uint64_t>(dim.in)), static_cast<uint64_t>(dim.out));
    for (const auto* ranges : {&dim.had, &dim.gets}) {
      for (const Parts::Range& r : *ranges)
        h = mix(mix(h, static_cast<uint64_t>(r.begin)), static_cast<uint64_t>(r.end));
    }
  }
  const AllToAll& x = c.all_to_all;
  for (int64_t v : {int64_t(c.kind), int64_t(c.dtype), int64_t(c.reduction), c.outer, c.inner, x.a,
                    x.split, x.b, x.join, x.c, int64_t(x.join_first)}) {
    h = mix(h, static_cast<uint64_t>(v));
  }
  for (char letter : c.axis) h = mix(h, static_cast<uint64_t>(letter));
  return h;
}

size_t piece_bytes(const CollectiveCall& call, const Piece& p) {
  return static_cast<size_t>(p.elements() * ir::dtype_bytes(call.dtype));
}

int tag_of(const std::vector<int>& members) {
  uint64_t h = 7;
  for (int m : members) h = mix(h, static_cast<uint64_t>(m));
  return 16 + static_cast<int>(h % 32000);
}

// Between polls: other threads of this machine may hold the core that the answer needs.
void pause(int turn) {
  if (turn < 50) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(turn < 500 ? 20 : 200));
  }
}

class MpiWorld : public World {
 public:
  MpiWorld(MpiSession& session, int per_rank, double timeout_s)
      : session_(session),
        per_rank_(per_rank),
        // its leader's own time ends first
        local_(session_.ranks * per_rank, timeout_s, 1.5 * kCommPatience * timeout_s),
        peers_(session, timeout_s, [this](const std::string& why) { local_.fail(why); }) {}

  [[nodiscard]] int devices() const override { return session_.ranks * per_rank_; }
  [[nodiscard]] int first_device() const override { return session_.rank * per_rank_; }
  [[nodiscard]] int local_devices() const override { return per_rank_; }

  using World::run;
  bool run(int device, std::span<const Move> moves, uint64_t sequence) override;
  void enter(int device) override {
    local_.enter(device);
    ++inside_;
    peers_.at_work(true);
  }
  void leave(int device) override {
    local_.leave(device);
    if (--inside_ == 0) peers_.at_work(false);
  }
  [[nodiscard]] std::string name_of(int device) const override {
    return fmt::format("device {} ({})", device, session_.name_of(rank_of(device)));
  }
  void fail(const std::string& why) override {
    session_.passed_on = true;
    if (peers_.tell(why)) local_.fail(why);
  }
  [[nodiscard]] std::optional<std::string> failure() const override {
    auto why = local_.failure();
    if (why) session_.passed_on = true;
    return why;
  }

 private:
  // What the local members of one group share while a collective runs.
  struct Shared {
    std::vector<std::span<const Move>> posts;  // by member index; remote ones stay empty
    std::vector<std::vector<char>> received;
    // By (local member, remote member): what the remote one sent, as packed elements; the pieces of
    // a phase's moves one after the other.
    std::vector<std::vector<const char*>> at;
    std::atomic<int> inside{0};  // local members that may read others' buffers
  };
  // Counts a member in while it may read others' buffers. When the world has failed, leaving waits
  // for all: a member that has left may free its own.
  class Inside {
   public:
    Inside(Shared& s, const World& world) : s_(s), world_(world) { ++s_.inside; }
    ~Inside() {
      --s_.inside;
      while (world_.failure() && s_.inside > 0) pause(50);
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    Shared& s_;
    const World& world_;
  };
  [[nodiscard]] int rank_of(int device) const { return device / per_rank_; }
  Shared& shared(const std::vector<int>& members) {
    const std::lock_guard lock(map_);
    auto& s = shared_[members];
    if (s == nullptr) {
      s = std::make_unique<Shared>();
      s->posts.resize(members.size());
      s->at.assign(members.size(), std::vector<const char*>(members.size(), nullptr));
    }
    return *s;
  }
  bool exchange(std::span<const Move> moves, uint64_t sequence, int phase, int leader, Shared& s);
  bool send_all(const CollectiveCall& call, const Header& header, MpiOutbox& outbox);
  bool receive(const CollectiveCall& call, const Header& mine, int from_rank,
               std::vector<char>& data);
  // Whether the world has failed, or does now since `rank` does not come. Of a poll's turn.
  bool waits_in_vain(const CollectiveCall& call, const Header& mine, int rank, double since,
                     int turn);

  MpiSession& session_;
  int per_rank_;
  ThreadWorld local_;  // barriers of local members, groups of one process
  std::mutex map_;
  std::map<std::vector<int>, std::unique_ptr<Shared>> shared_;
  std::atomic<int> inside_{0};  // devices that run
  MpiPeers peers_;
};

bool MpiWorld::waits_in_vain(const CollectiveCall& call, const Header& mine, int rank, double since,
                             int turn) {
  if (local_.failure()) return true;
  if (turn % 64 != 63) return false;
  const auto lost = peers_.lost(rank, since);
  if (!lost) return false;
  fail(fmt::format("{} waited {:g} s in {}, number {} of its group{}: {}", name_of(mine.device),
                   lost->seconds, call.str(), mine.sequence,
                   call.label.empty() ? "" : fmt::format(" ({})", call.label), lost->why));
  return true;
}

// A message whose rank is gone before it is all here stays MPI's.
bool MpiWorld::receive(const CollectiveCall& call, const Header& mine, int from_rank,
                       std::vector<char>& data) {
  const int tag = tag_of(call.members);
  const double since = peers_.clock();
  MPI_Request request = MPI_REQUEST_NULL;
  for (int turn = 0;; ++turn) {
    int done = 0;
    {
      const std::lock_guard lock(session_.mpi);
      const bool usable = session_.usable();  // else the run ends soon: waits_in_vain()
      if (usable && request == MPI_REQUEST_NULL) {
        int there = 0, count = 0;
        MPI_Message message;
        MPI_Status status;
        MPI_Improbe(from_rank, tag, MPI_COMM_WORLD, &there, &message, &status);
        if (there != 0) {
          MPI_Get_count(&status, MPI_BYTE, &count);
          data.resize(static_cast<size_t>(count));
          MPI_Imrecv(data.data(), count, MPI_BYTE, &message, &request);
        }
      }
      if (usable && request != MPI_REQUEST_NULL) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
    if (done != 0) break;
    if (waits_in_vain(call, mine, from_rank, since, turn)) {
      const std::lock_guard lock(session_.mpi);
      if (request != MPI_REQUEST_NULL) session_.abandoned.push_back(std::move(data));
      return false;
    }
    pause(turn);
  }
  Header theirs;
  std::memcpy(&theirs, data.data(), sizeof theirs);
  if (theirs.call != mine.call || theirs.sequence != mine.sequence || theirs.phase != mine.phase) {
    fail(fmt::format("devices {} and {} disagree: {} is at {}, number {}; {} at {}, number {}",
                     mine.device, theirs.device, mine.device, mine.text, mine.sequence,
                     theirs.device, theirs.text, theirs.sequence));
    return false;
  }
  return true;
}

// Until every rank has taken its message.
bool MpiWorld::send_all(const CollectiveCall& call, const Header& header, MpiOutbox& outbox) {
  const double since = peers_.clock();
  for (int turn = 0;; ++turn) {
    const int rank = outbox.waits_for();
    if (rank < 0) return true;
    if (waits_in_vain(call, header, rank, since, turn)) return false;
    pause(turn);
  }
}

// Sends what remote members take from local ones and receives the reverse, for one phase.
bool MpiWorld::exchange(std::span<const Move> moves, uint64_t sequence, int phase, int leader,
                        Shared& s) {
  const CollectiveCall& call = *moves.front().call;
  const int n = call.size();
  Header header;
  header.sequence = sequence;
  header.phase = phase;
  header.device = call.members[static_cast<size_t>(leader)];
  header.call = moves.size();
  for (const Move& move : moves) header.call = mix(header.call, digest(*move.call));
  std::snprintf(header.text, kWords, "%s", call.str().c_str());
  std::map<int, std::vector<int>> by_rank;  // remote members
  std::vector<int> mine;
  for (int i = 0; i < n; ++i) {
    const int rank = rank_of(call.members[static_cast<size_t>(i)]);
    if (rank == session_.rank) {
      mine.push_back(i);
    } else {
      by_rank[rank].push_back(i);
    }
  }
  peers_.doing(std::string("at ") + header.text);
  MpiOutbox outbox(session_);
  for (const auto& entry : by_rank) {
    std::vector<char> data(sizeof header);
    std::memcpy(data.data(), &header, sizeof header);
    for (int from : mine) {
      for (int to : entry.second) {
        for (const Move& move : s.posts[static_cast<size_t>(from)]) {
          const Piece p = piece(*move.call, phase, from, to);
          const size_t at = data.size();
          data.resize(at + piece_bytes(*move.call, p));
          pack(*move.call, p, p.from_out ? move.out : move.in, data.data() + at);
        }
      }
    }
    if (data.size() > static_cast<size_t>(INT32_MAX)) {
      fail(fmt::format("{} sends more than 2 GiB to one rank at once", call.str()));
      return false;
    }
    outbox.send(std::move(data), entry.first, tag_of(call.members));
  }
  s.received.resize(by_rank.size());
  size_t next = 0;
  for (const auto& entry : by_rank) {
    std::vector<char>& data = s.received[next++];
    if (!receive(call, header, entry.first, data)) return false;
    size_t at = sizeof header;
    for (int from : entry.second) {
      for (int to : mine) {
        s.at[static_cast<size_t>(to)][static_cast<size_t>(from)] = data.data() + at;
        for (const Move& move : moves)
          at += piece_bytes(*move.call, piece(*move.call, phase, from, to));
      }
    }
    if (at != data.size()) {
      fail(fmt::format("rank {} sent {} bytes for {}, {} were due", entry.first, data.size(),
                       call.str(), at));
      return false;
    }
  }
  if (!send_all(call, header, outbox)) return false;
  peers_.doing("between collectives");
  return true;
}

bool MpiWorld::run(int device, std::span<const Move> moves, uint64_t sequence) {
  const CollectiveCall& call = *moves.front().call;
  CollectiveCall here;  // a meeting of the local members
  for (int d : call.members) {
    if (rank_of(d) == session_.rank) here.members.push_back(d);
  }
  if (here.members.size() == call.members.size()) return local_.run(device, moves, sequence);
  if (local_.failure()) return false;
  here.axis = call.axis;
  here.label = call.label;
  const int n = call.size(), me = call.index_of(device);
  const bool leads = here.members.front() == device;
  Shared& s = shared(call.members);
  const Inside inside(s, local_);
  s.posts[static_cast<size_t>(me)] = moves;
  const auto meet = [&] { return local_.run(device, here, sequence, nullptr, nullptr); };
  std::vector<Source> sources(static_cast<size_t>(n));
  for (int phase = 0; phase < phases(call.kind); ++phase) {
    if (!meet()) return false;
    const size_t leader = static_cast<size_t>(call.index_of(here.members.front()));
    if (first_difference(moves, sequence, s.posts[leader], sequence)) {
      fail(fmt::format("devices {} and {} disagree: {} is at {}, number {}; {} at {}", device,
                       here.members.front(), device, call.str(), sequence, here.members.front(),
                       s.posts[leader].front().call->str()));
      return false;
    }
    if (leads && !exchange(moves, sequence, phase, me, s)) return false;
    if (!meet()) return false;
    std::vector<const char*> received = s.at[static_cast<size_t>(me)];
    for (size_t i = 0; i < moves.size(); ++i) {
      const CollectiveCall& one = *moves[i].call;
      for (int from = 0; from < n; ++from) {
        const auto other = static_cast<size_t>(from);
        const Piece p = piece(one, phase, from, me);
        if (rank_of(call.members[other]) == session_.rank) {
          const Move& theirs = s.posts[other][i];
          sources[other] = {p.from_out ? theirs.out : theirs.in, false};
        } else {
          sources[other] = {received[other], true};
          received[other] += piece_bytes(one, p);
        }
        if (p.action == Piece::Action::kCopy) take_copy(one, p, sources[other], moves[i].out);
      }
      const Piece p = piece(one, phase, 0, me);
      if (p.action == Piece::Action::kReduce) take_reduced(one, p, sources, moves[i].out);
    }
  }
  return meet();
}

}  // namespace

bool mpi_available() {
  return true;
}

int mpi_rank() {
  return started_mpi_session() == nullptr ? 0 : started_mpi_session()->rank;
}
int mpi_ranks() {
  return started_mpi_session() == nullptr ? 1 : started_mpi_session()->ranks;
}
int mpi_sharing_ranks() {
  return started_mpi_session() == nullptr ? 1 : started_mpi_session()->sharing;
}
bool mpi_was_told() {
  if (started_mpi_session() == nullptr) return false;
  const std::lock_guard lock(started_mpi_session()->mpi);
  return started_mpi_session()->was_told();
}
HostFigures least_host() {
  return started_mpi_session() == nullptr ? own_host() : started_mpi_session()->least;
}

Status mpi_start(double timeout_s) {
  if (mpi_session(kCommPatience * timeout_s).serialized) return Ok{};
  return make_error(DiagId::E0504, "this MPI takes calls from its main thread only", kExitUsage);
}

Result<std::unique_ptr<World>> make_mpi_world(int devices_per_rank, double timeout_s) {
  CAD_TRY_VOID(mpi_start(timeout_s));
  MpiSession& session = *started_mpi_session();
  try {
    return std::unique_ptr<World>(std::make_unique<MpiWorld>(session, devices_per_rank, timeout_s));
  } catch (const std::exception& e) {  // the others must not wait for what will not come
    const std::lock_guard lock(session.mpi);
    session.passed_on = true;
    session.tell(fmt::format("{}: {}", session.name_of(session.rank), unexpected_text(e)));
    throw;
  }
}

void mpi_abort(int status) {
  std::fflush(nullptr);
  if (started_mpi_session() != nullptr) {
    // MPI asks the launcher to end the others; it may be out of reach.
    try {
      std::thread([status] {
        std::this_thread::sleep_for(std::chrono::seconds(3));
        std::_Exit(status);
      }).detach();
    } catch (const std::system_error&) {
      std::_Exit(status);  // no room for another thread; the launcher ends the others
    }
    std::unique_lock lock(started_mpi_session()->mpi, std::defer_lock);
    for (int turn = 0; turn < 1000 && !lock.try_lock(); ++turn)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    MPI_Abort(MPI_COMM_WORLD, status);
  }
  std::_Exit(status);
}

#endif

}  // namespace cad::backend
