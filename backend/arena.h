// backend/arena.h -- static offsets for buffers with known lifetimes. Knows nothing of steps or
// values; backend/schedule.h supplies the lifetimes.
#pragma once

#include <cstdint>
#include <vector>

namespace cad::backend {

inline constexpr int64_t kAlignment = 64;
inline int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

struct Interval {
  int64_t bytes = 0;
  int32_t first = 0, last = 0;  // inclusive
  int64_t offset = 0;           // set by place()
};

// Gives every interval an aligned offset such that no two that are live together overlap; returns
// the highest end. Several greedy orders are tried (largest first, longest first, earliest first)
// with best-fit gaps, and the lowest result is kept.
int64_t place(std::vector<Interval>& intervals);

}  // namespace cad::backend
