// backend/fuse.h -- inside of the partition: a group of nodes as one loop nest, before it is a
// kernel. A LoopProgram is what pulling the group's outputs through its nodes gives: every value is
// evaluated where it is needed, at indices that are affine in the loops (renames, splits, slices
// and flips vanish) plus dynamic terms (gathers). No order of loops yet: backend/fuse_schedule.cc
// picks it and writes kernel IR. Which nodes form a group: backend/partition_groups.cc.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/kernel_ir.h"
#include "backend/partition.h"
#include "backend/steps.h"
#include "ir/op.h"

namespace cad::backend::fuse {

using kernel::ExprId;

// constant + sum coefs[l] * loop l; missing coefs are 0.
struct Affine {
  int64_t constant = 0;
  std::vector<int64_t> coefs;
  [[nodiscard]] int64_t coef(size_t loop) const { return loop < coefs.size() ? coefs[loop] : 0; }
  void add(const Affine& other, int64_t times = 1);
  [[nodiscard]] bool is_constant() const;
  bool operator==(const Affine& other) const;
};

// An index into one dim: an affine form plus i32 expressions times factors.
struct Index {
  Affine affine;
  std::vector<std::pair<ExprId, int64_t>> dynamic;
  void add(const Index& other, int64_t times = 1);
};

struct Loop {
  int64_t extent = 1;
  bool inner = false;  // a reduction runs over it
};

// kernel::Expr with numbers in place of slots.
struct LoopExpr {
  kernel::Expr::Kind kind = kernel::Expr::Kind::kConst;
  ir::Op op = ir::Op::kConst;
  ir::DType dtype = ir::DType::kF32;
  ir::DType rounds = ir::DType::kF32;
  std::vector<ExprId> operands;
  double value = 0;
  ir::ValueId buffer;  // kLoad: the stored value
  Index index;         // kLoad address, kIndex value, kRandom element
  ExprId predicate = -1;
  int32_t reduction = -1;
  int64_t row_stride = 0;
  Affine rows;
  ShardTerms shards, row_shards;  // kRandom: what a device adds to `index` and to `rows`
  uint64_t site = 0;
  // derived
  uint64_t loops = 0;  // bit l: depends on loop l
  int level = 0;       // phases that have to be done before: 0, or 1 + phase of a reduction
};

struct LoopReduction {
  kernel::Reduction::Kind kind = kernel::Reduction::Kind::kSum;
  ir::DType dtype = ir::DType::kF32;
  ExprId operand = -1, index = -1;
  int phase = 0;
};

struct LoopStore {
  ir::ValueId value;
  Affine address;  // in the value's own dense storage
  ExprId expr = -1;
  bool row = false;  // independent of the inner loops
};

// A sum over all outer loops that keeps the inner ones, beside reductions over the inner ones: the
// gain's gradient in the kernel of a layer norm's gradient.
struct LoopColumn {
  ir::ValueId value;
  Affine address;  // in the value's own dense storage
  ExprId operand = -1;
  ir::DType dtype = ir::DType::kF32;
};

struct LoopProgram {
  std::vector<Loop> loops;
  std::vector<LoopExpr> exprs;
  std::vector<LoopReduction> reductions;
  std::vector<LoopStore> stores;
  std::vector<LoopColumn> columns;
  std::map<ir::NodeId, double> work;  // member -> times it is evaluated, over its result's elements
  [[nodiscard]] bool has_inner() const;
  [[nodiscard]] uint64_t inner_mask() const;
};

// What the evaluator has to know of the region. Vectors are by node or value index.
struct RegionContext {
  const ir::Graph* graph = nullptr;
  const ir::Bindings* bindings = nullptr;
  std::vector<int64_t> extents;  // by dim
  const std::vector<Layout>* layouts = nullptr;
  std::vector<char> free;     // by node: cheap enough to evaluate in every user
  std::vector<char> fusible;  // by node: may stand in a kernel
  [[nodiscard]] int64_t extent(ir::DimId d) const { return extents[static_cast<size_t>(d.index)]; }
  [[nodiscard]] int64_t elements(const ir::Type& t) const;
};

struct Group {
  std::vector<ir::NodeId> nodes;    // members, in region order
  std::vector<ir::ValueId> stored;  // their values that others read
};

// nullopt: this group is no single nest (`why` says what stood in the way).
std::optional<LoopProgram> evaluate(const RegionContext& context, const Group& group,
                                    std::string* why = nullptr);

// Later phases read stored values back instead of computing them again where memory
// holds them exactly. Whether something costly is computed in two phases.
void reload_stored(const RegionContext& context, LoopProgram& program);
bool recomputes(const LoopProgram& program);
// Whether phases over long columns, or a few long rows, leave too few items to share out.
bool starves_threads(const LoopProgram& program);

struct ScheduledKernel {
  kernel::Kernel kernel;
  KernelCall call;
  std::vector<std::pair<ir::ValueId, ir::ValueId>> overwrites;  // output, input it may replace
};
ScheduledKernel schedule(const RegionContext& context, LoopProgram program, int64_t lanes);

}  // namespace cad::backend::fuse
