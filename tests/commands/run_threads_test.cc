// Runs that get fewer threads than they ask for: whichever cannot be started, the run does without
// it or says that memory ran out and ends with status 1, and no rank waits for one that does not
// come. Other faults: run_faults_test.cc.
#include <chrono>

#include "tests/commands/run_devices.h"

namespace cad {
namespace {

class RunThreads : public RunDevices {
 protected:
  void SetUp() override {
    RunDevices::SetUp();
    if (kSanitized) GTEST_SKIP() << "a sanitizer starts threads in its own way";
  }
  static std::string only(int threads) {
    return "LD_PRELOAD='" COLAUTO_THREAD_LIMIT "' COLAUTO_TEST_THREADS=" + std::to_string(threads);
  }
};

constexpr const char* kNoThread = "not enough memory: another thread could not be started";

TEST_F(RunThreads, DevicesOfOneProcess) {
  int refused = 0;
  bool done = false;
  for (int threads = 0; threads < 40 && !done; ++threads) {
    const Output out = run(
        "run net.cad --quiet --steps 1 --overwrite --devices 3 --plan dp --threads-per-device 2",
        only(threads));
    done = out.status == 0;
    if (done) continue;
    ++refused;
    EXPECT_EQ(out.status, 1) << threads << ": " << out.err;
    EXPECT_TRUE(contains(out.err, kNoThread)) << threads << ": " << out.err;
  }
  EXPECT_TRUE(done);
  // two other devices, a pool's second thread and a communicator for each
  EXPECT_GE(refused, 8);
}

TEST_F(RunThreads, ARank) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  int named = 0;
  bool done = false;
  for (int threads = 0; threads < 40 && !done; ++threads) {
    const auto begin = std::chrono::steady_clock::now();
    write("few.sh", "#!/bin/sh\n[ $OMPI_COMM_WORLD_RANK = 1 ] && export " + only(threads) +
                        "\nexec \"$@\" 2>err.$OMPI_COMM_WORLD_RANK\n");
    const Output out = run("run net.cad --quiet --steps 1 --overwrite --devices 2 --plan dp",
                           std::string(kMpi) + "-n 2 sh few.sh");
    done = out.status == 0;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)) << threads;
    const std::string both = std::to_string(threads) + ": " + messages(0) + messages(1) + out.err;
    EXPECT_TRUE(out.status == 1 || !contains(messages(1), kNoThread)) << out.status << both;
    if (contains(messages(1), kNoThread) && contains(messages(0), kNoThread)) ++named;
    EXPECT_NE(out.status, 124) << both;  // the time of kMpi
    EXPECT_FALSE(contains(both, "ended without a word")) << both;
    EXPECT_EQ(processes(), "") << threads;
  }
  EXPECT_TRUE(done);
  EXPECT_GE(named, 2);
}

}  // namespace
}  // namespace cad
