// tests/commands/run_devices.h -- a small program run on several devices, threads or ranks, as a
// user does: its losses from the log, ranks with a message file each and a fault at one of them,
// and what is left of them afterwards.
#pragma once

#include <dirent.h>

#include <algorithm>
#include <cmath>
#include <csignal>
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
  // mpirun -n `ranks` `program` `arguments`, each rank's messages in err.RANK. `signal` is what the
  // rank `faulty` sends itself once four steps are saved; after `pause` seconds it gets CONT.
  Output run_ranks(int ranks, const std::string& arguments, const std::string& signal = "",
                   int faulty = 1, double pause = 0, const std::string& mpirun = "") const {
    write("rank.sh",
          "#!/bin/sh\n"
          "rank=$OMPI_COMM_WORLD_RANK\n"
          "if [ -n \"$SIGNAL\" ] && [ $rank = $FAULTY ]; then\n"
          "  (for i in $(seq 2400); do\n"
          "    if [ -e runs/net/step-000004/state.json ]; then\n"
          "      kill -$SIGNAL $$\n"
          "      if [ $PAUSE != 0 ]; then sleep $PAUSE; kill -CONT $$; fi\n"
          "      exit\n"
          "    fi\n"
          "    sleep 0.05\n"
          "  done) &\n"
          "fi\n"
          "exec \"$@\" 2>err.$rank\n");
    char fault[80];
    std::snprintf(fault, sizeof fault, "export SIGNAL='%s' FAULTY=%d PAUSE=%g; ", signal.c_str(),
                  faulty, pause);
    return run(arguments, fault + (mpirun.empty() ? std::string(kMpi) : mpirun) + "-n " +
                              std::to_string(ranks) + " sh rank.sh");
  }
  std::string messages(int rank) const { return read("err." + std::to_string(rank)); }
  // Processes that were started in the scratch folder and are there now; `binary`: colauto alone.
  std::vector<pid_t> running(bool binary = false) const {
    std::vector<pid_t> found;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
      const auto link = [&](const char* name) {
        std::error_code none;
        return std::filesystem::read_symlink(entry.path() / name, none).string();
      };
      if (link("cwd").rfind(folder_.string(), 0) != 0) continue;
      if (binary && link("exe") != COLAUTO_BINARY) continue;
      found.push_back(static_cast<pid_t>(std::atoi(entry.path().filename().c_str())));
    }
    return found;
  }
  // Of those that do not end within five seconds, the command lines.
  std::string processes(bool binary = false) const {
    for (int tries = 0; tries < 50 && !running(binary).empty(); ++tries) ::usleep(100'000);
    std::string lines;
    for (const pid_t pid : running(binary)) {
      std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
      std::string text((std::istreambuf_iterator<char>(file)), {});
      std::replace(text.begin(), text.end(), '\0', ' ');
      lines += std::to_string(pid) + ": " + text + "\n";
    }
    return lines;
  }
  // Nothing is left of a run that ended, and its newest checkpoint goes on, on `flags`.
  void expect_gone_and_resumable(const std::string& what, const std::string& flags = "") const {
    EXPECT_EQ(processes(), "") << what;
    int64_t step = 0;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "runs/net", none)) {
      const std::string name = entry.path().filename().string();
      if (name.rfind("step-", 0) == 0 && std::filesystem::exists(entry.path() / "state.json"))
        step = std::max<int64_t>(step, std::strtoll(name.c_str() + 5, nullptr, 10));
    }
    ASSERT_GT(step, 0) << what;
    const Output more =
        run("run net.cad --quiet --resume --save runs/net --log more.jsonl --steps " +
            std::to_string(step + 2) + " " + flags);
    EXPECT_EQ(more.status, 0) << what << ": " << more.err;
    EXPECT_EQ(events("more.jsonl", "end").at(0)["steps"], step + 2) << what;
    std::filesystem::remove(folder_ / "more.jsonl");
    std::filesystem::remove_all(folder_ / "runs");
    std::filesystem::remove(folder_ / "log.jsonl");
  }
};

}  // namespace cad
