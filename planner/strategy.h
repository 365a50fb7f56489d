// planner/strategy.h -- the ways to run one op on a mesh. A strategy gives each mesh axis to at
// most one factor of the op's sharding rule (ir/sharding.h), lets partial operands flow through a
// linear op, or leaves the axis unused (all devices along it compute the same). Not here: what it
// costs in seconds (planner/compute_cost.h, collective.h), how tensors get where a strategy wants
// them (planner/conversion.h).
//
// Gradients: a tensor's gradient has the dual layout (planner/layout.h), so an op's backward takes
// dual(results) and gives dual(operands), in the same strategy.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "ir/sharding.h"
#include "planner/collective.h"
#include "planner/layout.h"

namespace cad::planner {

// Per mesh axis: the index of a factor, kUnused, or kFlow - i: the i-th linear set is partial.
constexpr int8_t kUnused = -1;
constexpr int8_t kFlow = -2;
using Assignment = std::array<int8_t, kMaxAxes>;

// A collective that the op itself needs; bytes as collective_seconds() takes them.
struct InnerCollective {
  Collective kind = Collective::kAllReduce;
  AxisSet axes = 0;
  double bytes = 0;
};

struct Strategy {
  Assignment assignment{kUnused, kUnused, kUnused};
  std::vector<Layout> operands;  // wanted
  std::vector<Layout> results;   // given
  std::vector<InnerCollective> forward, backward;
  double share = 1;  // the largest part of the op's loop nest that one device runs
};

// An op's rule with sizes put in: what strategies are made from, cheap to ask many times.
class OpSharding {
 public:
  OpSharding(const ir::Graph& g, ir::NodeId node, const Extents& extents);
  [[nodiscard]] const ir::ShardingRule& rule() const { return rule_; }
  // nullopt when the sizes forbid it: a dim shorter than its axis, stretches that do not line up
  // (a merge of 6 heads of 2 over 4), an integer operand that would be partial. Integer results
  // that would be are reduced in the op.
  [[nodiscard]] std::optional<Strategy> strategy(const Assignment& assignment,
                                                 const Mesh& mesh) const;
  // The factor that splits this dim of the operand / result; -1: none may.
  [[nodiscard]] int factor_of_operand(size_t operand, ir::DimId dim) const;
  [[nodiscard]] int factor_of_result(size_t result, ir::DimId dim) const;
  // "B over dp, H over tp"; "the same everywhere".
  [[nodiscard]] std::string str(const Assignment& assignment, const Mesh& mesh) const;

 private:
  // One dim of a tensor that a factor splits.
  struct Split {
    int8_t position = -1;  // in the tensor's type; -1: whole
    int64_t extent = 0;
    bool partial = false;
  };
  struct Bound {
    std::vector<Split> operands, results;
    ir::DimId name;  // a dim to call it by
    int64_t extent = 1;
    bool uneven_dims = false;  // its dims differ in size: the major parts of a split or merge
  };
  [[nodiscard]] Split split_of(const ir::Type& type, ir::DimId dim, const Extents& extents) const;
  [[nodiscard]] bool lines_up(const Bound& factor, AxisSet axes, const Mesh& mesh) const;
  [[nodiscard]] bool flow(size_t set, size_t axis, Strategy& strategy) const;
  void add_collectives(AxisSet statistic, AxisSet summed, const Mesh& mesh,
                       Strategy& strategy) const;

  const ir::Graph* g_;
  ir::NodeId node_;
  ir::ShardingRule rule_;
  std::vector<Bound> factors_;
  std::vector<std::vector<int64_t>> results_;  // extents of the results
  std::vector<int64_t> statistic_;             // extents of the statistic's dims
  std::vector<int> statistic_factor_;          // the factor that splits each; -1: none
};

// Whether a layout splits every pinned dim (`@shard`) by exactly the axes named for it; axes of
// size 1, and axes that the mesh lacks, split nothing.
bool honours(const Layout& layout, const ir::Type& type, const std::vector<ir::Pin>& pins,
             const Mesh& mesh);

struct StrategyOptions {
  // Partial operands through ops that multiply (contract, mul, div, gather, ..) and not only
  // through those that add and move: rarely worth it, and a third more strategies an axis.
  bool partial_products = false;
  bool obey_pins = true;  // leave out those whose results do not honour the program's `@shard`s
};
// All of them (none: the pins cannot be honoured), in a fixed order: unused first, then factors in
// the rule's order, then flows.
std::vector<Strategy> strategies(const ir::Graph& g, ir::NodeId node, const Mesh& mesh,
                                 const Extents& extents, const StrategyOptions& options = {});

}  // namespace cad::planner
