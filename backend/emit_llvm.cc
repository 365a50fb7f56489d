// backend/emit_llvm.cc -- the frame of a stage: items, sequential loops, phases, and the lane loop
// with its whole vectors and masked tail. See backend/emit_llvm.h.
#include "backend/emit_llvm.h"

#include <algorithm>

#include "base/check.h"

namespace cad::backend {

using kernel::Expr;
using kernel::ExprId;
using kernel::LoopDim;
using kernel::Slot;

void emit_kernel(llvm::Module& module, const kernel::Kernel& kernel, int lanes,
                 const std::string& prefix) {
  for (size_t s = 0; s < kernel.stages.size(); ++s)
    StageEmitter(module, kernel, kernel.stages[s], lanes).emit(prefix + "_" + std::to_string(s));
}

namespace {

bool is_zero(Slot s) {
  return s == kernel::kZero;
}

}  // namespace

// Depths and what varies between lanes.
void StageEmitter::analyse() {
  const size_t dims = s_.dims.size();
  depth_of_dim_.assign(dims, 0);
  variable_.assign(dims, nullptr);
  for (size_t d = 0; d < dims; ++d) {
    if (s_.dims[d].lanes) lane_dim_ = static_cast<int>(d);
    switch (s_.dims[d].role) {
      case LoopDim::Role::kParallel:
        parallel_.push_back(d);
        break;
      case LoopDim::Role::kSequential:
        sequential_.push_back(d);
        break;
      case LoopDim::Role::kInner:
        inner_.push_back(d);
        break;
    }
  }
  int depth = 1;
  for (size_t d : parallel_) depth_of_dim_[d] = depth;
  for (size_t d : sequential_) depth_of_dim_[d] = ++depth;
  row_depth_ = depth;
  for (size_t d : inner_) depth_of_dim_[d] = ++depth;
  if (lane_dim_ >= 0) {
    lanes_are_rows_ = s_.dims[static_cast<size_t>(lane_dim_)].role == LoopDim::Role::kSequential;
    CAD_CHECK(static_cast<size_t>(lane_dim_) == (lanes_are_rows_ ? sequential_ : inner_).back(),
              "the lanes' dim is not the last of its kind");
  }
  for (const Expr& e : s_.exprs) {
    int deepest = 0;
    bool varies = false;
    for (const kernel::Linear* linear : {&e.linear, &e.rows})
      for (size_t d = 0; d < linear->strides.size(); ++d) {
        if (is_zero(linear->strides[d])) continue;
        deepest = std::max(deepest, depth_of_dim_[d]);
        varies = varies || static_cast<int>(d) == lane_dim_;
      }
    auto depends = [&](ExprId o) {
      deepest = std::max(deepest, depth_[static_cast<size_t>(o)]);
      varies = varies || varying_[static_cast<size_t>(o)] != 0;
    };
    for (ExprId o : e.operands) depends(o);
    for (const auto& [o, stride] : e.dynamic) depends(o);
    if (e.predicate >= 0) depends(e.predicate);
    if (e.kind == Expr::Kind::kReduction) {
      deepest = row_depth_;
      varies = lanes_are_rows_;
    }
    depth_.push_back(deepest);
    varying_.push_back(varies ? 1 : 0);
  }
}

llvm::BasicBlock* StageEmitter::new_block(const char* name) {
  return llvm::BasicBlock::Create(module_.getContext(), name, function_);
}

void StageEmitter::enter(llvm::BasicBlock* block) {
  scopes_.emplace_back();
  scopes_.back().block = block;
}

void StageEmitter::emit(const std::string& name) {
  analyse();
  llvm::Type* i64 = b_.getInt64Ty();
  llvm::Type* pointer = llvm::PointerType::get(b_.getInt8Ty(), 0);
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), {pointer, i64, i64}, false);
  function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module_);
  function_->addFnAttr("prefer-vector-width", std::to_string(n_ * 32));
  function_->addFnAttr("min-legal-vector-width", std::to_string(n_ * 32));
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  args_ = function_->getArg(0);
  llvm::FastMathFlags flags;
  flags.setAllowContract(true);
  b_.setFastMathFlags(flags);

  entry_ = new_block("entry");
  b_.SetInsertPoint(entry_);
  enter(entry_);
  counted_loop(function_->getArg(1), function_->getArg(2), b_.getInt64(1), false,
               [this](Value* item) {
                 // the last parallel dim is the fastest
                 Value* rest = item;
                 for (size_t i = parallel_.size(); i-- > 0;) {
                   const size_t d = parallel_[i];
                   if (i == 0) {
                     variable_[d] = rest;
                     break;
                   }
                   Value* extent = integer(s_.dims[d].extent);
                   variable_[d] = b_.CreateURem(rest, extent);
                   rest = b_.CreateUDiv(rest, extent);
                 }
                 enter(b_.GetInsertBlock());
                 emit_item();
                 leave();
               });
  b_.CreateRetVoid();
  scopes_.clear();
}

void StageEmitter::emit_item() {
  clear_partials();
  emit_sequential(0);
}

