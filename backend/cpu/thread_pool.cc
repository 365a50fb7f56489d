// backend/cpu/thread_pool.cc -- see the header. The job and its data are plain members: they are
// published by the release increment of epoch_ and read after its acquire, by threads that have
// taken their part of it, which run() waits for.
#include "backend/cpu/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace cad::backend {

namespace {

// About 20-50 us of spinning: longer than the gaps between steps, short enough for an idle program.
constexpr int kSpins = 2000;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

int cgroup_cores() {
  std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "r");
  if (file == nullptr) return 0;
  char quota[32] = {};
  long long period = 0;
  const int fields = std::fscanf(file, "%31s %lld", quota, &period);
  std::fclose(file);
  if (fields != 2 || period <= 0 || std::strcmp(quota, "max") == 0) return 0;
  return static_cast<int>((std::atoll(quota) + period - 1) / period);
}

}  // namespace

int ThreadPool::available_cores() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  const int quota = cgroup_cores();
  if (quota > 0) cores = std::min(cores, quota);
  return std::max(cores, 1);
}

ThreadPool::ThreadPool(int threads, bool spin)
    : size_(threads > 0 ? threads : available_cores()),
      spins_(spin ? kSpins : 0),
      parts_(static_cast<size_t>(size_)) {
  threads_.reserve(static_cast<size_t>(size_ - 1));
  try {
    for (int thread = 1; thread < size_; ++thread)
      threads_.emplace_back([this, thread] { work(thread); });
  } catch (...) {  // no memory for another one: those that run must end first
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run(Job job, void* data, bool help) {
  if (size_ == 1) {
    job(data, 0);
    return;
  }
  job_ = job;
  data_ = data;
  pending_.store(size_ - 1, std::memory_order_relaxed);
  const uint32_t epoch = epoch_.fetch_add(1, std::memory_order_release) + 1;
  epoch_.notify_all();
  job(data, 0);
  // What no thread has begun by now is not waited for: where others use the cores as well, it may
  // be milliseconds until that thread runs.
  for (int thread = 1; help && thread < size_; ++thread) {
    if (!take(thread, epoch)) continue;
    job(data, thread);
    pending_.fetch_sub(1, std::memory_order_relaxed);
  }
  for (int spin = 0;; ++spin) {
    const int32_t left = pending_.load(std::memory_order_acquire);
    if (left == 0) return;
    if (spin < spins_) {
      pause();
    } else {
      pending_.wait(left, std::memory_order_acquire);
    }
  }
}

bool ThreadPool::take(int thread, uint32_t epoch) {
  std::atomic<uint32_t>& taken = parts_[static_cast<size_t>(thread)].taken;
  uint32_t last = taken.load(std::memory_order_relaxed);
  // a thread that was held up may come with an epoch that is over
  while (static_cast<int32_t>(last - epoch) < 0) {
    if (taken.compare_exchange_weak(last, epoch, std::memory_order_relaxed)) return true;
  }
  return false;
}

void ThreadPool::work(int thread) {
  uint32_t seen = 0;
  for (;;) {
    uint32_t epoch = 0;
    for (int spin = 0; (epoch = epoch_.load(std::memory_order_acquire)) == seen; ++spin) {
      if (spin < spins_) {
        pause();
      } else {
        epoch_.wait(seen, std::memory_order_acquire);
      }
    }
    seen = epoch;
    if (stop_.load(std::memory_order_relaxed)) return;
    if (!take(thread, epoch)) continue;
    job_(data_, thread);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

}  // namespace cad::backend
