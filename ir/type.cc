// ir/type.cc -- dtype names and sizes, look-ups in a type's dims.
#include "ir/type.h"

#include <algorithm>

namespace cad::ir {

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kI32:
      return "i32";
    case DType::kBool:
      return "bool";
  }
  return "?";
}

int dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kBool:
      return 1;
  }
  return 0;
}

bool Type::has(DimId dim) const {
  return position(dim) >= 0;
}

int Type::position(DimId dim) const {
  auto at = std::find(dims.begin(), dims.end(), dim);
  return at == dims.end() ? -1 : static_cast<int>(at - dims.begin());
}

}  // namespace cad::ir
