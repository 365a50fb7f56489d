// tests/spmd/op_test.cc -- every op alone, lowered in every way that it can be split, with NaN
// beyond what devices own: results and gradients are the whole op's. lower_test.cc has whole
// models.
#include <set>

#include "tests/planner/op_cases.h"
#include "tests/spmd/spmd_testing.h"

namespace cad::backend {
namespace {

using planner::Mesh;
using planner::Placement;

// The op with a loss: its float results times coefficients.
WholeModel model_of(const planner::OpCase& c, const ir::Bindings& sizes, ir::NodeId& op) {
  ir::Bench t;
  t.bindings = sizes;
  const std::vector<ir::ValueId> results = c.build(t);
  op = t.g.value(results[0]).def;
  ir::ValueId loss = t.b.constant(0.0, ir::DType::kF32);
  for (size_t i = 0; i < results.size(); ++i) {
    const ir::Type type = t.g.type(results[i]);
    t.output(results[i], fmt::format("y{}", i));
    const bool lse = t.g.node(op).op == ir::Op::kAttention && i == 1;  // has no gradient
    if (!ir::is_float(type.dtype) || lse) continue;
    std::vector<double> data;
    for (int k = 0; k < 1024; ++k) data.push_back(t.random() - 0.4);
    const ir::ValueId w = t.given(fmt::format("c{}", i), {ir::DType::kF32, type.dims}, data);
    const ir::ValueId term = t.b.mul(t.b.cast(results[i], ir::DType::kF32), w);
    loss = t.b.add(loss, t.b.sum(term, ir::Dims(t.g.type(term).dims)));
  }
  t.output(loss, "loss");
  t.fill();
  WholeModel m;
  m.spec.bindings = sizes;
  m.forward = t.g;
  m.extents = planner::dim_extents(m.forward, sizes);
  for (size_t i = 0; i < t.g.inputs.size(); ++i) m.inputs[t.g.inputs[i].path] = t.values[i];
  const ir::Graph step = ir::differentiate(t.g, ir::output_value(t.g, "loss"));
  ir::EvalContext context = context_of(m);
  const std::vector<ir::Tensor> whole = ir::interpret(step, t.values, context);
  for (size_t i = 0; i < whole.size(); ++i) m.results[step.outputs[i].name] = whole[i];
  return m;
}

TEST(LowerOp, EveryOpInEveryStrategy) {
  size_t count = 0;
  std::set<ir::Op> split;
  for (const planner::OpCase& c : planner::OpCases().all) {
    for (const ir::Bindings& sizes : c.sizes) {
      ir::NodeId op;
      const WholeModel m = model_of(c, sizes, op);
      const ir::Node& n = m.forward.node(op);
      if (n.op == ir::Op::kInput || n.op == ir::Op::kConst) continue;
      for (const std::vector<int>& axes : {std::vector<int>{2}, {3}, {2, 2}}) {
        const Mesh mesh = test_mesh(axes);
        planner::StrategyOptions options;
        options.partial_products = true;
        const auto all = planner::strategies(m.forward, op, mesh, m.extents, options);
        // all of them on two devices, a share on more
        const size_t step = axes[0] == 2 && axes.size() == 1 ? 1 : 1 + all.size() / 5;
        for (size_t k = 0; k < all.size(); k += step, ++count) {
          Placement placement = planner::replicated_placement(mesh);
          placement.top.ops[op.index] = all[k].assignment;
          ASSERT_EQ(lowered_difference(m, placement), "")
              << c.name << " on " << mesh.str() << ": "
              << planner::OpSharding(m.forward, op, m.extents).str(all[k].assignment, mesh);
          if (all[k].share < 1) split.insert(n.op);
        }
      }
    }
  }
  EXPECT_GT(count, 1000U);
  EXPECT_GT(split.size(), 60U);
}

}  // namespace
}  // namespace cad::backend
