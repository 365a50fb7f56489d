// backend/stored_type.cc -- conversions of backend/stored_type.h: through int64 or double, checked.
#include "backend/stored_type.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include <fmt/format.h>

namespace cad::backend {

int stored_bytes(StoredType type) {
  switch (type) {
    case StoredType::kBool:
    case StoredType::kU8:
    case StoredType::kI8:
      return 1;
    case StoredType::kU16:
    case StoredType::kI16:
    case StoredType::kF16:
    case StoredType::kBF16:
      return 2;
    case StoredType::kU32:
    case StoredType::kI32:
    case StoredType::kF32:
      return 4;
    case StoredType::kU64:
    case StoredType::kI64:
    case StoredType::kF64:
      return 8;
  }
  return 0;
}

const char* stored_name(StoredType type) {
  static const char* const names[] = {"BOOL", "U8",  "I8",  "U16",  "I16", "U32", "I32",
                                      "U64",  "I64", "F16", "BF16", "F32", "F64"};
  return names[static_cast<int>(type)];
}

bool stored_is_float(StoredType type) {
  return type >= StoredType::kF16;
}

float f16_to_f32(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}

uint16_t f32_to_f16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const float magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isnan(value)) return sign | 0x7e00;
  if (magnitude >= 65520.0F) return sign | 0x7c00;
  // In units of the last place at this exponent, rounded to even by nearbyint.
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int shift = std::max(exponent - 11, -24);
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -shift)));
  // Normal: units in [1024, 2048]; the carry to 2048 moves into the exponent field by addition.
  if (shift == -24) return sign | static_cast<uint16_t>(units);
  return sign | static_cast<uint16_t>((static_cast<uint32_t>(shift + 24) << 10) + units);
}

uint16_t f32_to_bf16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

namespace {

template <class T>
T load(const std::byte* at, bool swap) {
  std::byte bytes[sizeof(T)];
  std::memcpy(bytes, at, sizeof(T));
  if (swap) std::reverse(bytes, bytes + sizeof(T));
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

bool store(ir::DType to, std::byte* at, double value) {
  switch (to) {
    case ir::DType::kI32: {
      if (!(value >= -2147483648.0 && value <= 2147483647.0) || value != std::trunc(value)) {
        return false;
      }
      const auto whole = static_cast<int32_t>(value);
      std::memcpy(at, &whole, 4);
      return true;
    }
    case ir::DType::kBool: {
      if (value != 0.0 && value != 1.0) return false;
      *at = static_cast<std::byte>(value != 0.0);
      return true;
    }
    case ir::DType::kF32: {
      const auto narrow = static_cast<float>(value);
      if (std::isinf(narrow) && !std::isinf(value)) return false;
      std::memcpy(at, &narrow, 4);
      return true;
    }
    case ir::DType::kF16:
    case ir::DType::kBF16: {
      const auto narrow = static_cast<float>(value);
      const bool half = to == ir::DType::kF16;
      const uint16_t bits = half ? f32_to_f16(narrow) : f32_to_bf16(narrow);
      const float back = half ? f16_to_f32(bits) : bf16_to_f32(bits);
      if (std::isinf(back) && !std::isinf(value)) return false;
      std::memcpy(at, &bits, 2);
      return true;
    }
  }
  return false;
}

// `decode` turns one stored element into a number.
template <class T, class Decode>
int64_t convert_all(const std::byte* source, bool swap, int64_t count, ir::DType to,
                    std::byte* target, std::string& value, Decode decode) {
  const int width = ir::dtype_bytes(to);
  for (int64_t i = 0; i < count; ++i) {
    const auto element = decode(load<T>(source + i * static_cast<int64_t>(sizeof(T)), swap));
    // 64-bit whole numbers beyond 2^53 only ever fail or go to floats: the double is near enough.
    if (!store(to, target + i * width, static_cast<double>(element))) {
      value = fmt::format("{}", element);
      return i;
    }
  }
  return -1;
}

template <class T>
T identity(T x) {
  return x;
}

}  // namespace

int64_t convert_elements(StoredType from, const std::byte* source, bool swap, int64_t count,
                         ir::DType to, std::byte* target, std::string& value) {
  const bool same = (from == StoredType::kF32 && to == ir::DType::kF32) ||
                    (from == StoredType::kI32 && to == ir::DType::kI32);
  if (same && !swap) {
    std::memcpy(target, source, static_cast<size_t>(count) * 4);
    return -1;
  }
  switch (from) {
#define CAD_CONVERT(kind, type, decode) \
  case StoredType::kind:                \
    return convert_all<type>(source, swap, count, to, target, value, decode);
    CAD_CONVERT(kBool, uint8_t, [](uint8_t x) { return x != 0 ? 1 : 0; })
    CAD_CONVERT(kU8, uint8_t, identity<int>)
    CAD_CONVERT(kI8, int8_t, identity<int>)
    CAD_CONVERT(kU16, uint16_t, identity<int>)
    CAD_CONVERT(kI16, int16_t, identity<int>)
    CAD_CONVERT(kU32, uint32_t, identity<uint32_t>)
    CAD_CONVERT(kI32, int32_t, identity<int32_t>)
    CAD_CONVERT(kU64, uint64_t, identity<uint64_t>)
    CAD_CONVERT(kI64, int64_t, identity<int64_t>)
    CAD_CONVERT(kF16, uint16_t, f16_to_f32)
    CAD_CONVERT(kBF16, uint16_t, bf16_to_f32)
    CAD_CONVERT(kF32, float, identity<float>)
    CAD_CONVERT(kF64, double, identity<double>)
#undef CAD_CONVERT
  }
  return 0;
}

}  // namespace cad::backend
