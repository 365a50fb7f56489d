// backend/arena.cc -- greedy best-fit placement.
#include "backend/arena.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace cad::backend {

namespace {

// Puts intervals in the given order into the smallest gap that fits, else on top.
int64_t place_in_order(std::vector<Interval>& intervals, const std::vector<size_t>& order) {
  std::vector<size_t> placed;  // by offset
  std::vector<size_t> overlapping;
  int64_t top = 0;
  for (const size_t index : order) {
    Interval& mine = intervals[index];
    if (mine.bytes == 0) {
      mine.offset = 0;
      continue;
    }
    int64_t best = -1, best_gap = 0, end = 0;
    for (const size_t other_index : placed) {
      const Interval& other = intervals[other_index];
      if (other.last < mine.first || mine.last < other.first) continue;
      const int64_t gap = other.offset - end;
      if (gap >= mine.bytes && (best < 0 || gap < best_gap)) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, aligned(other.offset + other.bytes));
    }
    mine.offset = best >= 0 ? best : end;
    top = std::max(top, mine.offset + mine.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), index,
                                   [&](size_t x, size_t y) {
                                     return intervals[x].offset < intervals[y].offset;
                                   }),
                  index);
  }
  return top;
}

}  // namespace

int64_t place(std::vector<Interval>& intervals) {
  std::vector<size_t> order(intervals.size());
  const std::array<bool (*)(const Interval&, const Interval&), 4> orders = {
      [](const Interval& x, const Interval& y) { return x.bytes > y.bytes; },
      [](const Interval& x, const Interval& y) {
        return x.last - x.first > y.last - y.first ||
               (x.last - x.first == y.last - y.first && x.bytes > y.bytes);
      },
      [](const Interval& x, const Interval& y) { return x.first < y.first; },
      [](const Interval& x, const Interval& y) {
        return static_cast<double>(x.bytes) * (x.last - x.first + 1) >
               static_cast<double>(y.bytes) * (y.last - y.first + 1);
      }};
  int64_t best = -1;
  std::vector<Interval> best_placed;
  for (const auto& before : orders) {
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t x, size_t y) { return before(intervals[x], intervals[y]); });
    std::vector<Interval> tried = intervals;
    const int64_t top = place_in_order(tried, order);
    if (best < 0 || top < best) {
      best = top;
      best_placed = std::move(tried);
    }
  }
  intervals = std::move(best_placed);
  return std::max<int64_t>(best, 0);
}

}  // namespace cad::backend
