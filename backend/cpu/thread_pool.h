// backend/cpu/thread_pool.h -- fork-join over a fixed set of threads. The caller is thread 0 and
// takes part. Between jobs the others spin for some microseconds, then sleep on a futex
// (std::atomic::wait), so that a train step of hundreds of short kernels pays little for each.
// Not a task queue: one job at a time, from one caller.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace cad::backend {

class ThreadPool {
 public:
  // 0: all cores this process may use. Without `spin` idle threads sleep at once: for pools that
  // together have more threads than cores.
  explicit ThreadPool(int threads = 0, bool spin = true);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int size() const { return size_; }
  static int available_cores();  // affinity mask and cgroup quota

  // f(thread) for every thread, once each; returns when all are done. The caller does the parts
  // that no thread has begun when it is done with its own, so parts must not wait for each other.
  template <class F>
  void each(F&& f) {
    run(call<F>(), const_cast<void*>(static_cast<const void*>(&f)), true);
  }
  // f(thread) on the thread itself: for what belongs to threads.
  template <class F>
  void on_each(F&& f) {
    run(call<F>(), const_cast<void*>(static_cast<const void*>(&f)), false);
  }
  // f(begin, end) on contiguous parts of [0, n), in units of `grain`; the split depends on n, grain
  // and size() alone. Runs on the caller when there is only one part.
  template <class F>
  void split(int64_t n, int64_t grain, F&& f) {
    if (n <= 0) return;
    const int64_t units = (n + grain - 1) / grain;
    const int64_t parts = units < size_ ? units : size_;
    if (parts <= 1) {
      f(int64_t{0}, n);
      return;
    }
    each([&](int thread) {
      if (thread >= parts) return;
      const int64_t begin = units * thread / parts * grain;
      const int64_t end = units * (thread + 1) / parts * grain;
      if (begin < end) f(begin, end < n ? end : n);
    });
  }
  // f(index, thread) for every index of [0, n), handed out in order as threads get free. For work
  // of uneven size whose results do not depend on who does it.
  template <class F>
  void dynamic(int64_t n, F&& f) {
    if (n <= 0) return;
    if (n == 1 || size_ == 1) {
      for (int64_t i = 0; i < n; ++i) f(i, 0);
      return;
    }
    std::atomic<int64_t> next{0};
    each([&](int thread) {
      for (;;) {
        const int64_t i = next.fetch_add(1, std::memory_order_relaxed);
        if (i >= n) return;
        f(i, thread);
      }
    });
  }

 private:
  using Job = void (*)(void* data, int thread);
  template <class F>
  static Job call() {
    using Function = std::remove_reference_t<F>;
    return [](void* data, int thread) { (*static_cast<Function*>(data))(thread); };
  }

  // Of one thread: which job's part was taken last, by it or by the caller.
  struct alignas(64) Part {
    std::atomic<uint32_t> taken{0};
  };

  void run(Job job, void* data, bool help);
  bool take(int thread, uint32_t epoch);
  void work(int thread);
  void stop();

  int size_ = 1, spins_ = 0;
  std::vector<Part> parts_;  // by thread
  std::vector<std::thread> threads_;
  Job job_ = nullptr;
  void* data_ = nullptr;
  alignas(64) std::atomic<uint32_t> epoch_{0};   // a job is out when it changes
  alignas(64) std::atomic<int32_t> pending_{0};  // threads still at work
  alignas(64) std::atomic<bool> stop_{false};
};

}  // namespace cad::backend
