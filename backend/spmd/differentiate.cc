// backend/spmd/differentiate.cc -- the gradient of a local graph. The cotangent of a value that is
// whole on every device is a summand of it there (planner/layout.h, dual), so that of the loss is 1
// on the first device and 0 on the others.
#include "backend/spmd/lower.h"
#include "backend/spmd/lowering.h"
#include "base/check.h"
#include "ir/passes.h"
#include "ir/rewrite.h"

namespace cad::backend {

using ir::Op;
using ir::ValueId;

namespace {

// 1, or the loss scale, on the first device of all.
ValueId seed(ir::Builder& b, const LocalGraph& local, ValueId scale) {
  const ValueId one = scale.valid() ? scale : b.constant(ir::Scalar(1.0), ir::DType::kF32);
  uint32_t axes = 0;
  for (size_t a = 0; a < local.mesh.axes.size(); ++a) {
    if (local.mesh.axes[a].size > 1) axes |= 1U << a;
  }
  if (axes == 0) return one;
  const ValueId first =
      b.make(Op::kEq, {axis_index(b, axes), b.constant(ir::Scalar(0.0), ir::DType::kI32)});
  return b.where(first, one, b.constant(ir::Scalar(0.0), ir::DType::kF32));
}

// attach(p, z) is p, now that the gradient is there; the inputs z are gone.
ir::Graph without_attachments(ir::Graph g) {
  ir::Rewriter rewriter(g);
  rewriter.run([&](ir::Builder&, ir::NodeId id) {
    const ir::Node& n = g.node(id);
    if (n.op != Op::kAttach) return false;
    rewriter.replace(n.results[0], n.operands[0]);
    return true;
  });
  g = ir::eliminate_dead(std::move(g));
  const std::string ending = kGradientInput;
  return ir::drop_inputs(std::move(g), [&](const ir::Input& input) {
    return input.path.size() < ending.size() ||
           input.path.compare(input.path.size() - ending.size(), ending.size(), ending) != 0;
  });
}

ir::Graph finished(ir::Graph g, ir::PassLog* log) {
  g = without_attachments(std::move(g));
  g = ir::mask_tails(std::move(g));
  return ir::run_passes(std::move(g), ir::passes_after_autodiff(), log);
}

}  // namespace

ir::Graph differentiate_local(LocalGraph local,
                              const std::function<bool(const LocalTensor&)>& trained,
                              const std::string& loss_scale, ir::PassLog* log) {
  ir::Graph& g = local.graph;
  ir::DifferentiateOptions options;
  for (const LocalTensor& tensor : local.tensors) {
    if (tensor.kind != ir::InputKind::kParam || !trained(tensor)) continue;
    for (size_t i = 0; i < g.inputs.size(); ++i) {
      if (g.inputs[i].path == tensor.local + kGradientInput)
        options.wrt.push_back(ir::InputId{static_cast<int32_t>(i)});
    }
  }
  if (options.wrt.empty()) return finished(std::move(g), log);
  const ValueId loss = ir::output_value(g, "loss");
  CAD_CHECK(loss.valid(), "no loss");
  ir::Builder b(g, ir::RegionId{0});
  ValueId scale;
  if (!loss_scale.empty()) {
    ir::Input input;
    input.path = loss_scale;
    scale = b.input(std::move(input), {ir::DType::kF32, {}});
  }
  options.seed = seed(b, local, scale);
  const std::vector<ir::SavePolicy::Choice> saving = local.saving;
  options.save.choose = [saving](const ir::Graph&, ValueId v) {
    const auto at = static_cast<size_t>(v.index);
    return at < saving.size() ? saving[at] : ir::SavePolicy::Choice::kAuto;
  };
  ir::Graph whole = ir::differentiate(std::move(g), loss, options);
  const std::string ending = kGradientInput;
  for (ir::Output& output : whole.outputs) {
    if (output.name.rfind("grad:", 0) == 0) output.name.erase(output.name.size() - ending.size());
  }
  // twice: what the loop within a segment sums later may be small for the segments' loop too
  if (local.late_sums) whole = sum_after_loops(sum_after_loops(std::move(whole)));
  return finished(std::move(whole), log);
}

ir::Graph finish_local(LocalGraph local, ir::PassLog* log) {
  return finished(std::move(local.graph), log);
}

}  // namespace cad::backend
