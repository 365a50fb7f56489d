// tests/planner/spmd_op.h -- one op on simulated devices: each device gets its parts of the
// operands as a strategy wants them and runs the op's reference semantics on them, knowing where
// its parts lie; devices along a statistic's axes exchange it. See spmd_check.h for tensors.
#pragma once

#include <map>
#include <tuple>

#include "ir/op_rules.h"
#include "tests/planner/spmd_check.h"

namespace cad::planner {

// A node as one device runs it: a graph of its own, whose dims are that device's stretches.
struct LocalOp {
  ir::Graph g;
  ir::NodeId node;
  ir::EvalContext context;
};

class Localizer {
 public:
  Localizer(const ir::Graph& g, ir::NodeId node, const Strategy& strategy, const Mesh& mesh,
            const Extents& extents, std::vector<int> at)
      : g_(g), mesh_(mesh), extents_(extents), at_(std::move(at)) {
    ir::Node n = g.node(node);
    const std::vector<ir::ValueId> operands = n.operands, results = n.results;
    n.region = ir::RegionId{0};
    for (size_t i = 0; i < operands.size(); ++i)
      n.operands[i] = value(operands[i], strategy.operands[i], operand_dims_[i]);
    for (size_t i = 0; i < results.size(); ++i)
      n.results[i] = value(results[i], strategy.results[i], result_dims_[i]);
    local_.node = ir::NodeId{0};
    for (ir::ValueId y : n.results) local_.g.value(y).def = local_.node;
    // Attributes name dims of the result in these ops, else dims of an operand first.
    from_result_ = n.op == ir::Op::kScatterAdd || n.op == ir::Op::kUnselect;
    for (ir::DimId& d : n.attrs.dims) d = mapped(d, from_result_);
    if (n.op == ir::Op::kConcat) {
      n.attrs.dims.clear();
      for (size_t i = 0; i < operands.size(); ++i)
        n.attrs.dims.push_back(operand_dims_[i].at(g.node(node).attrs.dims[i]));
    }
    for (ir::DimId& d : n.attrs.probs) d = mapped(d, false);
    for (ir::DimGroup& group : n.attrs.groups) {
      for (ir::DimId& d : group.from) d = mapped(d, false);
      for (ir::DimId& d : group.to) d = mapped(d, true);
    }
    n.attrs.dim = mapped(n.attrs.dim, from_result_ || n.op == ir::Op::kUnwindow);
    const bool to_result = n.op != ir::Op::kUnwindow && n.op != ir::Op::kSlots;
    n.attrs.to = mapped(n.attrs.to, to_result);
    n.attrs.window = mapped(n.attrs.window, to_result);
    local_.g.nodes.push_back(n);
    local_.g.regions[0].nodes.push_back(local_.node);
  }
  LocalOp take() { return std::move(local_); }

 private:
  using Dims = std::map<ir::DimId, ir::DimId>;

  ir::ValueId value(ir::ValueId whole, const Layout& layout, Dims& dims) {
    ir::Type type = g_.type(whole);
    const auto ranges = local_ranges(layout, tensor_extents(type, extents_), mesh_, at_);
    for (size_t i = 0; i < type.dims.size(); ++i) {
      const ir::DimId local = dim(type.dims[i], ranges[i]);
      dims[type.dims[i]] = local;
      type.dims[i] = local;
    }
    return local_.g.add_value(ir::RegionId{0}, type);
  }

  // The same stretch of the same dim is the same dim.
  ir::DimId dim(ir::DimId whole, const Range& range) {
    const auto [it, fresh] = known_.emplace(std::tuple(whole, range.offset, range.extent), whole);
    if (fresh) {
      it->second = local_.g.add_dim(g_.dim(whole).name, ir::Size(range.extent));
      local_.context.shards.push_back({range.offset, extents_[static_cast<size_t>(whole.index)]});
    }
    return it->second;
  }

  ir::DimId mapped(ir::DimId d, bool result_first) {
    if (!d.valid()) return d;
    for (bool in_results : {result_first, !result_first}) {
      for (const auto& [i, dims] : in_results ? result_dims_ : operand_dims_) {
        if (dims.count(d) != 0) return dims.at(d);
      }
    }
    return dim(d, {0, extents_[static_cast<size_t>(d.index)]});  // slots' experts and capacity
  }

  const ir::Graph& g_;
  const Mesh& mesh_;
  const Extents& extents_;
  std::vector<int> at_;
  LocalOp local_;
  bool from_result_ = false;
  std::map<size_t, Dims> operand_dims_, result_dims_;
  std::map<std::tuple<ir::DimId, int64_t, int64_t>, ir::DimId> known_;
};

class SpmdOp {
 public:
  SpmdOp(const ir::Graph& g, ir::NodeId node, const Mesh& mesh, const ir::EvalContext& context)
      : g_(g), node_(node), mesh_(mesh), context_(context), rule_(sharding_rule(g, g.node(node))) {
    extents_ = dim_extents(g, context.bindings);
  }

