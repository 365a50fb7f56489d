// backend/shard.h -- the block of a tensor that one device has, as numbers: which elements of the
// whole lie where in its buffer. Parameters, optimizer states, data and files share it. With one
// device every block is whole. Layouts themselves are in planner/layout.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/layout.h"

namespace cad::backend {

struct Shard {
  std::vector<int64_t> whole;       // extents of the whole tensor
  std::vector<int64_t> padded;      // of the buffer: those of the device that has most
  std::vector<planner::Range> own;  // what the device has of it, at the buffer's start
  // Of the devices that have the same block, the one that writes it and counts it in sums.
  bool counts = true;

  [[nodiscard]] int64_t elements() const;  // of the buffer
  [[nodiscard]] int64_t own_elements() const;
  [[nodiscard]] int64_t whole_elements() const;
  [[nodiscard]] bool is_whole() const;  // the buffer is the tensor
};

Shard whole_shard(std::vector<int64_t> extents);
// At these coordinates along every axis of the mesh. A partial layout counts everywhere.
Shard shard_of(const planner::Layout& layout, std::vector<int64_t> extents,
               const planner::Mesh& mesh, std::span<const int> coordinates);

// f(offset in the buffer, offset in the whole, elements) for every stretch of the own elements that
// are neighbours in both, in order.
template <class F>
void each_stretch(const Shard& shard, F&& f) {
  if (shard.own_elements() == 0) return;
  // Dims from `split` on are whole: they and the dim before them make one stretch.
  size_t split = shard.whole.size();
  int64_t inner = 1;
  while (split > 0 && shard.padded[split - 1] == shard.whole[split - 1] &&
         shard.own[split - 1].extent == shard.whole[split - 1]) {
    inner *= shard.whole[--split];
  }
  if (split == 0) return f(int64_t{0}, int64_t{0}, inner);
  const planner::Range last = shard.own[split - 1];
  std::vector<int64_t> at(split - 1, 0);
  for (;;) {
    int64_t here = 0, there = 0;
    for (size_t d = 0; d + 1 < split; ++d) {
      here = here * shard.padded[d] + at[d];
      there = there * shard.whole[d] + shard.own[d].offset + at[d];
    }
    here = here * shard.padded[split - 1];
    there = there * shard.whole[split - 1] + last.offset;
    f(here * inner, there * inner, last.extent * inner);
    size_t d = split - 1;
    while (d > 0 && ++at[d - 1] == shard.own[d - 1].extent) at[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace cad::backend
