// backend/vector_math.cc -- see backend/vector_math.h. exp and log follow Cephes (reduction by
// Cody and Waite), sin and cos reduce in double, tanh and erf are rational minimax approximations.
#include "backend/vector_math.h"

#include <limits>

#include "llvm/IR/Intrinsics.h"

namespace cad::backend {

using llvm::Value;
using llvm::Intrinsic::ID;

namespace {
constexpr double kRounder = 12582912.0;  // 1.5 * 2^23: adding it rounds to whole
constexpr uint32_t kRounderBits = 0x4B400000;
constexpr double kInf = std::numeric_limits<double>::infinity();
}  // namespace

llvm::Type* VectorMath::as_int(Value* like) {
  llvm::Type* i32 = b_.getInt32Ty();
  if (auto* vector = llvm::dyn_cast<llvm::VectorType>(like->getType()))
    return llvm::VectorType::get(i32, vector->getElementCount());
  return i32;
}

Value* VectorMath::number(Value* like, double value) {
  return llvm::ConstantFP::get(like->getType(), value);
}
Value* VectorMath::integer(Value* like, uint32_t bits) {
  return llvm::ConstantInt::get(as_int(like), bits);
}
Value* VectorMath::bits(Value* x) {
  return b_.CreateBitCast(x, as_int(x));
}

Value* VectorMath::floats(Value* bits) {
  llvm::Type* f32 = b_.getFloatTy();
  if (auto* vector = llvm::dyn_cast<llvm::VectorType>(bits->getType()))
    f32 = llvm::VectorType::get(f32, vector->getElementCount());
  return b_.CreateBitCast(bits, f32);
}

Value* VectorMath::multiply_add(Value* a, Value* b, Value* c) {
  return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
}

Value* VectorMath::polynomial(Value* x, std::initializer_list<double> high_to_low) {
  Value* sum = nullptr;
  for (double c : high_to_low)
    sum = sum == nullptr ? number(x, c) : multiply_add(sum, x, number(x, c));
  return sum;
}

Value* VectorMath::floor(Value* x) {
  return b_.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x);
}
Value* VectorMath::abs(Value* x) {
  return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
}
Value* VectorMath::sqrt(Value* x) {
  return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
}

Value* VectorMath::power_of_two(Value* exponent) {
  Value* biased = b_.CreateAdd(exponent, llvm::ConstantInt::get(exponent->getType(), 127));
  return floats(b_.CreateShl(biased, llvm::ConstantInt::get(exponent->getType(), 23)));
}

// e^x = 2^n e^r, |r| <= ln(2) / 2; 2^n in two factors, so that results may be denormal.
Value* VectorMath::exp(Value* x) {
  Value* low = number(x, -104.0);
  Value* high = number(x, 89.0);
  Value* z = b_.CreateSelect(b_.CreateFCmpOLT(x, low), low, x);  // NaN stays
  z = b_.CreateSelect(b_.CreateFCmpOGT(z, high), high, z);
  Value* shifted = multiply_add(z, number(x, 1.44269504088896341), number(x, kRounder));
  Value* n = b_.CreateSub(bits(shifted), integer(x, kRounderBits));
  Value* whole = b_.CreateFSub(shifted, number(x, kRounder));
  Value* r = multiply_add(whole, number(x, -0.693359375), z);
  r = multiply_add(whole, number(x, 2.12194440e-4), r);
  Value* p = polynomial(r, {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2,
                            1.6666665459e-1, 5.0000001201e-1});
  p = multiply_add(b_.CreateFMul(r, r), p, r);
  p = b_.CreateFAdd(p, number(x, 1));
  Value* half = b_.CreateAShr(n, llvm::ConstantInt::get(n->getType(), 1));
  Value* rest = b_.CreateSub(n, half);
  return b_.CreateFMul(b_.CreateFMul(p, power_of_two(half)), power_of_two(rest));
}

