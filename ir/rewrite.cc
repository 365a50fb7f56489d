// ir/rewrite.cc -- rebuilding, cloning and compacting graphs; see rewrite.h. All are linear in the
// number of nodes.
#include "ir/rewrite.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"

namespace cad::ir {

void Rewriter::run(const Visit& visit) {
  const size_t regions = graph_.regions.size();  // regions made by the visitor are new already
  for (size_t i = 0; i < regions; ++i) run_region(RegionId{static_cast<int32_t>(i)}, visit);
}

void Rewriter::run_region(RegionId region, const Visit& visit) {
  std::vector<NodeId> nodes = std::move(graph_.region(region).nodes);
  graph_.region(region).nodes.clear();
  graph_.region(region).nodes.reserve(nodes.size());
  Builder builder(graph_, region);
  for (NodeId id : nodes) {
    for (ValueId& operand : graph_.node(id).operands) operand = map(operand);
    builder.span = graph_.node(id).span;
    builder.scope = graph_.node(id).scope;
    if (!visit(builder, id)) graph_.region(region).nodes.push_back(id);
  }
  for (ValueId& result : graph_.region(region).results) result = map(result);
}

void Rewriter::replace(ValueId old, ValueId now) {
  now = map(now);
  if (static_cast<size_t>(old.index) >= map_.size()) map_.resize(graph_.values.size());
  map_[static_cast<size_t>(old.index)] = now;
  if (graph_.value(now).name.empty()) graph_.value(now).name = graph_.value(old).name;
  copy_pins(graph_, old, now);
}

void copy_pins(Graph& g, ValueId from, ValueId to) {
  const Value& source = g.value(from);
  if (from == to || (source.pins.empty() && source.saving == Saving::kAuto)) return;
  Value& target = g.value(to);
  for (const Pin& pin : source.pins) {
    const bool known = std::find(target.pins.begin(), target.pins.end(), pin) != target.pins.end();
    if (!known && target.type.has(pin.dim)) target.pins.push_back(pin);
  }
  if (target.saving == Saving::kAuto) target.saving = source.saving;
}

ValueId Rewriter::map(ValueId value) const {
  while (value.valid() && static_cast<size_t>(value.index) < map_.size() &&
         map_[static_cast<size_t>(value.index)].valid()) {
    value = map_[static_cast<size_t>(value.index)];
  }
  return value;
}

std::vector<int32_t> count_uses(const Graph& g) {
  std::vector<int32_t> uses(g.values.size(), 0);
  for (const Region& region : g.regions) {
    for (NodeId id : region.nodes) {
      for (ValueId operand : g.node(id).operands) ++uses[static_cast<size_t>(operand.index)];
    }
    for (ValueId result : region.results) ++uses[static_cast<size_t>(result.index)];
  }
  return uses;
}

namespace {

RegionId clone_region(Graph& g, RegionId from) {
  const RegionId into = g.add_region(NodeId{});
  std::unordered_map<ValueId, ValueId> map;
  const std::vector<ValueId> args = g.region(from).args;
  for (ValueId arg : args) {
    const Type type = g.type(arg);
    const std::string name = g.value(arg).name;
    const ValueId copy = g.add_value(into, type, name);
    copy_pins(g, arg, copy);
    g.value(copy).result = static_cast<int32_t>(g.region(into).args.size());
    g.region(into).args.push_back(copy);
    map[arg] = copy;
  }
  const auto lookup = [&map](ValueId v) { return map.at(v); };
  const std::vector<NodeId> nodes = g.region(from).nodes;
  for (NodeId id : nodes) {
    const std::vector<ValueId> copies = clone_node(g, id, into, lookup);
    for (size_t i = 0; i < copies.size(); ++i) map[g.node(id).results[i]] = copies[i];
  }
  const std::vector<ValueId> results = g.region(from).results;
  for (ValueId result : results) g.region(into).results.push_back(map.at(result));
  return into;
}

}  // namespace

std::vector<ValueId> clone_node(Graph& g, NodeId node, RegionId into,
                                const std::function<ValueId(ValueId)>& map) {
  Node copy = g.node(node);
  copy.region = into;
  for (ValueId& operand : copy.operands) operand = map(operand);
  if (copy.op == Op::kRepeat) copy.loop.body = clone_region(g, copy.loop.body);
  const NodeId id{static_cast<int32_t>(g.nodes.size())};
  for (size_t i = 0; i < copy.results.size(); ++i) {
    const Type type = g.type(copy.results[i]);
    const std::string name = g.value(copy.results[i]).name;
    const ValueId value = g.add_value(into, type, name);
    copy_pins(g, copy.results[i], value);
    g.value(value).def = id;
    g.value(value).result = static_cast<int32_t>(i);
    copy.results[i] = value;
  }
  if (copy.op == Op::kRepeat) g.region(copy.loop.body).owner = id;
  std::vector<ValueId> results = copy.results;
  g.nodes.push_back(std::move(copy));
  g.region(into).nodes.push_back(id);
  return results;
}

NodeId append_repeat(Graph& g, RegionId region, const Loop& loop, std::vector<ValueId> operands) {
  const NodeId id{static_cast<int32_t>(g.nodes.size())};
  Node node;
  node.op = Op::kRepeat;
  node.operands = std::move(operands);
  node.region = region;
  node.loop = loop;
  g.region(loop.body).owner = id;
  for (int i = 0; i < loop.carries + loop.collected; ++i) {
    const ValueId inner = g.region(loop.body).results[static_cast<size_t>(i)];
    Type type = g.type(inner);
    if (i >= loop.carries) type.dims.insert(type.dims.begin(), loop.dim);
    const std::string name = g.value(inner).name;
    const ValueId value = g.add_value(region, std::move(type), name);
    g.value(value).def = id;
    g.value(value).result = i;
    node.results.push_back(value);
  }
  g.nodes.push_back(std::move(node));
  g.region(region).nodes.push_back(id);
  return id;
}

namespace {

// Copies what region 0 reaches into a fresh graph, in textual order.
class Compactor {
 public:
  explicit Compactor(const Graph& from) : from_(from), values_(from.values.size()) {}

