// ir/hoist_sums.cc -- a loop that adds a product to a carry in every iteration, as the gradient of
// a recurrent weight does, multiplies once after the loop instead:
//
//   repeat t carries(acc) { acc = acc + contract[B](p, q) }
//   ->  repeat t { collect p, q };  acc0 + contract[t, B](ps, qs)
//
// One large product instead of many small ones and no traffic for the sum. What must be collected
// in addition may not be larger than the product, so layers (large activations) stay as they are.
#include <algorithm>

#include "ir/passes.h"
#include "ir/rewrite.h"

namespace cad::ir {

namespace {

constexpr int64_t kRoughSize = 64;  // of a free symbol

double rough_elements(const Graph& g, const Type& type) {
  double total = 1;
  for (DimId dim : type.dims) {
    Bindings bindings;
    for (const std::string& symbol : g.dim(dim).size.symbols())
      bindings.emplace(symbol, kRoughSize);
    const Size::Evaluated size = g.dim(dim).size.evaluate(bindings);
    total *= static_cast<double>(size.ok() ? size.value : kRoughSize);
  }
  return total;
}

class SumHoister {
 public:
  explicit SumHoister(Graph& g) : g_(g), rewriter_(g), uses_(count_uses(g)) {}

  void run() {
    rewriter_.run([this](Builder& b, NodeId id) {
      if (g_.node(id).op != Op::kRepeat) return false;
      const std::vector<Sum> sums = find(g_.node(id));
      if (sums.empty()) return false;
      for (const Sum& sum : sums) {
        for (ValueId factor : {sum.left, sum.right}) collect(b.region(), id, factor);
      }
      g_.region(b.region()).nodes.push_back(id);  // what is built next stands after the loop
      for (const Sum& sum : sums) multiply(b, id, sum);
      return true;
    });
  }

 private:
  struct Sum {
    size_t carry;
    ValueId left, right;  // factors, in the body
    NodeId product;
    std::vector<NodeId> wraps;  // casts, renames, transposes of the product, innermost last
  };

  const Node* only_use(ValueId value) const {
    const auto index = static_cast<size_t>(value.index);
    const NodeId def = g_.value(value).def;
    return def.valid() && index < uses_.size() && uses_[index] == 1 ? &g_.node(def) : nullptr;
  }

  std::vector<Sum> find(const Node& node) const {
    std::vector<Sum> sums;
    const Region& body = g_.region(node.loop.body);
    for (size_t i = 0; i < static_cast<size_t>(node.loop.carries); ++i) {
      const ValueId arg = body.args[i + 1];
      const Node* add = only_use(body.results[i]);
      if (add == nullptr || add->op != Op::kAdd || uses_[static_cast<size_t>(arg.index)] != 1)
        continue;
      const size_t own = add->operands[0] == arg ? 0 : 1;
      const ValueId term = add->operands[1 - own];
      if (add->operands[own] != arg || g_.type(term).rank() != g_.type(arg).rank()) continue;
      Sum sum;
      sum.carry = i;
      if (product(term, sum) && worthwhile(node, sum)) sums.push_back(std::move(sum));
    }
    return sums;
  }

  bool product(ValueId value, Sum& sum) const {
    while (const Node* node = only_use(value)) {
      const bool wrap = node->op == Op::kRename || node->op == Op::kTranspose ||
                        (node->op == Op::kCast && is_float(g_.type(node->operands[0]).dtype));
      if (node->op == Op::kContract) {
        sum.product = g_.value(value).def;
        sum.left = node->operands[0];
        sum.right = node->operands[1];
        return true;
      }
      if (!wrap) return false;
      sum.wraps.push_back(g_.value(value).def);
      value = node->operands[0];
    }
    return false;
  }

  // The stacked tensor of a body value, if there is one already.
  ValueId stacked(const Node& node, ValueId value) const {
    const Region& body = g_.region(node.loop.body);
    const auto carries = static_cast<size_t>(node.loop.carries);
    for (size_t i = carries; i < carries + static_cast<size_t>(node.loop.scanned); ++i) {
      if (body.args[i + 1] == value) return node.operands[i];
    }
    for (size_t i = carries; i < body.results.size(); ++i) {
      if (body.results[i] == value) return node.results[i];
    }
    return {};
  }

  bool worthwhile(const Node& node, const Sum& sum) const {
    const Region& body = g_.region(node.loop.body);
    const auto first = static_cast<size_t>(node.loop.carries + node.loop.scanned) + 1;
    double more = 0;
    for (ValueId factor : {sum.left, sum.right}) {
      if (std::find(body.args.begin() + static_cast<ptrdiff_t>(first), body.args.end(), factor) !=
          body.args.end()) {
        return false;  // an invariant factor: the sum is over the other one
      }
      if (factor == body.args[0]) return false;
      if (!stacked(node, factor).valid()) more += rough_elements(g_, g_.type(factor));
    }
    return more <= rough_elements(g_, g_.type(g_.node(sum.product).results[0]));
  }

  void collect(RegionId region, NodeId id, ValueId value) {
    if (stacked(g_.node(id), value).valid()) return;
    Type type = g_.type(value);
    type.dims.insert(type.dims.begin(), g_.node(id).loop.dim);
    const std::string name = g_.value(value).name;
    const ValueId result = g_.add_value(region, std::move(type), name);
    Node& node = g_.node(id);
    g_.value(result).def = id;
    g_.value(result).result = static_cast<int32_t>(node.results.size());
    node.results.push_back(result);
    ++node.loop.collected;
    g_.region(node.loop.body).results.push_back(value);
  }

  // The carry keeps its start, so that it is dead once its result is replaced.
  void multiply(Builder& b, NodeId id, const Sum& sum) {
    const Node loop = g_.node(id);
    Attrs attrs = g_.node(sum.product).attrs;
    attrs.dims.insert(attrs.dims.begin(), loop.loop.dim);
    ValueId value =
        b.make(Op::kContract, {stacked(loop, sum.left), stacked(loop, sum.right)}, attrs);
    for (size_t i = sum.wraps.size(); i-- > 0;) {
      const Node wrap = g_.node(sum.wraps[i]);
      value = b.make(wrap.op, {value}, wrap.attrs);
    }
    const ValueId result = loop.results[sum.carry];
    value = b.add(loop.operands[sum.carry], conform(b, value, Type(g_.type(result))));
    Region& body = g_.region(loop.loop.body);
    body.results[sum.carry] = body.args[sum.carry + 1];
    rewriter_.replace(result, value);
  }

  Graph& g_;
  Rewriter rewriter_;
  std::vector<int32_t> uses_;
};

}  // namespace

Graph hoist_sums(Graph g) {
  SumHoister(g).run();
  return eliminate_dead(std::move(g));
}

}  // namespace cad::ir
