// backend/emit_llvm_memory.cc -- addresses, loads and stores: contiguous, one for all lanes, or
// gathered, in every storage dtype. See backend/emit_llvm.h.
#include <cstddef>

#include "backend/emit_llvm.h"
#include "backend/vector_math.h"
#include "base/check.h"

namespace cad::backend {

using ir::DType;
using kernel::Expr;
using kernel::Slot;

llvm::Value* StageEmitter::pointer_to(Value* pointer, llvm::Type* type) {
  return b_.CreateBitCast(pointer, llvm::PointerType::get(type, 0));
}

// An argument slot, loaded once in the entry block.
llvm::Value* StageEmitter::integer(Slot slot) {
  if (slot == kernel::kZero) return b_.getInt64(0);
  if (slot == kernel::kOne) return b_.getInt64(1);
  Value*& known = integers_[slot];
  if (known != nullptr) return known;
  llvm::IRBuilderBase::InsertPointGuard guard(b_);
  if (entry_->getTerminator() != nullptr)
    b_.SetInsertPoint(entry_->getTerminator());
  else
    b_.SetInsertPoint(entry_);
  llvm::Type* i64 = b_.getInt64Ty();
  llvm::Type* byte = b_.getInt8Ty();
  Value* field = b_.CreateGEP(byte, args_, b_.getInt64(offsetof(KernelArgs, ints)));
  Value* ints = b_.CreateLoad(llvm::PointerType::get(i64, 0),
                              pointer_to(field, llvm::PointerType::get(i64, 0)));
  known = b_.CreateLoad(i64, b_.CreateGEP(i64, ints, b_.getInt64(static_cast<uint64_t>(slot))));
  return known;
}

kernel::Slot StageEmitter::lane_stride(const kernel::Linear& linear) const {
  if (lane_dim_ < 0 || static_cast<size_t>(lane_dim_) >= linear.strides.size())
    return kernel::kZero;
  return linear.strides[static_cast<size_t>(lane_dim_)];
}

// The address at loop variables of up to `depth`; each loop adds its part in its own scope.
llvm::Value* StageEmitter::base_address(const kernel::Linear& linear, int depth) {
  Scope& here = scope(depth);
  auto known = here.addresses.find(&linear);
  if (known != here.addresses.end()) return known->second;
  Value* sum = depth == 0 ? integer(linear.offset) : base_address(linear, depth - 1);
  llvm::IRBuilderBase::InsertPointGuard guard(b_);
  if (here.block->getTerminator() != nullptr)
    b_.SetInsertPoint(here.block->getTerminator());
  else
    b_.SetInsertPoint(here.block);
  for (size_t d = 0; d < linear.strides.size(); ++d) {
    if (depth == 0 || depth_of_dim_[d] != depth || linear.strides[d] == kernel::kZero) continue;
    Value* term = linear.strides[d] == kernel::kOne
                      ? variable_[d]
                      : b_.CreateMul(variable_[d], integer(linear.strides[d]));
    sum = b_.CreateAdd(sum, term);
  }
  return scope(depth).addresses[&linear] = sum;
}

// Of the first lane of vector `copy`.
llvm::Value* StageEmitter::scalar_address(const kernel::Linear& linear, int depth, int copy) {
  Value* base = base_address(linear, depth);
  Slot stride = lane_stride(linear);
  if (copy == 0 || stride == kernel::kZero) return base;
  Value* ahead = b_.getInt64(static_cast<uint64_t>(copy) * static_cast<uint64_t>(n_));
  if (stride != kernel::kOne) ahead = b_.CreateMul(ahead, integer(stride));
  return b_.CreateAdd(base, ahead);
}

llvm::Value* StageEmitter::lane_offsets(const kernel::Linear& linear, Value* scalar) {
  Slot stride = lane_stride(linear);
  if (stride == kernel::kZero) return splat(scalar);
  std::vector<llvm::Constant*> numbers;
  for (int lane = 0; lane < n_; ++lane) numbers.push_back(b_.getInt64(static_cast<uint64_t>(lane)));
  Value* lanes = llvm::ConstantVector::get(numbers);
  if (stride != kernel::kOne) lanes = b_.CreateMul(lanes, splat(integer(stride)));
  return b_.CreateAdd(splat(scalar), lanes);
}

llvm::Type* StageEmitter::stored_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return b_.getFloatTy();
    case DType::kBF16:
      return b_.getInt16Ty();
    case DType::kF16:
      return b_.getHalfTy();
    case DType::kI32:
      return b_.getInt32Ty();
    case DType::kBool:
      return b_.getInt8Ty();
  }
  return nullptr;
}

