// ir/eliminate_dead.cc -- keeps what leads to an output. Loops lose carries, scanned operands,
// invariants and collected results that nothing needs. Inputs always stay: callers bind them by
// position. One pass over the uses, so linear.
#include "ir/passes.h"
#include "ir/rewrite.h"

namespace cad::ir {

namespace {

class DeadCode {
 public:
  explicit DeadCode(Graph& g) : g_(g), live_(g.values.size(), 0), node_live_(g.nodes.size(), 0) {}

  void run() {
    for (ValueId result : g_.regions[0].results) mark(result);
    for (const Input& input : g_.inputs) {
      if (input.value.valid()) mark(input.value);
    }
    while (!pending_.empty()) {
      const ValueId value = pending_.back();
      pending_.pop_back();
      follow(value);
    }
    for (Region& region : g_.regions) {
      std::vector<NodeId> kept;
      for (NodeId id : region.nodes) {
        if (node_live_[static_cast<size_t>(id.index)] != 0) kept.push_back(id);
      }
      region.nodes = std::move(kept);
    }
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      if (node_live_[i] != 0 && g_.nodes[i].op == Op::kRepeat) trim(g_.nodes[i]);
    }
  }

 private:
  [[nodiscard]] bool live(ValueId value) const {
    return live_[static_cast<size_t>(value.index)] != 0;
  }
  void mark(ValueId value) {
    if (live(value)) return;
    live_[static_cast<size_t>(value.index)] = 1;
    pending_.push_back(value);
  }

  void follow(ValueId value) {
    const Value& v = g_.value(value);
    if (v.def.valid()) {
      const Node& node = g_.node(v.def);
      node_live_[static_cast<size_t>(v.def.index)] = 1;
      if (node.op == Op::kRepeat) {
        mark(g_.region(node.loop.body).results[static_cast<size_t>(v.result)]);
        if (v.result < node.loop.carries) carry(node, static_cast<size_t>(v.result));
      } else {
        for (ValueId operand : node.operands) mark(operand);
      }
      return;
    }
    const NodeId owner = g_.region(v.region).owner;
    if (!owner.valid() || v.result == 0) return;
    const Node& node = g_.node(owner);
    const auto operand = static_cast<size_t>(v.result) - 1;
    node_live_[static_cast<size_t>(owner.index)] = 1;
    if (v.result <= node.loop.carries) {
      carry(node, operand);
    } else {
      mark(node.operands[operand]);
    }
  }

  // A live carry needs its start and every iteration's value.
  void carry(const Node& node, size_t index) {
    const Region& body = g_.region(node.loop.body);
    mark(node.operands[index]);
    mark(body.args[index + 1]);
    mark(body.results[index]);
  }

  void trim(Node& node) {
    Region& body = g_.region(node.loop.body);
    Loop loop = node.loop;
    loop.carries = loop.scanned = loop.invariants = loop.collected = 0;
    std::vector<ValueId> operands, args = {body.args[0]}, results, outer;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (!live(body.args[i + 1])) continue;
      operands.push_back(node.operands[i]);
      args.push_back(body.args[i + 1]);
      const auto index = static_cast<int>(i);
      if (index < node.loop.carries) {
        ++loop.carries;
      } else if (index < node.loop.carries + node.loop.scanned) {
        ++loop.scanned;
      } else {
        ++loop.invariants;
      }
    }
    for (size_t i = 0; i < node.results.size(); ++i) {
      const bool is_carry = static_cast<int>(i) < node.loop.carries;
      if (is_carry ? !live(body.args[i + 1]) : !live(node.results[i])) continue;
      results.push_back(body.results[i]);
      outer.push_back(node.results[i]);
      if (!is_carry) ++loop.collected;
    }
    for (size_t i = 0; i < args.size(); ++i) g_.value(args[i]).result = static_cast<int32_t>(i);
    for (size_t i = 0; i < outer.size(); ++i) g_.value(outer[i]).result = static_cast<int32_t>(i);
    body.args = std::move(args);
    body.results = std::move(results);
    node.operands = std::move(operands);
    node.results = std::move(outer);
    node.loop = loop;
  }

  Graph& g_;
  std::vector<char> live_, node_live_;
  std::vector<ValueId> pending_;
};

}  // namespace

Graph eliminate_dead(Graph g) {
  DeadCode(g).run();
  return compact(g);
}

}  // namespace cad::ir
