// planner/strategy.cc -- strategies from sharding rules: layouts of operands and results, the
// collectives inside the op, and which assignments the sizes allow.
#include "planner/strategy.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace cad::planner {

using Kind = ir::Factor::Kind;

namespace {

constexpr double kStatisticBytes = 4;  // statistics are f32 whatever the tensor is

AxisSet with(AxisSet set, size_t axis) {
  return static_cast<AxisSet>(set | 1U << axis);
}

// The sizes of the axes of a set, outermost first.
std::vector<int> sizes_of(AxisSet set, const Mesh& mesh) {
  std::vector<int> sizes;
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    if ((set >> i & 1) != 0) sizes.push_back(mesh.axes[i].size);
  }
  return sizes;
}

}  // namespace

OpSharding::Split OpSharding::split_of(const ir::Type& type, ir::DimId dim,
                                       const Extents& extents) const {
  Split split;
  if (!dim.valid()) return split;
  split.position = static_cast<int8_t>(type.position(dim));
  split.extent = extents[static_cast<size_t>(dim.index)];
  CAD_CHECK(split.position >= 0 && split.extent >= 0, "sharding rule of `{}`: dim `{}`",
            ir::op_name(g_->node(node_).op), g_->dim(dim).name);
  return split;
}

OpSharding::OpSharding(const ir::Graph& g, ir::NodeId node, const Extents& extents)
    : g_(&g), node_(node), rule_(ir::sharding_rule(g, g.node(node))) {
  const ir::Node& n = g.node(node);
  for (const ir::Factor& factor : rule_.factors) {
    Bound bound;
    const auto meet = [&](const Split& split, ir::DimId dim) {
      if (!dim.valid()) return;
      if (bound.name.valid() && split.extent != bound.extent) bound.uneven_dims = true;
      if (!bound.name.valid() || split.extent < bound.extent) bound.extent = split.extent;
      if (!bound.name.valid()) bound.name = dim;
    };
    for (size_t i = 0; i < n.results.size(); ++i) {
      bound.results.push_back(split_of(g.type(n.results[i]), factor.results[i].dim, extents));
      bound.results.back().partial = factor.results[i].partial;
      meet(bound.results.back(), factor.results[i].dim);
    }
    for (size_t i = 0; i < n.operands.size(); ++i) {
      bound.operands.push_back(split_of(g.type(n.operands[i]), factor.operands[i], extents));
      meet(bound.operands.back(), factor.operands[i]);
    }
    factors_.push_back(std::move(bound));
  }
  for (ir::ValueId y : n.results) results_.push_back(tensor_extents(g.type(y), extents));
  for (ir::DimId d : rule_.statistic.dims) {
    statistic_.push_back(extents[static_cast<size_t>(d.index)]);
    statistic_factor_.push_back(-1);
    for (size_t f = 0; f < factors_.size(); ++f) {
      if (factors_[f].name == d) statistic_factor_.back() = static_cast<int>(f);
    }
  }
}

// The major parts of D = (H, K) lie on the same devices if the stretches of D are whole stretches
// of H: always when sizes divide, else rarely.
bool OpSharding::lines_up(const Bound& factor, AxisSet axes, const Mesh& mesh) const {
  const std::vector<int> sizes = sizes_of(axes, mesh);
  const auto fits = [&](int64_t extent) {
    for (int size : sizes) {
      if (extent < size) return false;
      extent = (extent + size - 1) / size;
    }
    return true;
  };
  if (!fits(factor.extent)) return false;
  if (!factor.uneven_dims) return true;
  for (const auto* splits : {&factor.operands, &factor.results}) {
    for (const Split& split : *splits) {
      if (split.position < 0) continue;
      int64_t least = factor.extent, extent = split.extent;
      if (extent % least != 0) return false;
      const int64_t minor = extent / least;
      for (int size : sizes) {
        least = (least + size - 1) / size;
        extent = (extent + size - 1) / size;
        if (extent != least * minor) return false;
      }
    }
  }
  return true;
}

