// backend/cpu/half.h -- bf16 and f16 as stored bits to f32 and back (round to nearest even). For
// library routines; JIT kernels convert in vector code of their own.
#pragma once

#include <cstdint>
#include <cstring>

namespace cad::backend {

inline float bf16_to_float(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float f;
  std::memcpy(&f, &wide, 4);
  return f;
}
inline uint16_t float_to_bf16(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? (bits >> 16) | 0x40 : rounded);
}

inline float f16_to_float(uint16_t bits) {
  // The exponent is rebiased by a multiplication, which also makes subnormals right.
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t rest = static_cast<uint32_t>(bits & 0x7FFF) << 13;
  float f;
  uint32_t out = rest;
  if ((bits & 0x7C00) == 0x7C00) {
    out = rest | 0x7F800000;
    out |= sign;
    std::memcpy(&f, &out, 4);
    return f;
  }
  std::memcpy(&f, &out, 4);
  f *= 0x1.0p112F;
  std::memcpy(&out, &f, 4);
  out |= sign;
  std::memcpy(&f, &out, 4);
  return f;
}
inline uint16_t float_to_f16(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t size = bits & 0x7FFFFFFF;
  if (size > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00);
  if (size >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);  // rounds to 65536 or more
  if (size < 0x38800000) {  // subnormal: adding 0.5 puts the bits in place, rounded to even
    float small;
    std::memcpy(&small, &size, 4);
    small += 0.5F;
    uint32_t out;
    std::memcpy(&out, &small, 4);
    return static_cast<uint16_t>(sign | (out - 0x3F000000));
  }
  const uint32_t rounded = size + 0xFFF + ((size >> 13) & 1) - 0x38000000;
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

}  // namespace cad::backend