// x = 2^e m with m in [sqrt(1/2), sqrt(2)); denormals are scaled first.
Value* VectorMath::log(Value* x) {
  Value* tiny = b_.CreateFCmpOLT(x, number(x, 0x1p-126));
  Value* scaled = b_.CreateSelect(tiny, b_.CreateFMul(x, number(x, 0x1p25)), x);
  Value* i = bits(scaled);
  // centre the exponent so that the mantissa lies in [sqrt(1/2), sqrt(2))
  Value* shifted = b_.CreateSub(i, integer(x, 0x3F3504F3));
  Value* exponent = b_.CreateAShr(shifted, llvm::ConstantInt::get(i->getType(), 23));
  Value* mantissa =
      b_.CreateSub(i, b_.CreateShl(exponent, llvm::ConstantInt::get(i->getType(), 23)));
  Value* m = b_.CreateFSub(floats(mantissa), number(x, 1));
  Value* e = b_.CreateSIToFP(exponent, x->getType());
  e = b_.CreateFSub(e, b_.CreateSelect(tiny, number(x, 25), number(x, 0)));
  Value* p = polynomial(
      m, {7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
          -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1});
  Value* square = b_.CreateFMul(m, m);
  Value* y = b_.CreateFMul(b_.CreateFMul(p, m), square);
  y = multiply_add(e, number(x, -2.12194440e-4), y);
  y = multiply_add(square, number(x, -0.5), y);
  Value* result = b_.CreateFAdd(m, y);
  result = multiply_add(e, number(x, 0.693359375), result);
  result = b_.CreateSelect(b_.CreateFCmpOEQ(x, number(x, kInf)), x, result);
  result = b_.CreateSelect(b_.CreateFCmpOEQ(x, number(x, 0)), number(x, -kInf), result);
  // negative and NaN: NaN
  return b_.CreateSelect(b_.CreateFCmpUGE(x, number(x, 0)),
                         b_.CreateSelect(b_.CreateFCmpUNO(x, x), x, result),
                         number(x, std::numeric_limits<double>::quiet_NaN()));
}

// x P(x^2) / Q(x^2) on [-7.9, 7.9], beyond +-1.
Value* VectorMath::tanh(Value* x) {
  Value* bound = number(x, 7.90531110763549805);
  Value* z = b_.CreateSelect(b_.CreateFCmpOGT(x, bound), bound, x);
  z = b_.CreateSelect(b_.CreateFCmpOLT(z, number(x, -7.90531110763549805)),
                      number(x, -7.90531110763549805), z);
  Value* square = b_.CreateFMul(z, z);
  Value* p = polynomial(square, {-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11,
                                 5.12229709037114e-08, 1.48572235717979e-05, 6.37261928875436e-04,
                                 4.89352455891786e-03});
  Value* q = polynomial(square, {1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03,
                                 4.89352518554385e-03});
  Value* result = b_.CreateFDiv(b_.CreateFMul(z, p), q);
  return b_.CreateSelect(b_.CreateFCmpOLT(abs(x), number(x, 0.0004)), x, result);
}

Value* VectorMath::erf(Value* x) {
  Value* bound = number(x, 3.92);
  Value* z = b_.CreateSelect(b_.CreateFCmpOGT(x, bound), bound, x);
  z = b_.CreateSelect(b_.CreateFCmpOLT(z, number(x, -3.92)), number(x, -3.92), z);
  Value* square = b_.CreateFMul(z, z);
  Value* p = polynomial(square, {-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06,
                                 -5.69250639462346e-05, -7.34990630326855e-04,
                                 -2.95459980854025e-03, -1.60960333262415e-02});
  Value* q =
      polynomial(square, {-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03,
                          -7.37332916720468e-03, -1.42647390514189e-02});
  return b_.CreateFDiv(b_.CreateFMul(z, p), q);
}

// e / (1 + e) of e = e^-|x| below 0, 1 / (1 + e) above: nothing overflows, small results keep
// digits.
Value* VectorMath::sigmoid(Value* x) {
  Value* e = exp(b_.CreateFNeg(abs(x)));
  Value* above = b_.CreateFCmpOGE(x, number(x, 0));
  return b_.CreateFDiv(b_.CreateSelect(above, number(x, 1), e), b_.CreateFAdd(e, number(x, 1)));
}

