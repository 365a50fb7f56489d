// ir/eliminate_common.cc -- equal nodes of a region become one (value numbering by hash). Random
// ops are functions of their site, step and operands, so they take part; so do collectives, as
// every device merges the same ones. Loops do not.
#include <cmath>
#include <string_view>
#include <unordered_map>

#include "ir/passes.h"
#include "ir/rewrite.h"

namespace cad::ir {

namespace {

void mix(size_t& hash, size_t value) {
  hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
}

void mix(size_t& hash, const std::vector<DimId>& dims) {
  for (DimId dim : dims) mix(hash, static_cast<size_t>(dim.index) + 2);
  mix(hash, dims.size());
}

size_t hash_of(const Node& node) {
  size_t hash = static_cast<size_t>(node.op);
  for (ValueId operand : node.operands) mix(hash, static_cast<size_t>(operand.index));
  const Attrs& a = node.attrs;
  mix(hash, a.dims);
  mix(hash, a.probs);
  for (const DimGroup& group : a.groups) {
    mix(hash, group.from);
    mix(hash, group.to);
  }
  mix(hash, {a.dim, a.to, a.window});
  mix(hash, static_cast<size_t>(a.dtype));
  mix(hash, static_cast<size_t>(a.input.index + 1));
  mix(hash, std::hash<std::string_view>()(a.site));
  mix(hash, a.axes);
  mix(hash, static_cast<size_t>(a.reduction));
  if (a.scalar.kind() == Scalar::Kind::kNumber) mix(hash, std::hash<double>()(*a.scalar.number()));
  return hash;
}

// 0.0 == -0.0 as scalars, but they are different constants.
bool same_zero(const Scalar& a, const Scalar& b) {
  const auto x = a.number(), y = b.number();
  return !x || !y || std::signbit(*x) == std::signbit(*y);
}

// Whether the program fixes different things about the results of the two.
bool pinned_apart(const Graph& g, const Node& a, const Node& b) {
  for (size_t i = 0; i < a.results.size(); ++i) {
    const Value &x = g.value(a.results[i]), &y = g.value(b.results[i]);
    if (!x.pins.empty() && !y.pins.empty() && x.pins != y.pins) return true;
    if (x.saving != Saving::kAuto && y.saving != Saving::kAuto && x.saving != y.saving) return true;
  }
  return false;
}

}  // namespace

Graph eliminate_common(Graph g) {
  Rewriter rewriter(g);
  std::unordered_multimap<size_t, NodeId> table;
  rewriter.run([&](Builder& b, NodeId id) {
    const Node& node = g.node(id);
    if (node.op == Op::kRepeat) return false;
    size_t hash = hash_of(node);
    mix(hash, static_cast<size_t>(b.region().index));
    const auto [from, to] = table.equal_range(hash);
    for (auto it = from; it != to; ++it) {
      const Node& other = g.node(it->second);
      if (other.op != node.op || other.region != node.region || other.operands != node.operands ||
          !(other.attrs == node.attrs) || !same_zero(other.attrs.scalar, node.attrs.scalar) ||
          pinned_apart(g, node, other)) {
        continue;
      }
      const std::vector<ValueId> results = node.results, same = other.results;
      for (size_t i = 0; i < results.size(); ++i) rewriter.replace(results[i], same[i]);
      if (node.op == Op::kInput) {
        Input& input = g.inputs[static_cast<size_t>(node.attrs.input.index)];
        input.value = rewriter.map(input.value);
      }
      return true;
    }
    table.emplace(hash, id);
    return false;
  });
  return compact(g);
}

}  // namespace cad::ir
