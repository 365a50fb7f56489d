// ir/exact_means.cc -- `mean` becomes a sum over a count. The loss of a step is the mean over all
// of its micro-batches and devices: each contributes sums, divided by counts of the whole step
// (`step_total`), so that the contributions and their gradients simply add up. Exact is a mean over
// the batch dim that reaches the loss through sums and constant factors; everything else counts
// once a micro-batch and is averaged over them, by division by step_total(1).
//
// A weighted mean is 0 where its weights sum to 0, with gradient 0 (no label in the batch).
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "ir/autodiff.h"
#include "ir/passes.h"
#include "ir/rewrite.h"

namespace cad::ir {

namespace {

// The batch dim, its renames, and dims it was merged into.
class BatchDims {
 public:
  BatchDims(const Graph& g, const std::vector<NodeId>& nodes) {
    if (!g.batch_dim.valid()) return;
    dims_.insert(g.batch_dim);
    for (NodeId id : nodes) {
      for (const DimGroup& group : g.node(id).attrs.groups) {
        if (group.to.size() == 1 && over(group.from)) dims_.insert(group.to[0]);
      }
    }
  }
  [[nodiscard]] bool has(DimId dim) const { return dims_.count(dim) != 0; }
  [[nodiscard]] bool over(const std::vector<DimId>& dims) const {
    return std::any_of(dims.begin(), dims.end(), [&](DimId d) { return has(d); });
  }
  [[nodiscard]] std::vector<DimId> all() const {
    std::vector<DimId> dims(dims_.begin(), dims_.end());
    std::sort(dims.begin(), dims.end());
    return dims;
  }

 private:
  std::unordered_set<DimId> dims_;
};

std::vector<NodeId> all_nodes(const Graph& g) {
  std::vector<NodeId> nodes;
  for (const Region& region : g.regions)
    nodes.insert(nodes.end(), region.nodes.begin(), region.nodes.end());
  return nodes;
}

// The operands through which a node passes sums over the batch on: those whose contributions make
// up its own. None: the node is where a contribution starts.
std::vector<size_t> linear_operands(const Graph& g, const BatchDims& batch, const Node& node) {
  const auto if_float = [&](bool more) {
    return more && is_float(g.type(node.operands[0]).dtype) ? std::vector<size_t>{0}
                                                            : std::vector<size_t>{};
  };
  switch (node.op) {
    case Op::kAdd:
    case Op::kSub:
      return {0, 1};
    case Op::kMul:
      if (constant_of(g, node.operands[1]) != nullptr) return {0};
      return constant_of(g, node.operands[0]) != nullptr ? std::vector<size_t>{1}
                                                         : std::vector<size_t>{};
    case Op::kDiv:
      return constant_of(g, node.operands[1]) != nullptr ? std::vector<size_t>{0}
                                                         : std::vector<size_t>{};
    case Op::kNeg:
    case Op::kRename:
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kBroadcast:
      return {0};
    case Op::kCast:
      return if_float(true);
    case Op::kSum:
      return batch.over(node.attrs.dims) ? std::vector<size_t>{} : std::vector<size_t>{0};
    case Op::kMean:
      return if_float(node.operands.size() == 1 && !batch.over(node.attrs.dims));
    default:
      return {};
  }
}

// `value` and the values under it that pass its sums over the batch on.
std::unordered_set<ValueId> linear_part(const Graph& g, const BatchDims& batch, ValueId value) {
  std::unordered_set<ValueId> part = {value};
  std::vector<ValueId> pending = {value};
  while (!pending.empty()) {
    const NodeId def = g.value(pending.back()).def;
    pending.pop_back();
    if (!def.valid() || !is_float(g.type(g.node(def).results[0]).dtype)) continue;
    for (size_t operand : linear_operands(g, batch, g.node(def))) {
      const ValueId under = g.node(def).operands[operand];
      if (part.insert(under).second) pending.push_back(under);
    }
  }
  return part;
}

std::vector<char> trained_values(const Graph& g) {
  std::vector<ValueId> params;
  for (const Input& input : g.inputs) {
    if (input.kind == InputKind::kParam && input.value.valid()) params.push_back(input.value);
  }
  return active_values(g, params);
}

class ExactMeans {
 public:
  explicit ExactMeans(Graph& g) : g_(g), batch_(g, {}) {}

