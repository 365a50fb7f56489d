// ir/random.cc -- Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011), and the keys of streams. Checked against the paper's known answers in tests.
#include "ir/random.h"

#include <cmath>

namespace cad::ir {

std::array<uint32_t, 4> philox(uint64_t key, uint64_t element, uint64_t step) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  std::array<uint32_t, 4> c{static_cast<uint32_t>(element), static_cast<uint32_t>(element >> 32),
                            static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)};
  auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kMultiplier0} * c[0], p1 = uint64_t{kMultiplier1} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key1, static_cast<uint32_t>(p0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

// FNV-1a.
uint64_t site_hash(std::string_view site) {
  uint64_t hash = 0xCBF29CE484222325;
  for (char c : site) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

namespace {

// The finaliser of splitmix64: every input bit reaches every output bit.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t stream_key(uint64_t seed, uint64_t site_hash, std::span<const int64_t> loop_numbers) {
  uint64_t key = mix(mix(seed) ^ site_hash);
  for (int64_t number : loop_numbers) key = mix(key ^ static_cast<uint64_t>(number));
  return key;
}

// Box-Muller, computed in double so that every caller rounds the same value once. word0 of 0 stands
// for 2^-24, the least uniform above 0.
float standard_normal(uint32_t word0, uint32_t word1) {
  const double u = ((word0 >> 8) + 1.0) * 0x1.0p-24;
  const double angle = 6.283185307179586 * ((word1 >> 8) * 0x1.0p-24);
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(angle));
}

}  // namespace cad::ir
