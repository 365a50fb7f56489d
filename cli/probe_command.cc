// cli/probe_command.cc -- `colauto probe`: measures this machine (backend/cpu/probe.h) and writes
// it down as a `device` and a `cluster` section, by default where `--cluster host` and plans
// without
// --cluster look for it (planner/machines.h).
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "backend/cpu/probe.h"
#include "cli/command.h"
#include "planner/machines.h"

namespace cad::cli {
namespace {

using backend::Probe;
using nlohmann::json;
namespace fs = std::filesystem;

// The figures that planner/compute_cost.h takes, as they were measured.
std::string device_section(const Probe& probe) {
  const backend::ProductRates f32 = fit_products(probe.products, ir::DType::kF32);
  std::string text =
      fmt::format("device host {{\n  memory:    {:.2f} GB\n  f32:       {:.1f} GFLOPS",
                  static_cast<double>(probe.memory) / 1e9, f32.flops / 1e9);
  for (const ir::DType dtype : {ir::DType::kBF16, ir::DType::kF16})
    text += fmt::format(", {}: {:.1f} GFLOPS", ir::dtype_name(dtype),
                        fit_products(probe.products, dtype).flops / 1e9);
  text += fmt::format(", packing: {:.2f} GB/s\n", f32.packing / 1e9);
  text += fmt::format(
      "  attention: {:.1f} GFLOPS, attention_grad: {:.1f} GFLOPS, pointwise: {:.2f} GFLOPS\n",
      probe.attention / 1e9, probe.attention_grad / 1e9, probe.pointwise / 1e9);
  text += fmt::format("  random:    {:.3f} GB/s\n", probe.random / 1e9);
  text += fmt::format("  bandwidth: {:.2f} GB/s", probe.bandwidth / 1e9);
  if (probe.cache > 0)
    text += fmt::format(", cache: {:.2f} MB, cache_bandwidth: {:.2f} GB/s", probe.cache / 1e6,
                        probe.cache_bandwidth / 1e9);
  return text + "\n}\n";
}

std::string products_table(const Probe& probe) {
  std::string text =
      "# products of m x k by k x n, GFLOP/s\n# m    n    k         f32     bf16      f16\n";
  for (const backend::ProbedProduct& row : probe.products) {
    if (row.dtype != ir::DType::kF32) continue;
    text += fmt::format("# {:<4} {:<4} {:<4}", row.m, row.n, row.k);
    for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kBF16, ir::DType::kF16}) {
      const auto at = std::find_if(
          probe.products.begin(), probe.products.end(), [&](const backend::ProbedProduct& p) {
            return p.m == row.m && p.n == row.n && p.k == row.k && p.dtype == dtype;
          });
      text += at == probe.products.end() ? fmt::format(" {:>8}", "")
                                         : fmt::format(" {:>8.1f}", at->flops / 1e9);
    }
    while (text.back() == ' ') text.pop_back();
    text += "\n";
  }
  return text;
}

// What is found again by planner::read_machines.
std::string sections(const Probe& probe) {
  std::string text = fmt::format(
      "# This machine, {} cores, as `colauto probe` measured it. `f32` and `packing` are fitted "
      "to\n"
      "# the products in the table: operations at one rate, and bytes in and out at the "
      "other.\n#\n",
      probe.cores);
  text += products_table(probe);
  text += fmt::format("# a job on all threads: {:.1f} us\n", probe.fork_join * 1e6);
  text += device_section(probe) + "\n";
  text +=
      "# Devices of one machine are shares of it and talk through its memory. All-reduces:\n"
      "# devices    4 KiB   32 MiB\n";
  for (const backend::ProbedCollective& row : probe.all_reduces)
    text += fmt::format("# {:<7} {:>5.1f} us {:>5.2f} ms\n", row.devices, row.small * 1e6,
                        row.large * 1e3);
  text += fmt::format(
      "# The link says what all devices together get; those below, what one of so many gets.\n"
      "cluster host {{ device: host, intra: link({:.2f} GB/s, {:.2f} us) }}\n",
      probe.link_bandwidth() / 1e9, probe.link_latency() * 1e6);
  for (const backend::ProbedCollective& row : probe.all_reduces)
    text += fmt::format(
        "cluster host_{0} {{ device: host, per_node: {0}, intra: link({1:.2f} GB/s, {2:.2f} us) "
        "}}\n",
        row.devices, row.bandwidth() / 1e9, row.latency() * 1e6);
  return text;
}

