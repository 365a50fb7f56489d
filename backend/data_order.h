// backend/data_order.h -- in which order rows are drawn. Shuffled: for each epoch a permutation of
// 0..rows-1 computed on demand (a Feistel network whose round function is Philox, walked until it
// lands inside), so nothing is stored and row n can be found without the rows before it.
#pragma once

#include <cstdint>

namespace cad::backend {

// The image of `index` under the permutation of [0, size) that `key` names.
int64_t permute(int64_t index, int64_t size, uint64_t key);

struct RowOrder {
  int64_t rows = 0;
  bool shuffled = false;
  uint64_t seed = 0;
  int64_t stream = 0;  // number of the source in a tuple
  // File row of the run's n-th row; wraps at the end of an epoch.
  [[nodiscard]] int64_t row(int64_t n) const;
};

}  // namespace cad::backend
