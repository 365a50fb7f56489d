// Jobs on one machine: several at once, one right after a killed one, and what a killed rank leaves
// behind. What becomes of its own run: run_faults_test.cc.
#include "tests/commands/faulty_runs.h"

namespace cad {
namespace {

class Jobs : public FaultyRuns {
 protected:
  void SetUp() override {
    FaultyRuns::SetUp();
    if (!have_mpi()) GTEST_SKIP() << "no mpirun";
  }
  // What MPI puts on disk and in shared memory goes to folders of the test's own.
  std::string own_places() const {
    for (const char* place : {"tmp", "shm"}) std::filesystem::create_directories(folder_ / place);
    return "TMPDIR='" + (folder_ / "tmp").string() + "' OMPI_MCA_orte_tmpdir_base='" +
           (folder_ / "tmp").string() + "' OMPI_MCA_btl_vader_backing_directory='" +
           (folder_ / "shm").string() + "' ";
  }
  // Sockets, segments and other files that are in them.
  std::vector<std::string> left_there() const {
    std::vector<std::string> left;
    for (const char* place : {"tmp", "shm"}) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / place))
        if (!entry.is_directory()) left.push_back(entry.path().string());
    }
    return left;
  }
};

// G8: one of four ranks is killed in step 5 or so. All are gone within ten seconds, and so are
// sockets and shared memory.
TEST_F(Jobs, AKilledRankLeavesNothing) {
  const Output out = run_ranks(4, kForEver + "--devices 4 --plan zero1 --threads-per-device 1",
                               {SIGKILL, 2}, own_places() + kMpi);
  EXPECT_TRUE(contains(out.err, "process rank 2") && contains(out.err, "signal 9")) << out.err;
  expect_failed(
      out, {128 + SIGKILL, 4, {"error[E1001]: rank 2 (the last was: ", "ended without a word"}, 2});
  EXPECT_LT(since_fault(out), 10);
  EXPECT_EQ(left_there(), std::vector<std::string>{});
  expect_gone_and_resumable("a killed rank");
}

// G8: an exception at one of four ranks: it gets no thread for its device.
TEST_F(Jobs, AnExceptionAtOneRank) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer starts threads in its own way";
  save_first();
  write("few.sh",
        "#!/bin/sh\n[ $OMPI_COMM_WORLD_RANK = 3 ] && export LD_PRELOAD='" COLAUTO_THREAD_LIMIT
        "' COLAUTO_TEST_THREADS=4\nexec \"$@\"\n");
  const Output out = run_ranks(4,
                               "run net.cad --quiet --steps 8 --resume --devices 4 --plan zero1 "
                               "--threads-per-device 1",
                               {}, own_places() + kMpi, "sh few.sh");
  expect_failed(out, {1, 4, {"another thread could not be started"}});
  for (const int rank : {0, 1, 2})
    EXPECT_TRUE(contains(messages(rank), "error[E1001]: device 3 (rank 3)")) << messages(rank);
  EXPECT_EQ(left_there(), std::vector<std::string>{});
  expect_gone_and_resumable("an exception at a rank");
}

// G10: jobs on one machine do not meet each other, nor what is left of one that was killed.
TEST_F(Jobs, AtOnceAndAfterAKilledOne) {
  const std::string mpi = own_places() + kMpi + "-n 2 '" COLAUTO_BINARY "' ";
  write("first.sh", mpi + kForEver + "--devices 2 --plan zero1 --threads-per-device 1\n");
  const pid_t killed = start({"sh", "first.sh"});
  EXPECT_TRUE(wait_until(
      [&] { return std::filesystem::exists(folder_ / "runs/net/step-000004/state.json"); }));
  // launcher and ranks at once: nobody tidies up
  for (const pid_t pid : running()) ::kill(pid, SIGKILL);
  EXPECT_EQ(status_of(killed), 128 + SIGKILL);
  std::string script;
  const std::string names = "abcd";
  for (const char name : names) {
    script += mpi + "run net.cad --quiet --devices 2 --plan zero1 --threads-per-device 1 --save " +
              name + " --log " + name + ".jsonl & p" + name + "=$!\n";
  }
  script += "wait $pa && wait $pb && wait $pc && wait $pd\n";
  write("jobs.sh", script);
  EXPECT_EQ(std::system(("cd '" + folder_.string() + "' && sh jobs.sh 2>.err").c_str()), 0)
      << read(".err");
  const auto losses_of = [&](char name) { return losses(std::string(1, name) + ".jsonl"); };
  EXPECT_EQ(losses_of('a').size(), 8U);
  for (const char name : names) EXPECT_EQ(losses_of(name), losses_of('a')) << name;
  expect_gone_and_resumable("a killed job", "--devices 2 --plan zero1");
}

}  // namespace
}  // namespace cad
