// ir/profile.cc -- see profile.h: the training graph, its nodes' costs, and their sums by layer.
// Parameters and the optimizer: profile_parameters.cc.
#include "ir/profile.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/cost.h"
#include "ir/passes.h"
#include "ir/profile_internal.h"
#include "ir/rewrite.h"

namespace cad::ir {

namespace {

constexpr double kNominalSize = 64;  // of a free symbol, as in ir/autodiff.h

// Values made of parameters and constants alone: 16-bit copies above all. They are no activations.
std::vector<char> made_of_parameters(const Graph& g) {
  std::vector<char> flags(g.values.size(), 0);
  const auto flag = [&](ValueId v) -> char& { return flags[static_cast<size_t>(v.index)]; };
  std::vector<RegionId> pending = {RegionId{0}};
  while (!pending.empty()) {
    const RegionId region = pending.back();
    pending.pop_back();
    for (NodeId id : g.region(region).nodes) {
      const Node& node = g.node(id);
      if (node.op == Op::kInput) {
        const Input& input = g.inputs[static_cast<size_t>(node.attrs.input.index)];
        flag(node.results[0]) = input.kind == InputKind::kParam ? 1 : 0;
      } else if (node.op == Op::kRepeat) {
        const Region& body = g.region(node.loop.body);
        for (size_t i = static_cast<size_t>(node.loop.carries); i < node.operands.size(); ++i)
          flag(body.args[i + 1]) = flag(node.operands[i]);
        pending.push_back(node.loop.body);
      } else if (!node.operands.empty() && node.results.size() == 1) {
        const auto plain = [&](ValueId v) { return flag(v) != 0 || constant_of(g, v) != nullptr; };
        const auto param = [&](ValueId v) { return flag(v) != 0; };
        const bool all = std::all_of(node.operands.begin(), node.operands.end(), plain);
        const bool any = std::any_of(node.operands.begin(), node.operands.end(), param);
        flag(node.results[0]) = all && any ? 1 : 0;
      }
    }
  }
  return flags;
}

// Values of a forward graph that are in memory when no more than a kernel's inside is computed
// twice: all but chains of pointwise and random ops and what moves elements, unless a contraction
// or another routine reads them.
std::vector<char> materialised(const Graph& g) {
  std::vector<char> kept(g.values.size(), 0);
  const auto keep = [&](ValueId v) { kept[static_cast<size_t>(v.index)] = 1; };
  const auto in_chain = [](const Node& node) {
    const std::string family = op_family(node.op);
    return family == "pointwise" || family == "random" || family == "move" ||
           node.op == Op::kConst || node.op == Op::kIota || node.op == Op::kSelect ||
           node.op == Op::kWindow;
  };
  for (const Region& region : g.regions) {
    for (ValueId v : region.args) keep(v);
    for (ValueId v : region.results) keep(v);
    for (NodeId id : region.nodes) {
      const Node& node = g.node(id);
      const bool routine = node.op == Op::kContract || node.op == Op::kAttention ||
                           node.op == Op::kRepeat || node.op == Op::kScatterAdd ||
                           node.op == Op::kTopK || node.op == Op::kCumSum;
      if (routine) std::for_each(node.operands.begin(), node.operands.end(), keep);
      if (!in_chain(node)) std::for_each(node.results.begin(), node.results.end(), keep);
    }
  }
  // What is only renamed is the value below it.
  for (const Region& region : g.regions) {
    for (size_t i = region.nodes.size(); i-- > 0;) {
      const Node& node = g.node(region.nodes[i]);
      if (node.op != Op::kRename && node.op != Op::kReshape && node.op != Op::kTranspose) continue;
      char& mine = kept[static_cast<size_t>(node.results[0].index)];
      if (mine != 0) keep(node.operands[0]);
      mine = 0;
    }
  }
  const std::vector<char> parameters = made_of_parameters(g);
  for (size_t i = 0; i < kept.size(); ++i) {
    if (parameters[i] != 0 && g.values[i].def.valid()) kept[i] = 0;
  }
  return kept;
}

std::vector<Pass> passes_before(const ProfileOptions& options) {
  std::vector<Pass> passes;
  for (const Pass& pass : passes_before_autodiff()) {
    const bool fuses = std::string(pass.name) == "raise_attention";
    if (!fuses || options.activations == ProfileOptions::Activations::kKept) passes.push_back(pass);
  }
  return passes;
}

// Forward with outputs "grad:PATH" for `wrt` (paths), as the trainer makes it.
Graph differentiated(Graph forward, const std::vector<std::string>& wrt, const Bindings& bindings,
                     const ProfileOptions& options) {
  Graph g = run_passes(std::move(forward), passes_before(options));
  DifferentiateOptions how;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    if (std::find(wrt.begin(), wrt.end(), g.inputs[i].path) != wrt.end())
      how.wrt.push_back(InputId{static_cast<int32_t>(i)});
  }
  how.save.bindings = bindings;
  if (options.activations == ProfileOptions::Activations::kAll) {
    how.save.choose = [kept = materialised(g)](const Graph&, ValueId value) {
      const auto index = static_cast<size_t>(value.index);
      if (index >= kept.size()) return SavePolicy::Choice::kAuto;
      return kept[index] != 0 ? SavePolicy::Choice::kSave : SavePolicy::Choice::kRecompute;
    };
  }
  if (!how.wrt.empty()) {
    const ValueId loss = output_value(g, "loss");
    CAD_CHECK(loss.valid(), "a graph without the output `loss`");
    g = differentiate(std::move(g), loss, how);
  }
  return run_passes(std::move(g), passes_after_autodiff());
}

// Nodes of region 0 that outputs other than gradients need.
std::vector<char> forward_nodes(const Graph& g) {
  std::vector<char> forward(g.nodes.size(), 0);
  std::vector<char> live(g.values.size(), 0);
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    if (g.outputs[i].name.compare(0, 5, "grad:") == 0) continue;
    live[static_cast<size_t>(g.regions[0].results[i].index)] = 1;
  }
  const std::vector<NodeId>& nodes = g.regions[0].nodes;
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& node = g.node(nodes[i]);
    bool needed = node.op == Op::kInput;
    for (ValueId result : node.results) needed = needed || live[static_cast<size_t>(result.index)];
    if (!needed) continue;
    forward[static_cast<size_t>(nodes[i].index)] = 1;
    for (ValueId operand : node.operands) live[static_cast<size_t>(operand.index)] = 1;
  }
  return forward;
}