json probe_json(const Probe& probe, const std::string& file) {
  json products = json::array();
  for (const backend::ProbedProduct& product : probe.products) {
    products.push_back({{"dtype", ir::dtype_name(product.dtype)},
                        {"m", product.m},
                        {"n", product.n},
                        {"k", product.k},
                        {"flops", product.flops}});
  }
  json collectives = json::array();
  for (const backend::ProbedCollective& row : probe.all_reduces) {
    collectives.push_back({{"devices", row.devices},
                           {"small_s", row.small},
                           {"large_s", row.large},
                           {"large_bytes", row.bytes}});
  }
  return {{"schema", 1},
          {"cores", probe.cores},
          {"memory", probe.memory},
          {"bandwidth", probe.bandwidth},
          {"cache", probe.cache},
          {"cache_bandwidth", probe.cache_bandwidth},
          {"pointwise", probe.pointwise},
          {"random", probe.random},
          {"attention", probe.attention},
          {"attention_grad", probe.attention_grad},
          {"fork_join_s", probe.fork_join},
          {"products", products},
          {"all_reduces", collectives},
          {"file", file}};
}

// The file is written beside its place and renamed: a probe that is interrupted leaves the old one.
class Draft {
 public:
  // Tried before anything is measured.
  Status open(const std::string& path) {
    path_ = path;
    std::error_code error;
    const fs::path folder = fs::path(path).parent_path();
    if (!folder.empty()) fs::create_directories(folder, error);
    if (error) return failed(error.message());
    if (fs::is_directory(path, error)) return failed("it is a folder");
    errno = 0;
    out_.open(draft(), std::ios::binary);
    return out_ ? Status(Ok{}) : failed(errno != 0 ? std::strerror(errno) : "it cannot be opened");
  }
  Status finish(const std::string& text) {
    errno = 0;
    out_ << text;
    out_.close();
    if (!out_) return failed(errno != 0 ? std::strerror(errno) : "it cannot be written");
    std::error_code error;
    fs::rename(draft(), path_, error);
    return error ? failed(error.message()) : Status(Ok{});
  }

 private:
  [[nodiscard]] std::string draft() const { return path_ + ".new"; }
  Status failed(const std::string& why) {
    std::error_code ignored;
    out_.close();
    fs::remove(draft(), ignored);
    return make_error(DiagId::E0602, fmt::format("cannot write `{}`: {}", path_, why),
                      kExitRunFailed);
  }

  std::string path_;
  std::ofstream out_;
};

int run_probe(const std::string& output, const CommonOptions& common) {
  std::string path = output.empty() ? planner::host_file() : output;
  if (path.empty()) {
    Diagnostic error =
        make_error(DiagId::E0602, "no folder for the figures: `HOME` is not set", kExitRunFailed);
    return fail(common, error.help("give a file: `colauto probe -o host.cad`, or `-o -`"));
  }
  const bool print_only = path == "-";
  Draft draft;
  if (!print_only) {
    const Status opened = draft.open(path);
    if (!opened.ok()) return fail(common, opened.error());
  }
  message(common, "measuring products and memory on all cores, some seconds");
  const Probe probe = backend::probe_host();
  const std::string text = sections(probe);
  if (!print_only) {
    const Status written = draft.finish(text);
    if (!written.ok()) return fail(common, written.error());
  }
  print(common.json ? probe_json(probe, print_only ? "" : path).dump(2) + "\n" : text);
  if (!print_only) message(common, fmt::format("written to {}", path));
  return kExitOk;
}

}  // namespace

Action declare_probe(CLI::App& app, CommonOptions& common) {
  auto output = std::make_shared<std::string>();
  app.add_option("-o,--output", *output,
                 "write the sections here, not where plans look for them; `-`: only print")
      ->type_name("FILE");
  add_json_flag(app, common);
  return [output, &common] { return run_probe(*output, common); };
}

}  // namespace cad::cli