// Element pointer(s) of a buffer; the base pointer is loaded once in the entry block.
llvm::Value* StageEmitter::buffer_pointer(int32_t buffer, Value* element) {
  const kernel::Buffer& info = k_.buffers[static_cast<size_t>(buffer)];
  llvm::Type* type = stored_type(info.dtype);
  Value*& base = buffers_[buffer];
  if (base == nullptr) {
    Value* at = info.scratch ? integer(info.scratch_offset) : nullptr;
    llvm::IRBuilderBase::InsertPointGuard guard(b_);
    b_.SetInsertPoint(entry_);
    if (entry_->getTerminator() != nullptr) b_.SetInsertPoint(entry_->getTerminator());
    llvm::Type* byte = b_.getInt8Ty();
    llvm::Type* pointer = llvm::PointerType::get(byte, 0);
    if (info.scratch) {
      Value* field = b_.CreateGEP(byte, args_, b_.getInt64(offsetof(KernelArgs, scratch)));
      Value* scratch = b_.CreateLoad(pointer, pointer_to(field, pointer));
      base = pointer_to(b_.CreateGEP(byte, scratch, at), type);
    } else {
      // buffers of the call are numbered without the scratch ones
      uint64_t number = 0;
      for (int32_t i = 0; i < buffer; ++i)
        number += k_.buffers[static_cast<size_t>(i)].scratch ? 0 : 1;
      Value* field = b_.CreateGEP(byte, args_, b_.getInt64(offsetof(KernelArgs, buffers)));
      Value* table = b_.CreateLoad(llvm::PointerType::get(pointer, 0),
                                   pointer_to(field, llvm::PointerType::get(pointer, 0)));
      Value* entry = b_.CreateLoad(pointer, b_.CreateGEP(pointer, table, b_.getInt64(number)));
      base = pointer_to(entry, type);
    }
  }
  return b_.CreateGEP(type, base, element);
}

llvm::Value* StageEmitter::to_register(Value* stored, DType dtype) {
  llvm::Type* type = stored->getType();
  auto like = [&](llvm::Type* scalar) -> llvm::Type* {
    return type->isVectorTy() ? llvm::FixedVectorType::get(scalar, static_cast<unsigned>(n_))
                              : scalar;
  };
  switch (dtype) {
    case DType::kBF16: {
      Value* wide = b_.CreateZExt(stored, like(b_.getInt32Ty()));
      return b_.CreateBitCast(b_.CreateShl(wide, llvm::ConstantInt::get(wide->getType(), 16)),
                              like(b_.getFloatTy()));
    }
    case DType::kF16:
      return b_.CreateFPExt(stored, like(b_.getFloatTy()));
    case DType::kBool:
      return b_.CreateICmpNE(stored, llvm::Constant::getNullValue(type));
    default:
      return stored;
  }
}

llvm::Value* StageEmitter::to_memory(Value* value, DType dtype) {
  llvm::Type* scalar = stored_type(dtype);
  llvm::Type* type =
      value->getType()->isVectorTy()
          ? static_cast<llvm::Type*>(llvm::FixedVectorType::get(scalar, static_cast<unsigned>(n_)))
          : scalar;
  switch (dtype) {
    case DType::kBF16:
      return VectorMath(b_).round_to_bf16(value);
    case DType::kF16:
      return b_.CreateFPTrunc(value, type);
    case DType::kBool:
      return b_.CreateZExt(value, type);
    default:
      return value;
  }
}

llvm::Value* StageEmitter::emit_load(const Expr& e, int depth, int copy) {
  Value* address = scalar_address(e.linear, depth, copy);
  std::vector<std::pair<Value*, Slot>> lane_terms;
  for (const auto& [index, stride] : e.dynamic) {
    Value* i = value(index, copy);
    if (i->getType()->isVectorTy()) {
      lane_terms.emplace_back(i, stride);
    } else {
      address =
          b_.CreateAdd(address, b_.CreateMul(b_.CreateSExt(i, b_.getInt64Ty()), integer(stride)));
    }
  }
  Value* predicate = e.predicate >= 0 ? value(e.predicate, copy) : nullptr;
  return load_elements(e.buffer, e.linear, address, lane_terms, predicate);
}

