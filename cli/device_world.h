// cli/device_world.h -- the world of a run's devices: threads of this process, or of the ranks that
// mpirun started. backend/comm has the worlds themselves.
#pragma once

#include <functional>
#include <memory>

#include "backend/comm/world.h"
#include "backend/trainer.h"
#include "base/result.h"
#include "cli/command.h"

namespace cad::cli {

struct DeviceWorld {
  std::unique_ptr<backend::World> world;  // nullptr: one device
  int devices = 1;
  int sharing = 1;     // devices that use this host's memory
  bool speaks = true;  // this process has the first device: it prints results
};

// Of --devices, else as many as --mesh has, else one, or one a rank. E0503 when the ranks cannot
// share them out, E0803 when the mesh is none.
Result<DeviceWorld> make_world(const CommonOptions& common);

// Sets what a device may use of this machine: threads, memory (`--budget`). E0503.
Status share_machine(const CommonOptions& common, const DeviceWorld& world,
                     backend::TrainerOptions& options);

// What `work` returns. When it throws (a bug of ours, no memory), the other ranks hear of it; it is
// reported, and returned is its status.
int telling_others(const DeviceWorld& world, const std::function<int()>& work);

// The end of a run that failed: says it to the other ranks and ends them too. Returns the status
// when this process is alone.
int end_failed(const DeviceWorld& world, int status);

}  // namespace cad::cli
