// tests/commands/run_devices.h -- a small program run on several devices, threads or ranks, as a
// user does, and its losses from the log. With a fault at one of them: faulty_runs.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/commands/command_testing.h"
#include "tests/uneven_model.h"

namespace cad {

using nlohmann::json;

// 6 rows a micro-batch.
inline const std::string kProgram = std::string(kUnevenModel) + R"(train net {
  data:      text("text.txt", x: i32[B, T], y: i32[B, T])
  loss:      cross_entropy[V](Net(x), y)
  optimizer: adamw(lr: cosine(1e-2, warmup: 2))
  clip:      1.0
  ema:       0.9
  B: 6, steps: 8, seed: 3, accumulate: 2
  eval { data: text("text.txt"), every: 4, batches: 3 }
  save { to: "runs/net", every: 4 }
}
)";

inline const char* const kMpi =
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
    "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none "
    "ASAN_OPTIONS=detect_leaks=0 "  // of Open MPI
    "COLAUTO_COMM_TIMEOUT=5 timeout 120 mpirun ";

inline bool have_mpi() {
  return std::system("command -v mpirun >/dev/null 2>&1") == 0;
}

class RunDevices : public Commands {
 protected:
  void SetUp() override {
    Commands::SetUp();
    write("net.cad", kProgram);
    std::string text;
    for (int i = 0; i < 90; ++i) text += "the quick brown fox " + std::to_string(i % 7) + "\n";
    write("text.txt", text);
  }
  std::vector<json> events(const std::string& name, const std::string& kind) const {
    std::vector<json> list;
    std::istringstream lines(read(name));
    for (std::string line; std::getline(lines, line);) {
      json event = json::parse(line);
      if (event["event"] == kind) list.push_back(std::move(event));
    }
    return list;
  }
  std::vector<double> losses(const std::string& log, const std::string& kind = "step") const {
    std::vector<double> list;
    for (const json& event : events(log, kind)) list.push_back(event["loss"]);
    return list;
  }
  // Every device has a peak, and it is the one that was predicted.
  void expect_peaks(const json& end, int devices, const std::string& what = "") const {
    EXPECT_EQ(end["peak_bytes"].size(), static_cast<size_t>(devices)) << what;
    for (const json& peak : end["peak_bytes"]) EXPECT_EQ(peak, end["predicted_peak_bytes"]) << what;
  }
  void expect_close(const std::vector<double>& a, const std::vector<double>& b,
                    const std::string& what, double relative = 1e-5) const {
    ASSERT_EQ(a.size(), b.size()) << what;
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], relative * std::abs(b[i])) << what << ", number " << i;
  }
  // mpirun -n `ranks` binary `arguments`; more ranks after a colon in `arguments`.
  Output run_mpi(int ranks, const std::string& arguments) const {
    return run(arguments, kMpi + ("-n " + std::to_string(ranks)));
  }
};

}  // namespace cad