void StageEmitter::emit_sequential(size_t k) {
  if (k == sequential_.size()) {
    emit_row();
    return;
  }
  const size_t d = sequential_[k];
  if (static_cast<int>(d) != lane_dim_) {
    auto [low, high] = bounds(d);
    counted_loop(low, high, b_.getInt64(1), false, [this, d = d, k](Value* i) {
      variable_[d] = i;
      enter(b_.GetInsertBlock());
      emit_sequential(k + 1);
      leave();
    });
    return;
  }
  std::vector<ExprId> all;
  for (const kernel::Store& s : s_.stores) all.push_back(s.expr);
  lane_loop(d, unroll_of(all), [this, k] { emit_sequential(k + 1); });
}

// [low, high) of a loop.
std::pair<llvm::Value*, llvm::Value*> StageEmitter::bounds(size_t d) {
  const LoopDim& dim = s_.dims[d];
  Value* extent = integer(dim.extent);
  if (dim.chunk_of < 0) return {b_.getInt64(0), extent};
  Value* chunk = integer(dim.chunk);
  Value* low = b_.CreateMul(variable_[static_cast<size_t>(dim.chunk_of)], chunk);
  Value* high = b_.CreateAdd(low, chunk);
  return {low, b_.CreateSelect(b_.CreateICmpSLT(high, extent), high, extent)};
}

// for (i = from; room ? i + step <= to : i < to; i += step) body(i). Leaves the builder after it.
template <class Body>
void StageEmitter::counted_loop(Value* from, Value* to, Value* step, bool room, const Body& body) {
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* inside = new_block("loop");
  llvm::BasicBlock* after = new_block("after");
  auto goes_on = [&](Value* i) {
    return room ? b_.CreateICmpSLE(b_.CreateAdd(i, step), to) : b_.CreateICmpSLT(i, to);
  };
  b_.CreateCondBr(goes_on(from), inside, after);
  b_.SetInsertPoint(inside);
  llvm::PHINode* variable = b_.CreatePHI(b_.getInt64Ty(), 2, "i");
  variable->addIncoming(from, before);
  body(variable);
  Value* next = b_.CreateAdd(variable, step);
  llvm::BasicBlock* last = b_.GetInsertBlock();
  b_.CreateCondBr(goes_on(next), inside, after);
  variable->addIncoming(next, last);
  b_.SetInsertPoint(after);
}

// Whole vectors, `unroll` at once, then the rest one at a time under a mask.
template <class Body>
void StageEmitter::lane_loop(size_t d, int unroll, const Body& body) {
  auto [low, high] = bounds(d);
  Value* stride = b_.getInt64(static_cast<uint64_t>(n_) * static_cast<uint64_t>(unroll));
  // where the whole vectors end: low + floor((high - low) / stride) * stride
  Value* count = b_.CreateSub(high, low);
  Value* whole = b_.CreateAdd(low, b_.CreateMul(b_.CreateSDiv(count, stride), stride));
  auto run = [&](Value* i) {
    variable_[d] = i;
    enter(b_.GetInsertBlock());
    body();
    leave();
  };
  copies_ = unroll;
  mask_ = nullptr;
  counted_loop(low, high, stride, true, run);
  copies_ = 1;
  counted_loop(whole, high, b_.getInt64(static_cast<uint64_t>(n_)), false,
               [&, high = high](Value* i) {
                 Value* left = b_.CreateTrunc(b_.CreateSub(high, i), b_.getInt32Ty());
                 std::vector<llvm::Constant*> numbers;
                 for (int lane = 0; lane < n_; ++lane)
                   numbers.push_back(b_.getInt32(static_cast<uint32_t>(lane)));
                 mask_ = b_.CreateICmpSLT(llvm::ConstantVector::get(numbers), splat(left));
                 run(i);
                 mask_ = nullptr;
               });
}

template <class Body>
void StageEmitter::inner_loops(size_t k, int unroll, const Body& body) {
  if (k == inner_.size()) {
    body();
    return;
  }
  const size_t d = inner_[k];
  if (static_cast<int>(d) == lane_dim_) {
    lane_loop(d, unroll, body);
    return;
  }
  auto [low, high] = bounds(d);
  counted_loop(low, high, b_.getInt64(1), false, [&, d = d](Value* i) {
    variable_[d] = i;
    enter(b_.GetInsertBlock());
    inner_loops(k + 1, unroll, body);
    leave();
  });
}

// Column partials start at the identity; the item owns them.
void StageEmitter::clear_partials() {
  std::vector<const kernel::Store*> partials;
  for (const kernel::Store& s : s_.stores)
    if (s.accumulate) partials.push_back(&s);
  if (partials.empty()) return;
  // stands at item depth, where the sequential loops are not open: pretend that they are
  const size_t depth = scopes_.size();
  for (size_t i = 0; i < sequential_.size(); ++i) enter(b_.GetInsertBlock());
  inner_loops(0, 1, [&] {
    for (const kernel::Store* s : partials)
      for (int copy = 0; copy < copies_; ++copy)
        store(
            *s, copy,
            identity(s->combine, register_type(k_.buffers[static_cast<size_t>(s->buffer)].dtype)));
  });
  while (scopes_.size() > depth) leave();
  scopes_.back().block = b_.GetInsertBlock();
}

