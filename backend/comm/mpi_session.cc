// backend/comm/mpi_session.cc -- see mpi_session.h.
#include "backend/comm/mpi_session.h"

#ifdef COLAUTO_MPI

#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "backend/comm/world.h"
#include "backend/interrupt.h"
#include "base/exit_code.h"
#include "base/render.h"

namespace cad::backend {
namespace {

constexpr int kFailureTag = 1;
constexpr size_t kMostText = 1500;  // of a failure: short enough to go at once

// MPI's start and its end wait for all ranks, without a limit: this ends the process when they take
// longer than one.
class Watchdog {
 public:
  Watchdog(double limit_s, const char* what) {
    try {
      thread_ = std::thread([this, limit_s, what] { watch(limit_s, what); });
    } catch (const std::system_error&) {
      // no room for another thread: without a limit then
    }
  }
  ~Watchdog() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch(double limit_s, const char* what) {
    Waited waited;
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return done_; })) {
      if (waited.seconds() <= limit_s) continue;
      const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
      fmt::print(stderr, "error[E1001]: rank {} waited {:g} s for the other ranks to {}\n",
                 rank == nullptr ? "?" : rank, limit_s, what);
      std::_Exit(kExitRunFailed);
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

MpiSession*& session_slot() {
  static MpiSession* session = nullptr;  // MPI itself is one per process
  return session;
}

uint64_t mix(uint64_t h, uint64_t x) {
  return (h ^ x) * 0x9E3779B97F4A7C15ULL ^ (h >> 29);
}

// Processes of equal numbers here can name each other by their pids: one start of one kernel, one
// host name, one set of pids. 0: not known.
uint64_t pids_known_as(const char* host) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  struct stat pids {};
  if (!std::getline(file, boot) || ::stat("/proc/self/ns/pid", &pids) != 0) return 0;
  const std::hash<std::string> hash;
  return mix(mix(mix(11, hash(boot)), hash(host)), pids.st_ino);
}

// -1: this kernel does not do it.
int watch(int64_t pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
#else
  static_cast<void>(pid);
  return -1;
#endif
}

}  // namespace

MpiSession::MpiSession(double limit) : limit_s(limit) {
  const Watchdog watchdog(limit_s, "start");
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  serialized = provided >= MPI_THREAD_SERIALIZED;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  exchange_hosts();
}

// Names of all ranks' hosts, who uses the same cores (an affinity mask of one host), and the least
// that a rank has.
void MpiSession::exchange_hosts() {
  struct Place {
    char host[MPI_MAX_PROCESSOR_NAME + 1] = {};
    uint64_t cores = 7, pids = 0;
    int64_t pid = ::getpid();
    HostFigures has;
    RankLines::Number number;
  } mine;
  mine.number = lines.listen();
  mine.has = own_host();
  int length = 0;
  MPI_Get_processor_name(mine.host, &length);
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) mine.cores = mix(mine.cores, static_cast<uint64_t>(core) + 1);
  }
  mine.pids = pids_known_as(mine.host);
  std::vector<Place> all(static_cast<size_t>(ranks));
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
  std::map<std::pair<std::string, uint64_t>, int> users;  // ranks, by the cores that they use
  for (const Place& place : all) ++users[{place.host, place.cores}];
  sharing = users[{mine.host, mine.cores}];
  std::vector<RankLines::Number> numbers;
  std::vector<char> far, unwatched;  // unwatched: for want of descriptors
  least = mine.has;
  for (const Place& place : all) {
    hosts.emplace_back(place.host);
    least.cores = std::min(least.cores, place.has.cores);
    least.rank_cores =
        std::min(least.rank_cores, place.has.cores / users[{place.host, place.cores}]);
    least.memory = std::min(least.memory, place.has.memory);
    least.lanes = std::min(least.lanes, place.has.lanes);
    const bool near = mine.pids != 0 && place.pids == mine.pids && place.pid != mine.pid;
    watched.push_back(near ? watch(place.pid) : -1);
    const bool none = near && watched.back() < 0 && (errno == EMFILE || errno == ENFILE);
    unwatched.push_back(none ? 1 : 0);
    numbers.push_back(place.number);
    far.push_back(watched.back() < 0 && static_cast<int>(far.size()) != rank ? 1 : 0);
  }
  lines.connect(rank, numbers, far);
  name_what_lacks(unwatched);
}

void MpiSession::name_what_lacks(const std::vector<char>& unwatched) {
  int missing = 0;
  for (int r = 0; r < ranks; ++r) {
    const bool none = unwatched[static_cast<size_t>(r)] != 0 && !lines.has(r);
    missing += none || lines.lacks(r) ? 1 : 0;
  }
  if (missing == 0) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  fmt::print(stderr,
             "note: rank {} may open no more files (`ulimit -n` is {}), so it does not watch {} of "
             "the other ranks: one that is killed is missed after the time-out only\n",
             rank, limit.rlim_cur, missing);
}

void MpiSession::tell(const std::string& why) {
  if (!reason_) reason_ = why;
  told_ = true;
  if (!usable()) return;  // the others see it as this process does
  texts.push_back(why.substr(0, kMostText));
  const std::string& text = texts.back();
  for (int r = 0; r < ranks; ++r) {
    if (r == rank) continue;
    MPI_Request request;
    MPI_Isend(text.data(), static_cast<int>(text.size()), MPI_CHAR, r, kFailureTag, MPI_COMM_WORLD,
              &request);
    MPI_Request_free(&request);
  }
}

