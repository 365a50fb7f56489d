// cli/devices_command.cc -- `colauto devices [NAME]`: machines that --cluster knows, of the
// standard library and this host; NAME shows one in full. What the figures mean:
// stdlib/devices.cad.
#include <algorithm>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/plan_request.h"
#include "planner/machines.h"
#include "planner/mesh.h"

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
      fmt::format("{:<14} {:>2} x {:<10}", cluster.name, cluster.per_node, cluster.device.name);
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

struct DevicesOptions {
  std::string name, mesh;
  std::optional<int64_t> gpus;
};

// "8 in a node, 2 across"
std::string levels_text(const std::vector<planner::Level>& levels, const Cluster& cluster) {
  std::string text;
  for (const planner::Level& level : levels) {
    const char* where = cluster.pairs && level.link == *cluster.pairs   ? "in a pair"
                        : cluster.intra && level.link == *cluster.intra ? "in a node"
                                                                        : "across nodes";
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", level.size, where);
  }
  return text.empty() ? "one device" : text;
}

std::string mesh_line(const planner::Mesh& mesh, const Cluster& cluster) {
  std::string text = fmt::format("  {:<20}", mesh.str());
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    text += fmt::format("  {}: {}", mesh.axes[i].name,
                        levels_text(mesh.levels[size_t{1} << i], cluster));
  }
  return text + "\n";
}

// The axes of a mesh, each with the links that its groups cross, from the inside out.
json mesh_json(const planner::Mesh& mesh) {
  json axes = json::array();
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    json levels = json::array();
    for (const planner::Level& level : mesh.levels[size_t{1} << i])
      levels.push_back({{"size", level.size}, {"link", link_json(level.link)}});
    axes.push_back({{"name", mesh.axes[i].name}, {"size", mesh.axes[i].size}, {"levels", levels}});
  }
  return {{"axes", axes}};
}

int show_meshes(const DevicesOptions& own, const CommonOptions& common) {
  std::vector<planner::Axis> axes;
  int64_t devices = own.gpus.value_or(1);
  if (!own.mesh.empty()) {
    Result<std::vector<planner::Axis>> parsed = planner::parse_axes(own.mesh);
    if (!parsed.ok()) return fail(common, parsed.error());
    axes = *parsed;
    for (const planner::Axis& axis : axes) {
      if (axis.size > 0 && devices <= planner::kMostDevices) devices *= axis.size;
    }
  }
  Result<Cluster> cluster = planner::choose_cluster({}, own.name, devices, this_host());
  if (!cluster.ok()) return fail(common, cluster.error());
  std::vector<planner::Mesh> list;
  if (axes.empty()) {
    auto all = planner::meshes(*cluster, static_cast<int>(devices));
    if (!all.ok()) return fail(common, all.error());
    list = std::move(*all);
  } else {
    auto mesh = planner::make_mesh(*cluster, axes);
    if (!mesh.ok()) return fail(common, mesh.error());
    list.push_back(std::move(*mesh));
  }
  if (common.json) {
    json meshes = json::array();
    for (const planner::Mesh& mesh : list) meshes.push_back(mesh_json(mesh));
    print(json{{"schema", 1},
               {"devices", json::array({device_json(cluster->device)})},
               {"clusters", json::array({cluster_json(*cluster)})},
               {"meshes", meshes}}
              .dump(2) +
          "\n");
    return kExitOk;
  }
  std::string text = cluster_text(*cluster);
  text += fmt::format("\n{} device{}, {} mesh{}\n", devices, devices == 1 ? "" : "s", list.size(),
                      list.size() == 1 ? "" : "es");
  for (const planner::Mesh& mesh : list) text += mesh_line(mesh, *cluster);
  print(text);
  return kExitOk;
}

int show_one(const std::string& name, const CommonOptions& common) {
  Result<Cluster> cluster = planner::choose_cluster({}, name, 1, this_host());
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
  Result<Cluster> here = planner::choose_cluster({}, "", 1, this_host());
  if (!here.ok()) return fail(common, here.error());
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
  text += "\nthis host: `colauto probe` measures it\n  " + device_line(here->device);
  devices.push_back(device_json(here->device));
  clusters.push_back(cluster_json(*here));
  print(common.json
            ? json{{"schema", 1}, {"devices", devices}, {"clusters", clusters}}.dump(2) + "\n"
            : text);
  return kExitOk;
}

}  // namespace

Action declare_devices(CLI::App& app, CommonOptions& common) {
  auto own = std::make_shared<DevicesOptions>();
  app.add_option("NAME", own->name, "show only this machine; `host`: the one at hand");
  CLI::Option* gpus =
      app.add_option("--gpus,--devices", own->gpus, "list the meshes of that many devices")
          ->type_name("N")
          ->check(at_least(1));
  app.add_option("--mesh", own->mesh, "show which links the axes run over: dp=2,tp=4")
      ->type_name("AXES")
      ->excludes(gpus);
  add_json_flag(app, common);
  return [own, &common] {
    if (own->gpus || !own->mesh.empty()) return show_meshes(*own, common);
    return own->name.empty() ? show_all(common) : show_one(own->name, common);
  };
}

}  // namespace cad::cli
