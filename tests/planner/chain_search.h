// tests/planner/chain_search.h -- least time of a chain by best-first search over everything that
// memory can hold (A*, Dijkstra's search with what every unfinished stage still takes at least as
// the estimate). It knows the operations and what they need, nothing of the recurrence. Only
// persistent schedules: an input that is kept stays until its stage's backward is done, and is
// then dropped at once, as nothing can read it. At most 12 stages with 3 options.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "planner/chain.h"

namespace cad::planner {

class ChainSearch {
 public:
  ChainSearch(const Chain& chain, int64_t budget)
      : chain_(chain), budget_(budget), n_(static_cast<int>(chain.stages.size())) {}

  // Nothing when no schedule fits.
  std::optional<double> run() {
    Held start;
    start.back = static_cast<uint32_t>(n_);
    reach(start, 0);
    while (!queue_.empty()) {
      const Entry entry = queue_.top();
      queue_.pop();
      if (best_[entry.key] < entry.time) continue;
      const Held held = unpack(entry.key);
      if (held.back == 0) return entry.time;
      expand(held, entry.time);
    }
    return std::nullopt;
  }

 private:
  struct Held {
    uint32_t back = 0;       // stages from here on have run backward
    uint32_t transient = 0;  // the stage whose input was just made and is not kept; 0: none
    uint32_t kept = 1;       // inputs that are kept, a bit a stage
    uint32_t saved = 0;      // 2 bits a stage: 1 + option, 0: not saved
  };
  struct Entry {
    double estimate = 0, time = 0;
    uint64_t key = 0;
    bool operator<(const Entry& other) const { return estimate > other.estimate; }
  };
  static uint64_t pack(const Held& h) {
    return h.back | uint64_t{h.transient} << 4 | uint64_t{h.kept} << 8 | uint64_t{h.saved} << 24;
  }
  static Held unpack(uint64_t key) {
    return {static_cast<uint32_t>(key & 15), static_cast<uint32_t>(key >> 4 & 15),
            static_cast<uint32_t>(key >> 8 & 0xffff), static_cast<uint32_t>(key >> 24)};
  }
  static int saved(const Held& h, int s) { return static_cast<int>(h.saved >> (2 * s) & 3) - 1; }
  static bool kept(const Held& h, int s) { return (h.kept >> s & 1) != 0; }
  [[nodiscard]] int64_t in(int s) const {
    return s == 0 ? chain_.input : chain_.stages[s - 1].output;
  }
  [[nodiscard]] int64_t out(int s) const { return chain_.stages[s].output; }
  static bool has(const Held& h, int s) {
    return kept(h, s) || (s > 0 && (static_cast<int>(h.transient) == s || saved(h, s - 1) >= 0));
  }
  [[nodiscard]] int64_t memory(const Held& h) const {
    const int back = static_cast<int>(h.back);
    int64_t sum = back == n_ ? out(n_ - 1) : in(back);  // the gradient
    if (h.transient > 0) sum += in(static_cast<int>(h.transient));
    for (int s = 0; s < n_; ++s) {
      if (kept(h, s)) sum += in(s);
      if (saved(h, s) >= 0) sum += chain_.stages[s].options[saved(h, s)].saved;
    }
    return sum;
  }
  // Every unfinished stage has a backward to do, and a forward if it is not saved.
  [[nodiscard]] double at_least(const Held& h) const {
    double sum = 0;
    for (int s = 0; s < static_cast<int>(h.back); ++s) {
      const auto& options = chain_.stages[s].options;
      if (saved(h, s) >= 0) {
        sum += options[saved(h, s)].backward;
        continue;
      }
      double least = options[0].forward + options[0].backward;
      for (const StageOption& o : options) least = std::min(least, o.forward + o.backward);
      sum += least;
    }
    return sum;
  }
  void reach(const Held& held, double time) {
    const uint64_t key = pack(held);
    const auto [it, fresh] = best_.insert({key, time});
    if (!fresh && it->second <= time) return;
    it->second = time;
    queue_.push({time + at_least(held), time, key});
  }

  void expand(const Held& held, double time) {
    const int64_t now = memory(held);
    for (int s = 0; s < static_cast<int>(held.back); ++s) {
      if (!has(held, s)) continue;
      // a transient is for the very next operation, or else it is kept
      const bool other = held.transient > 0 && static_cast<int>(held.transient) != s;
      if (other) continue;
      const auto& options = chain_.stages[s].options;
      for (int o = 0; o < static_cast<int>(options.size()); ++o) {
        const StageOption& option = options[o];
        Held keeping = held;
        if (held.transient > 0) keeping.kept |= 1U << s;
        keeping.transient = 0;
        if (s + 1 < static_cast<int>(held.back) && !has(held, s + 1) &&
            now + out(s) + option.forward_tmp <= budget_) {
          Held next = keeping;
          next.transient = static_cast<uint32_t>(s + 1);
          reach(next, time + option.forward);
          next.kept = held.kept;  // as it was: the transient input goes
          reach(next, time + option.forward);
        }
        if (saved(held, s) < 0 && now + option.saved + option.forward_tmp <= budget_) {
          Held next = keeping;
          next.saved |= static_cast<uint32_t>(o + 1) << (2 * s);
          reach(next, time + option.forward);
        }
        if (saved(held, s) == o && static_cast<int>(held.back) == s + 1 &&
            now + in(s) + option.backward_tmp <= budget_) {
          Held next = keeping;
          next.saved &= ~(3U << (2 * s));
          next.back = static_cast<uint32_t>(s);
          if (s > 0) next.kept &= ~(1U << s);
          reach(next, time + option.backward);
        }
      }
    }
  }

  const Chain& chain_;
  int64_t budget_ = 0;
  int n_ = 0;
  std::unordered_map<uint64_t, double> best_;
  std::priority_queue<Entry> queue_;
};

inline std::optional<double> search_chain(const Chain& chain, int64_t budget) {
  return ChainSearch(chain, budget).run();
}

}  // namespace cad::planner
