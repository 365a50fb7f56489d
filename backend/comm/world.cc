// backend/comm/world.cc -- a device's queue of collectives.
#include "backend/comm/world.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "base/exit_code.h"

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

std::optional<size_t> first_difference(std::span<const Move> mine, uint64_t sequence,
                                       std::span<const Move> theirs, uint64_t their_sequence) {
  if (sequence != their_sequence) return 0;
  const size_t both = std::min(mine.size(), theirs.size());
  for (size_t i = 0; i < both; ++i)
    if (!mine[i].call->fits(*theirs[i].call)) return i;
  if (mine.size() != theirs.size()) return both;
  return std::nullopt;
}

double Waited::seconds() {
  constexpr double kSlow = 0.5;
  const Clock::time_point now = Clock::now();
  sum_ += std::min(kSlow, std::chrono::duration<double>(now - last_).count());
  last_ = now;
  return sum_;
}

std::string World::name_of(int device) const {
  return fmt::format("device {}", device);
}

Communicator::Communicator(World& world, int device)
    : world_(world), device_(device), thread_([this] { work(); }) {
  world_.enter(device_);
}

Communicator::~Communicator() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  world_.leave(device_);
}

Communicator::Ticket Communicator::start(std::vector<Move> moves, Stretch* when) {
  Ticket ticket;
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(moves), when});
    ticket = ++started_;
  }
  changed_.notify_all();
  return ticket;
}

bool Communicator::run(std::vector<Move> moves, Stretch* when) {
  {
    std::unique_lock lock(mutex_);
    if (finished_ == started_) {
      ++started_;
      const double begin = now();
      carry_out({std::move(moves), when}, lock);
      times_.blocked += now() - begin;
      return !failed_;
    }
  }
  return wait(start(std::move(moves), when));
}

void Communicator::carry_out(const Job& job, std::unique_lock<std::mutex>& lock) {
  bool good = !failed_;
  if (good) {
    const uint64_t sequence = sequences_[job.moves.front().call->members]++;
    lock.unlock();
    const int64_t begin = now_ns();
    good = world_.run(device_, job.moves, sequence);
    const int64_t end = now_ns();
    if (job.when != nullptr) *job.when = {begin, end};
    lock.lock();
    times_.busy += static_cast<double>(end - begin) * 1e-9;
  }
  failed_ = failed_ || !good;
  ++finished_;
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
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    carry_out(job, lock);
    lock.unlock();
    changed_.notify_all();
    lock.lock();
  }
}

Diagnostic ended_by_another(const std::string& why) {
  Diagnostic error = make_error(DiagId::E1001, why, kExitRunFailed);
  error.note("what was saved before is intact: `--resume` goes on from there");
  return error;
}

}  // namespace cad::backend