// Lets the operands of a linear set be partial over an axis.
bool OpSharding::flow(size_t set, size_t axis, Strategy& strategy) const {
  const ir::Node& n = g_->node(node_);
  const std::vector<int>& operands = rule_.linear[set];
  for (int i : operands) {
    const auto at = static_cast<size_t>(i);
    if (!ir::is_float(g_->type(n.operands[at]).dtype)) return false;
    strategy.operands[at].axis[axis] = kPartial;
  }
  for (size_t i = 0; i < n.results.size(); ++i) {
    if (!ir::is_float(g_->type(n.results[i]).dtype)) return false;
    strategy.results[i].axis[axis] = kPartial;
  }
  // x * x of a partial x would want x both ways.
  for (size_t i = 0; i < n.operands.size(); ++i) {
    for (int other : operands) {
      const auto at = static_cast<size_t>(other);
      if (n.operands[i] == n.operands[at] && strategy.operands[i].axis[axis] != kPartial)
        return false;
    }
  }
  return true;
}

// Statistics over the axes of kStatistic factors, and sums of integers over those of partial ones.
void OpSharding::add_collectives(AxisSet statistic, AxisSet summed, const Mesh& mesh,
                                 Strategy& strategy) const {
  const ir::Node& n = g_->node(node_);
  if (statistic != 0) {
    double bytes = kStatisticBytes;
    for (size_t i = 0; i < statistic_.size(); ++i) {
      AxisSet axes = 0;
      for (size_t a = 0; a < mesh.axes.size(); ++a) {
        if (statistic_factor_[i] >= 0 && strategy.assignment[a] == statistic_factor_[i])
          axes = with(axes, a);
      }
      bytes *= static_cast<double>(local_extent(statistic_[i], sizes_of(axes, mesh)));
    }
    const InnerCollective one{Collective::kAllReduce, statistic, bytes};
    strategy.forward.assign(static_cast<size_t>(rule_.statistic.forward), one);
    strategy.backward.assign(static_cast<size_t>(rule_.statistic.backward), one);
  }
  for (size_t i = 0; i < n.results.size() && summed != 0; ++i) {
    const ir::DType dtype = g_->type(n.results[i]).dtype;
    if (ir::is_float(dtype)) continue;
    Layout& layout = strategy.results[i];
    AxisSet axes = 0;
    for (size_t a = 0; a < mesh.axes.size(); ++a) {
      if (layout.axis[a] != kPartial) continue;
      axes = with(axes, a);
      layout.axis[a] = kReplicated;
    }
    if (axes == 0) continue;
    const double bytes = local_elements(layout, results_[i], mesh) * ir::dtype_bytes(dtype);
    strategy.forward.push_back({Collective::kAllReduce, axes, bytes});
  }
}

std::optional<Strategy> OpSharding::strategy(const Assignment& assignment, const Mesh& mesh) const {
  const ir::Node& n = g_->node(node_);
  Strategy result;
  result.assignment = assignment;
  result.operands.resize(n.operands.size());
  result.results.resize(n.results.size());
  AxisSet statistic = 0, summed = 0;
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    const int8_t choice = assignment[axis];
    if (choice == kUnused) continue;
    if (mesh.axes[axis].size == 1) return std::nullopt;
    if (choice <= kFlow) {
      if (!flow(static_cast<size_t>(kFlow - choice), axis, result)) return std::nullopt;
      continue;
    }
    const Bound& factor = factors_[static_cast<size_t>(choice)];
    AxisSet axes = 0;
    for (size_t a = 0; a < mesh.axes.size(); ++a) {
      if (assignment[a] == choice) axes = with(axes, a);
    }
    if (axes >> (axis + 1) == 0) {  // once a factor, at its last axis
      if (!lines_up(factor, axes, mesh)) return std::nullopt;
      result.share *= static_cast<double>(local_extent(factor.extent, sizes_of(axes, mesh))) /
                      static_cast<double>(factor.extent);
    }
    for (size_t i = 0; i < n.operands.size(); ++i) {
      result.operands[i].axis[axis] = factor.operands[i].position;
    }
    for (size_t i = 0; i < n.results.size(); ++i) {
      const Split& split = factor.results[i];
      result.results[i].axis[axis] = split.partial ? kPartial : split.position;
      if (split.partial) summed = with(summed, axis);
    }
    if (rule_.factors[static_cast<size_t>(choice)].kind == Kind::kStatistic)
      statistic = with(statistic, axis);
  }
  add_collectives(statistic, summed, mesh, result);
  return result;
}

