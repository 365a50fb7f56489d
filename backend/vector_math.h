// backend/vector_math.h -- elementary functions of f32 as inline LLVM IR, for scalars and vectors
// alike. Polynomials and range reductions of our own: no library of vector functions is needed, and
// every host computes the same bits. Error bounds are tested in tests/kernels/math_test.cc.
#pragma once

#include "llvm/IR/IRBuilder.h"

namespace cad::backend {

class VectorMath {
 public:
  explicit VectorMath(llvm::IRBuilder<>& builder) : b_(builder) {}
  llvm::Value* exp(llvm::Value* x);  // <= 2 ulp, denormal results too
  llvm::Value* log(llvm::Value* x);  // <= 2 ulp; 0 -> -inf, negative -> NaN
  llvm::Value* tanh(llvm::Value* x);
  llvm::Value* erf(llvm::Value* x);
  llvm::Value* sigmoid(llvm::Value* x);
  llvm::Value* softplus(llvm::Value* x);
  llvm::Value* sin(llvm::Value* x);  // reduction in f64: good to |x| = 1e6 and more
  llvm::Value* cos(llvm::Value* x);
  llvm::Value* floor(llvm::Value* x);
  llvm::Value* abs(llvm::Value* x);
  llvm::Value* sqrt(llvm::Value* x);
  llvm::Value* round_to_bf16(llvm::Value* x);  // i16 bits, nearest even, NaN stays NaN

 private:
  llvm::Value* number(llvm::Value* like, double value);
  llvm::Value* integer(llvm::Value* like, uint32_t bits);  // i32 of the same width
  llvm::Type* as_int(llvm::Value* like);
  llvm::Value* bits(llvm::Value* x);
  llvm::Value* floats(llvm::Value* bits);
  llvm::Value* multiply_add(llvm::Value* a, llvm::Value* b, llvm::Value* c);
  llvm::Value* polynomial(llvm::Value* x, std::initializer_list<double> high_to_low);
  llvm::Value* sin_cos(llvm::Value* x, bool cosine);
  llvm::Value* power_of_two(llvm::Value* exponent);  // i32 in [-126, 127] -> float

  llvm::IRBuilder<>& b_;
};

}  // namespace cad::backend
