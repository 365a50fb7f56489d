// backend/comm/mpi_world.cc -- see mpi_world.h. All MPI calls are under one mutex and none blocks,
// so MPI_THREAD_SERIALIZED is enough and a dead peer costs a time-out, not a hang.
#include "backend/comm/mpi_world.h"

#include <cstdlib>

#include "base/check.h"

#ifdef COLAUTO_MPI
#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

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
Result<std::unique_ptr<World>> make_mpi_world(int, double) {
  Diagnostic d = make_error(DiagId::E0504, "this build has no MPI", kExitUsage);
  d.help("install libopenmpi-dev and openmpi-bin and build again");
  return d;
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

using Clock = std::chrono::steady_clock;

constexpr int kFailureTag = 1;
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
  for (int t : c.to) h = mix(h, static_cast<uint64_t>(t));
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

// MPI_Init to MPI_Finalize.
struct Session {
  int rank = 0, ranks = 1, sharing = 1;
  bool serialized = false;
  Session() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    serialized = provided >= MPI_THREAD_SERIALIZED;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    count_sharing();
  }

  // Hosts and affinity masks of all ranks, as digests.
  void count_sharing() {
    char host[MPI_MAX_PROCESSOR_NAME + 1] = {};
    int length = 0;
    MPI_Get_processor_name(host, &length);
    uint64_t mine = 7;
    for (int i = 0; i < length; ++i) mine = mix(mine, static_cast<uint64_t>(host[i]));
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
      for (int core = 0; core < CPU_SETSIZE; ++core)
        if (CPU_ISSET(core, &set)) mine = mix(mine, static_cast<uint64_t>(core) + 1);
    }
    std::vector<uint64_t> all(static_cast<size_t>(ranks));
    MPI_Allgather(&mine, 8, MPI_BYTE, all.data(), 8, MPI_BYTE, MPI_COMM_WORLD);
    sharing = static_cast<int>(std::count(all.begin(), all.end(), mine));
  }
};

Session*& session_slot() {
  static Session* session = nullptr;  // MPI itself is one per process
  return session;
}