struct Walk {
  Profile& p;
  std::vector<DimId> loops;

  void region(RegionId id, const std::vector<char>* forward, Phase phase) {
    for (NodeId n : p.graph.region(id).nodes) {
      const Node& node = p.graph.node(n);
      if (forward != nullptr)
        phase = (*forward)[static_cast<size_t>(n.index)] != 0 ? Phase::kForward : Phase::kBackward;
      if (node.op == Op::kRepeat) {
        loops.push_back(node.loop.dim);
        region(node.loop.body, nullptr, phase);
        loops.pop_back();
        continue;
      }
      OpCost cost = op_cost(p.graph, n);
      for (DimId dim : loops) cost = cost.repeated(dim);
      p.ops.push_back({n, phase, node.scope, std::move(cost)});
    }
  }
};

// "h.{}.attention": the scopes around it and itself, the model ("") first.
std::vector<std::string> enclosing(const std::string& scope) {
  std::vector<std::string> all = {""};
  for (size_t at = 0; !scope.empty() && at != std::string::npos;) {
    at = scope.find('.', at + 1);
    std::string outer = scope.substr(0, at);
    if (at != std::string::npos && scope.compare(at, 3, ".{}") == 0) continue;
    all.push_back(std::move(outer));
  }
  return all;
}

class Layers {
 public:
  template <class F>
  void add(const std::string& scope, F&& change) {
    auto& chain = chains_[scope];
    if (chain.empty()) {
      for (const std::string& outer : enclosing(scope)) chain.push_back(index_of(outer));
    }
    for (size_t i : chain) change(list_[i]);
  }

