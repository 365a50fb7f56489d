// backend/emit_llvm_expr.cc -- scalar expressions: arithmetic, comparisons, casts, indices. Scalars
// stay scalars until they meet a vector. Random values: emit_llvm_random.cc. See
// backend/emit_llvm.h.
#include <limits>

#include "backend/emit_llvm.h"
#include "backend/vector_math.h"
#include "base/check.h"

namespace cad::backend {

using ir::DType;
using ir::Op;
using kernel::Expr;
using kernel::ExprId;

llvm::Type* StageEmitter::register_type(DType dtype) {
  if (dtype == DType::kI32) return b_.getInt32Ty();
  if (dtype == DType::kBool) return b_.getInt1Ty();
  return b_.getFloatTy();
}

llvm::Type* StageEmitter::like(Value* x, llvm::Type* scalar) {
  return x->getType()->isVectorTy() ? static_cast<llvm::Type*>(llvm::FixedVectorType::get(
                                          scalar, static_cast<unsigned>(n_)))
                                    : scalar;
}

llvm::Value* StageEmitter::constant(llvm::Type* type, double number) {
  if (type->isFPOrFPVectorTy()) return llvm::ConstantFP::get(type, static_cast<float>(number));
  return llvm::ConstantInt::get(type, static_cast<uint64_t>(static_cast<int64_t>(number)), true);
}

// Each expression once, in the outermost scope that has all it needs.
llvm::Value* StageEmitter::value(ExprId id, int copy) {
  const Expr& e = s_.exprs[static_cast<size_t>(id)];
  const bool varies = varying_[static_cast<size_t>(id)] != 0;
  const int which = varies ? copy : 0;
  if (e.kind == Expr::Kind::kReduction) {
    const std::vector<Value*>& results = results_[static_cast<size_t>(e.reduction)];
    CAD_CHECK(static_cast<size_t>(which) < results.size(), "a reduction is used before its phase");
    return results[static_cast<size_t>(which)];
  }
  const int depth = depth_[static_cast<size_t>(id)];
  auto known = scope(depth).values.find({id, which});
  if (known != scope(depth).values.end()) return known->second;
  llvm::IRBuilderBase::InsertPointGuard guard(b_);
  llvm::BasicBlock* block = scope(depth).block;
  if (depth + 1 < static_cast<int>(scopes_.size())) {
    if (block->getTerminator() != nullptr)
      b_.SetInsertPoint(block->getTerminator());
    else
      b_.SetInsertPoint(block);
  }
  Value* result = emit_expr(e, depth, which);
  scope(depth).values[{id, which}] = result;
  return result;
}

llvm::Value* StageEmitter::emit_expr(const Expr& e, int depth, int copy) {
  switch (e.kind) {
    case Expr::Kind::kConst: {
      Value* c = constant(register_type(e.dtype), e.value);
      return e.rounds == DType::kF32 ? c : rounded(c, e.rounds);
    }
    case Expr::Kind::kLoad:
      return emit_load(e, depth, copy);
    case Expr::Kind::kIndex:
      return emit_index(e, depth, copy);
    case Expr::Kind::kRandom:
      return emit_random(e, depth, copy);
    case Expr::Kind::kReduction:
      break;
    case Expr::Kind::kOp: {
      std::vector<Value*> x;
      std::vector<DType> types;
      bool vector = false;
      for (ExprId o : e.operands) {
        x.push_back(value(o, copy));
        types.push_back(s_.exprs[static_cast<size_t>(o)].dtype);
        vector = vector || x.back()->getType()->isVectorTy();
      }
      if (vector)
        for (Value*& v : x)
          if (!v->getType()->isVectorTy()) v = splat(v);
      return emit_op(e, x, types);
    }
  }
  CAD_CHECK(false, "no such expression");
}

// i32: affine part plus computed parts.
llvm::Value* StageEmitter::emit_index(const Expr& e, int depth, int copy) {
  llvm::Type* i32 = b_.getInt32Ty();
  Value* sum = b_.CreateTrunc(scalar_address(e.linear, depth, copy), i32);
  const kernel::Slot stride = lane_stride(e.linear);
  if (stride != kernel::kZero) {
    std::vector<llvm::Constant*> numbers;
    for (int lane = 0; lane < n_; ++lane)
      numbers.push_back(b_.getInt32(static_cast<uint32_t>(lane)));
    Value* lanes = llvm::ConstantVector::get(numbers);
    if (stride != kernel::kOne)
      lanes = b_.CreateMul(lanes, splat(b_.CreateTrunc(integer(stride), i32)));
    sum = b_.CreateAdd(splat(sum), lanes);
  }
  for (const auto& [index, factor] : e.dynamic) {
    Value* i = value(index, copy);
    Value* times = b_.CreateTrunc(integer(factor), i32);
    if (i->getType()->isVectorTy()) {
      times = splat(times);
      if (!sum->getType()->isVectorTy()) sum = splat(sum);
    }
    Value* term = b_.CreateMul(i, times);
    if (sum->getType()->isVectorTy() && !term->getType()->isVectorTy()) term = splat(term);
    sum = b_.CreateAdd(sum, term);
  }
  return sum;
}

llvm::Value* StageEmitter::rounded(Value* x, DType to) {
  if (to == DType::kBF16) return to_register(VectorMath(b_).round_to_bf16(x), DType::kBF16);
  if (to == DType::kF16)
    return b_.CreateFPExt(b_.CreateFPTrunc(x, like(x, b_.getHalfTy())), x->getType());
  return x;
}

// Towards zero; out of range to the nearest end, NaN to 0.
llvm::Value* StageEmitter::to_i32(Value* x) {
  llvm::Type* i32 = like(x, b_.getInt32Ty());
  llvm::Type* type = x->getType();
  Value* low = llvm::ConstantFP::get(type, -2147483648.0);
  Value* high = llvm::ConstantFP::get(
      type, type->getScalarType()->isDoubleTy() ? 2147483647.0 : 2147483520.0);
  Value* number = b_.CreateSelect(b_.CreateFCmpUNO(x, x), llvm::Constant::getNullValue(type), x);
  Value* inside = b_.CreateSelect(b_.CreateFCmpOLT(number, low), low, number);
  inside = b_.CreateSelect(b_.CreateFCmpOGT(inside, high), high, inside);
  Value* whole = b_.CreateFPToSI(inside, i32);
  Value* over = b_.CreateFCmpOGE(number, llvm::ConstantFP::get(type, 2147483648.0));
  return b_.CreateSelect(over, llvm::ConstantInt::get(i32, 0x7FFFFFFF), whole);
}

llvm::Value* StageEmitter::emit_cast(const Expr& e, Value* x, DType from) {
  switch (e.dtype) {
    case DType::kI32:
      if (from == DType::kF32) return to_i32(x);
      return from == DType::kBool ? b_.CreateZExt(x, like(x, b_.getInt32Ty())) : x;
    case DType::kBool:
      if (from == DType::kF32)
        return b_.CreateFCmpUNE(x, llvm::Constant::getNullValue(x->getType()));
      return from == DType::kI32 ? b_.CreateICmpNE(x, llvm::Constant::getNullValue(x->getType()))
                                 : x;
    default: {
      llvm::Type* type = like(x, b_.getFloatTy());
      if (from == DType::kI32) x = b_.CreateSIToFP(x, type);
      if (from == DType::kBool)
        x = b_.CreateSelect(x, llvm::ConstantFP::get(type, 1), llvm::ConstantFP::get(type, 0));
      return rounded(x, e.rounds);
    }
  }
}

// Exact through f64; by 0: 0.
llvm::Value* StageEmitter::floor_divide(Value* a, Value* b) {
  llvm::Type* f64 = like(a, b_.getDoubleTy());
  Value* quotient = b_.CreateFDiv(b_.CreateSIToFP(a, f64), b_.CreateSIToFP(b, f64));
  Value* whole = to_i32(VectorMath(b_).floor(quotient));
  Value* zero = llvm::Constant::getNullValue(b->getType());
  return b_.CreateSelect(b_.CreateICmpEQ(b, zero), zero, whole);
}

llvm::Value* StageEmitter::per_lane(const char* symbol, llvm::Type* result,
                                    const std::vector<Value*>& x) {
  std::vector<llvm::Type*> types;
  for (Value* v : x) types.push_back(v->getType()->getScalarType());
  llvm::FunctionCallee callee =
      module_.getOrInsertFunction(symbol, llvm::FunctionType::get(result, types, false));
  if (!x[0]->getType()->isVectorTy()) return b_.CreateCall(callee, x);
  Value* vector =
      llvm::UndefValue::get(llvm::FixedVectorType::get(result, static_cast<unsigned>(n_)));
  for (int lane = 0; lane < n_; ++lane) {
    std::vector<Value*> elements;
    for (Value* v : x)
      elements.push_back(b_.CreateExtractElement(v, b_.getInt64(static_cast<uint64_t>(lane))));
    vector = b_.CreateInsertElement(vector, b_.CreateCall(callee, elements),
                                    b_.getInt64(static_cast<uint64_t>(lane)));
  }
  return vector;
}

llvm::Value* StageEmitter::emit_float_op(Op op, const std::vector<Value*>& x) {
  VectorMath math(b_);
  Value* a = x[0];
  Value* b = x.size() > 1 ? x[1] : nullptr;
  switch (op) {
    case Op::kAdd:
      return b_.CreateFAdd(a, b);
    case Op::kSub:
      return b_.CreateFSub(a, b);
    case Op::kMul:
      return b_.CreateFMul(a, b);
    case Op::kDiv:
      return b_.CreateFDiv(a, b);
    case Op::kFloorDiv:
      return math.floor(b_.CreateFDiv(a, b));
    case Op::kMod:
      return b_.CreateFSub(a, b_.CreateFMul(math.floor(b_.CreateFDiv(a, b)), b));
    case Op::kPow: {
      llvm::Type* f64 = like(a, b_.getDoubleTy());
      Value* power =
          per_lane(kPowSymbol, b_.getDoubleTy(), {b_.CreateFPExt(a, f64), b_.CreateFPExt(b, f64)});
      return b_.CreateFPTrunc(power, a->getType());
    }
    case Op::kMin:
      return b_.CreateSelect(b_.CreateOr(b_.CreateFCmpOLE(a, b), b_.CreateFCmpUNO(a, a)), a, b);
    case Op::kMax:
      return b_.CreateSelect(b_.CreateOr(b_.CreateFCmpOGE(a, b), b_.CreateFCmpUNO(a, a)), a, b);
    case Op::kNeg:
      return b_.CreateFNeg(a);
    case Op::kAbs:
      return math.abs(a);
    case Op::kExp:
      return math.exp(a);
    case Op::kLog:
      return math.log(a);
    case Op::kSqrt:
      return math.sqrt(a);
    case Op::kRsqrt:
      return b_.CreateFDiv(llvm::ConstantFP::get(a->getType(), 1), math.sqrt(a));
    case Op::kSin:
      return math.sin(a);
    case Op::kCos:
      return math.cos(a);
    case Op::kTanh:
      return math.tanh(a);
    case Op::kErf:
      return math.erf(a);
    case Op::kSigmoid:
      return math.sigmoid(a);
    case Op::kSoftplus:
      return math.softplus(a);
    default:
      CAD_CHECK(false, "op `{}` of floats has no code", ir::op_name(op));
  }
}

llvm::Value* StageEmitter::emit_int_op(Op op, const std::vector<Value*>& x) {
  Value* a = x[0];
  Value* b = x.size() > 1 ? x[1] : nullptr;
  switch (op) {
    case Op::kAdd:
      return b_.CreateAdd(a, b);
    case Op::kSub:
      return b_.CreateSub(a, b);
    case Op::kMul:
      return b_.CreateMul(a, b);
    case Op::kFloorDiv:
      return floor_divide(a, b);
    case Op::kMod:
      return b_.CreateSub(a, b_.CreateMul(floor_divide(a, b), b));
    case Op::kPow: {
      llvm::Type* f64 = like(a, b_.getDoubleTy());
      return to_i32(per_lane(kPowSymbol, b_.getDoubleTy(),
                             {b_.CreateSIToFP(a, f64), b_.CreateSIToFP(b, f64)}));
    }
    case Op::kMin:
      return b_.CreateSelect(b_.CreateICmpSLE(a, b), a, b);
    case Op::kMax:
      return b_.CreateSelect(b_.CreateICmpSGE(a, b), a, b);
    case Op::kNeg:
      return b_.CreateNeg(a);
    case Op::kAbs:
      return b_.CreateSelect(b_.CreateICmpSLT(a, llvm::Constant::getNullValue(a->getType())),
                             b_.CreateNeg(a), a);
    default:
      CAD_CHECK(false, "op `{}` of i32 has no code", ir::op_name(op));
  }
}

llvm::Value* StageEmitter::emit_comparison(Op op, Value* a, Value* b) {
  const bool floats = a->getType()->isFPOrFPVectorTy();
  switch (op) {
    case Op::kEq:
      return floats ? b_.CreateFCmpOEQ(a, b) : b_.CreateICmpEQ(a, b);
    case Op::kNe:
      return floats ? b_.CreateFCmpUNE(a, b) : b_.CreateICmpNE(a, b);
    case Op::kLt:
      return floats ? b_.CreateFCmpOLT(a, b) : b_.CreateICmpSLT(a, b);
    case Op::kLe:
      return floats ? b_.CreateFCmpOLE(a, b) : b_.CreateICmpSLE(a, b);
    case Op::kGt:
      return floats ? b_.CreateFCmpOGT(a, b) : b_.CreateICmpSGT(a, b);
    case Op::kGe:
      return floats ? b_.CreateFCmpOGE(a, b) : b_.CreateICmpSGE(a, b);
    default:
      return nullptr;
  }
}

llvm::Value* StageEmitter::emit_op(const Expr& e, const std::vector<Value*>& x,
                                   const std::vector<DType>& types) {
  switch (e.op) {
    case Op::kEq:
    case Op::kNe:
    case Op::kLt:
    case Op::kLe:
    case Op::kGt:
    case Op::kGe:
      return emit_comparison(e.op, x[0], x[1]);
    case Op::kAnd:
      return b_.CreateAnd(x[0], x[1]);
    case Op::kOr:
      return b_.CreateOr(x[0], x[1]);
    case Op::kNot:
      return b_.CreateNot(x[0]);
    case Op::kWhere:
      return b_.CreateSelect(x[0], x[1], x[2]);
    case Op::kCast:
      return emit_cast(e, x[0], types[0]);
    default:
      return types[0] == DType::kF32 ? emit_float_op(e.op, x) : emit_int_op(e.op, x);
  }
}

}  // namespace cad::backend
