// backend/comm/world.cc -- a device's queue of collectives.
#include "backend/comm/world.h"

#include <chrono>

namespace cad::backend {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Communicator::Communicator(World& world, int device)
    : world_(world), device_(device), thread_([this] { work(); }) {}

Communicator::~Communicator() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Communicator::Ticket Communicator::start(const CollectiveCall& call, const void* in, void* out,
                                         Stretch* when) {
  Ticket ticket;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({&call, in, out, when});
    ticket = ++started_;
  }
  changed_.notify_all();
  return ticket;
}

bool Communicator::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  if (finished_ < ticket && !failed_) {
    const double begin = now();
    changed_.wait(lock, [&] { return finished_ >= ticket || failed_; });
    times_.blocked += now() - begin;
  }
  return finished_ >= ticket && !failed_;
}

Communicator::Times Communicator::times() const {
  const std::lock_guard lock(mutex_);
  return times_;
}

void Communicator::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = jobs_.front();
    jobs_.pop_front();
    bool good = !failed_;
    if (good) {
      const uint64_t sequence = sequences_[job.call->members]++;
      lock.unlock();
      const int64_t begin = now_ns();
      good = world_.run(device_, *job.call, sequence, job.in, job.out);
      const int64_t end = now_ns();
      if (job.when != nullptr) *job.when = {begin, end};
      lock.lock();
      times_.busy += static_cast<double>(end - begin) * 1e-9;
    }
    failed_ = failed_ || !good;
    ++finished_;
    lock.unlock();
    changed_.notify_all();
    lock.lock();
  }
}

}  // namespace cad::backend
