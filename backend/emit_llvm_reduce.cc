// backend/emit_llvm_reduce.cc -- reductions: accumulators in registers (several a reduction when
// the loop is unrolled), combined in a fixed order, then across lanes. See backend/emit_llvm.h.
#include <cmath>
#include <limits>

#include "backend/emit_llvm.h"
#include "base/check.h"

namespace cad::backend {

using Kind = kernel::Reduction::Kind;

namespace {
constexpr uint32_t kNoIndex = 0x7FFFFFFF;
}

llvm::Value* StageEmitter::identity(Kind kind, llvm::Type* type) {
  if (kind == Kind::kSum) return llvm::Constant::getNullValue(type);
  const bool high = kind == Kind::kMin;
  if (type->isFPOrFPVectorTy()) return llvm::ConstantFP::getInfinity(type, /*Negative=*/!high);
  return llvm::ConstantInt::get(type, high ? 0x7FFFFFFFULL : 0x80000000ULL);
}

// Sums add; max and min keep NaN.
llvm::Value* StageEmitter::combine(Kind kind, Value* a, Value* b) {
  const bool floats = a->getType()->isFPOrFPVectorTy();
  if (kind == Kind::kSum) return floats ? b_.CreateFAdd(a, b) : b_.CreateAdd(a, b);
  if (!floats) {
    Value* first = kind == Kind::kMin ? b_.CreateICmpSLT(a, b) : b_.CreateICmpSGT(a, b);
    return b_.CreateSelect(first, a, b);
  }
  // unordered: b where a is a number (then b is NaN), else a
  Value* first = kind == Kind::kMin ? b_.CreateFCmpOLT(a, b) : b_.CreateFCmpOGT(a, b);
  return b_.CreateSelect(b_.CreateOr(first, b_.CreateFCmpUNO(a, a)), a, b);
}

// Halves of the vector are combined until one lane is left.
llvm::Value* StageEmitter::across_lanes(Kind kind, Value* vector) {
  for (int width = n_ / 2; width >= 1; width /= 2) {
    std::vector<int> upper(static_cast<size_t>(n_), -1);
    for (int lane = 0; lane < width; ++lane) upper[static_cast<size_t>(lane)] = lane + width;
    vector =
        combine(kind, vector,
                b_.CreateShuffleVector(vector, llvm::UndefValue::get(vector->getType()), upper));
  }
  return b_.CreateExtractElement(vector, b_.getInt64(0));
}

void StageEmitter::open_reduction(size_t r, int copies) {
  const kernel::Reduction& reduction = s_.reductions[r];
  llvm::Type* type = register_type(reduction.dtype);
  llvm::Type* index = b_.getInt32Ty();
  if (lane_dim_ >= 0) {
    type = llvm::FixedVectorType::get(type, static_cast<unsigned>(n_));
    index = llvm::FixedVectorType::get(index, static_cast<unsigned>(n_));
  }
  for (int copy = 0; copy < copies; ++copy) {
    llvm::IRBuilderBase::InsertPoint here = b_.saveIP();
    b_.SetInsertPoint(entry_, entry_->begin());
    accumulators_[r].push_back(b_.CreateAlloca(type));
    if (reduction.index >= 0) index_accumulators_[r].push_back(b_.CreateAlloca(index));
    b_.restoreIP(here);
    const Kind kind = reduction.kind == Kind::kArgmax ? Kind::kMax : reduction.kind;
    b_.CreateStore(identity(kind, type), accumulators_[r].back());
    if (reduction.index >= 0)
      b_.CreateStore(llvm::ConstantInt::get(index, kNoIndex), index_accumulators_[r].back());
  }
}

void StageEmitter::feed_reduction(size_t r, int copy, Value* x, Value* index) {
  const kernel::Reduction& reduction = s_.reductions[r];
  Value* place = accumulators_[r][static_cast<size_t>(copy)];
  llvm::Type* type = register_type(reduction.dtype);
  if (lane_dim_ >= 0) {
    type = llvm::FixedVectorType::get(type, static_cast<unsigned>(n_));
    if (!x->getType()->isVectorTy()) x = splat(x);
  }
  // lanes beyond the end count for nothing
  Value* mask = lanes_are_rows_ ? nullptr : mask_;
  Value* so_far = b_.CreateLoad(type, place);
  if (reduction.kind != Kind::kArgmax) {
    if (mask != nullptr) x = b_.CreateSelect(mask, x, identity(reduction.kind, type));
    b_.CreateStore(combine(reduction.kind, so_far, x), place);
    return;
  }
  Value* index_place = index_accumulators_[r][static_cast<size_t>(copy)];
  if (lane_dim_ >= 0 && !index->getType()->isVectorTy()) index = splat(index);
  Value* so_far_index = b_.CreateLoad(index->getType(), index_place);
  const bool floats = type->isFPOrFPVectorTy();
  Value* better = floats ? b_.CreateFCmpOGT(x, so_far) : b_.CreateICmpSGT(x, so_far);
  Value* equal = floats ? b_.CreateFCmpOEQ(x, so_far) : b_.CreateICmpEQ(x, so_far);
  better = b_.CreateOr(better, b_.CreateAnd(equal, b_.CreateICmpSLT(index, so_far_index)));
  if (mask != nullptr) better = b_.CreateAnd(better, mask);
  b_.CreateStore(b_.CreateSelect(better, x, so_far), place);
  b_.CreateStore(b_.CreateSelect(better, index, so_far_index), index_place);
}

// Loads the result: one value a row, or a vector of rows a copy.
void StageEmitter::close_reduction(size_t r, int copies) {
  const kernel::Reduction& reduction = s_.reductions[r];
  llvm::Type* type = register_type(reduction.dtype);
  llvm::Type* index_type = b_.getInt32Ty();
  if (lane_dim_ >= 0) {
    type = llvm::FixedVectorType::get(type, static_cast<unsigned>(n_));
    index_type = llvm::FixedVectorType::get(index_type, static_cast<unsigned>(n_));
  }
  const bool argmax = reduction.kind == Kind::kArgmax;
  std::vector<Value*> totals, indices;
  for (int copy = 0; copy < copies; ++copy) {
    totals.push_back(b_.CreateLoad(type, accumulators_[r][static_cast<size_t>(copy)]));
    if (argmax)
      indices.push_back(
          b_.CreateLoad(index_type, index_accumulators_[r][static_cast<size_t>(copy)]));
  }
  auto found = [&](Value* index) {  // nothing was comparable: index 0
    Value* none = b_.CreateICmpEQ(index, llvm::ConstantInt::get(index->getType(), kNoIndex));
    return b_.CreateSelect(none, llvm::Constant::getNullValue(index->getType()), index);
  };
  if (lanes_are_rows_ || lane_dim_ < 0) {
    for (int copy = 0; copy < copies; ++copy)
      results_[r].push_back(argmax ? found(indices[static_cast<size_t>(copy)])
                                   : totals[static_cast<size_t>(copy)]);
    return;
  }
  if (!argmax) {
    Value* total = totals[0];
    for (size_t copy = 1; copy < totals.size(); ++copy)
      total = combine(reduction.kind, total, totals[copy]);
    results_[r].push_back(across_lanes(reduction.kind, total));
    return;
  }
  Value* best = totals[0];
  for (size_t copy = 1; copy < totals.size(); ++copy)
    best = combine(Kind::kMax, best, totals[copy]);
  Value* top = splat(across_lanes(Kind::kMax, best));
  Value* lowest = nullptr;
  for (size_t copy = 0; copy < totals.size(); ++copy) {
    const bool floats = type->isFPOrFPVectorTy();
    Value* here = floats ? b_.CreateFCmpOEQ(totals[copy], top) : b_.CreateICmpEQ(totals[copy], top);
    Value* candidate =
        b_.CreateSelect(here, indices[copy], llvm::ConstantInt::get(index_type, kNoIndex));
    lowest = lowest == nullptr ? candidate : combine(Kind::kMin, lowest, candidate);
  }
  results_[r].push_back(found(across_lanes(Kind::kMin, lowest)));
}

}  // namespace cad::backend
