// ir/scan_inputs.cc -- `x[T = t]` in the body of `repeat T as t`, with x from outside, makes x an
// invariant read by `select` at the loop's number. Its gradient would be a sum of T tensors that
// are zero but for one slice: O(T^2). As a scanned operand its gradient is a collected value.
//
//   repeat t invariants(x: [B, T, D]) { select(x, number) dim=T }
//   ->  xs = rename(transpose(x) dims=[T, B, D]) T -> t;   repeat t scanned(xs) { .. }
#include <algorithm>
#include <map>

#include "base/check.h"
#include "ir/passes.h"
#include "ir/rewrite.h"

namespace cad::ir {

namespace {

class ScanInputs {
 public:
  explicit ScanInputs(Graph& g) : g_(g), rewriter_(g) {}

  void run() {
    rewriter_.run([this](Builder& b, NodeId id) {
      if (g_.node(id).op == Op::kRepeat) loop(b, id);
      return false;
    });
    rewriter_.run(
        [](Builder&, NodeId) { return false; });  // bodies that were rebuilt before their loop
  }

 private:
  // How the body reads each argument: the selects at the number, and whether anything else does.
  struct Reads {
    std::vector<NodeId> selects;
    bool other = false;
  };

  std::map<ValueId, Reads> reads_of(const Region& body) const {
    std::map<ValueId, Reads> reads;
    for (NodeId id : body.nodes) {
      const Node& node = g_.node(id);
      for (size_t i = 0; i < node.operands.size(); ++i) {
        const bool select = node.op == Op::kSelect && i == 0 && node.operands[1] == body.args[0];
        Reads& entry = reads[node.operands[i]];
        if (select) {
          entry.selects.push_back(id);
        } else {
          entry.other = true;
        }
      }
    }
    for (ValueId result : body.results) reads[result].other = true;
    return reads;
  }

  void loop(Builder& b, NodeId id) {
    const Loop loop = g_.node(id).loop;
    const std::map<ValueId, Reads> reads = reads_of(g_.region(loop.body));
    const auto first = static_cast<size_t>(loop.carries + loop.scanned);
    std::vector<size_t> moved;  // operand indices
    for (size_t i = first; i < first + static_cast<size_t>(loop.invariants); ++i) {
      const auto found = reads.find(g_.region(loop.body).args[i + 1]);
      if (found == reads.end() || found->second.other || found->second.selects.empty()) continue;
      const std::vector<NodeId>& selects = found->second.selects;
      const DimId dim = g_.node(selects[0]).attrs.dim;
      const bool one_dim = std::all_of(selects.begin(), selects.end(),
                                       [&](NodeId s) { return g_.node(s).attrs.dim == dim; });
      const bool clash = dim != loop.dim && g_.type(g_.node(id).operands[i]).has(loop.dim);
      if (!one_dim || clash || !(g_.dim(dim).size == g_.dim(loop.dim).size)) continue;
      scan(b, id, i, selects);
      moved.push_back(i);
    }
    if (!moved.empty()) reorder(id, moved);
  }

  // Operand i and its argument become the stacked tensor and its slice.
  void scan(Builder& b, NodeId id, size_t i, const std::vector<NodeId>& selects) {
    const Loop loop = g_.node(id).loop;
    const DimId dim = g_.node(selects[0]).attrs.dim;
    ValueId x = g_.node(id).operands[i];
    Type type = g_.type(x);
    type.dims.erase(type.dims.begin() + type.position(dim));
    Type slice = type;
    type.dims.insert(type.dims.begin(), dim);
    x = conform(b, x, type);
    if (dim != loop.dim) {
      Attrs attrs;
      attrs.groups = {DimGroup{{dim}, {loop.dim}}};
      x = b.make(Op::kRename, {x}, attrs);
    }
    g_.node(id).operands[i] = x;
    const ValueId old = g_.region(loop.body).args[i + 1];
    const std::string name = g_.value(old).name;
    const ValueId arg = g_.add_value(loop.body, std::move(slice), name);
    copy_pins(g_, old, arg);
    g_.region(loop.body).args[i + 1] = arg;
    for (NodeId select : selects) rewriter_.replace(g_.node(select).results[0], arg);
    std::vector<NodeId>& nodes = g_.region(loop.body).nodes;
    nodes.erase(std::remove_if(nodes.begin(), nodes.end(),
                               [&](NodeId n) {
                                 return std::find(selects.begin(), selects.end(), n) !=
                                        selects.end();
                               }),
                nodes.end());
  }

  // Scanned operands stand before the invariants.
  void reorder(NodeId id, const std::vector<size_t>& moved) {
    Node& node = g_.node(id);
    Region& body = g_.region(node.loop.body);
    const auto first = static_cast<size_t>(node.loop.carries + node.loop.scanned);
    std::vector<size_t> order;
    for (size_t i = 0; i < first; ++i) order.push_back(i);
    order.insert(order.end(), moved.begin(), moved.end());
    for (size_t i = first; i < node.operands.size(); ++i) {
      if (std::find(moved.begin(), moved.end(), i) == moved.end()) order.push_back(i);
    }
    std::vector<ValueId> operands, args = {body.args[0]};
    for (size_t i : order) {
      operands.push_back(node.operands[i]);
      args.push_back(body.args[i + 1]);
    }
    node.operands = std::move(operands);
    body.args = std::move(args);
    for (size_t i = 0; i < body.args.size(); ++i)
      g_.value(body.args[i]).result = static_cast<int32_t>(i);
    node.loop.scanned += static_cast<int>(moved.size());
    node.loop.invariants -= static_cast<int>(moved.size());
  }

  Graph& g_;
  Rewriter rewriter_;
};

}  // namespace

Graph scan_inputs(Graph g) {
  ScanInputs(g).run();
  return compact(g);
}

}  // namespace cad::ir
