// backend/fuse_eval.h -- the evaluator behind fuse::evaluate(): pulls a group's stored values
// through its nodes. One method per family of ops; fuse_eval.cc holds loops, loads and stores,
// fuse_eval_move.cc and fuse_eval_index.cc the index arithmetic, fuse_eval_math.cc arithmetic,
// reductions and random values. Not for use outside of these files.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "backend/fuse.h"

namespace cad::backend::fuse {

using Indices = std::vector<Index>;  // parallel to a type's dims

class Evaluator {
 public:
  Evaluator(const RegionContext& context, const Group& group)
      : c_(context), g_(*context.graph), group_(group) {}
  bool run();
  LoopProgram take() { return std::move(p_); }
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  struct DimIndex {  // a result's dims and the index of each
    const ir::Type* type;
    const Indices* indices;
    [[nodiscard]] const Index& at(ir::DimId d) const;
    [[nodiscard]] bool has(ir::DimId d) const { return type->has(d); }
  };
  struct StoreCandidate {
    Affine address;
    ExprId expr;
  };

  // fuse_eval.cc
  bool attempt(bool largest_first);
  void start();
  std::vector<ir::ValueId> sinks() const;
  void evaluate_sink(ir::ValueId value);
  bool settle_stores();
  bool column_sink(ir::ValueId value, const Indices& indices);
  bool check_reductions();
  ExprId value(ir::ValueId v, const Indices& indices, ExprId predicate);
  ExprId node_value(ir::NodeId n, const Indices& indices, ExprId predicate);
  ExprId load(ir::ValueId v, const Layout& layout, const Indices& indices, ExprId predicate);
  [[nodiscard]] bool computed_here(ir::ValueId v) const;
  ExprId add_expr(LoopExpr e);
  ExprId fail(const std::string& why);
  void add_loops(ir::DimId d, bool inner);
  [[nodiscard]] Index loop_index(ir::DimId d) const;
  [[nodiscard]] uint64_t loops_of(const Index& i) const;
  [[nodiscard]] int level_of(const Index& i) const;
  Indices operand_indices(ir::ValueId operand, const DimIndex& at) const;
  ExprId operand(const ir::Node& n, size_t i, const DimIndex& at, ExprId predicate);

  // fuse_eval_math.cc
  ExprId constant(double value, ir::DType dtype);
  ExprId op(ir::Op op, std::vector<ExprId> operands, ir::DType dtype);
  ExprId cast(ExprId e, ir::DType from, ir::DType to);
  ExprId pointwise(const ir::Node& n, const DimIndex& at, ExprId predicate);
  ExprId random(const ir::Node& n, const DimIndex& at, ExprId predicate);
  ExprId uniform(const ir::Node& n, const DimIndex& at, size_t first_number, ir::Op kind);
  ExprId reduce(const ir::Node& n, const DimIndex& at, ExprId predicate);
  ExprId mean(const ir::Node& n, const DimIndex& at);
  ExprId softmax_like(const ir::Node& n, const DimIndex& at, const Indices& rows);
  bool open_inner(const std::vector<ir::DimId>& dims);
  ExprId reduction(kernel::Reduction::Kind kind, ir::DType dtype, ExprId operand, ExprId index,
                   const std::vector<const Index*>& outer, const std::vector<ir::DimId>& dims);

  // fuse_eval_index.cc
  ExprId index_value(const Index& i);
  ExprId in_range(const Index& i, int64_t low, int64_t high);  // -1: always
  ExprId both(ExprId a, ExprId b);
  bool range(const Index& i, int64_t& low, int64_t& high) const;
  void divide(const Index& i, int64_t by, Index& quotient, Index& rest);
  void split(size_t loop, int64_t minor);
  ExprId gather(const ir::Node& n, const DimIndex& at, ExprId predicate);
  ExprId select(const ir::Node& n, const DimIndex& at, ExprId predicate);
  ExprId unselect(const ir::Node& n, const DimIndex& at, ExprId predicate);
  ExprId window(const ir::Node& n, const DimIndex& at, ExprId predicate);
  ExprId unwindow(const ir::Node& n, const DimIndex& at, ExprId predicate);
  ExprId guarded(ExprId condition, ir::ValueId v, const Indices& indices, ExprId predicate,
                 double other);

  // fuse_eval_move.cc
  ExprId move(const ir::Node& n, const DimIndex& at, ExprId predicate);
  ExprId reshape(const ir::Node& n, const DimIndex& at, ExprId predicate);
  ExprId concat(const ir::Node& n, const DimIndex& at, ExprId predicate);
  ExprId stack(const ir::Node& n, const DimIndex& at, ExprId predicate);

  const RegionContext& c_;
  const ir::Graph& g_;
  const Group& group_;
  LoopProgram p_;
  std::string why_;
  std::set<ir::NodeId> members_;
  std::set<ir::ValueId> stored_;
  std::map<ir::ValueId, std::vector<StoreCandidate>> candidates_;
  std::map<std::vector<int64_t>, ExprId> values_;  // value, predicate, indices
  std::map<std::vector<int64_t>, ExprId> exprs_;   // structure
  std::map<ir::DimId, std::vector<size_t>> dim_loops_;
  std::vector<std::pair<ir::DimId, size_t>> loop_dim_;  // loop -> dim, factor
  std::map<ir::DimId, std::vector<int64_t>> factors_;   // how dims are split; kept over attempts
  std::set<ir::ValueId> settled_;                       // stored as columns
  std::vector<uint64_t> reduction_outer_;  // loops that a reduction's result depends on
  bool inner_fixed_ = false, failed_ = false, restart_ = false;
};

}  // namespace cad::backend::fuse