std::optional<std::string> MpiSession::told() {
  int there = 0, count = 0;
  MPI_Status status;
  MPI_Iprobe(MPI_ANY_SOURCE, kFailureTag, MPI_COMM_WORLD, &there, &status);
  if (there == 0) return std::nullopt;
  MPI_Get_count(&status, MPI_CHAR, &count);
  std::string why(static_cast<size_t>(count), ' ');
  MPI_Recv(why.data(), count, MPI_CHAR, status.MPI_SOURCE, kFailureTag, MPI_COMM_WORLD,
           MPI_STATUS_IGNORE);
  if (!reason_) reason_ = why;
  return why;
}

// Others may still be at work: what they tell, and how they end, is heard until all have come.
void MpiSession::end() {
  // A launcher that ends all ranks since one has died gives them a second; one that has died may
  // have been past its part of the barrier.
  constexpr double kToReport = 0.5, kToCome = 0.05;
  const InterruptGuard signals;
  const Watchdog watchdog(limit_s, "end");
  // Who has failed ends all others, with its own status. Who ends because of another one stays
  // until all have seen which one that is.
  constexpr auto kToAbort = std::chrono::seconds(3);
  constexpr auto kToSee = std::chrono::milliseconds(400);
  const auto say = [&](const std::string& why) {
    std::fputs(render_human(ended_by_another(why), Sources()).c_str(), stderr);
    std::fflush(stderr);
    lines.say_goodbye();
  };
  MPI_Request all = MPI_REQUEST_NULL;
  Waited running;
  double missed = 0, signalled = 0;
  std::string gone;
  for (bool begun = false;;) {
    const double now = running.seconds() + 1e-9;
    bool known = false;
    {
      const std::lock_guard lock(mpi);
      if (usable() && !reason_) told();  // the first is enough: several may fail at once
      known = reason_.has_value();
      if (known && !passed_on) {
        say(*reason_);
        std::this_thread::sleep_for(told_ ? kToSee : kToAbort);
        std::_Exit(kExitRunFailed);
      }
      if (usable()) {
        if (!std::exchange(begun, true)) MPI_Ibarrier(MPI_COMM_WORLD, &all);
        int done = 0;
        MPI_Test(&all, &done, MPI_STATUS_IGNORE);
        if (done != 0) break;
      }
    }
    if (missed == 0) {
      for (int r = 0; r < ranks; ++r)
        if (r != rank && ended(r)) gone += (gone.empty() ? "" : ", ") + name_of(r);
      if (!gone.empty()) missed = now;
    } else if (now - missed > kToCome) {
      if (known) {  // that is why they have ended
        lines.say_goodbye();
        return;
      }
      say(gone + " ended without a word: killed, or crashed");
      std::this_thread::sleep_for(kToSee);
      std::_Exit(kExitRunFailed);
    }
    if (signalled == 0 && InterruptGuard::signal() != 0) signalled = now;
    if (signalled != 0 && now - signalled > kToReport) std::_Exit(128 + InterruptGuard::signal());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  lines.say_goodbye();
  MPI_Finalize();
}

bool MpiSession::ended(int r) const {
  pollfd one{watched[static_cast<size_t>(r)], POLLIN, 0};
  if (one.fd < 0) return lines.ended(r);
  return ::poll(&one, 1, 0) == 1 && (one.revents & POLLIN) != 0;
}

std::string MpiSession::name_of(int r) const {
  const bool one_host = std::all_of(hosts.begin(), hosts.end(),
                                    [&](const std::string& host) { return host == hosts[0]; });
  return one_host ? fmt::format("rank {}", r)
                  : fmt::format("rank {} on {}", r, hosts[static_cast<size_t>(r)]);
}

MpiSession* started_mpi_session() {
  return session_slot();
}

MpiSession& mpi_session(double limit_s) {
  MpiSession*& s = session_slot();
  if (s == nullptr) {
    s = new MpiSession(limit_s);  // freed never: MPI may be started once
    std::atexit([] {
      int finalized = 0;
      MPI_Finalized(&finalized);
      if (finalized == 0) session_slot()->end();
    });
  }
  return *s;
}

MpiOutbox::~MpiOutbox() {
  if (requests_.empty()) return;
  const std::lock_guard lock(session_.mpi);
  int done = 0;
  if (session_.usable())
    MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
  if (done != 0) return;
  for (std::vector<char>& data : data_) session_.abandoned.push_back(std::move(data));
}

void MpiOutbox::send(std::vector<char> data, int rank, int tag) {
  data_.push_back(std::move(data));
  ranks_.push_back(rank);
  requests_.emplace_back();
  const std::lock_guard lock(session_.mpi);
  requests_.back() = MPI_REQUEST_NULL;
  if (!session_.usable()) return;  // the run ends
  MPI_Isend(data_.back().data(), static_cast<int>(data_.back().size()), MPI_BYTE, rank, tag,
            MPI_COMM_WORLD, &requests_.back());
}

int MpiOutbox::waits_for() {
  const std::lock_guard lock(session_.mpi);
  if (!session_.usable()) return ranks_.empty() ? -1 : ranks_.front();
  for (size_t i = 0; i < requests_.size(); ++i) {
    int done = 0;
    MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
    if (done == 0) return ranks_[i];
  }
  return -1;
}

}  // namespace cad::backend

#endif
