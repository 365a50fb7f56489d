// Collectives between processes: mpi_collectives.cc under mpirun, on one host.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "backend/comm/mpi_world.h"
#include "tests/sanitized.h"
#include "tests/training/training_testing.h"

#ifdef COLAUTO_MPI_TEST

namespace {

// Processes that run in a folder.
int running_in(const std::string& folder) {
  int count = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", none))
    count += std::filesystem::read_symlink(entry.path() / "cwd", none) == folder ? 1 : 0;
  return count;
}

// The launcher's status. All ranks end in time, and none is left. `messages`: gets what they say.
int under_mpirun(int ranks, const std::string& arguments, std::string* messages = nullptr) {
  const cad::backend::testing::TemporaryFolder folder;
  const std::string command =
      "cd '" + folder.path() + "' && " +
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      "OMPI_MCA_rmaps_base_oversubscribe=1 "
      "OMPI_MCA_btl_vader_single_copy_mechanism=none ASAN_OPTIONS=detect_leaks=0 timeout 120 "
      "mpirun -n " +
      std::to_string(ranks) + " " COLAUTO_MPI_TEST " " + arguments +
      (messages == nullptr ? "" : " 2>&1");
  const auto begin = std::chrono::steady_clock::now();
  FILE* output = ::popen(command.c_str(), "r");
  if (output == nullptr) return -1;
  char line[4096];
  while (std::fgets(line, sizeof line, output) != nullptr) {
    if (messages != nullptr) *messages += line;
  }
  const int status = ::pclose(output);
  constexpr std::chrono::seconds kInTime(cad::kSanitized ? 100 : 30);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kInTime) << arguments;
  for (int i = 0; i < 50 && running_in(folder.path()) > 0; ++i) ::usleep(100'000);
  EXPECT_EQ(running_in(folder.path()), 0) << arguments;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

TEST(Mpi, OneDeviceARank) {
  EXPECT_EQ(under_mpirun(3, "threads 1"), 0);
}
TEST(Mpi, TwoDevicesARank) {
  EXPECT_EQ(under_mpirun(2, "threads 2"), 0);
}
TEST(Mpi, DisagreementNamesBothSides) {
  EXPECT_EQ(under_mpirun(2, "disagreement 2"), 0);
}
TEST(Mpi, AStoppedRankIsNamedInTime) {
  EXPECT_EQ(under_mpirun(3, "stopped 1"), 0);
}
TEST(Mpi, ASlowRankIsWaitedFor) {
  EXPECT_EQ(under_mpirun(2, "slow 2"), 0);
}
TEST(Mpi, AFailureReachesEveryRank) {
  EXPECT_EQ(under_mpirun(3, "giving-up 1"), 0);
}

int times(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// It has done its part and left, and hears of it too.
TEST(Mpi, AMissingRankIsNamedInTime) {
  std::string messages;
  EXPECT_EQ(under_mpirun(3, "absence 1", &messages), 5) << messages;
  EXPECT_EQ(times(messages, "no sign of rank 1, which has ended its part"), 1) << messages;
}

// Ranks that have done their part wait for the others: what becomes of those they say, each once.
TEST(Mpi, ARankThatIsKilledAfterItsPartIsNamed) {
  std::string messages;
  EXPECT_NE(under_mpirun(3, "late-death 1", &messages), 0);
  EXPECT_EQ(times(messages, "error[E1001]: rank 1 ended without a word: killed, or crashed"), 2)
      << messages;
}
TEST(Mpi, AFailureAfterOthersHaveDoneTheirPartReachesThem) {
  std::string messages;
  EXPECT_EQ(under_mpirun(3, "late-failure 1", &messages), 7) << messages;
  EXPECT_EQ(times(messages, "error[E1001]: device 1 (rank 1): the disk is full"), 2) << messages;
}
// They hear it while nobody asks any more: it is said at their end.
TEST(Mpi, AFailureThatNobodyAsksForIsSaid) {
  std::string messages;
  EXPECT_EQ(under_mpirun(3, "unasked-failure 1", &messages), 7) << messages;
  EXPECT_EQ(times(messages, "error[E1001]: device 1 (rank 1): the disk is full"), 2) << messages;
  EXPECT_EQ(times(messages, "ended without a word"), 0) << messages;
}
// The others end because of what it has told, are not accused of it, and it ends as it was about
// to.
TEST(Mpi, WhoHasFailedIsNotLeftByTheOthers) {
  std::string messages;
  EXPECT_EQ(under_mpirun(3, "left-alone 1", &messages), 5) << messages;
  EXPECT_EQ(times(messages, "ended without a word"), 0) << messages;
  EXPECT_EQ(times(messages, "rank 1 ends as it was about to"), 1) << messages;
}

}  // namespace

#else

TEST(Mpi, ABuildWithoutItSaysSo) {
  const auto world = cad::backend::make_mpi_world(1);
  ASSERT_FALSE(world.ok());
  EXPECT_EQ(world.error().message, "this build has no MPI");
}

#endif