int OpSharding::factor_of_operand(size_t operand, ir::DimId dim) const {
  for (size_t f = 0; f < rule_.factors.size(); ++f) {
    if (rule_.factors[f].operands[operand] == dim) return static_cast<int>(f);
  }
  return -1;
}

int OpSharding::factor_of_result(size_t result, ir::DimId dim) const {
  for (size_t f = 0; f < rule_.factors.size(); ++f) {
    if (rule_.factors[f].results[result].dim == dim) return static_cast<int>(f);
  }
  return -1;
}

std::string OpSharding::str(const Assignment& assignment, const Mesh& mesh) const {
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : ", ") + what; };
  for (size_t f = 0; f < factors_.size(); ++f) {
    std::string axes;
    for (size_t a = 0; a < mesh.axes.size(); ++a) {
      if (assignment[a] == static_cast<int8_t>(f))
        axes += (axes.empty() ? "" : " ") + mesh.axes[a].name;
    }
    if (!axes.empty()) add(fmt::format("{} over {}", g_->dim(factors_[f].name).name, axes));
  }
  for (size_t a = 0; a < mesh.axes.size(); ++a) {
    if (assignment[a] <= kFlow) add(fmt::format("partial over {}", mesh.axes[a].name));
  }
  return text.empty() ? "whole" : text;
}

namespace {

bool pins_honoured(const ir::Graph& g, ir::NodeId node, const Strategy& strategy,
                   const Mesh& mesh) {
  const ir::Node& n = g.node(node);
  for (size_t i = 0; i < n.results.size(); ++i) {
    const ir::Value& value = g.value(n.results[i]);
    if (!honours(strategy.results[i], value.type, value.pins, mesh)) return false;
  }
  return true;
}

// Ops that only add and move: a partial operand costs them nothing extra.
bool adds_or_moves(ir::Op op) {
  switch (op) {
    case ir::Op::kContract:
    case ir::Op::kMul:
    case ir::Op::kDiv:
    case ir::Op::kGather:
    case ir::Op::kScatterAdd:
    case ir::Op::kAttentionGrad:
      return false;
    default:
      return true;
  }
}

}  // namespace

bool honours(const Layout& layout, const ir::Type& type, const std::vector<ir::Pin>& pins,
             const Mesh& mesh) {
  for (const ir::Pin& pin : pins) {
    const int position = type.position(pin.dim);
    AxisSet wanted = 0, is = 0;
    for (size_t a = 0; a < mesh.axes.size(); ++a) {
      if (mesh.axes[a].size == 1) continue;
      if (layout.axis[a] == position) is = with(is, a);
      for (const ir::Pin& other : pins) {
        if (other.dim == pin.dim && other.axis == mesh.axes[a].name) wanted = with(wanted, a);
      }
    }
    if (is != (pin.axis.empty() ? 0 : wanted)) return false;
  }
  return true;
}

std::vector<Strategy> strategies(const ir::Graph& g, ir::NodeId node, const Mesh& mesh,
                                 const Extents& extents, const StrategyOptions& options) {
  const OpSharding sharding(g, node, extents);
  std::vector<int8_t> choices{kUnused};
  for (size_t f = 0; f < sharding.rule().factors.size(); ++f)
    choices.push_back(static_cast<int8_t>(f));
  if (options.partial_products || adds_or_moves(g.node(node).op)) {
    for (size_t i = 0; i < sharding.rule().linear.size(); ++i)
      choices.push_back(static_cast<int8_t>(kFlow - static_cast<int>(i)));
  }
  std::vector<Strategy> result;
  Assignment assignment{kUnused, kUnused, kUnused};
  const auto extend = [&](const auto& self, size_t axis) -> void {
    if (axis == mesh.axes.size()) {
      auto strategy = sharding.strategy(assignment, mesh);
      if (strategy && (!options.obey_pins || pins_honoured(g, node, *strategy, mesh)))
        result.push_back(std::move(*strategy));
      return;
    }
    for (int8_t choice : choices) {
      if (choice != kUnused && mesh.axes[axis].size == 1) break;
      assignment[axis] = choice;
      self(self, axis + 1);
    }
    assignment[axis] = kUnused;
  };
  extend(extend, 0);
  return result;
}

}  // namespace cad::planner
