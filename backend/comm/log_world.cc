// backend/comm/log_world.cc -- see log_world.h.
#include "backend/comm/log_world.h"

#include <fmt/format.h>

namespace cad::backend {

bool LogWorld::run(int device, std::span<const Move> moves, uint64_t sequence) {
  for (const Move& move : moves) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) return false;
      const CollectiveCall& call = *move.call;
      log_.push_back(fmt::format("{} {}{}", sequence, call.str(),
                                 call.label.empty() ? "" : ": " + call.label));
    }
    play(device, *move.call, move.in, move.out);
  }
  return true;
}

void LogWorld::play(int device, const CollectiveCall& call, const void* in, void* out) {
  const int me = call.index_of(device), n = call.size();
  for (int phase = 0; phase < phases(call.kind); ++phase) {
    const Piece first = piece(call, phase, 0, me);
    if (first.action == Piece::Action::kReduce) {
      take_reduced(call, first, std::vector<Source>(static_cast<size_t>(n), {in, false}), out);
      continue;
    }
    for (int from = 0; from < n; ++from) {
      Piece p = piece(call, phase, from, me);
      if (p.from_out) {  // the others' slices of the sum: from equal inputs, taken like the own
        p.action = Piece::Action::kReduce;
        p.from_out = false;
        take_reduced(call, p, std::vector<Source>(static_cast<size_t>(n), {in, false}), out);
      } else {
        take_copy(call, p, {in, false}, out);
      }
    }
  }
}

void LogWorld::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = why;
}

std::optional<std::string> LogWorld::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::vector<std::string> LogWorld::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

}  // namespace cad::backend