namespace {

int cost_of(const Expr& e) {
  if (e.kind == Expr::Kind::kRandom) return 60;
  if (e.kind == Expr::Kind::kLoad) return e.dynamic.empty() ? 1 : 8;
  if (e.kind != Expr::Kind::kOp) return 1;
  switch (e.op) {
    case ir::Op::kExp:
      return 12;
    case ir::Op::kLog:
    case ir::Op::kTanh:
    case ir::Op::kErf:
    case ir::Op::kSigmoid:
      return 16;
    case ir::Op::kSoftplus:
    case ir::Op::kSin:
    case ir::Op::kCos:
    case ir::Op::kPow:
      return 40;
    case ir::Op::kFloorDiv:
    case ir::Op::kMod:
      return 12;
    default:
      return 1;
  }
}

}  // namespace

// Small bodies go four vectors at a time: independent accumulators hide the latency of additions.
int StageEmitter::unroll_of(const std::vector<ExprId>& roots) const {
  std::vector<char> seen(s_.exprs.size(), 0);
  std::vector<ExprId> work = roots;
  int cost = 0;
  while (!work.empty()) {
    const auto e = static_cast<size_t>(work.back());
    work.pop_back();
    if (seen[e] != 0 || varying_[e] == 0) continue;
    seen[e] = 1;
    const Expr& x = s_.exprs[e];
    cost += cost_of(x);
    work.insert(work.end(), x.operands.begin(), x.operands.end());
    for (const auto& [o, stride] : x.dynamic) work.push_back(o);
    if (x.predicate >= 0) work.push_back(x.predicate);
    if (x.reduction >= 0 && lanes_are_rows_)
      work.push_back(s_.reductions[static_cast<size_t>(x.reduction)].operand);
  }
  return cost <= 20 ? 4 : cost <= 48 ? 2 : 1;
}

void StageEmitter::emit_row() {
  accumulators_.assign(s_.reductions.size(), {});
  index_accumulators_.assign(s_.reductions.size(), {});
  results_.assign(s_.reductions.size(), {});
  for (int phase = 0; phase < s_.phases; ++phase) emit_phase(phase);
}

void StageEmitter::emit_phase(int phase) {
  std::vector<size_t> reductions;
  std::vector<const kernel::Store*> full, row;
  std::vector<ExprId> roots;
  for (size_t r = 0; r < s_.reductions.size(); ++r) {
    if (s_.reductions[r].phase != phase) continue;
    reductions.push_back(r);
    roots.push_back(s_.reductions[r].operand);
  }
  for (const kernel::Store& s : s_.stores) {
    if (s.phase != phase) continue;
    (s.row ? row : full).push_back(&s);
    if (!s.row) roots.push_back(s.expr);
  }
  const int row_copies = copies_;
  Value* row_mask = mask_;
  const int unroll = lanes_are_rows_ ? copies_ : lane_dim_ >= 0 ? unroll_of(roots) : 1;
  if (!roots.empty()) {
    for (size_t r : reductions) open_reduction(r, unroll);
    inner_loops(0, unroll, [&] {
      // everything is read before anything is written: an output may replace an input
      std::vector<std::vector<Value*>> values(static_cast<size_t>(copies_));
      for (int copy = 0; copy < copies_; ++copy)
        for (ExprId e : roots) values[static_cast<size_t>(copy)].push_back(value(e, copy));
      for (int copy = 0; copy < copies_; ++copy) {
        const std::vector<Value*>& x = values[static_cast<size_t>(copy)];
        for (size_t i = 0; i < reductions.size(); ++i) {
          const ExprId index = s_.reductions[reductions[i]].index;
          feed_reduction(reductions[i], copy, x[i], index >= 0 ? value(index, copy) : nullptr);
        }
        for (size_t i = 0; i < full.size(); ++i) {
          Value* stored = x[reductions.size() + i];
          if (full[i]->accumulate) {
            Value* so_far = load_vector(*full[i], copy);
            if (so_far->getType()->isVectorTy() && !stored->getType()->isVectorTy())
              stored = splat(stored);
            stored = combine(full[i]->combine, so_far, stored);
          }
          store(*full[i], copy, stored);
        }
      }
    });
    copies_ = row_copies;
    mask_ = row_mask;
    scope(row_depth_).block = b_.GetInsertBlock();
    for (size_t r : reductions) close_reduction(r, unroll);
  }
  if (!lanes_are_rows_) copies_ = 1;
  std::vector<Value*> values;
  for (const kernel::Store* s : row)
    for (int copy = 0; copy < copies_; ++copy) values.push_back(value(s->expr, copy));
  size_t next = 0;
  for (const kernel::Store* s : row)
    for (int copy = 0; copy < copies_; ++copy) store(*s, copy, values[next++]);
  copies_ = row_copies;
}

}  // namespace cad::backend
