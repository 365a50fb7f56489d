// backend/devices.cc -- see backend/devices.h.
#include "backend/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "backend/comm/mpi_world.h"
#include "base/unexpected.h"

namespace cad::backend {

int threads_of_device(int local_devices, int asked) {
  if (asked > 0) return asked;
  return std::max(1, least_host().rank_cores / std::max(1, local_devices));
}

namespace {

class Run {
 public:
  Run(World& world, const std::function<Status(Device&)>& f) : world_(world), f_(f) {}

  void device(int number, int threads, bool alone) {
    std::optional<Diagnostic> error;
    std::exception_ptr unexpected;
    std::string why;
    {
      std::optional<Communicator> comm;
      std::optional<ThreadPool> pool;
      try {
        comm.emplace(world_, number);
        pool.emplace(threads, alone);
        Device device{number, *comm, *pool};
        const Status status = f_(device);
        if (!status.ok()) {
          error = status.error();
          why = error->message;
        }
      } catch (const WorldFailed&) {
        // whoever failed has said why
      } catch (const std::exception& e) {
        why = unexpected_text(e);
        unexpected = std::current_exception();
      }
      // before the communicator is left: it would wait for the others
      if (!why.empty()) world_.fail(fmt::format("{}: {}", world_.name_of(number), why));
    }
    const std::lock_guard lock(mutex_);
    if (unexpected && !unexpected_) unexpected_ = unexpected;
    if (!error || outcome_.error) return;
    outcome_.error = std::move(error);
    outcome_.device = number;
  }

  // A device's thread could not be started: those that run hear of it.
  void not_started(int number, const std::exception& e) {
    world_.fail(fmt::format("{}: {}", world_.name_of(number), unexpected_text(e)));
    const std::lock_guard lock(mutex_);
    if (!unexpected_) unexpected_ = std::current_exception();
  }

  // Throws what a device threw.
  DevicesOutcome outcome() {
    if (unexpected_) std::rethrow_exception(unexpected_);
    outcome_.failure = world_.failure();
    return std::move(outcome_);
  }

 private:
  World& world_;
  const std::function<Status(Device&)>& f_;
  std::mutex mutex_;
  std::exception_ptr unexpected_;
  DevicesOutcome outcome_;
};

}  // namespace

DevicesOutcome run_on_devices(World& world, int threads_per_device,
                              const std::function<Status(Device&)>& f) {
  const int count = world.local_devices();
  const int sharing = mpi_sharing_ranks();
  const int threads = threads_of_device(count, threads_per_device);
  // Threads that outnumber the cores must sleep when they wait: others need the core.
  const bool alone = threads * count * sharing <= ThreadPool::available_cores();
  Run run(world, f);
  std::vector<std::thread> others;
  others.reserve(static_cast<size_t>(count));
  int next = 1;
  try {
    for (; next < count; ++next) {
      others.emplace_back([&run, &world, d = next, threads, alone] {
        run.device(world.first_device() + d, threads, alone);
      });
    }
    run.device(world.first_device(), threads, alone);
  } catch (const std::exception& e) {  // device() throws nothing
    run.not_started(world.first_device() + next, e);
  }
  for (std::thread& t : others) t.join();
  return run.outcome();
}

}  // namespace cad::backend
