// ir/random.h -- the one definition of randomness: Philox4x32-10, counter based. Shared by the
// reference interpreter, parameter initialisation and the kernels, which must agree bit for bit.
//
//   key     = 64 bits: mix(seed, hash(site), loop numbers)    -- stream_key()
//   counter = (element low, element high, step low, step high)
// One Philox block per element: word 0 gives the uniform, words 0 and 1 the normal (Box-Muller).
// `element` is the row-major index in the *global* tensor (rows counted over the whole step).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace cad::ir {

std::array<uint32_t, 4> philox(uint64_t key, uint64_t element, uint64_t step);
uint64_t site_hash(std::string_view site);
uint64_t stream_key(uint64_t seed, uint64_t site_hash, std::span<const int64_t> loop_numbers);

inline float uniform01(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1.0p-24F;
}  // [0, 1)
float standard_normal(uint32_t word0, uint32_t word1);
// dropout keeps an element when uniform01(word 0) >= p.

}  // namespace cad::ir