  // Each before those inside it, in the order of the program.
  std::vector<ProfiledLayer> take() {
    std::stable_sort(list_.begin(), list_.end(), [this](const auto& a, const auto& b) {
      return order_.at(a.scope) < order_.at(b.scope);
    });
    return std::move(list_);
  }

 private:
  size_t index_of(const std::string& scope) {
    const auto found = index_.find(scope);
    if (found != index_.end()) return found->second;
    index_.emplace(scope, list_.size());
    ProfiledLayer layer;
    layer.scope = scope;
    // Among its siblings by first use; a path of such numbers orders the tree.
    std::vector<size_t> order;
    const std::vector<std::string> outer = enclosing(scope);
    if (outer.size() > 1) {
      order = order_.at(outer[outer.size() - 2]);
      order.push_back(list_.size());
    }
    order_.emplace(scope, std::move(order));
    list_.push_back(std::move(layer));
    return list_.size() - 1;
  }

  std::vector<ProfiledLayer> list_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::vector<size_t>> order_;
  std::map<std::string, std::vector<size_t>> chains_;
};

void sum_up(Profile& p) {
  Layers layers;
  layers.add("", [](ProfiledLayer&) {});
  for (const ProfiledOp& op : p.ops) {
    layers.add(op.scope, [&](ProfiledLayer& layer) {
      (op.phase == Phase::kForward ? layer.forward : layer.backward) += op.cost;
    });
    (op.phase == Phase::kForward ? p.total.forward : p.total.backward) += op.cost;
  }
  for (const SavedValue& saved : p.memory.saved) {
    layers.add(saved.scope, [&](ProfiledLayer& layer) { layer.activation_bytes += saved.bytes; });
    p.total.activation_bytes += saved.bytes;
  }
  for (const ProfiledParameter& q : p.parameters) {
    ProfileTotals& t = p.total;
    if (q.kind == InputKind::kState) {
      t.state_bytes += q.bytes;
      continue;
    }
    layers.add(q.scope, [&](ProfiledLayer& layer) {
      layer.params += q.count;
      layer.param_bytes += q.bytes;
      layer.grad_bytes += q.grad_bytes;
      layer.optimizer_bytes += q.optimizer_bytes;
    });
    t.params += q.count;
    t.param_bytes += q.bytes;
    t.grad_bytes += q.grad_bytes;
    t.optimizer_bytes += q.optimizer_bytes;
    t.copy_bytes += q.copy_bytes;
    t.average_bytes += q.average_bytes;
    t.optimizer_flops += q.optimizer_flops;
  }
  p.layers = layers.take();
}

void measure(Profile& p) {
  const std::vector<char> forward = forward_nodes(p.graph);
  Walk{p, {}}.region(RegionId{0}, &forward, Phase::kForward);
  p.memory = live_memory(p.graph, step_groups(p.graph), forward);
  std::vector<SavedValue>& saved = p.memory.saved;
  saved.erase(std::remove_if(saved.begin(), saved.end(),
                             [parameters = made_of_parameters(p.graph)](const SavedValue& s) {
                               return parameters[static_cast<size_t>(s.value.index)] != 0;
                             }),
              saved.end());
  for (const Input& input : p.graph.inputs) {
    if (input.kind != InputKind::kData && input.kind != InputKind::kOther) continue;
    const Type& type = p.graph.type(input.value);
    p.total.data_bytes.add(dtype_bytes(type.dtype), type.dims);
  }
  sum_up(p);
}

// The sum of all results with floats, in f32, as the output "loss".
void add_loss(Graph& g) {
  Builder b(g, RegionId{0});
  ValueId loss;
  for (ValueId result : std::vector<ValueId>(g.regions[0].results)) {
    if (!is_float(g.type(result).dtype)) continue;
    const ValueId sum = b.cast(b.sum(result, g.type(result).dims), DType::kF32);
    loss = loss.valid() ? b.add(loss, sum) : sum;
  }
  if (!loss.valid()) return;
  g.outputs.push_back({"loss"});
  g.regions[0].results.push_back(loss);
}

}  // namespace

