// tests/runtime/values.h -- shared by the tests of this folder: random tensors, and the bytes of a
// tensor as programs store them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "backend/cpu/half.h"
#include "ir/interpreter.h"
#include "ir/op.h"

namespace cad::backend::testing {

// 64-byte aligned memory, filled with 0xFF: a NaN in every float type.
class Memory {
 public:
  explicit Memory(size_t bytes = 0) : bytes_(bytes) {
    data_.reset(static_cast<char*>(std::aligned_alloc(64, (bytes + 64 + 63) / 64 * 64)));
    std::memset(data_.get(), 0xFF, (bytes + 64 + 63) / 64 * 64);
  }
  [[nodiscard]] void* get() const { return data_.get(); }
  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Free> data_;
  size_t bytes_;
};

inline int64_t count(const std::vector<int64_t>& extents) {
  int64_t n = 1;
  for (const int64_t extent : extents) n *= extent;
  return n;
}

inline double stored(const void* data, int64_t i, ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kF32:
      return static_cast<const float*>(data)[i];
    case ir::DType::kBF16:
      return bf16_to_float(static_cast<const uint16_t*>(data)[i]);
    case ir::DType::kF16:
      return f16_to_float(static_cast<const uint16_t*>(data)[i]);
    case ir::DType::kI32:
      return static_cast<const int32_t*>(data)[i];
    case ir::DType::kBool:
      return static_cast<const uint8_t*>(data)[i];
  }
  return 0;
}

inline void put_stored(void* data, int64_t i, ir::DType dtype, double x) {
  switch (dtype) {
    case ir::DType::kF32:
      static_cast<float*>(data)[i] = static_cast<float>(x);
      break;
    case ir::DType::kBF16:
      static_cast<uint16_t*>(data)[i] = float_to_bf16(static_cast<float>(x));
      break;
    case ir::DType::kF16:
      static_cast<uint16_t*>(data)[i] = float_to_f16(static_cast<float>(x));
      break;
    case ir::DType::kI32:
      static_cast<int32_t*>(data)[i] = static_cast<int32_t>(x);
      break;
    case ir::DType::kBool:
      static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(x);
      break;
  }
}

inline Memory to_memory(const ir::Tensor& t) {
  Memory memory(t.data.size() * static_cast<size_t>(ir::dtype_bytes(t.dtype)));
  for (size_t i = 0; i < t.data.size(); ++i)
    put_stored(memory.get(), static_cast<int64_t>(i), t.dtype, t.data[i]);
  return memory;
}

inline ir::Tensor from_memory(const Memory& memory, ir::DType dtype, std::vector<int64_t> extents) {
  ir::Tensor t;
  t.dtype = dtype;
  t.data.resize(static_cast<size_t>(count(extents)));
  for (size_t i = 0; i < t.data.size(); ++i)
    t.data[i] = stored(memory.get(), static_cast<int64_t>(i), dtype);
  t.extents = std::move(extents);
  return t;
}

// Numbers that the dtype holds exactly. i32: -1 .. below `limit`; bool: about two thirds true.
inline ir::Tensor random_tensor(ir::DType dtype, std::vector<int64_t> extents, std::mt19937& random,
                                int limit = 5) {
  ir::Tensor t;
  t.dtype = dtype;
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < count(extents); ++i) {
    double x = normal(random);
    if (dtype == ir::DType::kI32)
      x = static_cast<double>(random() % static_cast<unsigned>(limit + 1)) - 1;
    if (dtype == ir::DType::kBool) x = random() % 3 != 0 ? 1 : 0;
    char bytes[8] = {};
    put_stored(bytes, 0, dtype, x);
    t.data.push_back(stored(bytes, 0, dtype));
  }
  t.extents = std::move(extents);
  return t;
}

// Largest difference, relative to the larger of 1 and the values; infinite when NaN or inf differ.
inline double difference(const ir::Tensor& a, const ir::Tensor& b) {
  if (a.data.size() != b.data.size()) return HUGE_VAL;
  double most = 0;
  for (size_t i = 0; i < a.data.size(); ++i) {
    const double x = a.data[i], y = b.data[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (!std::isfinite(x) || !std::isfinite(y)) return HUGE_VAL;
    most = std::max(most, std::abs(x - y) / std::max({1.0, std::abs(x), std::abs(y)}));
  }
  return most;
}

inline double tolerance(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kF32:
      return 2e-5;
    case ir::DType::kBF16:
      return 2.5e-2;
    case ir::DType::kF16:
      return 3e-3;
    default:
      return 0;
  }
}

}  // namespace cad::backend::testing
