// One program on devices of several processes: this test binary under mpirun, one test of it, whose
// results must be the bits that threads give.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "backend/comm/mpi_world.h"
#include "ir/autodiff.h"
#include "tests/runtime/device_harness.h"

namespace cad::backend {
namespace {

using testing::DeviceGraph;

int devices_per_rank() {
  const char* text = std::getenv("COLAUTO_TEST_DEVICES_PER_RANK");
  return text == nullptr ? 0 : std::atoi(text);
}

bool under_mpirun(int ranks, int per_rank, const std::string& test) {
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0) return false;
  const std::string command =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none "
      "ASAN_OPTIONS=detect_leaks=0 COLAUTO_TEST_DEVICES_PER_RANK=" +
      std::to_string(per_rank) + " timeout 120 mpirun -n " + std::to_string(ranks) + " " + self +
      " --gtest_also_run_disabled_tests --gtest_filter=UnderMpi.DISABLED_" + test + " > /dev/null";
  const int status = std::system(command.c_str());
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Every rank runs its devices and compares with all devices as threads of its own.
TEST(UnderMpi, DISABLED_EqualsThreads) {
  auto made = make_mpi_world(devices_per_rank(), 30);
  ASSERT_TRUE(made.ok());
  World& world = **made;
  const std::vector<int64_t> mesh =
      world.devices() == 4 ? std::vector<int64_t>{2, 2} : std::vector<int64_t>{world.devices()};
  const ir::Graph forward = testing::layers(mesh, 3).graph;
  const ir::Graph g = ir::differentiate(forward, forward.region(ir::RegionId{0}).results[0]);
  const testing::DeviceTensors inputs = testing::random_device_inputs(g);
  const Program program = compile(g, {});
  ir::EvalContext context;
  ThreadWorld threads(world.devices());
  const testing::DeviceOutcomes want = testing::run_on_world(threads, program, inputs, context);
  ASSERT_TRUE(want.ended.ok());
  for (int turn = 0; turn < 3; ++turn) {
    const testing::DeviceOutcomes got = testing::run_on_world(world, program, inputs, context);
    ASSERT_TRUE(got.ended.ok()) << got.ended.failure.value_or("");
    for (int d = 0; d < world.local_devices(); ++d) {
      const auto at = static_cast<size_t>(world.first_device() + d);
      EXPECT_EQ(got.devices[at].bytes, want.devices[at].bytes);
    }
  }
}

// A device of rank 1 throws: all ranks end with its reason.
TEST(UnderMpi, DISABLED_OneThrows) {
  auto made = make_mpi_world(devices_per_rank(), 30);
  ASSERT_TRUE(made.ok());
  World& world = **made;
  const ir::Graph g = testing::layers({world.devices()}, 2).graph;
  const testing::DeviceTensors inputs = testing::random_device_inputs(g);
  const Program program = compile(g, {});
  const auto work = [&](Device& device) -> Status {
    if (device.number == world.devices() - 1) throw std::runtime_error("out of paper");
    backend::Run run;
    run.comm = &device.comm;
    run.coordinates = ir::coordinates_of(g, device.number);
    testing::run_program(program, inputs[static_cast<size_t>(device.number)], {}, device.pool, run);
    ADD_FAILURE() << "the run went on";
    return Ok{};
  };
  if (mpi_rank() == 1) {
    EXPECT_THROW(run_on_devices(world, 1, work), std::runtime_error);
  } else {
    EXPECT_FALSE(run_on_devices(world, 1, work).ok());
  }
  EXPECT_EQ(world.failure(), world.name_of(world.devices() - 1) + ": internal error: out of paper");
  EXPECT_EQ(world.name_of(world.devices() - 1),
            "device " + std::to_string(world.devices() - 1) + " (rank 1)");
}

TEST(DevicesOfMpi, EqualThreads) {
  if (!mpi_available()) GTEST_SKIP() << "no MPI";
  EXPECT_TRUE(under_mpirun(2, 1, "EqualsThreads"));
  EXPECT_TRUE(under_mpirun(2, 2, "EqualsThreads"));
}

TEST(DevicesOfMpi, OneThatThrowsEndsAllRanks) {
  if (!mpi_available()) GTEST_SKIP() << "no MPI";
  EXPECT_TRUE(under_mpirun(2, 2, "OneThrows"));
}

}  // namespace
}  // namespace cad::backend
