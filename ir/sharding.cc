// ir/sharding.cc -- the rule of a node, and rules as text.
#include "ir/sharding.h"

#include "base/check.h"
#include "ir/op.h"

namespace cad::ir {

ShardingRule sharding_rule(const Graph& g, const Node& node) {
  const OpInfo& info = op_info(node.op);
  CAD_CHECK(info.sharding != nullptr, "op `{}` has no sharding rule", op_name(node.op));
  return info.sharding(g, node);
}

std::string str(const Graph& g, const Node& node, const ShardingRule& rule) {
  std::string text;
  for (size_t i = 0; i < rule.factors.size(); ++i) {
    const Factor& factor = rule.factors[i];
    DimId name;
    bool partial = false;
    for (const Factor::Result& result : factor.results) {
      if (!name.valid()) name = result.dim;
      partial = partial || result.partial;
    }
    for (DimId dim : factor.operands) {
      if (!name.valid()) name = dim;
    }
    if (i > 0) text += ' ';
    text += name.valid() ? g.dim(name).name : "?";
    if (partial) text += '+';
    if (factor.kind == Factor::Kind::kStatistic) text += '~';
    if (factor.kind == Factor::Kind::kLookup) text += '?';
  }
  std::string operands, results;
  for (ValueId x : node.operands) operands += (operands.empty() ? "" : ", ") + g.str(g.type(x));
  for (ValueId y : node.results) results += (results.empty() ? "" : ", ") + g.str(g.type(y));
  return op_name(node.op) + (": " + operands) + " -> " + results + " {" + text + "}";
}

}  // namespace cad::ir
