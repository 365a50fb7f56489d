// ir/sink_constants.cc -- an invariant of a loop that depends on no input and costs next to nothing
// (a constant, a causal mask, positions) is computed in the body instead. There simplify can fold
// it, raise_attention can see that a mask is causal, and fusion can absorb it. Outer loops go
// first, so that values sink all the way.
#include <algorithm>
#include <unordered_map>

#include "ir/passes.h"
#include "ir/rewrite.h"

namespace cad::ir {

namespace {

constexpr size_t kMostNodes = 32;  // of one invariant

bool cheap(Op op) {
  switch (op) {
    case Op::kConst:
    case Op::kIota:
    case Op::kAxisIndex:
    case Op::kBroadcast:
    case Op::kRename:
    case Op::kTranspose:
    case Op::kCast:
    case Op::kEq:
    case Op::kNe:
    case Op::kLt:
    case Op::kLe:
    case Op::kGt:
    case Op::kGe:
    case Op::kAnd:
    case Op::kOr:
    case Op::kNot:
    case Op::kWhere:
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kNeg:
    case Op::kMin:
    case Op::kMax:
      return true;
    default:
      return false;
  }
}

class ConstantSinker {
 public:
  explicit ConstantSinker(Graph& g) : g_(g) {}

  void run() {
    std::vector<RegionId> pending = {RegionId{0}};
    while (!pending.empty()) {
      const RegionId region = pending.back();
      pending.pop_back();
      const std::vector<NodeId> nodes = g_.region(region).nodes;
      for (NodeId id : nodes) {
        if (g_.node(id).op != Op::kRepeat) continue;
        sink(id);
        pending.push_back(g_.node(id).loop.body);
      }
    }
  }

 private:
  // The nodes behind `value`, operands first; empty when there is an input, a cost, or too many.
  std::vector<NodeId> sinkable(ValueId value) const {
    std::vector<NodeId> found;
    std::vector<ValueId> pending = {value};
    while (!pending.empty()) {
      const NodeId def = g_.value(pending.back()).def;
      pending.pop_back();
      if (!def.valid() || !cheap(g_.node(def).op)) return {};
      if (std::find(found.begin(), found.end(), def) != found.end()) continue;
      if (found.size() == kMostNodes) return {};
      found.push_back(def);
      for (ValueId operand : g_.node(def).operands) pending.push_back(operand);
    }
    return ordered(found);
  }

  // Operands first: ids of nodes need not be in order.
  std::vector<NodeId> ordered(const std::vector<NodeId>& found) const {
    std::vector<NodeId> order;
    while (order.size() < found.size()) {
      for (NodeId id : found) {
        const auto placed = [&](NodeId node) {
          return std::find(order.begin(), order.end(), node) != order.end();
        };
        const std::vector<ValueId>& operands = g_.node(id).operands;
        const bool ready = std::all_of(operands.begin(), operands.end(),
                                       [&](ValueId v) { return placed(g_.value(v).def); });
        if (ready && !placed(id)) order.push_back(id);
      }
    }
    return order;
  }

  void sink(NodeId id) {
    const Loop loop = g_.node(id).loop;
    std::vector<NodeId> rest = std::move(g_.region(loop.body).nodes);
    g_.region(loop.body).nodes.clear();
    std::unordered_map<ValueId, ValueId> inside, replaced;  // outer value -> copy, argument -> copy
    for (size_t i = static_cast<size_t>(loop.carries + loop.scanned);
         i < g_.node(id).operands.size(); ++i) {
      const ValueId operand = g_.node(id).operands[i];
      for (NodeId node : sinkable(operand)) {
        if (inside.count(g_.node(node).results[0]) != 0) continue;
        const ValueId copy =
            clone_node(g_, node, loop.body, [&](ValueId v) { return inside.at(v); })[0];
        inside.emplace(g_.node(node).results[0], copy);
      }
      if (inside.count(operand) != 0)
        replaced.emplace(g_.region(loop.body).args[i + 1], inside.at(operand));
    }
    Region& body = g_.region(loop.body);
    body.nodes.insert(body.nodes.end(), rest.begin(), rest.end());
    if (replaced.empty()) return;
    const auto replace = [&](ValueId& value) {
      if (const auto found = replaced.find(value); found != replaced.end()) value = found->second;
    };
    for (NodeId node : rest) {
      for (ValueId& operand : g_.node(node).operands) replace(operand);
    }
    for (ValueId& result : body.results) replace(result);
  }

  Graph& g_;
};

}  // namespace

Graph sink_constants(Graph g) {
  ConstantSinker(g).run();
  return eliminate_dead(std::move(g));
}

}  // namespace cad::ir
