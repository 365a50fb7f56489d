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
#include "planner/compute_cost.h"
#include "planner/machines.h"

namespace cad::cli {
namespace {

using backend::Probe;
using nlohmann::json;
namespace fs = std::filesystem;

double best_rate(const Probe& probe, ir::DType dtype) {
  double best = 0;
  for (const backend::ProbedProduct& product : probe.products) {
    if (product.dtype == dtype) best = std::max(best, product.flops);
  }
  return best;
}

// The sections. Rates and bandwidth are written as the peaks that the cost model takes its parts
// of, so that it predicts what was measured.
std::string sections(const Probe& probe) {
  const planner::CostConstants& constants = planner::fitted_constants();
  const double bandwidth = probe.bandwidth / constants.memory_peak;
  std::string text = fmt::format(
      "# This machine, {} cores, as `colauto probe` measured it. Measured figures stand in the\n"
      "# comments; rates are those of products divided by {}, the bandwidth by {}: the parts of a\n"
      "# peak that the cost model expects.\n#\n# products of square matrices, GFLOP/s\n"
      "# size        f32     bf16      f16\n",
      probe.cores, constants.matmul_peak, constants.memory_peak);
  for (const backend::ProbedProduct& row : probe.products) {
    if (row.dtype != ir::DType::kF32) continue;
    text += fmt::format("# {:<6}", row.size);
    for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kBF16, ir::DType::kF16}) {
      const auto at = std::find_if(probe.products.begin(), probe.products.end(),
                                   [&](const backend::ProbedProduct& product) {
                                     return product.size == row.size && product.dtype == dtype;
                                   });
      text += at == probe.products.end() ? fmt::format(" {:>8}", "")
                                         : fmt::format(" {:>8.1f}", at->flops / 1e9);
    }
    while (text.back() == ' ') text.pop_back();
    text += "\n";
  }
  text += fmt::format("# memory, read and written: {:.2f} GB/s; a job on all threads: {:.1f} us\n",
                      probe.bandwidth / 1e9, probe.fork_join * 1e6);
  text += fmt::format("device host {{ memory: {:.2f} GB", static_cast<double>(probe.memory) / 1e9);
  for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kBF16, ir::DType::kF16}) {
    const double rate = best_rate(probe, dtype) / constants.matmul_peak;
    text += fmt::format(", {}: {:.1f} GFLOPS", ir::dtype_name(dtype), rate / 1e9);
  }
  text += fmt::format(", bandwidth: {:.2f} GB/s }}\n\n", bandwidth / 1e9);
  text +=
      "# Devices of one machine are shares of it and talk through its memory. All-reduces:\n"
      "# devices    4 KiB   32 MiB\n";
  for (const backend::ProbedCollective& row : probe.all_reduces)
    text += fmt::format("# {:<7} {:>5.1f} us {:>5.2f} ms\n", row.devices, row.small * 1e6,
                        row.large * 1e3);
  text += fmt::format(
      "# The link says what all devices together get.\n"
      "cluster host {{ device: host, intra: link({:.2f} GB/s, {:.2f} us) }}\n",
      probe.link_bandwidth() / 1e9, probe.link_latency() * 1e6);
  return text;
}

json probe_json(const Probe& probe, const std::string& file) {
  json products = json::array();
  for (const backend::ProbedProduct& product : probe.products) {
    products.push_back({{"dtype", ir::dtype_name(product.dtype)},
                        {"size", product.size},
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
