// cli/device_world.cc -- see cli/device_world.h.
#include "cli/device_world.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <fmt/format.h>

#include "backend/comm/mpi_world.h"
#include "backend/comm/thread_world.h"
#include "backend/devices.h"
#include "base/unexpected.h"
#include "cli/training_common.h"
#include "planner/machines.h"
#include "planner/mesh.h"

namespace cad::cli {
namespace {

constexpr int64_t kMostLocal = 256;  // threads of their own, each with its share of the arena

// Seconds; tests of what happens when a device is missing cannot wait half a minute each.
double timeout() {
  const char* text = std::getenv("COLAUTO_COMM_TIMEOUT");
  const double seconds = text == nullptr ? 0 : std::strtod(text, nullptr);
  return seconds > 0 ? seconds : backend::kCommTimeout;
}

// The others, who have been told, hear of it and say what they know within so many seconds; then
// all end. They leave that to who has failed, so that all end with its status.
[[noreturn]] void end_all(int status, double to_say = 1) {
  constexpr double kToEnd = 3;
  const double wait = backend::mpi_was_told() ? kToEnd : to_say;
  std::this_thread::sleep_for(std::chrono::duration<double>(wait));
  backend::mpi_abort(status);
}

Result<std::unique_ptr<backend::World>> mpi_world(int devices_per_rank) {
  try {
    return backend::make_mpi_world(devices_per_rank, timeout());
  } catch (const std::exception& bug) {
    end_all(report_unexpected(bug), 2);  // the others have yet to plan
  }
}

}  // namespace

Result<DeviceWorld> make_world(const CommonOptions& common) {
  DeviceWorld result;
  std::optional<int64_t> asked = common.devices;
  if (!asked && !common.mesh.empty()) {
    CAD_TRY(axes, planner::parse_axes(common.mesh));
    asked = 1;
    for (const planner::Axis& axis : axes)
      asked = std::min<int64_t>(*asked * axis.size, planner::kMostDevices);
  }
  const bool mpi = backend::mpi_launched() && backend::mpi_available();
  if (!mpi) {
    if (asked.value_or(1) > kMostLocal) {
      Diagnostic error =
          make_error(DiagId::E0503,
                     fmt::format("`--devices {}`: one process has at most {}", *asked, kMostLocal),
                     kExitUsage);
      error.help("start several with `mpirun`; `colauto plan` takes any number");
      return error;
    }
    result.devices = static_cast<int>(asked.value_or(1));
    result.sharing = result.devices;
    if (result.devices > 1)
      result.world = std::make_unique<backend::ThreadWorld>(result.devices, timeout());
    return result;
  }
  CAD_TRY_VOID(backend::mpi_start(timeout()));
  const int ranks = backend::mpi_ranks();
  result.devices = static_cast<int>(asked.value_or(ranks));
  if (result.devices % ranks != 0) {
    Diagnostic error = make_error(
        DiagId::E0503,
        fmt::format("`--devices {}`: {} ranks cannot have equally many", result.devices, ranks),
        kExitUsage);
    error.help(fmt::format("ask for {} or a multiple of it, or start other ranks", ranks));
    return error;
  }
  if (result.devices == 1) return result;
  CAD_TRY(world, mpi_world(result.devices / ranks));
  result.sharing = world->local_devices() * backend::mpi_sharing_ranks();
  result.speaks = world->first_device() == 0;
  result.world = std::move(world);
  return result;
}

Status share_machine(const CommonOptions& common, const DeviceWorld& world,
                     backend::TrainerOptions& options) {
  CAD_TRY(budget, memory_budget(common));
  const bool part = !common.budget.empty() && common.budget.back() == '%';
  options.budget = part ? budget / world.sharing : budget;
  options.sharing = world.sharing;
  options.threads = static_cast<int>(common.threads_per_device.value_or(0));
  if (world.world != nullptr) {
    options.threads = backend::threads_of_device(world.world->local_devices(), options.threads);
  }
  return Ok{};
}

int telling_others(const DeviceWorld& world, const std::function<int()>& work) {
  if (world.world == nullptr) return work();
  try {
    return work();
  } catch (const std::exception& bug) {
    const backend::World& w = *world.world;
    world.world->fail(fmt::format("{}: {}", w.name_of(w.first_device()), unexpected_text(bug)));
    return report_unexpected(bug);
  }
}

int end_failed(const DeviceWorld& world, int status) {
  if (world.world == nullptr || world.world->local_devices() == world.devices) return status;
  // they may have heard before
  world.world->fail(fmt::format("{} ended with status {}: its own message says why",
                                world.world->name_of(world.world->first_device()), status));
  end_all(status);
}

}  // namespace cad::cli