// One element, or one a lane: at `address` plus the lane's stride and dynamic terms.
llvm::Value* StageEmitter::load_elements(int32_t buffer, const kernel::Linear& linear,
                                         Value* address,
                                         const std::vector<std::pair<Value*, Slot>>& lane_terms,
                                         Value* predicate) {
  const DType dtype = k_.buffers[static_cast<size_t>(buffer)].dtype;
  llvm::Type* type = stored_type(dtype);
  const llvm::Align align(static_cast<uint64_t>(ir::dtype_bytes(dtype)));
  const bool gathered = !lane_terms.empty();
  const bool lanes_differ = gathered || lane_stride(linear) != kernel::kZero ||
                            (predicate != nullptr && predicate->getType()->isVectorTy());
  if (!lanes_differ) {
    Value* pointer = buffer_pointer(buffer, address);
    if (predicate == nullptr) return to_register(b_.CreateAlignedLoad(type, pointer, align), dtype);
    // a place that may be read in any case: a zero on the stack
    llvm::IRBuilderBase::InsertPoint here = b_.saveIP();
    b_.SetInsertPoint(entry_, entry_->begin());
    Value* zero = b_.CreateAlloca(type);
    b_.restoreIP(here);
    b_.CreateAlignedStore(llvm::Constant::getNullValue(type), zero, align);
    return to_register(b_.CreateAlignedLoad(type, b_.CreateSelect(predicate, pointer, zero), align),
                       dtype);
  }
  llvm::Type* vector = llvm::FixedVectorType::get(type, static_cast<unsigned>(n_));
  Value* mask = mask_;
  if (predicate != nullptr) {
    if (!predicate->getType()->isVectorTy()) predicate = splat(predicate);
    mask = mask == nullptr ? predicate : b_.CreateAnd(mask, predicate);
  }
  if (!gathered && lane_stride(linear) == kernel::kOne) {
    Value* pointer = pointer_to(buffer_pointer(buffer, address), vector);
    if (mask == nullptr) return to_register(b_.CreateAlignedLoad(vector, pointer, align), dtype);
    return to_register(
        b_.CreateMaskedLoad(vector, pointer, align, mask, llvm::Constant::getNullValue(vector)),
        dtype);
  }
  Value* offsets = lane_offsets(linear, address);
  for (const auto& [i, stride] : lane_terms) {
    llvm::Type* wide = llvm::FixedVectorType::get(b_.getInt64Ty(), static_cast<unsigned>(n_));
    offsets = b_.CreateAdd(offsets, b_.CreateMul(b_.CreateSExt(i, wide), splat(integer(stride))));
  }
  if (mask == nullptr)
    mask = llvm::Constant::getAllOnesValue(
        llvm::FixedVectorType::get(b_.getInt1Ty(), static_cast<unsigned>(n_)));
  Value* pointers = buffer_pointer(buffer, offsets);
  return to_register(
      b_.CreateMaskedGather(vector, pointers, align, mask, llvm::Constant::getNullValue(vector)),
      dtype);
}

// Writes one vector (or element); an accumulating store combines with what is there.
void StageEmitter::store(const kernel::Store& s, int copy, Value* x) {
  const DType dtype = k_.buffers[static_cast<size_t>(s.buffer)].dtype;
  const llvm::Align align(static_cast<uint64_t>(ir::dtype_bytes(dtype)));
  const int depth = static_cast<int>(scopes_.size()) - 1;
  Value* address = scalar_address(s.linear, depth, copy);
  Slot stride = lane_stride(s.linear);
  if (lane_dim_ < 0 || stride == kernel::kZero) {
    CAD_CHECK(!x->getType()->isVectorTy(), "a vector is stored to one element");
    b_.CreateAlignedStore(to_memory(x, dtype), buffer_pointer(s.buffer, address), align);
    return;
  }
  if (!x->getType()->isVectorTy()) x = splat(x);
  llvm::Type* vector = llvm::FixedVectorType::get(stored_type(dtype), static_cast<unsigned>(n_));
  if (stride == kernel::kOne) {
    Value* pointer = pointer_to(buffer_pointer(s.buffer, address), vector);
    Value* stored = to_memory(x, dtype);
    if (mask_ == nullptr)
      b_.CreateAlignedStore(stored, pointer, align);
    else
      b_.CreateMaskedStore(stored, pointer, align, mask_);
    return;
  }
  Value* mask = mask_ != nullptr ? mask_
                                 : llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(
                                       b_.getInt1Ty(), static_cast<unsigned>(n_)));
  b_.CreateMaskedScatter(to_memory(x, dtype),
                         buffer_pointer(s.buffer, lane_offsets(s.linear, address)), align, mask);
}

// What an accumulating store has so far.
llvm::Value* StageEmitter::load_vector(const kernel::Store& s, int copy) {
  const int depth = static_cast<int>(scopes_.size()) - 1;
  return load_elements(s.buffer, s.linear, scalar_address(s.linear, depth, copy), {}, nullptr);
}

}  // namespace cad::backend