  // One result a node result, each as parts in strategy.results' layout.
  std::vector<Parts> run(const Strategy& strategy, const std::vector<ir::Tensor>& operands) {
    const ir::Node& n = g_.node(node_);
    operands_.clear();
    for (size_t i = 0; i < operands.size(); ++i) {
      operands_.push_back(
          shard(operands[i], strategy.operands[i], mesh_, static_cast<uint32_t>(i + 1)));
    }
    locals_.clear();
    std::vector<Parts> results(n.results.size());
    for (int device = 0; device < mesh_.devices(); ++device) {
      locals_.push_back(
          Localizer(g_, node_, strategy, mesh_, extents_, coordinates_of(mesh_, device)).take());
      LocalOp& local = locals_.back();
      const auto shards = local.context.shards;
      local.context = context_;
      local.context.shards = shards;
      std::vector<const ir::Tensor*> parts;
      for (const Parts& operand : operands_) parts.push_back(&operand[static_cast<size_t>(device)]);
      const ir::Node& own = local.g.node(local.node);
      auto made = ir::op_info(n.op).eval(local.g, own, parts, local.context);
      for (size_t i = 0; i < made.size(); ++i) results[i].push_back(std::move(made[i]));
    }
    AxisSet statistic = 0, integers = 0;
    for (size_t a = 0; a < mesh_.axes.size(); ++a) {
      const int8_t choice = strategy.assignment[a];
      if (choice < 0) continue;
      const ir::Factor& factor = rule_.factors[static_cast<size_t>(choice)];
      const auto bit = static_cast<AxisSet>(1U << a);
      if (factor.kind == ir::Factor::Kind::kStatistic) statistic |= bit;
      if (factor.results[0].partial && strategy.results[0].axis[a] == kReplicated) integers |= bit;
    }
    if (statistic != 0) exchange(statistic, results[0]);
    if (integers != 0)
      results[0] = combined(results[0], integers, [](double a, double b) { return a + b; });
    results_ = results;
    return results;
  }

  // After run(): the op's gradient rule on each device, given the gradients of the results (one
  // a result, `exists` false: none) in the dual layouts; the operands' in dual(strategy.operands).
  // Operands without a gradient get no parts. A statistic's gradients are summed first: right for
  // logsumexp, the one op whose gradient needs nothing else.
  std::vector<Parts> backward(const Strategy& strategy, const std::vector<ir::Tensor>& grads,
                              const std::vector<bool>& exists) {
    const ir::Node& n = g_.node(node_);
    std::vector<Parts> given;
    for (size_t i = 0; i < grads.size(); ++i) {
      given.push_back(shard(grads[i], dual(strategy.results[i], mesh_), mesh_, 77));
      AxisSet statistic = 0;
      for (size_t a = 0; a < mesh_.axes.size(); ++a) {
        const int8_t choice = strategy.assignment[a];
        if (choice >= 0 &&
            rule_.factors[static_cast<size_t>(choice)].kind == ir::Factor::Kind::kStatistic)
          statistic = static_cast<AxisSet>(statistic | 1U << a);
      }
      if (statistic != 0) {
        given.back() = combined(given.back(), statistic, [](double a, double b) { return a + b; });
      }
    }
    std::vector<Parts> result(n.operands.size());
    for (size_t device = 0; device < locals_.size(); ++device) {
      LocalOp& local = locals_[device];
      ir::Graph& g = local.g;
      ir::Builder b(g, ir::RegionId{0});
      std::map<ir::ValueId, ir::Tensor> values;
      const ir::Node own = g.node(local.node);
      for (size_t i = 0; i < own.operands.size(); ++i)
        values[own.operands[i]] = operands_[i][device];
      std::vector<ir::ValueId> ids(own.results.size());
      for (size_t i = 0; i < own.results.size(); ++i) {
        values[own.results[i]] = results_[i][device];
        if (!exists[i]) continue;
        ids[i] = g.add_value(ir::RegionId{0}, ir::Type(g.type(own.results[i])));
        values[ids[i]] = given[i][device];
      }
      const std::vector<ir::ValueId> out = ir::op_info(own.op).grad(b, local.node, ids);
      for (size_t k = 1; k < g.regions[0].nodes.size(); ++k) {
        const ir::Node& step = g.node(g.regions[0].nodes[k]);
        std::vector<const ir::Tensor*> operands;
        for (ir::ValueId x : step.operands) operands.push_back(&values.at(x));
        auto made = ir::op_info(step.op).eval(g, step, operands, local.context);
        for (size_t i = 0; i < made.size(); ++i) values[step.results[i]] = std::move(made[i]);
      }
      for (size_t i = 0; i < out.size(); ++i) {
        if (out[i].valid()) result[i].push_back(values.at(out[i]));
      }
    }
    return result;
  }

