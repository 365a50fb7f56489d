// cli/device_world.cc -- see cli/device_world.h.
#include "cli/device_world.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <fmt/format.h>

#include "backend/comm/mpi_world.h"
#include "backend/comm/thread_world.h"
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
  CAD_TRY(one_each, backend::make_mpi_world(1, timeout()));  // starts MPI: the ranks are known
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
  CAD_TRY(world, backend::make_mpi_world(result.devices / ranks, timeout()));
  result.sharing = world->local_devices() * backend::mpi_sharing_ranks();
  result.speaks = world->first_device() == 0;
  result.world = std::move(world);
  return result;
}

int end_failed(const DeviceWorld& world, int status) {
  if (world.world == nullptr || world.world->local_devices() == world.devices) return status;
  // The others hear of it in their next collective and say what they know, then all end.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  backend::mpi_abort(status);
}

}  // namespace cad::cli
