// ir/exact_means.cc -- `mean` becomes a sum over a count. The loss of a step is the mean over all of
// its micro-batches and devices: each contributes sums, divided by counts of the whole step
// (`step_total`), so that the contributions and their gradients simply add up. Exact is a mean over
// the batch dim that reaches the loss through sums and constant factors; everything else counts once
// a micro-batch and is averaged over them, by division by step_total(1).
//
// A weighted mean is 0 where its weights sum to 0, with gradient 0 (no label in the batch).
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "ir/autodiff.h"
#include "ir/passes.h"
#include "ir/rewrite.h"

namespace cad::ir {

namespace {

class ExactMeans {
 public:
  explicit ExactMeans(Graph& g) : g_(g) {}

  void run() {
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      if (g_.outputs[i].name != "loss") continue;
      find_batch_dims();
      std::vector<ValueId> params;
      for (const Input& input : g_.inputs) {
        if (input.kind == InputKind::kParam && input.value.valid()) params.push_back(input.value);
      }
      trained_ = active_values(g_, params);
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
  // The batch dim, its renames, and dims it was merged into.
  void find_batch_dims() {
    if (!g_.batch_dim.valid()) return;
    batch_.insert(g_.batch_dim);
    for (NodeId id : g_.regions[0].nodes) {
      for (const DimGroup& group : g_.node(id).attrs.groups) {
        if (group.to.size() != 1) continue;
        for (DimId dim : group.from) {
          if (batch_.count(dim) != 0) batch_.insert(group.to[0]);
        }
      }
    }
  }
  [[nodiscard]] bool over_batch(const std::vector<DimId>& dims) const {
    for (DimId dim : dims) {
      if (batch_.count(dim) != 0) return true;
    }
    return false;
  }

  // `value` with micro-batches adding up to its value over the step.
  ValueId contribution(Builder& b, ValueId value) {
    const auto found = contributions_.find(value);
    if (found != contributions_.end()) return found->second;
    const ValueId result = make_contribution(b, value);
    contributions_.emplace(value, result);
    return result;
  }

  ValueId make_contribution(Builder& b, ValueId value) {
    const NodeId def = g_.value(value).def;
    if (!def.valid() || !is_float(g_.type(value).dtype)) return averaged(b, value);
    const Node node = g_.node(def);
    b.span = node.span;
    b.scope = node.scope;
    Attrs attrs = node.attrs;
    switch (node.op) {
      case Op::kAdd: case Op::kSub:
        return b.make(node.op, {contribution(b, node.operands[0]), contribution(b, node.operands[1])}, attrs);
      case Op::kMul:
        if (constant_of(g_, node.operands[1]) != nullptr) {
          return b.make(node.op, {contribution(b, node.operands[0]), node.operands[1]}, attrs);
        }
        if (constant_of(g_, node.operands[0]) != nullptr) {
          return b.make(node.op, {node.operands[0], contribution(b, node.operands[1])}, attrs);
        }
        return averaged(b, value);
      case Op::kDiv:
        if (constant_of(g_, node.operands[1]) == nullptr) return averaged(b, value);
        return b.make(node.op, {contribution(b, node.operands[0]), node.operands[1]}, attrs);
      case Op::kNeg: case Op::kRename: case Op::kReshape: case Op::kTranspose: case Op::kBroadcast:
        return b.make(node.op, {contribution(b, node.operands[0])}, attrs);
      case Op::kCast:
        if (!is_float(g_.type(node.operands[0]).dtype)) return averaged(b, value);
        return b.make(node.op, {contribution(b, node.operands[0])}, attrs);
      case Op::kSum:
        if (over_batch(attrs.dims)) return value;
        return b.make(node.op, {contribution(b, node.operands[0])}, attrs);
      case Op::kMean:
        return mean_contribution(b, node);
      default:
        return averaged(b, value);
    }
  }

  ValueId mean_contribution(Builder& b, const Node& node) {
    const bool batch = over_batch(node.attrs.dims);
    if (node.operands.size() == 1 && !batch && is_float(g_.type(node.operands[0]).dtype)) {
      Node linear = node;
      linear.operands[0] = contribution(b, node.operands[0]);
      return own_mean(b, linear);
    }
    if (!batch) return averaged(b, node.results[0]);
    if (node.operands.size() == 1) {
      const ValueId total = b.make(Op::kStepTotal, {count(b, node.attrs.dims)});
      return conform(b, b.div(sum_of(b, node), total), Type(g_.type(node.results[0])));
    }
    const auto weight = static_cast<size_t>(node.operands[1].index);
    const ValueId weights = weight_sum(b, node);
    const bool learned = weight < trained_.size() && trained_[weight] != 0;
    if (learned || g_.type(weights).rank() != 0) return averaged(b, node.results[0]);
    return guarded(b, sum_of(b, node), b.make(Op::kStepTotal, {weights}), Type(g_.type(node.results[0])));
  }

  // One micro-batch's value, averaged over them.
  ValueId averaged(Builder& b, ValueId value) {
    const ValueId batches = b.make(Op::kStepTotal, {b.constant(Scalar(1.0), DType::kF32)});
    return b.div(value, b.cast(batches, g_.type(value).dtype));
  }

  ValueId count(Builder& b, const std::vector<DimId>& dims) {
    Size size(1);
    for (DimId dim : dims) size = size * g_.dim(dim).size;
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
  std::unordered_set<DimId> batch_;
  std::unordered_map<ValueId, ValueId> contributions_;
  std::vector<char> trained_;
};

}  // namespace

Graph exact_means(Graph g) {
  ExactMeans(g).run();
  return eliminate_dead(std::move(g));
}

}  // namespace cad::ir
