// Runs that get fewer threads than they ask for: whichever cannot be started, the run does without
// it or says that memory ran out and ends with status 1, and no rank waits for one that does not
// come. Other faults: run_faults_test.cc.
#include "tests/commands/faulty_runs.h"

namespace cad {
namespace {

class RunThreads : public FaultyRuns {
 protected:
  void SetUp() override {
    FaultyRuns::SetUp();
    if (kSanitized) GTEST_SKIP() << "a sanitizer starts threads in its own way";
  }
  static std::string only(int threads) {
    return "LD_PRELOAD='" COLAUTO_THREAD_LIMIT "' COLAUTO_TEST_THREADS=" + std::to_string(threads);
  }
};

constexpr const char* kNoThread = "not enough memory: another thread could not be started";

TEST_F(RunThreads, DevicesOfOneProcess) {
  save_first();
  int refused = 0;
  bool done = false;
  for (int threads = 0; threads < 40 && !done; ++threads) {
    const Output out =
        run("run net.cad --quiet --steps 5 --resume --devices 3 --plan dp --threads-per-device 2",
            only(threads));
    done = out.status == 0;
    if (done) continue;
    ++refused;
    expect_failed(out, {1, 0, {kNoThread}}, std::to_string(threads));
  }
  EXPECT_TRUE(done);
  // two other devices, a pool's second thread and a communicator for each
  EXPECT_GE(refused, 8);
  expect_gone_and_resumable("a process without threads");
}

TEST_F(RunThreads, ARank) {
  if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  save_first();
  int named = 0;
  bool done = false;
  for (int threads = 0; threads < 40 && !done; ++threads) {
    write("few.sh", "#!/bin/sh\n[ $OMPI_COMM_WORLD_RANK = 1 ] && export " + only(threads) +
                        "\nexec \"$@\"\n");
    const Output out = run_ranks(2, "run net.cad --quiet --steps 5 --resume --devices 2 --plan dp",
                                 {}, kMpi, "sh few.sh");
    done = out.status == 0;
    const std::string both = std::to_string(threads) + ": " + messages(0) + messages(1) + out.err;
    const bool says = contains(messages(1), kNoThread);
    // without, MPI has failed to start there
    if (!done) expect_failed(out, {says ? 1 : out.status, 2, {}}, both);
    EXPECT_FALSE(done && says) << both;
    if (says && contains(messages(0), kNoThread)) ++named;
    EXPECT_NE(out.status, 124) << both;  // the time of kMpi
    EXPECT_FALSE(contains(both, "ended without a word")) << both;
  }
  EXPECT_TRUE(done);
  EXPECT_GE(named, 2);
  expect_gone_and_resumable("a rank without threads");
}

}  // namespace
}  // namespace cad
