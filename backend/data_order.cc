// backend/data_order.cc -- the Feistel permutation of backend/data_order.h.
#include "backend/data_order.h"

#include <array>

#include "ir/random.h"

namespace cad::backend {

int64_t permute(int64_t index, int64_t size, uint64_t key) {
  if (size <= 1) return 0;
  int bits = 1;
  while (bits < 62 && (int64_t{1} << bits) < size) ++bits;
  const int half = (bits + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  auto value = static_cast<uint64_t>(index);
  // The network permutes [0, 2^(2*half)), at most 4 * size (8 for tiny sizes); outsiders walk on.
  do {
    uint64_t left = value >> half, right = value & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      const std::array<uint32_t, 4> words = ir::philox(key, right, round);
      const uint64_t mixed = (uint64_t{words[1]} << 32 | words[0]) & mask;
      const uint64_t next = left ^ mixed;
      left = right;
      right = next;
    }
    value = left << half | right;
  } while (value >= static_cast<uint64_t>(size));
  return static_cast<int64_t>(value);
}

int64_t RowOrder::row(int64_t n) const {
  if (rows == INT64_MAX) return n;
  if (!shuffled) return n % rows;
  const std::array<int64_t, 2> numbers = {stream, n / rows};
  return permute(n % rows, rows, ir::stream_key(seed, ir::site_hash("data order"), numbers));
}

}  // namespace cad::backend