 private:
  template <class F>
  Parts combined(const Parts& parts, AxisSet axes, F&& f) const {
    Parts result = parts;
    for (int device = 0; device < mesh_.devices(); ++device) {
      const std::vector<int> group = group_of(mesh_, axes, device);
      ir::Tensor& out = result[static_cast<size_t>(device)];
      out = parts[static_cast<size_t>(group[0])];
      for (size_t m = 1; m < group.size(); ++m) {
        const ir::Tensor& other = parts[static_cast<size_t>(group[m])];
        for (size_t k = 0; k < out.data.size(); ++k) out.data[k] = f(out.data[k], other.data[k]);
      }
    }
    return result;
  }

  // The statistic's tensors of every device: maxima and sums over its own stretch.
  void exchange(AxisSet axes, Parts& result) {
    const ir::Op op = g_.node(node_).op;
    const auto larger = [](double a, double b) { return std::max(a, b); };
    const auto smaller = [](double a, double b) { return std::min(a, b); };
    const auto plus = [](double a, double b) { return a + b; };
    if (op == ir::Op::kReduceMax) {
      result = combined(result, axes, larger);
    } else if (op == ir::Op::kReduceMin) {
      result = combined(result, axes, smaller);
    } else if (op == ir::Op::kMean) {
      Parts over, under;
      for (size_t d = 0; d < result.size(); ++d) weighted(d, over, under);
      over = combined(over, axes, plus);
      under = combined(under, axes, plus);
      for (size_t d = 0; d < result.size(); ++d) {
        for (size_t k = 0; k < result[d].data.size(); ++k)
          result[d].data[k] = under[d].data[k] == 0 ? 0 : over[d].data[k] / under[d].data[k];
      }
    } else {
      softmax(axes, op == ir::Op::kSoftmax, result);
    }
  }

  void weighted(size_t device, Parts& over, Parts& under) const {
    const LocalOp& local = locals_[device];
    const ir::Node& n = local.g.node(local.node);
    const auto& x_dims = local.g.type(n.operands[0]).dims;
    const auto& w_dims = local.g.type(n.operands[1]).dims;
    const ir::Type& type = local.g.type(n.results[0]);
    for (Parts* parts : {&over, &under})
      parts->push_back(ir::filled(local.g, type, local.context.bindings, 0));
    const ir::Axes all = ir::axes_of(local.g, ir::joined(x_dims, w_dims), local.context.bindings);
    const ir::Named x(all, x_dims, operands_[0][device]), w(all, w_dims, operands_[1][device]);
    const ir::Named a(all, type.dims, over.back()), b(all, type.dims, under.back());
    ir::walk(all, [&](const ir::Index& i) {
      a(i) += w(i) == 0 ? 0 : x(i) * w(i);
      b(i) += w(i);
    });
  }

  // Maximum first, then the sum of e^(x - maximum): never the exponential of a large number.
  void softmax(AxisSet axes, bool divide, Parts& result) {
    Parts most, sum;
    for (int pass : {0, 1, 2}) {
      for (size_t device = 0; device < result.size(); ++device) {
        const LocalOp& local = locals_[device];
        const ir::Node& n = local.g.node(local.node);
        const auto& dims = local.g.type(n.operands[0]).dims;
        const ir::Type rows{ir::DType::kF32, ir::without(dims, n.attrs.dims)};
        if (pass == 0) most.push_back(ir::filled(local.g, rows, local.context.bindings, -INFINITY));
        if (pass == 1) sum.push_back(ir::filled(local.g, rows, local.context.bindings, 0));
        const ir::Axes all = ir::axes_of(local.g, dims, local.context.bindings);
        const ir::Named x(all, dims, operands_[0][device]);
        const ir::Named m(all, rows.dims, most[device]);
        if (pass == 0) {
          ir::walk(all, [&](const ir::Index& i) { m(i) = std::max(m(i), x(i)); });
          continue;
        }
        const ir::Named s(all, rows.dims, sum[device]);
        if (pass == 1) {
          ir::walk(all, [&](const ir::Index& i) {
            s(i) += std::isinf(m(i)) ? 0 : std::exp(x(i) - m(i));
          });
          continue;
        }
        if (divide) {
          size_t at = 0;
          ir::walk(all, [&](const ir::Index& i) {
            result[device].data[at++] = s(i) == 0 ? 0 : std::exp(x(i) - m(i)) / s(i);
          });
        } else {
          for (size_t k = 0; k < result[device].data.size(); ++k)
            result[device].data[k] = most[device].data[k] + std::log(sum[device].data[k]);
        }
      }
      if (pass == 0) most = combined(most, axes, [](double a, double b) { return std::max(a, b); });
      if (pass == 1) sum = combined(sum, axes, [](double a, double b) { return a + b; });
    }
  }

  const ir::Graph& g_;
  ir::NodeId node_;
  const Mesh& mesh_;
  ir::EvalContext context_;
  ir::ShardingRule rule_;
  Extents extents_;
  std::vector<Parts> operands_, results_;
  std::vector<LocalOp> locals_;
};

}  // namespace cad::planner