// max(x, 0) + log1p(e), e = e^-|x|; log1p(e) = log(u) e / (u - 1) with u = 1 + e rounded.
Value* VectorMath::softplus(Value* x) {
  Value* e = exp(b_.CreateFNeg(abs(x)));
  Value* u = b_.CreateFAdd(e, number(x, 1));
  Value* lost = b_.CreateFSub(u, number(x, 1));
  Value* log1p = b_.CreateFDiv(b_.CreateFMul(log(u), e), lost);
  log1p = b_.CreateSelect(b_.CreateFCmpOEQ(lost, number(x, 0)), e, log1p);
  Value* positive = b_.CreateSelect(b_.CreateFCmpOLT(x, number(x, 0)), number(x, 0), x);
  return b_.CreateFAdd(positive, log1p);
}

// x - n pi/2 in double, |r| <= pi/4; polynomials in single.
Value* VectorMath::sin_cos(Value* x, bool cosine) {
  llvm::Type* f64 = b_.getDoubleTy();
  if (auto* vector = llvm::dyn_cast<llvm::VectorType>(x->getType()))
    f64 = llvm::VectorType::get(f64, vector->getElementCount());
  auto wide = [&](double c) { return llvm::ConstantFP::get(f64, c); };
  constexpr double kWideRounder = 6755399441055744.0;  // 1.5 * 2^52
  Value* d = b_.CreateFPExt(x, f64);
  Value* shifted = multiply_add(d, wide(0.63661977236758134308), wide(kWideRounder));
  Value* n = b_.CreateFSub(shifted, wide(kWideRounder));
  Value* r = multiply_add(n, wide(-1.57079632679489655800), d);
  r = multiply_add(n, wide(-6.12323399573676603587e-17), r);
  llvm::Type* i64 = b_.getInt64Ty();
  if (auto* vector = llvm::dyn_cast<llvm::VectorType>(x->getType()))
    i64 = llvm::VectorType::get(i64, vector->getElementCount());
  Value* quadrant = b_.CreateTrunc(b_.CreateBitCast(shifted, i64), as_int(x));
  if (cosine) quadrant = b_.CreateAdd(quadrant, integer(x, 1));
  Value* f = b_.CreateFPTrunc(r, x->getType());
  Value* z = b_.CreateFMul(f, f);
  Value* s = polynomial(z, {-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1});
  s = multiply_add(b_.CreateFMul(s, z), f, f);
  Value* c = polynomial(z, {2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2});
  c = b_.CreateFMul(c, b_.CreateFMul(z, z));
  c = b_.CreateFAdd(multiply_add(z, number(x, -0.5), c), number(x, 1));
  Value* one = integer(x, 1);
  Value* odd = b_.CreateICmpEQ(b_.CreateAnd(quadrant, one), one);
  Value* result = b_.CreateSelect(odd, c, s);
  Value* sign =
      b_.CreateShl(b_.CreateAnd(quadrant, integer(x, 2)), llvm::ConstantInt::get(as_int(x), 30));
  return floats(b_.CreateXor(bits(result), sign));
}

Value* VectorMath::sin(Value* x) {
  return sin_cos(x, false);
}
Value* VectorMath::cos(Value* x) {
  return sin_cos(x, true);
}

Value* VectorMath::round_to_bf16(Value* x) {
  Value* i = bits(x);
  auto c = [&](uint32_t v) { return integer(x, v); };
  Value* odd = b_.CreateAnd(b_.CreateLShr(i, c(16)), c(1));
  Value* up = b_.CreateLShr(b_.CreateAdd(i, b_.CreateAdd(odd, c(0x7FFF))), c(16));
  Value* nan = b_.CreateOr(b_.CreateLShr(i, c(16)), c(0x40));
  Value* result = b_.CreateSelect(b_.CreateFCmpUNO(x, x), nan, up);
  llvm::Type* i16 = b_.getInt16Ty();
  if (auto* vector = llvm::dyn_cast<llvm::VectorType>(x->getType()))
    i16 = llvm::VectorType::get(i16, vector->getElementCount());
  return b_.CreateTrunc(result, i16);
}

}  // namespace cad::backend
