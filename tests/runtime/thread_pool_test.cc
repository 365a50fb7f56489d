// The pool: every thread takes part, every index is done once, thousands of short jobs in a row.
#include "backend/cpu/thread_pool.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace cad::backend {
namespace {

TEST(ThreadPool, EveryThreadRunsOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    std::vector<int> ran(static_cast<size_t>(threads));
    for (int round = 0; round < 500; ++round) {
      pool.each([&](int thread) { ++ran[static_cast<size_t>(thread)]; });
    }
    for (const int times : ran) EXPECT_EQ(times, 500);
  }
}

TEST(ThreadPool, SplitCoversInUnits) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (const int64_t n : {0, 1, 2, 7, 64, 1000}) {
      for (const int64_t grain : {1, 3, 16, 2000}) {
        std::vector<int> done(static_cast<size_t>(n));
        pool.split(n, grain, [&](int64_t begin, int64_t end) {
          EXPECT_EQ(begin % grain, 0);
          EXPECT_LT(begin, end);
          for (int64_t i = begin; i < end; ++i) ++done[static_cast<size_t>(i)];
        });
        EXPECT_EQ(std::accumulate(done.begin(), done.end(), int64_t{0}), n);
        for (const int times : done) EXPECT_EQ(times, 1);
      }
    }
  }
}

TEST(ThreadPool, DynamicDoesEachIndexOnce) {
  ThreadPool pool(3);
  for (const int64_t n : {0, 1, 2, 100}) {
    std::vector<int> done(static_cast<size_t>(n));
    pool.dynamic(n, [&](int64_t i, int thread) {
      EXPECT_LT(thread, 3);
      ++done[static_cast<size_t>(i)];
    });
    for (const int times : done) EXPECT_EQ(times, 1);
  }
}

// After a pause the threads sleep: they have to wake up.
TEST(ThreadPool, WakesFromSleep) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::vector<int> ran(2);
    pool.each([&](int thread) { ran[static_cast<size_t>(thread)] = 1; });
    EXPECT_EQ(ran[0] + ran[1], 2);
  }
}

std::atomic<bool> held{false}, go_on{false};

// Holds up the thread that the signal was sent to.
void hold(int) {
  held = true;
  while (!go_on) std::this_thread::yield();
}

// Where others use the cores too, a thread may not run for milliseconds.
TEST(ThreadPool, AThreadThatIsHeldUpIsNotWaitedFor) {
  ThreadPool pool(2);
  std::vector<pthread_t> threads(2);
  pool.on_each([&](int thread) { threads[static_cast<size_t>(thread)] = pthread_self(); });
  ASSERT_FALSE(pthread_equal(threads[0], threads[1]));
  const auto before = std::signal(SIGUSR1, hold);
  ASSERT_EQ(pthread_kill(threads[1], SIGUSR1), 0);
  while (!held) std::this_thread::yield();
  std::vector<int> ran(2);
  for (int round = 0; round < 100; ++round) {
    pool.each([&](int thread) {
      EXPECT_TRUE(pthread_equal(pthread_self(), threads[0]));
      ++ran[static_cast<size_t>(thread)];
    });
  }
  go_on = true;
  // it finds its place again: the epochs that it missed are over
  for (int round = 0; round < 10000; ++round)
    pool.each([&](int thread) { ++ran[static_cast<size_t>(thread)]; });
  bool itself = false;
  pool.on_each([&](int thread) {
    if (thread == 1) itself = pthread_equal(pthread_self(), threads[1]) != 0;
  });
  std::signal(SIGUSR1, before);
  EXPECT_TRUE(itself);
  EXPECT_EQ(ran, (std::vector<int>{10100, 10100}));
}

TEST(ThreadPool, KnowsTheMachine) {
  EXPECT_GE(ThreadPool::available_cores(), 1);
}

}  // namespace
}  // namespace cad::backend