Amount ProfileTotals::persistent_bytes() const {
  Amount sum = param_bytes;
  for (const Amount* part :
       {&state_bytes, &grad_bytes, &optimizer_bytes, &average_bytes, &data_bytes})
    sum += *part;
  return sum;
}

Profile profile(const TrainSpec& spec, const ProfileOptions& options) {
  Profile p;
  p.bindings = spec.bindings;
  p.precision = spec.precision;
  p.accumulate = spec.accumulate;
  const std::vector<std::string> wrt = trained_paths(spec);
  p.training = !wrt.empty();
  p.graph = differentiated(spec.forward, wrt, spec.bindings, options);
  p.parameters = profiled_parameters(p.graph, spec, wrt);
  measure(p);
  return p;
}

Profile profile(Graph model, const Bindings& bindings, const ProfileOptions& options) {
  Profile p;
  p.bindings = bindings;
  add_loss(model);
  const bool loss = output_value(model, "loss").valid();
  std::vector<std::string> wrt;
  for (const Input& input : model.inputs) {
    if (loss && input.kind == InputKind::kParam && !input.frozen && input.value.valid())
      wrt.push_back(input.path);
  }
  p.training = !wrt.empty();
  TrainSpec none;
  none.bindings = bindings;
  p.graph = differentiated(std::move(model), wrt, bindings, options);
  p.parameters = profiled_parameters(p.graph, none, wrt);
  measure(p);
  return p;
}

std::vector<double> Profile::extents(const Bindings& by) const {
  std::vector<double> sizes;
  sizes.reserve(graph.dims.size());
  for (const Dim& dim : graph.dims) {
    sizes.push_back(dim.size.evaluate_real(by).value_or(std::numeric_limits<double>::quiet_NaN()));
  }
  return sizes;
}

Profile::Peak Profile::peak(const std::vector<double>& extents) const {
  Peak best;
  std::vector<double> products, nominal;
  for (const std::vector<DimId>& dims : memory.products) {
    double product = 1, rough = 1;
    for (DimId dim : dims) {
      const double extent = extents[static_cast<size_t>(dim.index)];
      product *= extent;
      rough *= std::isnan(extent) ? kNominalSize : extent;
    }
    products.push_back(product);
    nominal.push_back(rough);
  }
  double most = -1;
  for (size_t i = 0; i < memory.points.size(); ++i) {
    double rough = 0;
    for (const auto& [product, bytes] : memory.points[i].terms)
      rough += static_cast<double>(bytes) * nominal[static_cast<size_t>(product)];
    if (rough <= most) continue;
    most = rough;
    best.point = static_cast<int>(i);
  }
  best.transient = 0;
  if (best.point >= 0) {
    for (const auto& [product, bytes] : memory.points[static_cast<size_t>(best.point)].terms)
      best.transient += static_cast<double>(bytes) * products[static_cast<size_t>(product)];
    for (double product : products) best.nominal = best.nominal || std::isnan(product);
  }
  best.bytes = best.transient + total.persistent_bytes().at(extents);
  return best;
}

std::vector<double> Profile::course(const std::vector<double>& extents) const {
  std::vector<double> products, out;
  for (const std::vector<DimId>& dims : memory.products) {
    double product = 1;
    for (DimId dim : dims) product *= extents[static_cast<size_t>(dim.index)];
    products.push_back(product);
  }
  const double persistent = total.persistent_bytes().at(extents);
  for (const MemoryPoint& point : memory.course) {
    double bytes = persistent;
    for (const auto& [product, size] : point.terms)
      bytes += static_cast<double>(size) * products[static_cast<size_t>(product)];
    out.push_back(bytes);
  }
  return out;
}

}  // namespace cad::ir