Session& session() {
  Session*& s = session_slot();
  if (s == nullptr) {
    s = new Session;  // freed never: MPI may be started once
    std::atexit([] {
      int finalized = 0;
      MPI_Finalized(&finalized);
      if (finalized == 0) MPI_Finalize();
    });
  }
  return *s;
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
  MpiWorld(int per_rank, double timeout_s)
      : session_(session()),
        per_rank_(per_rank),
        timeout_s_(timeout_s),
        local_(session_.ranks * per_rank, 1.5 * timeout_s) {}  // the leader's own time ends first

  [[nodiscard]] int devices() const override { return session_.ranks * per_rank_; }
  [[nodiscard]] int first_device() const override { return session_.rank * per_rank_; }
  [[nodiscard]] int local_devices() const override { return per_rank_; }

  using World::run;
  bool run(int device, std::span<const Move> moves, uint64_t sequence) override;

  void fail(const std::string& why) override {
    {
      const std::lock_guard lock(mpi_);
      if (told_) return;
      told_ = true;
      failure_text_ = why;
      for (int r = 0; r < session_.ranks; ++r) {
        if (r == session_.rank) continue;
        MPI_Request request;
        MPI_Isend(failure_text_.data(), static_cast<int>(failure_text_.size()), MPI_CHAR, r,
                  kFailureTag, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
      }
    }
    local_.fail(why);
  }
  [[nodiscard]] std::optional<std::string> failure() const override { return local_.failure(); }

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
  bool receive(const CollectiveCall& call, const Header& mine, int from_rank,
               std::vector<char>& data, Clock::time_point deadline);
  // Another rank's failure, if it has told.
  bool heard();

  Session& session_;
  int per_rank_;
  double timeout_s_;
  ThreadWorld local_;  // barriers of local members, groups of one process
  std::mutex mpi_, map_;
  std::map<std::vector<int>, std::unique_ptr<Shared>> shared_;
  bool told_ = false;
  std::string failure_text_;
};

bool MpiWorld::heard() {
  int there = 0;
  MPI_Status status;
  std::string why;
  {
    const std::lock_guard lock(mpi_);
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
  if (there != 0) local_.fail(why);
  return there != 0;
}

bool MpiWorld::receive(const CollectiveCall& call, const Header& mine, int from_rank,
                       std::vector<char>& data, Clock::time_point deadline) {
  const int tag = tag_of(call.members);
  for (int turn = 0;; ++turn) {
    int there = 0, count = 0;
    {
      const std::lock_guard lock(mpi_);
      MPI_Message message;
      MPI_Status status;
      MPI_Improbe(from_rank, tag, MPI_COMM_WORLD, &there, &message, &status);
      if (there != 0) {
        MPI_Get_count(&status, MPI_BYTE, &count);
        data.resize(static_cast<size_t>(count));
        MPI_Mrecv(data.data(), count, MPI_BYTE, &message, MPI_STATUS_IGNORE);
      }
    }
    if (there != 0) break;
    if (local_.failure() || heard()) return false;
    if (Clock::now() > deadline) {
      fail(
          fmt::format("device {} waited {:g} s in {}, number {} of its group{}: no sign of rank {}",
                      mine.device, timeout_s_, call.str(), mine.sequence,
                      call.label.empty() ? "" : fmt::format(" ({})", call.label), from_rank));
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
  std::vector<std::vector<char>> sent;
  std::vector<MPI_Request> requests;
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
    sent.push_back(std::move(data));
    requests.emplace_back();
    const std::lock_guard lock(mpi_);
    MPI_Isend(sent.back().data(), static_cast<int>(sent.back().size()), MPI_BYTE, entry.first,
              tag_of(call.members), MPI_COMM_WORLD, &requests.back());
  }
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(timeout_s_));
  s.received.resize(by_rank.size());
  size_t next = 0;
  for (const auto& entry : by_rank) {
    std::vector<char>& data = s.received[next++];
    if (!receive(call, header, entry.first, data, deadline)) return false;
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
  for (int turn = 0;; ++turn) {
    int done = 0;
    {
      const std::lock_guard lock(mpi_);
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    }
    if (done != 0) return true;
    if (local_.failure() || heard()) return false;
    if (Clock::now() > deadline) {
      fail(fmt::format("{}: another rank did not take its data within {:g} s", call.str(),
                       timeout_s_));
      return false;
    }
    pause(turn);
  }
}

bool MpiWorld::run(int device, std::span<const Move> moves, uint64_t sequence) {
  const CollectiveCall& call = *moves.front().call;
  CollectiveCall here;  // a meeting of the local members
  for (int d : call.members) {
    if (rank_of(d) == session_.rank) here.members.push_back(d);
  }
  if (here.members.size() == call.members.size()) return local_.run(device, moves, sequence);
  if (heard() || local_.failure()) return false;
  here.axis = call.axis;
  here.label = call.label;
  const int n = call.size(), me = call.index_of(device);
  const bool leads = here.members.front() == device;
  Shared& s = shared(call.members);
  const Inside inside(s, *this);
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
  return session_slot() == nullptr ? 0 : session_slot()->rank;
}
int mpi_ranks() {
  return session_slot() == nullptr ? 1 : session_slot()->ranks;
}
int mpi_sharing_ranks() {
  return session_slot() == nullptr ? 1 : session_slot()->sharing;
}

Result<std::unique_ptr<World>> make_mpi_world(int devices_per_rank, double timeout_s) {
  if (!session().serialized) {
    return make_error(DiagId::E0504, "this MPI takes calls from its main thread only", kExitUsage);
  }
  return std::unique_ptr<World>(std::make_unique<MpiWorld>(devices_per_rank, timeout_s));
}

void mpi_abort(int status) {
  if (session_slot() != nullptr) MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

#endif

}  // namespace cad::backend
