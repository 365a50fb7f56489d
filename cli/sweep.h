// cli/sweep.h -- `--sweep T=1024:65536:x2`: values of a dim for a table. Several make a cross
// product. Nothing here knows what is tabulated.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/size.h"

namespace cad::cli {

struct Sweep {
  std::string dim;
  std::vector<int64_t> values;
};

inline constexpr size_t kMostPoints = 100'000;  // of all sweeps together

// NAME=FROM:TO:xK (times K up to TO), NAME=FROM:TO:+K, NAME=A,B,C. E0512 for anything else: no
// value, a step that does not grow, sizes past 64 bits, more than kMostPoints.
Result<Sweep> parse_sweep(const std::string& text);

// Every combination, the first sweep slowest, over `bindings`. E0512 when there are too many or a
// dim is swept twice.
Result<std::vector<ir::Bindings>> sweep_points(const std::vector<Sweep>& sweeps,
                                               const ir::Bindings& bindings);

}  // namespace cad::cli
