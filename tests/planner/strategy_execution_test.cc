// tests/planner/strategy_execution_test.cc -- every strategy of every op, carried out: operands cut
// up as the strategy wants them, the op's reference semantics on each device's part, and what comes
// out put together again must be what one device computes. The strategies' ground truth.
#include <set>

#include "tests/planner/op_cases.h"
#include "tests/planner/spmd_op.h"

namespace cad::planner {
namespace {

// A bench's op with the values that flow in and out.
struct Ran {
  ir::NodeId node;
  std::vector<ir::Tensor> operands, results;
  ir::EvalContext context;
};

Ran run_whole(ir::Bench& t, const std::vector<ir::ValueId>& results) {
  Ran ran;
  ran.node = t.g.value(results[0]).def;
  const ir::Node node = t.g.node(ran.node);
  t.g.outputs.clear();
  t.g.regions[0].results.clear();
  for (ir::ValueId x : node.operands) t.output(x, "operand");
  for (ir::ValueId y : node.results) t.output(y);
  ran.context.bindings = t.bindings;
  ran.context.seed = 5;
  ran.context.step = 3;
  std::vector<ir::Tensor> all = t.run(ran.context);
  const auto middle = all.begin() + static_cast<ptrdiff_t>(node.operands.size());
  ran.operands.assign(all.begin(), middle);
  ran.results.assign(middle, all.end());
  return ran;
}

// All strategies of the op on a mesh; how many there were.
size_t check_all(ir::Bench& t, const Ran& ran, const Mesh& mesh) {
  const Extents extents = dim_extents(t.g, t.bindings);
  const auto all = strategies(t.g, ran.node, mesh, extents, {.partial_products = true});
  const OpSharding sharding(t.g, ran.node, extents);
  SpmdOp op(t.g, ran.node, mesh, ran.context);
  for (const Strategy& strategy : all) {
    std::vector<Parts> results;
    if (t.g.node(ran.node).op == ir::Op::kInput) {
      results.push_back(shard(ran.results[0], strategy.results[0], mesh));  // as it is stored
    } else {
      results = op.run(strategy, ran.operands);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(difference(results[i], ran.results[i], strategy.results[i], mesh), "")
          << sharding.str(strategy.assignment, mesh) << " on " << mesh.str() << ", result " << i;
    }
  }
  return all.size();
}

TEST(StrategyExecution, EveryStrategyOfEveryOp) {
  size_t count = 0;
  std::set<ir::Op> seen;
  for (const OpCase& c : OpCases().all) {
    for (const ir::Bindings& sizes : c.sizes) {
      ir::Bench t;
      t.bindings = sizes;
      const auto results = c.build(t);
      const Ran ran = run_whole(t, results);
      seen.insert(t.g.node(ran.node).op);
      for (const std::vector<int>& axes : {std::vector<int>{2}, {3}, {2, 2}}) {
        SCOPED_TRACE(c.name);
        count += check_all(t, ran, mesh_of(axes));
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(count, 4000U);
  // repeat has no rule; collectives come after strategies are chosen.
#define CAD_OP(enumerator, text, family)                                               \
  if (std::string(#family) != "comm" && text != std::string("axis_index")) {           \
    EXPECT_EQ(seen.count(ir::Op::enumerator), text == std::string("repeat") ? 0U : 1U) \
        << "no case for " << text;                                                     \
  }
#include "ir/ops.def"
#undef CAD_OP
}

// An op's backward in the dual layouts: each device runs the gradient rule on its parts of
// operands, results and the results' gradients; what comes out are parts of the operands' gradients
// in the duals of their layouts. (A mean is a sum over a count by the time it is split; the
// gradients of softmax, extremes and weighted means exchange more than this check does.)
TEST(StrategyExecution, GradientsComeInDualLayouts) {
  size_t count = 0;
  std::set<ir::Op> seen;
  for (const OpCase& c : OpCases().all) {
    ir::Bench t;
    t.bindings = c.sizes[0];
    const auto results = c.build(t);
    Ran ran;
    ran.node = t.g.value(results[0]).def;
    const ir::Node n = t.g.node(ran.node);
    if (ir::op_info(n.op).grad == nullptr || n.op == ir::Op::kMean) continue;
    std::vector<bool> exists;
    std::vector<ir::ValueId> grads;
    for (size_t i = 0; i < n.results.size(); ++i) {
      const ir::Type type = t.g.type(n.results[i]);
      exists.push_back(ir::is_float(type.dtype) && !(n.op == ir::Op::kAttention && i == 1));
      std::vector<double> data;
      for (int k = 0; k < 1024; ++k) data.push_back(t.random() - 0.4);
      grads.push_back(t.given(fmt::format("g{}", i), {ir::DType::kF32, type.dims}, data));
    }
    if (!exists[0]) continue;
    std::vector<ir::ValueId> given = grads;
    for (size_t i = 0; i < given.size(); ++i) given[i] = exists[i] ? grads[i] : ir::ValueId{};
    const auto wanted = ir::op_info(n.op).grad(t.b, ran.node, given);
    t.g.outputs.clear();
    t.g.regions[0].results.clear();
    for (const std::vector<ir::ValueId>* list :
         std::initializer_list<const std::vector<ir::ValueId>*>{&n.operands, &n.results, &grads}) {
      for (ir::ValueId x : *list) t.output(x);
    }
    for (ir::ValueId x : wanted) t.output(x.valid() ? x : grads[0], "dx");
    ran.context.bindings = t.bindings;
    ran.context.seed = 5;
    const std::vector<ir::Tensor> all = t.run(ran.context);
    const auto part = [&](size_t from, size_t count_of) {
      const auto begin = all.begin() + static_cast<ptrdiff_t>(from);
      return std::vector<ir::Tensor>(begin, begin + static_cast<ptrdiff_t>(count_of));
    };
    const size_t operands = n.operands.size(), made = n.results.size();
    ran.operands = part(0, operands);
    const std::vector<ir::Tensor> seeds = part(operands + made, made);
    const std::vector<ir::Tensor> gradients = part(operands + 2 * made, wanted.size());
    for (const std::vector<int>& axes : {std::vector<int>{2}, {3}, {2, 2}}) {
      const Mesh mesh = mesh_of(axes);
      const Extents extents = dim_extents(t.g, t.bindings);
      const OpSharding sharding(t.g, ran.node, extents);
      for (const Strategy& s :
           strategies(t.g, ran.node, mesh, extents, {.partial_products = true})) {
        if (!s.backward.empty() && n.op != ir::Op::kLogSumExp) continue;
        SpmdOp op(t.g, ran.node, mesh, ran.context);
        op.run(s, ran.operands);
        const auto parts = op.backward(s, seeds, exists);
        for (size_t i = 0; i < wanted.size(); ++i) {
          if (!wanted[i].valid()) continue;
          ASSERT_EQ(difference(parts[i], gradients[i], dual(s.operands[i], mesh), mesh), "")
              << c.name << ": " << sharding.str(s.assignment, mesh) << " on " << mesh.str()
              << ", operand " << i;
          ++count;
          seen.insert(n.op);
        }
      }
    }
  }
  EXPECT_GT(count, 2000U);
  EXPECT_GT(seen.size(), 35U);
}

// Rules name dims that are there, and no dim of a tensor twice.
TEST(StrategyExecution, RulesAreWellFormed) {
  for (const OpCase& c : OpCases().all) {
    ir::Bench t;
    const ir::Node node = t.g.node(t.g.value(c.build(t)[0]).def);
    const ir::ShardingRule rule = sharding_rule(t.g, node);
    std::vector<std::set<ir::DimId>> operands(node.operands.size()), results(node.results.size());
    for (const ir::Factor& factor : rule.factors) {
      ASSERT_EQ(factor.operands.size(), node.operands.size()) << c.name;
      ASSERT_EQ(factor.results.size(), node.results.size()) << c.name;
      for (size_t i = 0; i < operands.size(); ++i) {
        const ir::DimId d = factor.operands[i];
        if (!d.valid()) continue;
        EXPECT_TRUE(t.g.type(node.operands[i]).has(d)) << c.name;
        EXPECT_TRUE(operands[i].insert(d).second) << c.name;
      }
      for (size_t i = 0; i < results.size(); ++i) {
        const ir::DimId d = factor.results[i].dim;
        EXPECT_FALSE(d.valid() && factor.results[i].partial) << c.name;
        if (!d.valid()) continue;
        EXPECT_TRUE(t.g.type(node.results[i]).has(d)) << c.name;
        EXPECT_TRUE(results[i].insert(d).second) << c.name;
      }
    }
    for (const auto& set : rule.linear) {
      for (int i : set) EXPECT_LT(static_cast<size_t>(i), node.operands.size()) << c.name;
    }
  }
}

}  // namespace
}  // namespace cad::planner
