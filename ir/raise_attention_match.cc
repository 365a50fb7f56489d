// ir/raise_attention_match.cc -- the walk from p @ v down to q @ k; see raise_attention.cc for the
// shape of what is accepted. Every step answers "fits, go on at `next`" or gives up.
#include "ir/raise_attention_match.h"

#include <cmath>

namespace cad::ir {

namespace {

// A rank-0 constant, also below casts (a scale's rounding to bf16 is given up).
const Scalar* scale_of(const Graph& g, ValueId value) {
  while (true) {
    const Node* inner = defined_by(g, value, Op::kBroadcast);
    if (inner == nullptr) inner = defined_by(g, value, Op::kCast);
    if (inner == nullptr) return constant_of(g, value);
    value = inner->operands[0];
  }
}

bool is_minus_infinity(const Graph& g, ValueId value) {
  const Scalar* scalar = scale_of(g, value);
  const auto number = scalar != nullptr ? scalar->number() : std::nullopt;
  return number && *number == -INFINITY;
}

bool is_zero(const Graph& g, ValueId value) {
  const Scalar* scalar = scale_of(g, value);
  const auto number = scalar != nullptr ? scalar->number() : std::nullopt;
  return number && *number == 0;
}

}  // namespace

DimId renamed_dim(DimId dim, const RenameItems& items, bool inverse) {
  for (const auto& [from, to] : items) {
    if (dim == (inverse ? to : from)) return inverse ? from : to;
  }
  return dim;
}

std::optional<AttentionMatch> AttentionMatcher::match(const Node& outer, size_t side) {
  m_ = AttentionMatch();
  m_.v = outer.operands[1 - side];
  if (!probabilities(outer.operands[side], outer.attrs.dims[0])) return std::nullopt;
  return m_;
}

const Node* AttentionMatcher::only_use(ValueId value) const {
  const auto index = static_cast<size_t>(value.index);
  const NodeId def = g_.value(value).def;
  if (!def.valid() || index >= uses_.size() || uses_[index] != 1) return nullptr;
  // What the program pins must stay there to be pinned.
  if (!g_.value(value).pins.empty() || g_.value(value).saving != Saving::kAuto) return nullptr;
  return &g_.node(def);
}

// Casts between floats, new orders of the same dims, renames.
bool AttentionMatcher::passes_through(const Node& node, ValueId& next,
                                      std::vector<RenameItems>& renames) const {
  if (node.operands.empty()) return false;
  const ValueId x = node.operands[0];
  const bool cast = node.op == Op::kCast && is_float(g_.type(x).dtype);
  const bool order =
      node.op == Op::kTranspose ||
      (node.op == Op::kBroadcast && g_.type(x).rank() == g_.type(node.results[0]).rank());
  if (!cast && !order && node.op != Op::kRename) return false;
  if (node.op == Op::kRename) {
    RenameItems items;
    for (const DimGroup& group : node.attrs.groups) {
      if (group.from.size() != 1 || group.to.size() != 1) return false;
      items.emplace_back(group.from[0], group.to[0]);
    }
    renames.push_back(std::move(items));
  }
  next = x;
  return true;
}

// From p @ v down to the softmax.
bool AttentionMatcher::probabilities(ValueId value, DimId key) {
  bool dropped = false;
  while (const Node* node = only_use(value)) {
    if (node->op == Op::kSoftmax) {
      for (const RenameItems& items : m_.after) key = renamed_dim(key, items, true);
      if (node->attrs.dims != std::vector<DimId>{key}) return false;
      m_.key = key;
      if (!dropped) m_.probs = g_.type(node->results[0]).dims;
      return scores(node->operands[0]);
    }
    if (node->op == Op::kDropout && !dropped) {
      dropped = true;
      m_.p = node->attrs.scalar;
      m_.site = node->attrs.site;
      m_.loop_numbers.assign(node->operands.begin() + 1, node->operands.end());
      m_.probs = g_.type(node->results[0]).dims;
      value = node->operands[0];
      continue;
    }
    const size_t renames = m_.after.size();
    if (!passes_through(*node, value, m_.after)) return false;
    if (dropped && m_.after.size() > renames) {
      for (DimId& dim : m_.probs) dim = renamed_dim(dim, m_.after.back(), true);
    }
  }
  return false;
}

// From the softmax down to q @ k.
bool AttentionMatcher::scores(ValueId value) {
  while (const Node* node = only_use(value)) {
    if (node->op == Op::kContract) return query_and_key(*node);
    if (passes_through(*node, value, m_.before)) continue;
    if (!scaled(*node, value) && !masked(*node, value)) return false;
  }
  return false;
}

bool AttentionMatcher::query_and_key(const Node& inner) {
  if (inner.attrs.dims.size() != 1) return false;
  DimId key = m_.key;
  for (const RenameItems& items : m_.before) key = renamed_dim(key, items, true);
  const bool first = g_.type(inner.operands[0]).has(key);
  if (first == g_.type(inner.operands[1]).has(key)) return false;
  m_.k = inner.operands[first ? 0 : 1];
  m_.q = inner.operands[first ? 1 : 0];
  pull_scale(m_.q);
  pull_scale(m_.k);
  m_.contracted = inner.attrs.dims[0];
  for (size_t i = m_.before.size(); i-- > 0;)
    m_.contracted = renamed_dim(m_.contracted, m_.before[i], false);
  return true;
}

void AttentionMatcher::pull_scale(ValueId& operand) {
  while (const Node* node = only_use(operand)) {
    if (!scaled(*node, operand)) return;
  }
}

bool AttentionMatcher::scaled(const Node& node, ValueId& next) {
  if (node.op != Op::kMul && node.op != Op::kDiv) return false;
  for (size_t i : {size_t{1}, size_t{0}}) {
    const ValueId other = node.operands[1 - i];
    const Scalar* scale = scale_of(g_, node.operands[i]);
    if (scale == nullptr || g_.type(other).rank() != g_.type(node.results[0]).rank()) continue;
    if (node.op == Op::kDiv && i == 0) return false;
    m_.scale = Scalar::call(node.op == Op::kMul ? "mul" : "div", {m_.scale, *scale});
    next = other;
    return true;
  }
  return false;
}

// where(m, s, -inf), where(m, -inf, s), s + where(m, 0, -inf).
bool AttentionMatcher::masked(const Node& node, ValueId& next) {
  const size_t rank = g_.type(node.results[0]).rank();
  if (node.op == Op::kWhere) {
    const bool hides = is_minus_infinity(g_, node.operands[1]);
    if (!hides && !is_minus_infinity(g_, node.operands[2])) return false;
    next = node.operands[hides ? 2 : 1];
    return g_.type(next).rank() == rank && positive_scale() && condition(node.operands[0], hides);
  }
  if (node.op != Op::kAdd) return false;
  for (size_t i : {size_t{1}, size_t{0}}) {
    ValueId added = node.operands[i];
    while (const Node* outer = defined_by(g_, added, Op::kBroadcast)) added = outer->operands[0];
    const Node* where = defined_by(g_, added, Op::kWhere);
    if (where == nullptr || g_.type(node.operands[1 - i]).rank() != rank) continue;
    const bool hides = is_minus_infinity(g_, where->operands[1]);
    const size_t kept = hides ? 2 : 1;
    if (!is_zero(g_, where->operands[kept]) || !is_minus_infinity(g_, where->operands[3 - kept]))
      continue;
    next = node.operands[1 - i];
    return positive_scale() && condition(where->operands[0], hides);
  }
  return false;
}

// A condition as a conjunction of "shown" conditions: and when it shows, or when it hides.
bool AttentionMatcher::condition(ValueId value, bool hides) {
  const NodeId def = g_.value(value).def;
  const Node* node = def.valid() ? &g_.node(def) : nullptr;
  if (node != nullptr && node->op == Op::kBroadcast) return condition(node->operands[0], hides);
  if (node != nullptr && node->op == Op::kNot) return condition(node->operands[0], !hides);
  if (node != nullptr && node->op == (hides ? Op::kOr : Op::kAnd)) {
    return condition(node->operands[0], hides) && condition(node->operands[1], hides);
  }
  if (node != nullptr && causal(*node, hides)) return true;
  m_.masks.push_back({value, hides, m_.before.size()});
  return true;
}

// T >= S, S <= T shown; T < S, S > T hidden.
bool AttentionMatcher::causal(const Node& node, bool hides) {
  if (node.operands.size() != 2) return false;
  const DimId left = position_dim(node.operands[0]), right = position_dim(node.operands[1]);
  if (!left.valid() || !right.valid()) return false;
  DimId query;
  if (node.op == (hides ? Op::kLt : Op::kGe)) query = right == m_.key ? left : DimId{};
  if (node.op == (hides ? Op::kGt : Op::kLe)) query = left == m_.key ? right : DimId{};
  if (!query.valid() || query == m_.key) return false;
  if (m_.causal_query.valid() && m_.causal_query != query) return false;
  m_.causal_query = query;
  return true;
}

// The dim whose positions the value holds, as named at the softmax; invalid when it is no iota.
DimId AttentionMatcher::position_dim(ValueId value) const {
  while (const Node* outer = defined_by(g_, value, Op::kBroadcast)) value = outer->operands[0];
  if (g_.type(value).rank() != 1) return {};
  const DimId dim = g_.type(value).dims[0];
  while (const Node* outer = defined_by(g_, value, Op::kRename)) value = outer->operands[0];
  return defined_by(g_, value, Op::kIota) != nullptr ? above(dim) : DimId{};
}

DimId AttentionMatcher::above(DimId dim) const {
  for (size_t i = m_.before.size(); i-- > 0;) dim = renamed_dim(dim, m_.before[i], false);
  return dim;
}

// The factor above a mask must keep -inf below everything. Dims are positive, so factors such as
// 1 / sqrt(K) are judged by their value at a few sizes.
bool AttentionMatcher::positive_scale() const {
  if (const auto number = m_.scale.number()) return *number > 0;
  for (int64_t size : {int64_t{1}, int64_t{64}, int64_t{4096}}) {
    Bindings bindings;
    for (const Dim& dim : g_.dims) {
      for (const std::string& symbol : dim.size.symbols()) bindings.emplace(symbol, size);
    }
    const auto value = m_.scale.evaluate(bindings);
    if (!value || !(*value > 0)) return false;
  }
  return true;
}

}  // namespace cad::ir
