// backend/stored_type.h -- element types of files (wider than the language's own) and their
// conversion to the language's. Shared by the safetensors and npy readers.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "ir/type.h"

namespace cad::backend {

enum class StoredType : uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF16,
  kBF16,
  kF32,
  kF64
};

int stored_bytes(StoredType type);
const char* stored_name(StoredType type);  // safetensors' names: "F32", "BOOL"
bool stored_is_float(StoredType type);

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);  // round to nearest even
inline float bf16_to_f32(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, 4);
  return value;
}
uint16_t f32_to_bf16(float value);  // round to nearest even

// Converts `count` elements. `swap`: the file's bytes are in the other order.
// Returns the index of the first element that does not fit `to`, or -1: i32 takes whole numbers in
// its range, bool 0 and 1, f32 anything but a finite number beyond its range. `value` describes it.
int64_t convert_elements(StoredType from, const std::byte* source, bool swap, int64_t count,
                         ir::DType to, std::byte* target, std::string& value);

}  // namespace cad::backend
