// Devices as threads of a process: what ends one ends all, with its reason; agreement before a run;
// shares of the cores. Programs on devices: tests/runtime/devices_test.cc.
#include "backend/devices.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>

#include "backend/comm/agree.h"
#include "backend/comm/thread_world.h"
#include "base/check.h"
#include "base/exit_code.h"

namespace cad::backend {
namespace {

CollectiveCall sum_of_all(const World& world) {
  CollectiveCall call;
  call.kind = CollectiveKind::kAllReduce;
  for (int d = 0; d < world.devices(); ++d) call.members.push_back(d);
  return call;
}

void meet(Device& device) {
  const CollectiveCall call = sum_of_all(device.world());
  float one = 1;
  if (!device.comm.run(call, &one, &one)) throw WorldFailed(device.world());
  EXPECT_EQ(one, static_cast<float>(device.world().devices()));
}

TEST(Devices, EachRunsOnceWithItsShareOfTheCores) {
  ThreadWorld world(5);
  std::atomic<int> sum{0};
  const DevicesOutcome outcome = run_on_devices(world, 3, [&](Device& device) -> Status {
    EXPECT_EQ(device.pool.size(), 3);
    std::atomic<int> threads{0};
    device.pool.each([&](int) { ++threads; });
    EXPECT_EQ(threads, 3);
    for (int i = 0; i < 20; ++i) meet(device);
    sum += device.number;
    return Ok{};
  });
  EXPECT_TRUE(outcome.ok());
  EXPECT_EQ(sum, 10);
}

TEST(Devices, AnExceptionOfOneEndsAll) {
  ThreadWorld world(4, 60);
  const auto begin = std::chrono::steady_clock::now();
  std::string thrown;
  try {
    run_on_devices(world, 1, [&](Device& device) -> Status {
      meet(device);
      if (device.number == 2) throw std::logic_error("out of paper");
      meet(device);
      ADD_FAILURE() << "met without device 2";
      return Ok{};
    });
  } catch (const std::logic_error& bug) {
    thrown = bug.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(thrown, "out of paper") << "whoever started the devices is to report it as a bug";
  EXPECT_EQ(world.failure(), "device 2: internal error: out of paper");
}

TEST(Devices, NoMemoryAtOneEndsAll) {
  ThreadWorld world(3, 60);
  const auto run = [&] {
    run_on_devices(world, 1, [&](Device& device) -> Status {
      if (device.number == 1) throw std::bad_alloc();
      meet(device);
      return Ok{};
    });
  };
  EXPECT_THROW(run(), std::bad_alloc);
  EXPECT_EQ(world.failure(), "device 1: not enough memory: an allocation was refused");
}

// A broken invariant ends the process as a bug, on whatever thread it is found.
TEST(DevicesDeathTest, ABrokenInvariantIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ThreadWorld world(3, 60);
        run_on_devices(world, 1, [&](Device& device) -> Status {
          CAD_CHECK(device.number != 1, "device {} is odd", device.number);
          meet(device);
          return Ok{};
        });
      },
      ::testing::ExitedWithCode(kExitBug), "internal error: device 1 is odd");
}

TEST(Devices, AnErrorOfOneIsTheOutcome) {
  ThreadWorld world(3, 60);
  const DevicesOutcome outcome = run_on_devices(world, 1, [&](Device& device) -> Status {
    if (device.number == 1) return make_error(DiagId::E0701, "the loss is nan", kExitProgram);
    meet(device);
    return Ok{};
  });
  ASSERT_TRUE(outcome.error);
  EXPECT_EQ(outcome.error->message, "the loss is nan");
  EXPECT_EQ(outcome.device, 1);
  EXPECT_EQ(outcome.failure, "device 1: the loss is nan");
}

TEST(Devices, OneThatLeavesIsMissedInTime) {
  ThreadWorld world(3, 0.3);
  const DevicesOutcome outcome = run_on_devices(world, 1, [&](Device& device) -> Status {
    if (device.number != 0) meet(device);
    return Ok{};
  });
  const std::string why = outcome.failure.value_or("");
  EXPECT_NE(why.find("no sign of device 0"), std::string::npos) << why;
}

TEST(Agree, EqualTextsAndTheFirstDifference) {
  for (const int odd : {-1, 0, 2}) {
    ThreadWorld world(4);
    const DevicesOutcome outcome = run_on_devices(world, 1, [&](Device& device) -> Status {
      const std::string seed = device.number == odd ? "8" : "7";
      EXPECT_EQ(agree(device.comm, "plan", "loss\nsame\n"), std::nullopt);
      EXPECT_EQ(agree(device.comm, "empty", ""), std::nullopt);
      const std::optional<std::string> why = agree(device.comm, "seed", seed);
      const std::optional<std::string> more =
          agree(device.comm, "program", "first\nx" + seed + "\nlast" + seed);
      if (odd < 0) {
        EXPECT_EQ(why, std::nullopt);
        EXPECT_EQ(more, std::nullopt);
      } else if (odd == 0) {
        EXPECT_EQ(why, "device 0 and device 1 disagree about the seed: `8` and `7`");
      } else {
        EXPECT_EQ(why, "device 0 and device 2 disagree about the seed: `7` and `8`");
        EXPECT_EQ(more,
                  "device 0 and device 2 disagree about the program in line 2: `x7` and `x8`");
      }
      return Ok{};
    });
    EXPECT_TRUE(outcome.ok());
  }
}

TEST(Devices, ThreadsShareTheCores) {
  const int cores = ThreadPool::available_cores();
  EXPECT_EQ(threads_of_device(1, 0), cores);
  EXPECT_EQ(threads_of_device(cores * 3, 0), 1);
  EXPECT_EQ(threads_of_device(2, 5), 5);
  EXPECT_EQ(threads_of_device(2, 0), std::max(1, cores / 2));
}

}  // namespace
}  // namespace cad::backend