  void run() {
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      if (g_.outputs[i].name != "loss") continue;
      batch_ = BatchDims(g_, g_.regions[0].nodes);
      trained_ = trained_values(g_);
      Builder b(g_, RegionId{0});
      const ValueId loss = contribution(b, g_.regions[0].results[i]);
      g_.regions[0].results[i] = loss;
    }
    Rewriter rewriter(g_);
    rewriter.run([&](Builder& b, NodeId id) {
      if (g_.node(id).op != Op::kMean) return false;
      const Node node = g_.node(id);
      rewriter.replace(node.results[0], own_mean(b, node));
      return true;
    });
  }

 private:
  // `loss` with micro-batches adding up to its value over the step. In node order, not by
  // recursion: sums may be thousands of terms long.
  ValueId contribution(Builder& b, ValueId loss) {
    const std::unordered_set<ValueId> wanted = linear_part(g_, batch_, loss);
    const std::vector<NodeId> nodes = g_.regions[0].nodes;
    for (NodeId id : nodes) {
      const std::vector<ValueId> results = g_.node(id).results;
      for (ValueId result : results) {
        if (wanted.count(result) != 0) contributions_.emplace(result, make_contribution(b, result));
      }
    }
    return contributions_.at(loss);
  }

  ValueId make_contribution(Builder& b, ValueId value) {
    Node node = g_.node(g_.value(value).def);
    b.span = node.span;
    b.scope = node.scope;
    if (!is_float(g_.type(value).dtype)) return averaged(b, value);
    const std::vector<size_t> linear = linear_operands(g_, batch_, node);
    if (linear.empty()) {
      if (node.op == Op::kSum) return value;  // over the batch
      return node.op == Op::kMean && batch_.over(node.attrs.dims) ? batch_mean(b, node)
                                                                  : averaged(b, value);
    }
    for (size_t operand : linear)
      node.operands[operand] = contributions_.at(node.operands[operand]);
    return node.op == Op::kMean ? own_mean(b, node) : b.make(node.op, node.operands, node.attrs);
  }

  // A mean over the batch (and other dims): this micro-batch's sum over the step's count.
  ValueId batch_mean(Builder& b, const Node& node) {
    const Type type = g_.type(node.results[0]);
    if (node.operands.size() == 1) {
      const ValueId total = b.make(Op::kStepTotal, {count(b, node.attrs.dims)});
      return conform(b, b.div(sum_of(b, node), total), type);
    }
    const auto weight = static_cast<size_t>(node.operands[1].index);
    const ValueId weights = weight_sum(b, node);
    const bool learned = weight < trained_.size() && trained_[weight] != 0;
    if (learned || g_.type(weights).rank() != 0) return averaged(b, node.results[0]);
    return guarded(b, sum_of(b, node), b.make(Op::kStepTotal, {weights}), type);
  }

  // One micro-batch's value, averaged over them.
  ValueId averaged(Builder& b, ValueId value) {
    const ValueId batches = b.make(Op::kStepTotal, {b.constant(Scalar(1.0), DType::kF32)});
    return b.div(value, b.cast(batches, g_.type(value).dtype));
  }

  ValueId count(Builder& b, const std::vector<DimId>& dims) {
    Size size(1);
    for (DimId dim : dims) size = size * g_.dim(dim).size;
    if (size == Size(0)) size = Size(1);  // the mean of nothing is 0
    return b.constant(Scalar::size(size), DType::kF32);
  }

  // Sum of x (times its weight), in f32.
  ValueId sum_of(Builder& b, const Node& node) {
    ValueId x = b.cast(node.operands[0], DType::kF32);
    if (node.operands.size() > 1) x = b.mul(x, b.cast(node.operands[1], DType::kF32));
    return b.sum(x, node.attrs.dims);
  }

  // Sum of the weight over the same positions, also over dims that it lacks.
  ValueId weight_sum(Builder& b, const Node& node) {
    const ValueId weight = b.cast(node.operands[1], DType::kF32);
    std::vector<DimId> own, absent;
    for (DimId dim : node.attrs.dims) (g_.type(weight).has(dim) ? own : absent).push_back(dim);
    const ValueId sum = b.sum(weight, own);
    return absent.empty() ? sum : b.mul(sum, count(b, absent));
  }