  Graph run() {
    to_.mesh = from_.mesh;
    to_.dims = from_.dims;
    to_.batch_dim = from_.batch_dim;
    to_.inputs = from_.inputs;
    to_.outputs = from_.outputs;
    to_.nodes.reserve(from_.nodes.size());
    to_.values.reserve(from_.values.size());
    copy_region(RegionId{0}, RegionId{0});
    for (Input& input : to_.inputs) {
      if (input.value.valid()) input.value = values_[static_cast<size_t>(input.value.index)];
    }
    return std::move(to_);
  }

 private:
  ValueId copy_value(ValueId old, RegionId region, NodeId def, int32_t result) {
    Value value = from_.value(old);
    value.def = def;
    value.result = result;
    value.region = region;
    const ValueId now{static_cast<int32_t>(to_.values.size())};
    to_.values.push_back(std::move(value));
    values_[static_cast<size_t>(old.index)] = now;
    return now;
  }

  void copy_region(RegionId old, RegionId now) {
    const Region& region = from_.region(old);
    for (size_t i = 0; i < region.args.size(); ++i) {
      const ValueId arg = copy_value(region.args[i], now, NodeId{}, static_cast<int32_t>(i));
      to_.region(now).args.push_back(arg);
    }
    for (NodeId id : region.nodes) copy_node(id, now);
    for (ValueId result : region.results) {
      to_.region(now).results.push_back(values_[static_cast<size_t>(result.index)]);
    }
  }

  void copy_node(NodeId old, RegionId region) {
    const NodeId now{static_cast<int32_t>(to_.nodes.size())};
    Node node = from_.node(old);
    node.region = region;
    for (ValueId& operand : node.operands) operand = values_[static_cast<size_t>(operand.index)];
    for (size_t i = 0; i < node.results.size(); ++i) {
      node.results[i] = copy_value(node.results[i], region, now, static_cast<int32_t>(i));
    }
    const RegionId old_body = node.loop.body;
    const bool loop = node.op == Op::kRepeat;
    if (loop) {
      node.loop.body = RegionId{static_cast<int32_t>(to_.regions.size())};
      to_.regions.emplace_back();
      to_.regions.back().owner = now;
    }
    const RegionId body = node.loop.body;
    to_.nodes.push_back(std::move(node));
    to_.region(region).nodes.push_back(now);
    if (loop) copy_region(old_body, body);
  }

  const Graph& from_;
  Graph to_;
  std::vector<ValueId> values_;
};

}  // namespace

Graph compact(const Graph& g) {
  return Compactor(g).run();
}

Graph drop_inputs(Graph g, const std::function<bool(const Input&)>& keep) {
  const std::vector<int32_t> uses = count_uses(g);
  std::vector<Input> kept;
  std::vector<InputId> now(g.inputs.size());
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    if (!keep(g.inputs[i])) {
      CAD_CHECK(uses[static_cast<size_t>(g.inputs[i].value.index)] == 0, "input `{}` is still read",
                g.inputs[i].path);
      continue;
    }
    now[i] = InputId{static_cast<int32_t>(kept.size())};
    kept.push_back(g.inputs[i]);
  }
  g.inputs = std::move(kept);
  std::vector<NodeId> nodes;
  for (const NodeId id : g.region(RegionId{0}).nodes) {
    Node& node = g.node(id);
    if (node.op == Op::kInput) {
      node.attrs.input = now[static_cast<size_t>(node.attrs.input.index)];
      if (!node.attrs.input.valid()) continue;
    }
    nodes.push_back(id);
  }
  g.region(RegionId{0}).nodes = std::move(nodes);
  return g;
}

const Node* defined_by(const Graph& g, ValueId value, Op op) {
  const NodeId def = g.value(value).def;
  if (!def.valid() || g.node(def).op != op) return nullptr;
  return &g.node(def);
}

const Scalar* constant_of(const Graph& g, ValueId value) {
  while (const Node* broadcast = defined_by(g, value, Op::kBroadcast))
    value = broadcast->operands[0];
  const Node* node = defined_by(g, value, Op::kConst);
  return node != nullptr ? &node->attrs.scalar : nullptr;
}

ValueId conform(Builder& b, ValueId value, const Type& type) {
  if (b.graph().type(value).dtype != type.dtype) value = b.cast(value, type.dtype);
  const std::vector<DimId> dims = b.graph().type(value).dims;
  if (dims == type.dims) return value;
  if (dims.size() == type.dims.size()) {
    Attrs attrs;
    attrs.dims = type.dims;
    return b.make(Op::kTranspose, {value}, attrs);
  }
  return b.broadcast(value, type.dims);
}

}  // namespace cad::ir
