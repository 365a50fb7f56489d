// Collectives between processes: mpi_collectives.cc under mpirun, on one host.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "backend/comm/mpi_world.h"

#ifdef COLAUTO_MPI_TEST

namespace {

int under_mpirun(int ranks, const std::string& arguments) {
  const std::string command =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      "OMPI_MCA_rmaps_base_oversubscribe=1 "
      "OMPI_MCA_btl_vader_single_copy_mechanism=none ASAN_OPTIONS=detect_leaks=0 timeout 120 "
      "mpirun -n " +
      std::to_string(ranks) + " " COLAUTO_MPI_TEST " " + arguments;
  const int status = std::system(command.c_str());
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
TEST(Mpi, AMissingRankIsNamedInTime) {
  EXPECT_EQ(under_mpirun(3, "absence 1"), 0);
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

}  // namespace

#else

TEST(Mpi, ABuildWithoutItSaysSo) {
  const auto world = cad::backend::make_mpi_world(1);
  ASSERT_FALSE(world.ok());
  EXPECT_EQ(world.error().message, "this build has no MPI");
}

#endif
