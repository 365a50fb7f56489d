// backend/devices.h -- the devices of this process at work: one thread for each, with its end of
// the world (backend/comm/world.h) and its share of the cores. What a device does is the caller's
// function; what happens when one cannot go on is settled here. Not here: one device's steps
// (cpu/executor.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/comm/world.h"
#include "backend/cpu/thread_pool.h"
#include "base/result.h"

namespace cad::backend {

struct Device {
  int number;  // in the world
  Communicator& comm;
  ThreadPool& pool;
  [[nodiscard]] World& world() const { return comm.world(); }
};

struct DevicesOutcome {
  // The first error that a device of this process came to by itself.
  std::optional<Diagnostic> error;
  int device = -1;  // which one
  // What the world failed of, here or in another process; nothing: it has not.
  std::optional<std::string> failure;
  [[nodiscard]] bool ok() const { return !error && !failure; }
};

// Threads of a device's pool: `asked`, or with 0 its share of the cores that this process may use
// (affinity, cgroup), at least 1. With MPI, of those that the rank with the fewest may use:
// programs depend on it.
int threads_of_device(int local_devices, int asked);

// Runs f for every device of this process and returns when all have ended. The first device that
// returns an error or throws ends the world, so that no other one waits for it; WorldFailed is how
// the others end then. What else a device throws (a bug of ours, no memory) is thrown again here,
// once all have ended.
DevicesOutcome run_on_devices(World& world, int threads_per_device,
                              const std::function<Status(Device&)>& f);

// Of what the devices of this process came to: the error that one of them came to by itself, rather
// than that another one had one; else the first's value.
template <class T>
Result<T> first_of(std::vector<std::optional<Result<T>>>& results, const DevicesOutcome& all) {
  std::optional<Diagnostic> second_hand;
  for (std::optional<Result<T>>& result : results) {
    if (!result || result->ok()) continue;
    if (result->error().id != DiagId::E1001) return std::move(result->error());
    second_hand = result->error();
  }
  if (second_hand) return std::move(*second_hand);
  if (all.error) return *all.error;
  if (all.failure) return ended_by_another(*all.failure);
  return std::move(*results.front());
}

}  // namespace cad::backend