  // sum / total, 0 where the total is 0; no division by 0 happens, so none in the gradient either.
  ValueId guarded(Builder& b, ValueId sum, ValueId total, const Type& type) {
    const ValueId zero = b.constant(Scalar(0.0), DType::kF32);
    const ValueId one = b.constant(Scalar(1.0), DType::kF32);
    const ValueId none = b.make(Op::kEq, {total, zero});
    const ValueId quotient = b.div(sum, b.where(none, one, total));
    return conform(b, b.where(none, zero, quotient), type);
  }

  ValueId own_mean(Builder& b, const Node& node) {
    const Type type = g_.type(node.results[0]);
    if (node.operands.size() > 1) return guarded(b, sum_of(b, node), weight_sum(b, node), type);
    return conform(b, b.div(sum_of(b, node), count(b, node.attrs.dims)), type);
  }

  Graph& g_;
  BatchDims batch_;
  std::unordered_map<ValueId, ValueId> contributions_;
  std::vector<char> trained_;
};

// Whether a result's row holds something of other rows.
bool relates_rows(const Graph& g, const BatchDims& batch, const Node& node) {
  const auto rows = [&](ValueId v) {
    const auto& dims = g.type(v).dims;
    return std::count_if(dims.begin(), dims.end(), [&](DimId d) { return batch.has(d); });
  };
  const bool any = std::any_of(node.operands.begin(), node.operands.end(),
                               [&](ValueId v) { return rows(v) > 0; });
  if (!any || node.op == Op::kRepeat || node.op == Op::kStepTotal) return false;
  switch (node.op) {
    case Op::kSum:
    case Op::kMean:
    case Op::kReduceMax:
    case Op::kReduceMin:
    case Op::kArgmax:
    case Op::kLogSumExp:
    case Op::kSoftmax:
    case Op::kContract:
    case Op::kConcat:
      return batch.over(node.attrs.dims);
    case Op::kCumSum:
    case Op::kSlice:
    case Op::kPad:
    case Op::kFlip:
    case Op::kGather:
    case Op::kSelect:
    case Op::kWindow:
    case Op::kTopK:
      return batch.has(node.attrs.dim);
    case Op::kSlots:  // rows compete for them
      return true;
    case Op::kScatterAdd:
      return rows(node.results[0]) == 0;
    default:
      break;
  }
  // Two names of the batch in one tensor: every row meets every row.
  return std::any_of(node.results.begin(), node.results.end(), [&](ValueId result) {
    return rows(result) > 1 && std::none_of(node.operands.begin(), node.operands.end(),
                                            [&](ValueId operand) { return rows(operand) > 1; });
  });
}

}  // namespace

std::vector<DimId> batch_dims(const Graph& g) {
  return BatchDims(g, all_nodes(g)).all();
}

std::vector<NodeId> row_relations(const Graph& g) {
  const std::vector<NodeId> nodes = all_nodes(g);
  const BatchDims batch(g, nodes);
  const std::vector<char> trained = trained_values(g);
  std::unordered_set<ValueId> exact;
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    const std::string& name = g.outputs[i].name;
    if (name == "loss" || name.rfind("sum:", 0) == 0 || name.rfind("count:", 0) == 0)
      exact.merge(linear_part(g, batch, g.regions[0].results[i]));
  }
  // Divided by the weights of the whole step: they are no longer a number for each of what is left,
  // and nothing that is trained.
  const auto divides_once = [&](const Node& node) {
    if (node.operands.size() < 2) return true;
    const ValueId weight = node.operands[1];
    const std::vector<DimId>& dims = g.type(weight).dims;
    const bool left = std::any_of(dims.begin(), dims.end(), [&](DimId d) {
      return std::find(node.attrs.dims.begin(), node.attrs.dims.end(), d) == node.attrs.dims.end();
    });
    return !left && trained[static_cast<size_t>(weight.index)] == 0;
  };
  std::vector<NodeId> found;
  for (NodeId id : nodes) {
    const Node& node = g.node(id);
    if (!relates_rows(g, batch, node)) continue;
    // a sum or mean that the loss adds up
    const bool summed = (node.op == Op::kSum || node.op == Op::kMean) && divides_once(node);
    if (!summed || exact.count(node.results[0]) == 0) found.push_back(id);
  }
  return found;
}

Graph exact_means(Graph g) {
  ExactMeans(g).run();
  return eliminate_dead(std::move(g));
}

}  // namespace cad::ir
