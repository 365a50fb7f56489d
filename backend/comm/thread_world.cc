// backend/comm/thread_world.cc -- see thread_world.h. A collective is: all members post their
// buffers and meet; each takes what it needs, phase by phase, and they meet after every phase, so
// that nobody's buffer changes while others read it.
#include "backend/comm/thread_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/check.h"

namespace cad::backend {

struct ThreadWorld::Meeting {
  struct Post {
    std::span<const Move> moves;
    uint64_t sequence = 0;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Post> posts;        // by member
  std::vector<uint64_t> arrived;  // by member: how often it has come
  uint64_t round = 0;             // how often all have met
  int taking = 0;                 // members that read others' buffers just now
  bool failed = false;
};

ThreadWorld::ThreadWorld(int devices, double timeout_s, double patience_s)
    : devices_(devices),
      timeout_s_(timeout_s),
      patience_s_(patience_s > 0 ? patience_s : kCommPatience * timeout_s) {}
ThreadWorld::~ThreadWorld() = default;

ThreadWorld::Meeting& ThreadWorld::meeting(const std::vector<int>& members) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Meeting>& m = meetings_[members];
  if (m == nullptr) {
    m = std::make_unique<Meeting>();
    m->posts.resize(members.size());
    m->arrived.assign(members.size(), 0);
    m->failed = failure_.has_value();
  }
  return *m;
}

void ThreadWorld::fail(const std::string& why) {
  std::vector<Meeting*> all;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = why;
    for (const auto& entry : meetings_) all.push_back(entry.second.get());
  }
  for (Meeting* m : all) {
    {
      const std::lock_guard lock(m->mutex);
      m->failed = true;
    }
    m->changed.notify_all();
  }
}

void ThreadWorld::enter(int device) {
  const std::lock_guard lock(mutex_);
  there_.insert(device);
}

void ThreadWorld::leave(int device) {
  const std::lock_guard lock(mutex_);
  there_.erase(device);
}

bool ThreadWorld::there(int device) const {
  const std::lock_guard lock(mutex_);
  return there_.count(device) != 0;
}

std::optional<std::string> ThreadWorld::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool ThreadWorld::meet(Meeting& m, std::unique_lock<std::mutex>& lock, int index,
                       const char* what) {
  const uint64_t mine = ++m.arrived[static_cast<size_t>(index)];
  bool all = true;
  for (uint64_t a : m.arrived) all = all && a >= mine;
  if (all) {
    m.round = mine;
    m.changed.notify_all();
    return !m.failed;
  }
  const CollectiveCall& call = *m.posts[static_cast<size_t>(index)].moves.front().call;
  const auto slice = std::chrono::duration<double>(std::min(0.1, timeout_s_ / 5));
  Waited waited;
  std::string gone, late;  // devices
  while (gone.empty() && waited.seconds() <= patience_s_) {
    const bool came = m.changed.wait_for(lock, slice, [&] { return m.round >= mine || m.failed; });
    if (came) return !m.failed;
    if (waited.seconds() <= timeout_s_) continue;
    late.clear();
    for (size_t i = 0; i < m.arrived.size(); ++i) {
      if (m.arrived[i] >= mine) continue;
      std::string& list = there(call.members[i]) ? late : gone;
      list += fmt::format("{}{}", list.empty() ? "" : ", ", call.members[i]);
    }
  }
  const std::string why =
      fmt::format("device {} waited {:g} s {} {}, number {} of its group{}: {}",
                  call.members[static_cast<size_t>(index)], gone.empty() ? patience_s_ : timeout_s_,
                  what, call.str(), m.posts[static_cast<size_t>(index)].sequence,
                  call.label.empty() ? "" : fmt::format(" ({})", call.label),
                  gone.empty() ? fmt::format("device {} is at work, but does not come", late)
                               : "no sign of device " + gone);
  lock.unlock();
  fail(why);
  lock.lock();
  return false;
}

// A member that leaves a failed meeting may free its buffers: nobody may be reading them.
bool ThreadWorld::give_up(Meeting& m, std::unique_lock<std::mutex>& lock) {
  m.changed.wait(lock, [&] { return m.taking == 0; });
  return false;
}

namespace {

// Takes the device's pieces of one phase from all members.
template <class Posts>
void take(const Posts& posts, size_t number, const CollectiveCall& call, int phase, int me,
          void* out, std::vector<Source>& sources) {
  const auto move_of = [&](int from) -> const Move& {
    return posts[static_cast<size_t>(from)].moves[number];
  };
  const int n = call.size();
  const Piece first = piece(call, phase, 0, me);
  if (first.action == Piece::Action::kReduce) {
    for (int from = 0; from < n; ++from)
      sources[static_cast<size_t>(from)] = {move_of(from).in, false};
    take_reduced(call, first, sources, out);
    return;
  }
  for (int step = 0; step < n; ++step) {
    const int from = (me + step) % n;  // not all from the same member at once
    const Piece p = piece(call, phase, from, me);
    take_copy(call, p, {p.from_out ? move_of(from).out : move_of(from).in, false}, out);
  }
}

}  // namespace

bool ThreadWorld::run(int device, std::span<const Move> moves, uint64_t sequence) {
  const CollectiveCall& call = *moves.front().call;
  const int me = call.index_of(device);
  CAD_CHECK(me >= 0, "device {} is not in the group of its {}", device, call.str());
  Meeting& m = meeting(call.members);
  const auto self = static_cast<size_t>(me);
  {
    std::unique_lock lock(m.mutex);
    if (m.failed) return false;
    m.posts[self] = {moves, sequence};
    if (!meet(m, lock, me, "at")) return give_up(m, lock);
    const size_t peer = self == 0 ? 1 % m.posts.size() : 0;
    const Meeting::Post& other = m.posts[peer];
    if (const std::optional<size_t> at =
            first_difference(moves, sequence, other.moves, other.sequence)) {
      const std::string why = fmt::format(
          "devices {} and {} disagree: {} is at {}, number {}; {} at {}, number {}", device,
          call.members[peer], device, moves[std::min(*at, moves.size() - 1)].call->str(), sequence,
          call.members[peer], other.moves[std::min(*at, other.moves.size() - 1)].call->str(),
          other.sequence);
      lock.unlock();
      fail(why);
      lock.lock();
      return give_up(m, lock);
    }
    ++m.taking;
  }
  std::vector<Source> sources(static_cast<size_t>(call.size()));
  for (int phase = 0; phase < phases(call.kind); ++phase) {
    // posts do not change before all have left the last meeting
    for (size_t i = 0; i < moves.size(); ++i)
      take(m.posts, i, *moves[i].call, phase, me, moves[i].out, sources);
    std::unique_lock lock(m.mutex);
    if (--m.taking == 0) m.changed.notify_all();
    if (!meet(m, lock, me, "in")) return give_up(m, lock);
    if (phase + 1 < phases(call.kind)) ++m.taking;
  }
  return true;
}

}  // namespace cad::backend
