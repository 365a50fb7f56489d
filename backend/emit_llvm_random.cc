// backend/emit_llvm_random.cc -- Philox4x32-10 in vectors: the same words, bit for bit, as
// ir/random.h for the element, whatever nest computes it. Keys and normal deviates come from that
// file itself.
#include <cstddef>

#include "backend/emit_llvm.h"
#include "base/check.h"

namespace cad::backend {

using kernel::Expr;
using kernel::ExprId;

// An i64 field of KernelArgs, loaded once in the entry block.
llvm::Value* StageEmitter::argument(size_t offset) {
  Value*& known = arguments_[offset];
  if (known != nullptr) return known;
  llvm::IRBuilderBase::InsertPointGuard guard(b_);
  b_.SetInsertPoint(entry_);
  if (entry_->getTerminator() != nullptr) b_.SetInsertPoint(entry_->getTerminator());
  llvm::Type* i64 = b_.getInt64Ty();
  Value* field = b_.CreateGEP(b_.getInt8Ty(), args_, b_.getInt64(offset));
  return known = b_.CreateLoad(i64, pointer_to(field, i64));
}

// stream_key(seed, site, loop numbers), once where the numbers are known.
llvm::Value* StageEmitter::stream_key(const Expr& e) {
  int depth = 0;
  for (ExprId o : e.operands) depth = std::max(depth, depth_[static_cast<size_t>(o)]);
  Value*& known = keys_[{e.site, e.operands}];
  if (known != nullptr && depth == 0) return known;
  std::vector<Value*> numbers;
  for (ExprId o : e.operands) numbers.push_back(value(o, 0));
  llvm::IRBuilderBase::InsertPointGuard guard(b_);
  llvm::BasicBlock* block = scope(depth).block;
  if (block->getTerminator() != nullptr)
    b_.SetInsertPoint(block->getTerminator());
  else
    b_.SetInsertPoint(block);
  llvm::Type* i64 = b_.getInt64Ty();
  llvm::IRBuilderBase::InsertPoint here = b_.saveIP();
  b_.SetInsertPoint(entry_, entry_->begin());
  Value* table = b_.CreateAlloca(i64, b_.getInt64(std::max<uint64_t>(1, numbers.size())));
  b_.restoreIP(here);
  for (size_t i = 0; i < numbers.size(); ++i)
    b_.CreateStore(b_.CreateSExt(numbers[i], i64), b_.CreateGEP(i64, table, b_.getInt64(i)));
  llvm::FunctionCallee callee = module_.getOrInsertFunction(kStreamKeySymbol, i64, i64, i64,
                                                            llvm::PointerType::get(i64, 0), i64);
  return known = b_.CreateCall(callee, {argument(offsetof(KernelArgs, seed)), b_.getInt64(e.site),
                                        table, b_.getInt64(numbers.size())});
}

// The ten keys of a stream's rounds, splat and ready outside of all loops that do not need them
// inside.
const std::vector<llvm::Value*>& StageEmitter::round_keys(const Expr& e, bool vector) {
  int depth = 0;
  for (ExprId o : e.operands) depth = std::max(depth, depth_[static_cast<size_t>(o)]);
  Value* key = stream_key(e);
  std::vector<Value*>& keys = round_keys_[{key, vector}];
  if (!keys.empty()) return keys;
  llvm::IRBuilderBase::InsertPointGuard guard(b_);
  llvm::BasicBlock* block = scope(depth).block;
  if (block->getTerminator() != nullptr)
    b_.SetInsertPoint(block->getTerminator());
  else
    b_.SetInsertPoint(block);
  Value* half[2] = {b_.CreateTrunc(key, b_.getInt32Ty()),
                    b_.CreateTrunc(b_.CreateLShr(key, b_.getInt64(32)), b_.getInt32Ty())};
  const uint32_t weyl[2] = {0x9E3779B9, 0xBB67AE85};
  for (int round = 0; round < 10; ++round)
    for (int h = 0; h < 2; ++h) {
      Value* wide = b_.CreateZExt(half[h], b_.getInt64Ty());
      keys.push_back(vector ? splat(wide) : wide);
      half[h] = b_.CreateAdd(half[h], b_.getInt32(weyl[h]));
    }
  return keys;
}

// The first `words` words of the block of each element (i64, scalar or vector). Words stay in i64
// lanes, of which the low half counts: a product is one 32 x 32 -> 64 multiplication, its high half
// a shift.
std::vector<llvm::Value*> StageEmitter::philox(const std::vector<Value*>& keys, Value* element,
                                               int words) {
  llvm::Type* type = element->getType();
  auto wide = [&](uint64_t x) { return llvm::ConstantInt::get(type, x); };
  auto times = [&](Value* x, uint64_t by) {
    return b_.CreateMul(b_.CreateAnd(x, wide(0xFFFFFFFF)), wide(by));
  };
  auto high = [&](Value* x) { return b_.CreateLShr(x, wide(32)); };
  Value* step = argument(offsetof(KernelArgs, step));
  Value* step_high = b_.CreateLShr(step, b_.getInt64(32));
  const bool vector = type->isVectorTy();
  Value* c[4] = {element, high(element), vector ? splat(step) : step,
                 vector ? splat(step_high) : step_high};
  for (size_t round = 0; round < 10; ++round) {
    Value* p0 = times(c[0], 0xD2511F53);
    Value* p1 = times(c[2], 0xCD9E8D57);
    c[0] = b_.CreateXor(b_.CreateXor(high(p1), c[1]), keys[2 * round]);
    c[1] = p1;
    c[2] = b_.CreateXor(b_.CreateXor(high(p0), c[3]), keys[2 * round + 1]);
    c[3] = p0;
  }
  std::vector<Value*> result;
  for (int w = 0; w < words; ++w)
    result.push_back(b_.CreateTrunc(c[w], like(element, b_.getInt32Ty())));
  return result;
}

llvm::Value* StageEmitter::emit_random(const Expr& e, int depth, int copy) {
  auto number = [&](const kernel::Linear& linear) {
    Value* first = scalar_address(linear, depth, copy);
    return lane_stride(linear) == kernel::kZero ? first : lane_offsets(linear, first);
  };
  auto meet = [&](Value*& a, Value*& b) {
    if (a->getType()->isVectorTy() && !b->getType()->isVectorTy()) b = splat(b);
    if (b->getType()->isVectorTy() && !a->getType()->isVectorTy()) a = splat(a);
  };
  Value* element = number(e.linear);
  if (e.row_stride != kernel::kZero) {
    Value* ahead = b_.CreateMul(argument(offsetof(KernelArgs, row_offset)), integer(e.row_stride));
    meet(element, ahead);
    element = b_.CreateAdd(element, ahead);
  }
  bool rows = e.rows.offset != kernel::kZero;
  for (kernel::Slot s : e.rows.strides) rows = rows || s != kernel::kZero;
  if (rows) {
    Value* before = number(e.rows);
    Value* step_rows = argument(offsetof(KernelArgs, step_rows));
    meet(before, step_rows);
    before = b_.CreateMul(before, step_rows);
    meet(element, before);
    element = b_.CreateAdd(element, before);
  }
  for (const auto& [index, factor] : e.dynamic) {
    Value* i = value(index, copy);
    Value* wide = b_.CreateSExt(i, like(i, b_.getInt64Ty()));
    Value* times = integer(factor);
    meet(wide, times);
    Value* term = b_.CreateMul(wide, times);
    meet(element, term);
    element = b_.CreateAdd(element, term);
  }
  const std::vector<Value*>& keys = round_keys(e, element->getType()->isVectorTy());
  if (e.op == ir::Op::kNormal) {
    std::vector<Value*> words = philox(keys, element, 2);
    return per_lane(kStandardNormalSymbol, b_.getFloatTy(), words);
  }
  Value* word = philox(keys, element, 1)[0];
  Value* top = b_.CreateLShr(word, llvm::ConstantInt::get(word->getType(), 8));
  llvm::Type* f32 = like(word, b_.getFloatTy());
  return b_.CreateFMul(b_.CreateSIToFP(top, f32), llvm::ConstantFP::get(f32, 0x1p-24));
}

}  // namespace cad::backend
