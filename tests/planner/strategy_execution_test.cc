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
#define CAD_OP(enumerator, text, family)                                             \
  EXPECT_EQ(seen.count(ir::Op::enumerator), text == std::string("repeat") ? 0U : 1U) \
      << "no case for " << text;
#include "ir/ops.def"
#undef CAD_OP
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
