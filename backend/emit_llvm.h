// backend/emit_llvm.h -- kernel IR to LLVM IR: explicit vectors of `lanes` floats, a main loop of
// whole vectors (unrolled when the body is small) and a masked tail. It makes functions
// `void PREFIX_S(const KernelArgs*, i64 begin, i64 end)`, one a stage S. What needs LLVM classes is
// confined to emit_llvm*, vector_math* and jit.cc. Written for LLVM 14 and later: types are always
// given to loads and address computations, pointers are cast in pointer_to() only.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backend/kernel_ir.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

namespace cad::backend {

void emit_kernel(llvm::Module& module, const kernel::Kernel& kernel, int lanes,
                 const std::string& prefix);

// Functions of this program that kernels call.
inline constexpr const char* kStreamKeySymbol = "colauto_stream_key";
inline constexpr const char* kStandardNormalSymbol = "colauto_standard_normal";
inline constexpr const char* kPowSymbol = "colauto_pow";

// Emits one stage. A scope is a nesting depth: 0 the function, 1 an item, then one for each loop;
// an expression is emitted once in the outermost scope where all that it needs is known.
class StageEmitter {
 public:
  StageEmitter(llvm::Module& module, const kernel::Kernel& kernel, const kernel::Stage& stage,
               int lanes)
      : module_(module), k_(kernel), s_(stage), n_(lanes), b_(module.getContext()) {}
  void emit(const std::string& name);

 private:
  using Value = llvm::Value;
  struct Scope {
    llvm::BasicBlock* block = nullptr;
    std::map<std::pair<kernel::ExprId, int>, Value*> values;
    std::map<const kernel::Linear*, Value*> addresses;
  };
  struct LoopFrame {
    llvm::BasicBlock *body = nullptr, *after = nullptr;
    llvm::PHINode* variable = nullptr;
    Value* step = nullptr;
  };

  // emit_llvm.cc: loops
  void analyse();
  void emit_item();
  void emit_sequential(size_t k);
  void emit_row();
  void emit_phase(int phase);
  template <class Body>
  void inner_loops(size_t k, int unroll, const Body& body);
  template <class Body>
  void lane_loop(size_t dim, int unroll, const Body& body);
  template <class Body>
  void counted_loop(Value* from, Value* to, Value* step, bool room, const Body& body);
  void clear_partials();
  [[nodiscard]] int unroll_of(const std::vector<kernel::ExprId>& roots) const;
  std::pair<Value*, Value*> bounds(size_t dim);
  Scope& scope(int depth) { return scopes_[static_cast<size_t>(depth)]; }
  void enter(llvm::BasicBlock* block);
  void leave() { scopes_.pop_back(); }
  llvm::BasicBlock* new_block(const char* name);
  void move_row_scope();

  // emit_llvm_memory.cc
  Value* integer(kernel::Slot slot);
  Value* base_address(const kernel::Linear& linear, int depth);
  Value* scalar_address(const kernel::Linear& linear, int depth, int copy);
  [[nodiscard]] kernel::Slot lane_stride(const kernel::Linear& linear) const;
  Value* lane_offsets(const kernel::Linear& linear, Value* scalar);
  Value* buffer_pointer(int32_t buffer, Value* element);
  Value* pointer_to(Value* pointer, llvm::Type* type);
  llvm::Type* stored_type(ir::DType dtype);
  Value* to_register(Value* stored, ir::DType dtype);
  Value* to_memory(Value* value, ir::DType dtype);
  Value* emit_load(const kernel::Expr& e, int depth, int copy);
  void store(const kernel::Store& s, int copy, Value* value);
  Value* load_elements(int32_t buffer, const kernel::Linear& linear, Value* address,
                       const std::vector<std::pair<Value*, kernel::Slot>>& lane_terms,
                       Value* predicate);
  Value* load_vector(const kernel::Store& s, int copy);
  Value* argument(size_t offset);

  // emit_llvm_expr.cc
  Value* value(kernel::ExprId e, int copy);
  Value* emit_expr(const kernel::Expr& e, int depth, int copy);
  llvm::Type* like(Value* x, llvm::Type* scalar);
  Value* emit_op(const kernel::Expr& e, const std::vector<Value*>& x,
                 const std::vector<ir::DType>& types);
  Value* emit_float_op(ir::Op op, const std::vector<Value*>& x);
  Value* emit_int_op(ir::Op op, const std::vector<Value*>& x);
  Value* emit_comparison(ir::Op op, Value* a, Value* b);
  Value* to_i32(Value* x);
  Value* emit_cast(const kernel::Expr& e, Value* x, ir::DType from);
  Value* emit_index(const kernel::Expr& e, int depth, int copy);
  Value* emit_random(const kernel::Expr& e, int depth, int copy);
  Value* stream_key(const kernel::Expr& e);
  const std::vector<Value*>& round_keys(const kernel::Expr& e, bool vector);
  std::vector<Value*> philox(const std::vector<Value*>& keys, Value* element, int words);
  Value* floor_divide(Value* a, Value* b);
  Value* splat(Value* scalar) { return b_.CreateVectorSplat(static_cast<unsigned>(n_), scalar); }
  Value* per_lane(const char* symbol, llvm::Type* result, const std::vector<Value*>& x);
  llvm::Type* register_type(ir::DType dtype);
  Value* constant(llvm::Type* type, double number);
  Value* rounded(Value* x, ir::DType to);

  // emit_llvm_reduce.cc
  Value* identity(kernel::Reduction::Kind kind, llvm::Type* type);
  Value* combine(kernel::Reduction::Kind kind, Value* a, Value* b);
  Value* across_lanes(kernel::Reduction::Kind kind, Value* vector);
  void open_reduction(size_t r, int copies);
  void feed_reduction(size_t r, int copy, Value* x, Value* index);
  void close_reduction(size_t r, int copies);

  llvm::Module& module_;
  const kernel::Kernel& k_;
  const kernel::Stage& s_;
  const int n_;
  llvm::IRBuilder<> b_;
  llvm::Function* function_ = nullptr;
  llvm::BasicBlock* entry_ = nullptr;
  Value* args_ = nullptr;

  int lane_dim_ = -1;
  bool lanes_are_rows_ = false;  // the lane dim is sequential
  std::vector<int> depth_of_dim_;
  std::vector<size_t> parallel_, sequential_, inner_;
  int row_depth_ = 1;
  std::vector<int> depth_;        // of exprs
  std::vector<char> varying_;     // of exprs: differs between lanes
  std::vector<Value*> variable_;  // of dims
  std::vector<Scope> scopes_;
  std::map<kernel::Slot, Value*> integers_;
  std::map<int32_t, Value*> buffers_;
  Value* mask_ = nullptr;  // lanes in use; null: all
  int copies_ = 1;         // vectors side by side in the lane loop that is open
  std::vector<std::vector<Value*>> accumulators_,
      index_accumulators_;                    // allocas: [reduction][copy]
  std::vector<std::vector<Value*>> results_;  // [reduction][copy]
  std::map<std::pair<uint64_t, std::vector<kernel::ExprId>>, Value*> keys_;
  std::map<std::pair<Value*, bool>, std::vector<Value*>> round_keys_;
  std::map<size_t, Value*> arguments_;
};

}  // namespace cad::backend
