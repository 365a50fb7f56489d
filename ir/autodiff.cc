// ir/autodiff.cc -- activity, the reverse sweep over a region, and the pass itself. Loops are in
// autodiff_loop.cc. Gradient rules stand with their ops (op_*.cc): here is only accumulation.
#include "ir/autodiff.h"

#include "base/check.h"
#include "ir/autodiff_internal.h"
#include "ir/recompute.h"
#include "ir/rewrite.h"

namespace cad::ir {

namespace {

class Activity {
 public:
  Activity(const Graph& g, const std::vector<ValueId>& sources)
      : g_(g), flags_(g.values.size(), 0) {
    for (ValueId value : sources) set(value, true);
    region(RegionId{0});
  }
  std::vector<char> take() { return std::move(flags_); }

 private:
  [[nodiscard]] bool get(ValueId value) const {
    return flags_[static_cast<size_t>(value.index)] != 0;
  }
  bool set(ValueId value, bool on) {  // true when it is new
    if (!on || get(value) || !is_float(g_.type(value).dtype)) return false;
    flags_[static_cast<size_t>(value.index)] = 1;
    return true;
  }
  void region(RegionId id) {
    for (NodeId node : g_.region(id).nodes) visit(g_.node(node));
  }
  void visit(const Node& node) {
    bool any = false;
    for (ValueId operand : node.operands) any = any || get(operand);
    if (!any) return;
    if (node.op == Op::kRepeat) {
      loop(node);
    } else if (op_info(node.op).grad != nullptr) {
      for (ValueId result : node.results) set(result, true);
    }
  }
  void loop(const Node& node) {
    const Region& body = g_.region(node.loop.body);
    for (size_t i = 0; i < node.operands.size(); ++i) set(body.args[i + 1], get(node.operands[i]));
    const auto carries = static_cast<size_t>(node.loop.carries);
    for (bool grew = true; grew;) {
      region(node.loop.body);
      grew = false;
      for (size_t i = 0; i < carries; ++i)
        grew = set(body.args[i + 1], get(body.results[i])) || grew;
    }
    for (size_t i = 0; i < node.results.size(); ++i) {
      set(node.results[i], get(body.results[i]) || (i < carries && get(node.operands[i])));
    }
  }

  const Graph& g_;
  std::vector<char> flags_;
};

}  // namespace

std::vector<char> active_values(const Graph& g, const std::vector<ValueId>& sources) {
  return Activity(g, sources).take();
}

ValueId output_value(const Graph& g, const std::string& name) {
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    if (g.outputs[i].name == name) return g.regions[0].results[i];
  }
  return {};
}

ValueId Differentiator::cotangent(ValueId value) const {
  const auto index = static_cast<size_t>(value.index);
  return index < cotangents_.size() ? cotangents_[index] : ValueId{};
}

void Differentiator::accumulate(Builder& b, ValueId value, ValueId cotangent) {
  if (!cotangent.valid() || !active(value)) return;
  cotangent = b.cast(cotangent, g_.type(value).dtype);
  CAD_CHECK(g_.type(cotangent).rank() == g_.type(value).rank(),
            "gradient of `{}` is {}, the value {}", g_.value(value).name,
            g_.str(g_.type(cotangent)), g_.str(g_.type(value)));
  const auto index = static_cast<size_t>(value.index);
  if (index >= cotangents_.size()) cotangents_.resize(g_.values.size());
  const ValueId sum = cotangents_[index];
  cotangents_[index] = sum.valid() ? b.add(sum, cotangent) : cotangent;
}

void Differentiator::sweep(RegionId region, size_t forward_nodes) {
  Builder b(g_, region);
  for (size_t i = forward_nodes; i-- > 0;) {
    const NodeId id = g_.region(region).nodes[i];
    const std::vector<ValueId> operands = g_.node(id).operands;
    bool wanted = false;
    for (ValueId operand : operands) wanted = wanted || active(operand);
    std::vector<ValueId> grads;
    bool reached = false;
    for (ValueId result : g_.node(id).results) {
      grads.push_back(cotangent(result));
      reached = reached || grads.back().valid();
    }
    if (!wanted || !reached) continue;
    b.span = g_.node(id).span;
    b.scope = g_.node(id).scope;
    const Op op = g_.node(id).op;
    if (op == Op::kRepeat) {
      differentiate_loop(b, id);
      continue;
    }
    const GradRule rule = op_info(op).grad;
    if (rule == nullptr) continue;
    const std::vector<ValueId> out = rule(b, id, grads);
    CAD_CHECK(out.size() == operands.size(),
              "gradient rule of `{}` gives {} cotangents for {} operands", op_name(op), out.size(),
              operands.size());
    for (size_t k = 0; k < out.size(); ++k) accumulate(b, operands[k], out[k]);
  }
}

Graph differentiate(Graph graph, ValueId loss, const DifferentiateOptions& options) {
  const Type& loss_type = graph.type(loss);
  CAD_CHECK(loss_type.rank() == 0 && loss_type.dtype == DType::kF32, "the loss is {}, not f32[]",
            graph.str(loss_type));
  std::vector<InputId> wrt = options.wrt;
  for (size_t i = 0; i < graph.inputs.size() && options.wrt.empty(); ++i) {
    const Input& input = graph.inputs[i];
    if (input.kind == InputKind::kParam && !input.frozen && input.value.valid()) {
      wrt.push_back(InputId{static_cast<int32_t>(i)});
    }
  }
  std::vector<ValueId> wanted;
  wanted.reserve(wrt.size());
  for (InputId id : wrt) wanted.push_back(graph.inputs[static_cast<size_t>(id.index)].value);

  Builder b(graph, RegionId{0});
  const size_t forward_nodes = graph.regions[0].nodes.size();
  Differentiator differentiator(graph, wanted, options.save);
  const ValueId seed = options.seed.valid() ? options.seed : b.constant(Scalar(1.0), DType::kF32);
  differentiator.accumulate(b, loss, seed);
  differentiator.sweep(RegionId{0}, forward_nodes);
  recompute_at_top(graph, forward_nodes, options.save);

  for (size_t i = 0; i < wrt.size(); ++i) {
    const Type type = graph.type(wanted[i]);
    const ValueId cotangent = differentiator.cotangent(wanted[i]);
    const ValueId grad = cotangent.valid() ? conform(b, cotangent, type) : b.zeros(type);
    graph.outputs.push_back({"grad:" + graph.inputs[static_cast<size_t>(wrt[i].index)].path});
    graph.regions[0].results.push_back(grad);
  }
  return graph;
}

}  // namespace cad::ir
