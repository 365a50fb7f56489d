// ir/cost.cc -- see cost.h. The scratch graph holds the node, its operands as plain values and the
// constants among them (some gradient rules look at those), then what the gradient rule appends.
#include "ir/cost.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/builder.h"
#include "ir/rewrite.h"

namespace cad::ir {

OpCost op_cost(const Graph& g, NodeId node) {
  const Node& n = g.node(node);
  return op_info(n.op).cost(g, n);
}

namespace {

class Scratch {
 public:
  Scratch(const Graph& g, Graph& scratch) : g_(g), scratch_(scratch) {
    scratch_.values.clear();
    scratch_.nodes.clear();
    scratch_.regions.assign(1, Region{});
    scratch_.batch_dim = g.batch_dim;
  }

  BackwardCost run(const Node& node) {
    BackwardCost result;
    result.gradients.resize(node.operands.size());
    const GradRule rule = op_info(node.op).grad;
    if (rule == nullptr || node.op == Op::kRepeat) return result;
    const NodeId copy = copy_node(node);
    std::vector<ValueId> grads;
    for (ValueId value : node.results) {
      const Type type = g_.type(value);
      grads.push_back(is_float(type.dtype) ? scratch_.add_value(RegionId{0}, type) : ValueId{});
    }
    const auto appended = scratch_.regions[0].nodes.size();
    Builder b(scratch_, RegionId{0});
    const std::vector<ValueId> out = rule(b, copy, grads);
    std::unordered_set<int32_t> all;
    for (size_t i = 0; i < out.size(); ++i) {
      if (!out[i].valid() || constant_of(g_, node.operands[i]) != nullptr) continue;
      GradientCost& gradient = result.gradients[i];
      gradient.exists = true;
      measure(cone(out[i], appended), appended, gradient.cost, gradient.reads);
      all.merge(cone(out[i], appended));
    }
    measure(all, appended, result.total, result.reads);
    return result;
  }

 private:
  ValueId copy_value(ValueId value) {
    const auto found = to_.find(value);
    if (found != to_.end()) return found->second;
    ValueId copy;
    if (const Scalar* scalar = constant_of(g_, value)) {
      Builder b(scratch_, RegionId{0});
      const Type type = g_.type(value);
      copy = b.broadcast(b.constant(*scalar, type.dtype), type.dims);
      constants_.insert(copy.index);
    } else {
      copy = scratch_.add_value(RegionId{0}, Type(g_.type(value)));
    }
    to_.emplace(value, copy);
    from_.emplace(copy.index, value);
    return copy;
  }

  NodeId copy_node(const Node& node) {
    Node copy = node;
    for (ValueId& operand : copy.operands) operand = copy_value(operand);
    const NodeId id{static_cast<int32_t>(scratch_.nodes.size())};
    copy.region = RegionId{0};
    for (size_t i = 0; i < copy.results.size(); ++i) {
      const ValueId old = node.results[i];
      copy.results[i] = scratch_.add_value(RegionId{0}, Type(g_.type(old)));
      scratch_.value(copy.results[i]).def = id;
      scratch_.value(copy.results[i]).result = static_cast<int32_t>(i);
      from_.emplace(copy.results[i].index, old);
    }
    order_ = node.operands;
    order_.insert(order_.end(), node.results.begin(), node.results.end());
    scratch_.nodes.push_back(std::move(copy));
    scratch_.regions[0].nodes.push_back(id);
    return id;
  }

  // Appended nodes that `value` depends on.
  std::unordered_set<int32_t> cone(ValueId value, size_t appended) {
    std::unordered_set<int32_t> nodes;
    std::unordered_set<int32_t> live = {value.index};
    const std::vector<NodeId>& order = scratch_.regions[0].nodes;
    for (size_t i = order.size(); i-- > appended;) {
      const Node& node = scratch_.node(order[i]);
      const bool used = std::any_of(node.results.begin(), node.results.end(),
                                    [&](ValueId r) { return live.count(r.index) != 0; });
      if (!used) continue;
      nodes.insert(order[i].index);
      for (ValueId operand : node.operands) live.insert(operand.index);
    }
    return nodes;
  }

  void measure(const std::unordered_set<int32_t>& nodes, size_t appended, OpCost& cost,
               std::vector<ValueId>& reads) {
    std::unordered_set<ValueId> read;
    for (size_t i = appended; i < scratch_.regions[0].nodes.size(); ++i) {
      const NodeId id = scratch_.regions[0].nodes[i];
      if (nodes.count(id.index) == 0) continue;
      cost += op_cost(scratch_, id);
      for (ValueId operand : scratch_.node(id).operands) {
        const auto forward = from_.find(operand.index);
        if (forward != from_.end() && constants_.count(operand.index) == 0)
          read.insert(forward->second);
      }
    }
    for (ValueId value : order_) {
      if (read.erase(value) != 0) reads.push_back(value);
    }
  }

  const Graph& g_;
  Graph& scratch_;
  std::unordered_map<ValueId, ValueId> to_;
  std::unordered_map<int32_t, ValueId> from_;
  std::unordered_set<int32_t> constants_;
  std::vector<ValueId> order_;  // operands, then results
};

}  // namespace

BackwardCosts::BackwardCosts(const Graph& g) : g_(g), scratch_(std::make_unique<Graph>()) {
  scratch_->mesh = g.mesh;
  scratch_->dims = g.dims;
}

BackwardCosts::~BackwardCosts() = default;

BackwardCost BackwardCosts::of(NodeId node) {
  return Scratch(g_, *scratch_).run(g_.node(node));
}

BackwardCost backward_cost(const Graph& g, NodeId node) {
  return BackwardCosts(g).of(node);
}

}  // namespace cad::ir
