// tests/commands/faulty_runs.h -- runs that something is wrong with, by threads or by ranks: a
// fault at one of them, how each of them ended and when, what it said, and what is left of the run
// afterwards.
#pragma once

#include <csignal>
#include <optional>

#include "tests/commands/run_devices.h"

namespace cad {

class FaultyRuns : public RunDevices {
 protected:
  // A fault that is there from the start waits until all ranks have planned and compiled.
  static constexpr double kInTimeOfAll = kSanitized ? 5 * kInTime : kInTime;
  // Steps enough for any fault; SIGINT and SIGTERM end them.
  inline static const std::string kForEver =
      "run net.cad --quiet --set steps=100000000 --overwrite --log log.jsonl ";

  struct Strike {
    int signal = 0;    // 0: none
    int rank = 1;      // gets it once four steps are saved,
    double pause = 0;  // and goes on after so many seconds
  };
  // mpirun -n `ranks` binary `arguments`, each rank's messages in a file. `through`: what starts
  // the binary.
  Output run_ranks(int ranks, const std::string& arguments, const Strike& strike,
                   const std::string& mpirun = kMpi, const std::string& through = "") const {
    forget_ranks();
    return run(arguments, mpirun + "-n " + std::to_string(ranks) + as_rank(strike) + " " + through);
  }
  Output run_ranks(int ranks, const std::string& arguments) const {
    return run_ranks(ranks, arguments, Strike{});
  }
  // Two ranks, each with its own arguments; `options`: of mpirun for the second one.
  Output run_two(const std::string& first, const std::string& second,
                 const std::string& options = "") const {
    forget_ranks();
    return run(first + " : -n 1 " + options + as_rank({}) + " '" COLAUTO_BINARY "' " + second,
               kMpi + ("-n 1" + as_rank({})));
  }
  std::string messages(int rank) const { return read("err." + std::to_string(rank)); }

  struct Fault {
    int status = 1;                      // of the run as a whole
    int ranks = 0;                       // 0: threads of one process
    std::vector<std::string> says = {};  // what every process's messages hold,
    int silent = -1;                     // but those of this rank: it is killed, or stopped
  };
  // However a fault ends a run: it ends in time, and so does every rank, none with status 0 and
  // none but `silent` without having said which and why; no process is left.
  void expect_failed(const Output& out, const Fault& fault, const std::string& what = "") const {
    SCOPED_TRACE(what);
    std::string all = out.err;
    for (int rank = 0; rank < fault.ranks; ++rank)
      all += "rank " + std::to_string(rank) + ": " + messages(rank);
    EXPECT_EQ(out.status, fault.status) << all;
    EXPECT_NE(out.status, 0) << all;
    const std::optional<double> struck = noted_time("fault");
    const double since = struck.value_or(out.began), limit = struck ? kInTime : kInTimeOfAll;
    EXPECT_LT(since_fault(out), limit) << all;
    int notes = 0;
    for (int rank = 0; rank < fault.ranks; ++rank) {
      const std::string name = "." + std::to_string(rank);
      EXPECT_TRUE(std::filesystem::exists(folder_ / ("err" + name))) << rank << " was not there";
      // whom the launcher has killed with its wrapper has no note, and ended before the launcher
      std::istringstream note(read("end" + name));
      int status = 128 + SIGKILL;
      notes += note >> status ? 1 : 0;
      EXPECT_NE(status, 0) << "rank " << rank << ": " << all;
      EXPECT_LT(noted_time("end" + name).value_or(since) - since, limit) << rank << all;
      if (rank == fault.silent) continue;
      for (const std::string& part : fault.says)
        EXPECT_TRUE(contains(messages(rank), part)) << "no `" << part << "`: " << all;
    }
    EXPECT_TRUE(notes > 0 || fault.ranks == 0 || fault.says.empty())
        << "whoever fails by itself notes its end: " << all;
    for (const std::string& part : fault.says)
      EXPECT_TRUE(fault.ranks > 0 || contains(out.err, part)) << "no `" << part << "`: " << all;
    EXPECT_EQ(processes(), "");
  }
  // Seconds from the fault to the end of all.
  double since_fault(const Output& out) const {
    return out.began + out.seconds - noted_time("fault").value_or(out.began);
  }
  // As a run that ended by itself: what became of a started process after `then`.
  Output ended(pid_t child, double then) const {
    const int status = status_of(child);
    const double seconds = now_s() - then;
    return {"", read(".err"), status, then, seconds};
  }

  // Four steps of a run, saved in runs/net, that whatever comes must leave there.
  void save_first(const std::string& program = "net.cad", const std::string& flags = "") const {
    const Output out = run("run " + program + " --quiet --steps 4 --save runs/net " + flags);
    ASSERT_EQ(out.status, 0) << out.err;
  }
  int64_t newest_step() const {
    int64_t step = -1;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "runs/net", none)) {
      const std::string name = entry.path().filename().string();
      if (name.rfind("step-", 0) == 0 && std::filesystem::exists(entry.path() / "state.json"))
        step = std::max<int64_t>(step, std::strtoll(name.c_str() + 5, nullptr, 10));
    }
    return step;
  }
  // Nothing is left of a run that ended, and its newest checkpoint goes on, on `flags`.
  void expect_gone_and_resumable(const std::string& what, const std::string& flags = "") const {
    EXPECT_EQ(processes(), "") << what;
    const int64_t step = newest_step();
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

 private:
  std::string as_rank(const Strike& strike) const {
    return " '" COLAUTO_RUN_AS_RANK "' '" + folder_.string() + "' " +
           std::to_string(strike.signal) + " " + std::to_string(strike.rank) + " " +
           std::to_string(strike.pause);
  }
  void forget_ranks() const {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (name == "fault" || name.rfind("err.", 0) == 0 || name.rfind("end.", 0) == 0)
        std::filesystem::remove(entry.path(), none);
    }
  }
  // The last word of a note of run_as_rank.cc.
  std::optional<double> noted_time(const std::string& name) const {
    std::istringstream words(read(name));
    std::optional<double> time;
    for (double word = 0; words >> word;) time = word;
    return time;
  }
};

}  // namespace cad
