// Equal plan, equal seed: three runs by threads and three by ranks leave the same bits, of the log
// (all of it but its times), of weights, optimizer states and averages. Each is a process of its
// own that plans, compiles and trains anew. Within one process: tests/equivalence/mpi_test.cc.
#include "tests/commands/run_devices.h"

namespace cad {
namespace {

class SameBits : public RunDevices {
 protected:
  using Left = std::map<std::string, std::string>;
  // The events of a log, without how fast they were and were said to be.
  std::string events_but_times(const std::string& log) const {
    std::string text;
    std::istringstream lines(read(log));
    for (std::string line; std::getline(lines, line);) {
      json event = json::parse(line);
      for (const char* time : {"ms", "tokens_per_s", "wall_s", "predicted_step_s"})
        event.erase(time);
      text += event.dump() + "\n";
    }
    return text;
  }
  // By name: the log, and every tensor file of the last checkpoint.
  Left left_by(const std::string& flags, bool ranks) const {
    const std::string line =
        "run net.cad --quiet --steps 4 --devices 4 --threads-per-device 1 --log log.jsonl "
        "--save saved " +
        flags;
    const Output out = ranks ? run_mpi(2, line) : run(line);
    EXPECT_EQ(out.status, 0) << line << out.err;
    Left left = {{"log", events_but_times("log.jsonl")}};
    EXPECT_EQ(losses("log.jsonl").size(), 4U);
    for (const char* file : {"model", "optimizer", "ema"}) {
      left[file] = read("saved/step-000004/" + std::string(file) + ".safetensors");
      EXPECT_GT(left[file].size(), 1000U) << file;
    }
    std::filesystem::remove_all(folder_ / "saved");
    std::filesystem::remove(folder_ / "log.jsonl");
    return left;
  }
  static void expect_equal(const Left& again, const Left& first, const std::string& what) {
    for (const auto& [name, bytes] : first) EXPECT_TRUE(again.at(name) == bytes) << name << what;
  }
  // Three times each; returns what the first run left.
  Left expect_the_same(const std::string& flags, bool ranks) const {
    const Left first = left_by(flags, ranks);
    for (const char* turn : {"second", "third"})
      expect_equal(left_by(flags, ranks), first, std::string(" of the ") + turn + " by " + flags);
    return first;
  }
  // Of a plan that does not depend on how devices are spread over processes.
  void expect_the_same(const std::string& flags) const {
    const Left threads = expect_the_same(flags, false);
    if (have_mpi()) expect_equal(expect_the_same(flags, true), threads, " of ranks by " + flags);
  }
  json plan(const std::string& flags) const {
    const Output plan = run("plan net.cad --json --devices 4 --threads-per-device 1 " + flags);
    EXPECT_EQ(plan.status, 0) << plan.err;
    write("plan.json", plan.out);
    return json::parse(plan.out);
  }
};

TEST_F(SameBits, OfStatesInParts) {
  expect_the_same("--plan zero3");
}
TEST_F(SameBits, OfLayersInParts) {
  expect_the_same("--plan megatron");
}

// Ranks are another machine than threads, for which another plan may be found.
TEST_F(SameBits, OfAuto) {
  expect_the_same("--plan auto", false);
  if (have_mpi()) expect_the_same("--plan auto", true);
}

// A budget that is met by running parts of the forward pass again.
TEST_F(SameBits, OfWhatRunsAgain) {
  const std::string deep = "--set B=24 --set L=6 --micro-batches 1 ";
  const Output ample =
      run("run net.cad --dry-run --json --devices 4 --threads-per-device 1 --plan auto " + deep);
  ASSERT_EQ(ample.status, 0) << ample.err;
  const json needs = json::parse(ample.out);
  const int64_t budget =
      needs["predicted_peak_bytes"].get<int64_t>() - needs["step_bytes"].get<int64_t>() / 3;
  const std::string tight = deep + "--budget " + std::to_string(budget) + "B ";
  ASSERT_GT(plan("--plan auto " + tight)["predicted"]["recompute_s"], 0);
  expect_the_same("--plan plan.json " + tight);
  expect_equal(left_by("--plan auto " + tight, false), left_by("--plan plan.json " + tight, false),
               " of auto");
}

}  // namespace
}  // namespace cad
