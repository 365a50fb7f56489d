// cli/devices_command.cc -- `colauto devices [NAME]`: machines that --cluster knows, of the
// standard library and this host; NAME shows one in full. What the figures mean:
// stdlib/devices.cad.
#include <algorithm>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "backend/cpu/thread_pool.h"
#include "backend/run_memory.h"
#include "cli/command.h"
#include "planner/machines.h"

namespace cad::cli {
namespace {

using nlohmann::json;
using planner::Cluster;
using planner::Device;
using planner::Link;

std::string rate(double flops) {
  return flops >= 1e12 ? fmt::format("{:.4g} TFLOPS", flops / 1e12)
                       : fmt::format("{:.4g} GFLOPS", flops / 1e9);
}

std::string bandwidth(double bytes) {
  return bytes >= 1e12 ? fmt::format("{:.4g} TB/s", bytes / 1e12)
                       : fmt::format("{:.4g} GB/s", bytes / 1e9);
}

std::string link_text(const Link& link) {
  return fmt::format("{}, {:.3g} us", bandwidth(link.bandwidth), link.latency * 1e6);
}

std::string device_line(const Device& device) {
  std::string text =
      fmt::format("{:<14} {:>9}  {:>10}", device.name,
                  fmt::format("{:.4g} GB", device.memory / 1e9), bandwidth(device.bandwidth));
  for (const char* name : {"f32", "tf32", "bf16", "f16"}) {
    const auto at = device.flops.find(name);
    if (at != device.flops.end()) text += fmt::format("  {} {}", name, rate(at->second));
  }
  return text + "\n";
}

std::string cluster_line(const Cluster& cluster) {
  std::string text =
      fmt::format("{:<14} {} x {:<10}", cluster.name, cluster.per_node, cluster.device.name);
  if (cluster.pairs) text += fmt::format("  pairs {}", link_text(*cluster.pairs));
  if (cluster.intra) text += fmt::format("  inside {}", link_text(*cluster.intra));
  if (cluster.inter) text += fmt::format("  across {}", link_text(*cluster.inter));
  return text + "\n";
}

json link_json(const std::optional<Link>& link) {
  if (!link) return nullptr;
  return {{"bandwidth", link->bandwidth}, {"latency", link->latency}};
}

json device_json(const Device& device) {
  return {{"name", device.name},
          {"memory", device.memory},
          {"bandwidth", device.bandwidth},
          {"flops", device.flops}};
}

json cluster_json(const Cluster& cluster) {
  return {{"name", cluster.name},
          {"device", cluster.device.name},
          {"nodes", cluster.nodes},
          {"per_node", cluster.per_node},
          {"pairs", link_json(cluster.pairs)},
          {"intra", link_json(cluster.intra)},
          {"inter", link_json(cluster.inter)}};
}

std::string cluster_text(const Cluster& cluster) {
  std::string text = fmt::format("{}: {} device{} a node", cluster.name, cluster.per_node,
                                 cluster.per_node == 1 ? "" : "s");
  text += cluster.nodes == 1 && cluster.inter
              ? ", as many nodes as asked for\n"
              : fmt::format(", {} node{}\n", cluster.nodes, cluster.nodes == 1 ? "" : "s");
  if (cluster.pairs) text += fmt::format("  in a pair     {}\n", link_text(*cluster.pairs));
  if (cluster.intra) text += fmt::format("  in a node     {}\n", link_text(*cluster.intra));
  if (cluster.inter) text += fmt::format("  across nodes  {}\n", link_text(*cluster.inter));
  return text + "  of " + device_line(cluster.device);
}

// This machine as one device; what the host is called in the lists.
Result<Cluster> this_host() {
  return planner::choose_cluster({}, "", 1,
                                 {backend::ThreadPool::available_cores(),
                                  static_cast<double>(backend::RunMemory::machine_bytes())});
}

int show_one(const std::string& name, const CommonOptions& common) {
  Result<Cluster> cluster = name == "host" ? this_host() : planner::find_cluster({}, name, 1);
  if (!cluster.ok()) return fail(common, cluster.error());
  if (common.json) {
    print(json{{"schema", 1},
               {"devices", json::array({device_json(cluster->device)})},
               {"clusters", json::array({cluster_json(*cluster)})}}
              .dump(2) +
          "\n");
    return kExitOk;
  }
  const bool device = planner::library_machines().find_cluster(name) == nullptr && name != "host";
  print(device ? device_line(cluster->device) : cluster_text(*cluster));
  return kExitOk;
}

int show_all(const CommonOptions& common) {
  Result<Cluster> host = this_host();
  if (!host.ok()) return fail(common, host.error());
  const planner::Machines& library = planner::library_machines();
  json devices = json::array();
  json clusters = json::array();
  std::string text = "devices: memory, its bandwidth, peak rates\n";
  for (const Device& device : library.devices) {
    text += "  " + device_line(device);
    devices.push_back(device_json(device));
  }
  text += "\nclusters: devices a node; links as one device gets them, one way\n";
  for (const Cluster& cluster : library.clusters) {
    text += "  " + cluster_line(cluster);
    clusters.push_back(cluster_json(cluster));
  }
  text += "\nthis host: `colauto probe` measures it\n  " + device_line(host->device);
  devices.push_back(device_json(host->device));
  clusters.push_back(cluster_json(*host));
  print(common.json
            ? json{{"schema", 1}, {"devices", devices}, {"clusters", clusters}}.dump(2) + "\n"
            : text);
  return kExitOk;
}

}  // namespace

Action declare_devices(CLI::App& app, CommonOptions& common) {
  auto name = std::make_shared<std::string>();
  app.add_option("NAME", *name, "show only this machine; `host`: the one at hand");
  add_json_flag(app, common);
  return [name, &common] { return name->empty() ? show_all(common) : show_one(*name, common); };
}

}  // namespace cad::cli
