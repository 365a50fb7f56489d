// backend/comm/world.h -- the devices that run one program together, and one device's end of it. A
// device starts collectives in the program's order and waits for them when it needs the results;
// they run on a thread of its own meanwhile. A world fails once and for all: whoever waits, now or
// later, gets the first failure (a mismatch, a time-out, a device that gave up), so that no run
// hangs. Implementations: thread_world.h (one process), mpi_world.h (several), log_world.h (tests).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/comm/collective.h"
#include "base/diagnostic.h"

namespace cad::backend {

// Seconds that a device waits for one that shows no sign of life before it gives up; for one that
// does (it still compiles, or writes a large file) it waits this many times as long.
constexpr double kCommTimeout = 30;
constexpr double kCommPatience = 10;

// Seconds that somebody has waited, as far as this process was running: one that was stopped and
// goes on (SIGSTOP, a machine that slept) has not missed anything.
class Waited {
 public:
  // Adds the time since the last call; a longer pause than a slow machine's counts as that.
  double seconds();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
  double sum_ = 0;
};

// A collective with its buffers.
struct Move {
  const CollectiveCall* call = nullptr;
  const void* in = nullptr;
  void* out = nullptr;
};

// Where two members' moves do not fit together; nothing: they do.
std::optional<size_t> first_difference(std::span<const Move> mine, uint64_t sequence,
                                       std::span<const Move> theirs, uint64_t their_sequence);

class World {
 public:
  virtual ~World() = default;
  [[nodiscard]] virtual int devices() const = 0;
  // Devices of this process: [first, first + count).
  [[nodiscard]] virtual int first_device() const = 0;
  [[nodiscard]] virtual int local_devices() const = 0;
  // Runs collectives of one kind and group together for `device` and returns when every `out` is
  // complete and every `in` free: the members meet as often as for one. False: the world has
  // failed. `sequence` counts what the group has run, from 0.
  virtual bool run(int device, std::span<const Move> moves, uint64_t sequence) = 0;
  bool run(int device, const CollectiveCall& call, uint64_t sequence, const void* in, void* out) {
    const Move move{&call, in, out};
    return run(device, std::span<const Move>(&move, 1), sequence);
  }
  // A device's thread begins and ends: nobody waits long for one that is not there.
  virtual void enter(int /*device*/) {}
  virtual void leave(int /*device*/) {}
  // "device 3", with several processes "device 3 (rank 1)": for messages.
  [[nodiscard]] virtual std::string name_of(int device) const;
  // The first call decides; wakes everybody, in every process.
  virtual void fail(const std::string& why) = 0;
  [[nodiscard]] virtual std::optional<std::string> failure() const = 0;
};

// What ends a device's work when the world has failed: thrown by who cannot go on without the
// others, caught where the device's thread began (backend/devices.h).
class WorldFailed : public std::runtime_error {
 public:
  explicit WorldFailed(const World& world)
      : std::runtime_error(world.failure().value_or("the devices' run has ended")) {}
};

// One device's queue of collectives and the thread that runs them, in order.
class Communicator {
 public:
  Communicator(World& world, int device);
  ~Communicator();  // finishes what was started, unless the world has failed
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  using Ticket = uint64_t;
  struct Stretch {
    int64_t start_ns = 0, end_ns = 0;  // steady clock
  };
  // `call`, `in`, `out` and `when` must stay until wait() returns. `when`: gets the time in which
  // the collective was carried out.
  Ticket start(const CollectiveCall& call, const void* in, void* out, Stretch* when = nullptr) {
    return start({Move{&call, in, out}}, when);
  }
  // Several of one kind and group, as one.
  Ticket start(std::vector<Move> moves, Stretch* when = nullptr);
  // False: the world has failed (World::failure says why).
  [[nodiscard]] bool wait(Ticket ticket);
  // start() and wait(), on the caller's thread when nothing else is at work.
  [[nodiscard]] bool run(const CollectiveCall& call, const void* in, void* out) {
    return run({Move{&call, in, out}});
  }
  [[nodiscard]] bool run(std::vector<Move> moves, Stretch* when = nullptr);
  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] World& world() { return world_; }
  // Seconds in which the queue's thread was in collectives, and in which wait() blocked.
  struct Times {
    double busy = 0, blocked = 0;
  };
  [[nodiscard]] Times times() const;

 private:
  struct Job {
    std::vector<Move> moves;
    Stretch* when;
  };
  void work();
  // Carries one out; the lock is held outside of it.
  void carry_out(const Job& job, std::unique_lock<std::mutex>& lock);

  World& world_;
  int device_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::map<std::vector<int>, uint64_t> sequences_;  // by group
  uint64_t started_ = 0, finished_ = 0;
  bool stop_ = false, failed_ = false;
  Times times_;
  std::thread thread_;
};

// E1001, for a device that ended because of another one.
Diagnostic ended_by_another(const std::string& why);

}  // namespace cad::backend
