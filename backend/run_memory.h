// backend/run_memory.h -- the one allocation of a device: persistent tensors first, then a region
// that the programs of a step use in turn. Its size is known before anything runs and is what a
// run's predicted peak means. Bytes behind the region fault (guard page); the region is poisoned
// before the first step, so the highest byte ever touched can be found afterwards.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace cad::backend {

constexpr int64_t kAlignment = 64;
inline int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

class RunMemory {
 public:
  RunMemory() = default;
  RunMemory(const RunMemory&) = delete;
  RunMemory& operator=(const RunMemory&) = delete;
  ~RunMemory();

  // E0703 when the machine (or its cgroup) does not have that much, or `budget` (0: none) is less.
  // `sharing`: devices that use the machine's memory, this one included.
  Status allocate(int64_t persistent_bytes, int64_t region_bytes, int64_t budget = 0,
                  int sharing = 1);
  [[nodiscard]] std::byte* persistent() const { return base_; }
  [[nodiscard]] std::byte* region() const { return base_ + persistent_; }
  [[nodiscard]] int64_t bytes() const { return persistent_ + region_; }
  void poison_region();
  // Highest byte touched, from the start, in units of kAlignment.
  [[nodiscard]] int64_t touched_bytes() const;

  // Bytes this process may use: the machine's, or its cgroup's limit.
  static int64_t machine_bytes();

 private:
  void* mapping_ = nullptr;
  int64_t mapped_ = 0;
  std::byte* base_ = nullptr;
  int64_t persistent_ = 0, region_ = 0;
};

std::string bytes_text(int64_t bytes);  // "61.3 MiB"

}  // namespace cad::backend
