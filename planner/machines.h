// planner/machines.h -- machines by name: devices and clusters of the program, of the standard
// library (stdlib/devices.cad) and of the host as `colauto probe` described it, as Cluster values.
// The front end has checked the sections (E0303..E0306, E0801). Not here: meshes (planner/mesh.h),
// measuring (cli/probe).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "frontend/machine.h"
#include "frontend/module.h"
#include "planner/cluster.h"

namespace cad::planner {

constexpr int64_t kMostDevices = int64_t{1} << 17;  // that are planned for

struct Machines {
  std::vector<Device> devices;
  std::vector<Cluster> clusters;  // nodes as described; 1 with an `inter` link: as many as needed
  [[nodiscard]] const Device* find_device(const std::string& name) const;
  [[nodiscard]] const Cluster* find_cluster(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> names() const;  // of clusters, then of devices
};

// The sections of a program that was checked without errors; devices of its clusters are its own or
// the library's.
Result<Machines> program_machines(const frontend::Module& module);
// stdlib/devices.cad, read anew at each call.
const Machines& library_machines();
// Machines that a text describes: a file that `colauto probe` wrote. `path` is for messages.
Result<Machines> read_machines(const std::string& path, const std::string& text);

// The cluster called `name` with room for `devices`: of `first` (a program's), else of the library;
// a device's name means one such device. Clusters of one node with an `inter` link are given as
// many nodes as needed. E0802 when it is too small or that
// are more than kMostDevices, E0804 when there is none.
Result<Cluster> find_cluster(const Machines& first, const std::string& name, int64_t devices);

// What this process knows of the host: cores it may use and bytes of memory.
struct Host {
  int cores = 1;
  double memory = 0;  // bytes
  int lanes = 8;      // f32 of a vector register
};

// N devices of this host, each with an Nth of its cores, memory and rates. Their link is that of
// `cluster host_N` (as one of them sees it), of the nearest N that was probed; without any, an Nth
// of what `cluster host` says they get together. From the text of a probe's file when there is one,
// else a guess by cores and vector registers: the same on every run and rank, measured by nobody.
Result<Cluster> host_cluster(const Host& host, const std::optional<std::string>& probed,
                             int64_t devices);
// $XDG_CONFIG_HOME/colauto/host.cad, or ~/.config/colauto/host.cad; empty when there is no home.
std::string host_file();
// --cluster NAME ("" or "host": this machine, probed or guessed). Reads host_file().
Result<Cluster> choose_cluster(const Machines& first, const std::string& name, int64_t devices,
                               const Host& host);

}  // namespace cad::planner
