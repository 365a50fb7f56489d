// planner/machines.cc -- see machines.h: from sections to clusters, and finding one by name.
#include "planner/machines.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/embedded.h"
#include "base/render.h"
#include "base/suggest.h"
#include "frontend/parse.h"
#include "frontend/section_data.h"

namespace cad::planner {
namespace {

constexpr const char* kLibrary = "stdlib/devices.cad";
constexpr const char* kHost = "host";

// A core of today's servers and its share of the memory bandwidth: what is planned with before
// `colauto probe` has measured anything. Two multiply-adds a lane and cycle near 3 GHz, of which
// products keep about 90 %; AVX-512 units run one and a half times as fast as AVX2's, not twice.
constexpr double kLaneFlops = 5.5e9;      // operations a second, f32
constexpr double kCoreBandwidth = 12e9;   // bytes a second
constexpr double kCoreCache = 4 << 20;    // bytes
constexpr double kThreadLatency = 20e-6;  // seconds to meet another thread
constexpr double kLoopOverhead = 2e-6;    // seconds to start a kernel on all threads

struct NoFiles : frontend::FileReader {
  Result<std::string> read(const std::string& path) override {
    return make_error(DiagId::E0106, fmt::format("`{}` cannot be imported here", path),
                      kExitNoInput);
  }
};

// What a section leaves out follows from the rates as it does on the CPUs that were measured.
CpuRates cpu_rates(const Device& device, const std::map<std::string, double>& given) {
  const auto at = device.flops.find("f32");
  const double products = at == device.flops.end() ? 0 : at->second;
  const auto figure = [&](const char* name, double otherwise) {
    const auto found = given.find(name);
    return found == given.end() ? otherwise : found->second;
  };
  CpuRates cpu;
  cpu.pointwise = figure("pointwise", products / 2);
  cpu.attention = figure("attention", products / 2);
  cpu.attention_grad = figure("attention_grad", products / 2.5);
  cpu.random = figure("random", products / 40);
  cpu.packing = figure("packing", products / 16);
  cpu.cache = figure("cache", 0);
  cpu.cache_bandwidth = figure("cache_bandwidth", 4 * device.bandwidth);
  return cpu;
}

Device device_of(const frontend::DeviceSpec& spec) {
  Device device;
  device.name = spec.name;
  device.memory = spec.memory;
  device.bandwidth = spec.bandwidth;
  device.flops = spec.flops;
  if (!spec.cpu.empty()) {
    device.cpu = cpu_rates(device, spec.cpu);
    device.launch_overhead = kLoopOverhead;
  }
  return device;
}

std::optional<Link> link_of(const std::optional<frontend::LinkSpec>& spec) {
  if (!spec) return std::nullopt;
  return Link{spec->bandwidth, spec->latency};
}

Cluster cluster_of(const frontend::ClusterSpec& spec, const Device& device) {
  Cluster cluster;
  cluster.name = spec.name;
  cluster.device = device;
  cluster.nodes = spec.nodes;
  cluster.per_node = spec.per_node;
  cluster.pairs = link_of(spec.pairs);
  cluster.intra = link_of(spec.intra);
  cluster.inter = link_of(spec.inter);
  return cluster;
}

// Adds what the sections describe; `known` is searched for devices after the sections' own.
void add_machines(const frontend::Machines& specs, const Machines* known, Machines& machines) {
  for (const frontend::DeviceSpec& spec : specs.devices)
    machines.devices.push_back(device_of(spec));
  for (const frontend::ClusterSpec& spec : specs.clusters) {
    const Device* device = machines.find_device(spec.device);
    if (device == nullptr && known != nullptr) device = known->find_device(spec.device);
    CAD_CHECK(device != nullptr, "cluster `{}` was checked, its device is unknown", spec.name);
    machines.clusters.push_back(cluster_of(spec, *device));
  }
}

std::optional<std::string> text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (path.empty() || !in) return std::nullopt;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Cluster guessed_host(const Host& host) {
  Cluster cluster;
  cluster.name = kHost;
  cluster.device.name = kHost;
  cluster.device.memory = host.memory;
  cluster.device.bandwidth = kCoreBandwidth * host.cores;
  cluster.device.flops["f32"] = kLaneFlops * std::min(host.lanes, 12) * 4 / 3 * host.cores;
  cluster.device.launch_overhead = kLoopOverhead;
  cluster.device.cpu = cpu_rates(cluster.device, {});
  cluster.device.cpu->cache = kCoreCache * host.cores;
  // a byte that one device gets from another is read and written in the memory they share
  cluster.intra = Link{cluster.device.bandwidth / 2, kThreadLatency};
  return cluster;
}

}  // namespace

const Device* Machines::find_device(const std::string& name) const {
  for (const Device& device : devices) {
    if (device.name == name) return &device;
  }
  return nullptr;
}

const Cluster* Machines::find_cluster(const std::string& name) const {
  for (const Cluster& cluster : clusters) {
    if (cluster.name == name) return &cluster;
  }
  return nullptr;
}

std::vector<std::string> Machines::names() const {
  std::vector<std::string> all;
  for (const Cluster& cluster : clusters) all.push_back(cluster.name);
  for (const Device& device : devices) all.push_back(device.name);
  return all;
}

Result<Machines> program_machines(const frontend::Module& module) {
  Machines machines;
  const frontend::SectionData* data = frontend::section_data(module);
  if (data == nullptr) return machines;
  const bool clusters = !data->machines.clusters.empty();
  add_machines(data->machines, clusters ? &library_machines() : nullptr, machines);
  return machines;
}

Result<Machines> read_machines(const std::string& path, const std::string& text) {
  Sources sources;
  Diagnostics diagnostics;
  const Result<FileId> file = frontend::load_source(sources, path, text);
  if (!file.ok()) {
    // its span is of a file that only lives here, and its text names the path
    Diagnostic plain = make_error(file.error().id, file.error().message, file.error().exit_code);
    plain.notes = file.error().notes;
    return plain;
  }
  NoFiles reader;
  const auto module = frontend::check(sources, *file, reader, {}, diagnostics);
  for (const Diagnostic& diagnostic : diagnostics.all()) {
    if (diag_level(diagnostic.id) != Level::kError) continue;
    // its spans are of a file that only lives here
    const int line =
        diagnostic.primary ? sources.line_column(*file, diagnostic.primary->span.begin).line : 1;
    Diagnostic plain = make_error(
        diagnostic.id, fmt::format("{}:{}: {}", path, line, diagnostic.message), kExitProgram);
    return plain;
  }
  const frontend::SectionData* data = frontend::section_data(*module);
  CAD_CHECK(data != nullptr, "`{}` was checked and has no sections", path);
  Machines machines;
  const bool library = path == kLibrary;
  add_machines(data->machines, library ? nullptr : &library_machines(), machines);
  return machines;
}

const Machines& library_machines() {
  static const Machines kMachines = [] {
    const auto text = embedded_file(kLibrary);
    CAD_CHECK(text.has_value(), "{} is not in this build", kLibrary);
    Result<Machines> machines = read_machines(kLibrary, std::string(*text));
    CAD_CHECK(machines.ok(), "{}: {}", kLibrary, machines.error().message);
    return *machines;
  }();
  return kMachines;
}

namespace {

Diagnostic unknown_machine(const Machines& first, const std::string& name) {
  std::vector<std::string> names = first.names();
  for (std::string& known : library_machines().names()) names.push_back(std::move(known));
  names.emplace_back(kHost);
  Diagnostic error =
      make_error(DiagId::E0804, fmt::format("there is no cluster `{}`", name), kExitUsage);
  if (const auto near = suggest(name, names)) error.help(fmt::format("did you mean `{}`?", *near));
  error.help("`colauto devices` lists all");
  return error;
}

Diagnostic too_small(const Cluster& cluster, int64_t devices) {
  Diagnostic error =
      make_error(DiagId::E0802,
                 fmt::format("`{}` has {} device{}, {} are asked for", cluster.name,
                             cluster.devices(), cluster.devices() == 1 ? "" : "s", devices),
                 kExitUsage);
  if (cluster.nodes == 1) error.note("it has no `inter` link, so it is one node");
  return error;
}

// As many nodes as hold the devices, where the cluster says how nodes are joined.
Result<Cluster> with_room(Cluster cluster, int64_t devices) {
  if (devices > kMostDevices) {
    return make_error(
        DiagId::E0802,
        fmt::format("plans are made for at most {} devices, not {}", kMostDevices, devices),
        kExitUsage);
  }
  if (devices <= cluster.devices()) return cluster;
  if (cluster.nodes > 1 || !cluster.inter) return too_small(cluster, devices);
  cluster.nodes = (devices + cluster.per_node - 1) / cluster.per_node;
  return cluster;
}

}  // namespace

Result<Cluster> find_cluster(const Machines& first, const std::string& name, int64_t devices) {
  CAD_CHECK(devices >= 1, "a cluster of no devices");
  for (const Machines* machines : {&first, &library_machines()}) {
    if (const Cluster* cluster = machines->find_cluster(name)) return with_room(*cluster, devices);
  }
  for (const Machines* machines : {&first, &library_machines()}) {
    const Device* device = machines->find_device(name);
    if (device == nullptr) continue;
    Cluster cluster;
    cluster.name = name;
    cluster.device = *device;
    if (devices == 1) return cluster;
    Diagnostic error =
        make_error(DiagId::E0802,
                   fmt::format("`{}` is one device, {} are asked for", name, devices), kExitUsage);
    std::vector<std::string> holders;
    for (const Machines* all : {&first, &library_machines()}) {
      for (const Cluster& c : all->clusters) {
        if (c.device.name == name) holders.push_back(c.name);
      }
    }
    if (!holders.empty())
      error.help(fmt::format("clusters of it: `{}`", fmt::join(holders, "`, `")));
    return error;
  }
  return unknown_machine(first, name);
}

namespace {

// Of the cores, what one of so many devices has: each gets a whole number of threads, and more
// devices than cores take turns.
double core_share(const Host& host, int64_t devices) {
  if (devices >= host.cores) return 1 / static_cast<double>(devices);
  return static_cast<double>(host.cores / devices) / host.cores;
}

void take_share(Device& device, double share) {
  device.bandwidth /= share;
  for (auto& [name, rate] : device.flops) rate /= share;
  CpuRates& cpu = *device.cpu;
  for (double* figure : {&cpu.pointwise, &cpu.attention, &cpu.attention_grad, &cpu.random,
                         &cpu.packing, &cpu.cache, &cpu.cache_bandwidth})
    *figure /= share;
}

// The link of `cluster host_N` with the most devices up to so many, else with the fewest; more
// devices than were probed share what those got together.
std::optional<Link> probed_link(const Machines& machines, int64_t devices) {
  const Cluster* best = nullptr;
  for (const Cluster& c : machines.clusters) {
    if (c.name != fmt::format("{}_{}", kHost, c.per_node) || !c.intra) continue;
    const bool fits = c.per_node <= devices;
    const bool better =
        best == nullptr || (best->per_node <= devices ? fits && c.per_node > best->per_node
                                                      : c.per_node < best->per_node);
    if (better) best = &c;
  }
  if (best == nullptr) return std::nullopt;
  Link link = *best->intra;
  if (best->per_node < devices)
    link.bandwidth *= static_cast<double>(best->per_node) / static_cast<double>(devices);
  return link;
}

}  // namespace

Result<Cluster> host_cluster(const Host& host, const std::optional<std::string>& probed,
                             int64_t devices) {
  CAD_CHECK(devices >= 1, "a host of no devices");
  if (devices > kMostDevices) return with_room({}, devices);
  Cluster cluster = guessed_host(host);
  std::optional<Link> link;
  if (probed) {
    CAD_TRY(machines, read_machines(host_file(), *probed));
    if (const Cluster* found = machines.find_cluster(kHost)) {
      const double overhead = cluster.device.launch_overhead;
      cluster = *found;
      cluster.device.launch_overhead = overhead;
      if (!cluster.device.cpu) cluster.device.cpu = cpu_rates(cluster.device, {});
    }
    link = probed_link(machines, devices);
    // what is free to use now, not when it was probed
    if (host.memory > 0) cluster.device.memory = std::min(cluster.device.memory, host.memory);
  }
  const auto share = static_cast<double>(devices);
  cluster.nodes = 1;
  cluster.per_node = devices;
  cluster.device.memory /= share;
  take_share(cluster.device, std::max(share, 1 / core_share(host, devices)));
  if (!cluster.intra) cluster.intra = guessed_host(host).intra;
  // of the host, the link is what its devices get together
  cluster.intra->bandwidth /= share;
  if (link) cluster.intra = link;
  return cluster;
}

std::string host_file() {
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); config != nullptr && config[0] == '/')
    return fmt::format("{}/colauto/host.cad", config);
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] != 0)
    return fmt::format("{}/.config/colauto/host.cad", home);
  return "";
}

Result<Cluster> choose_cluster(const Machines& first, const std::string& name, int64_t devices,
                               const Host& host) {
  const bool own = first.find_cluster(name) != nullptr;
  if (!own && (name.empty() || name == kHost))
    return host_cluster(host, text_of(host_file()), devices);
  return find_cluster(first, name, devices);
}

}  // namespace cad::planner
