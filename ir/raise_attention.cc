// ir/raise_attention.cc -- finds attention written out and makes it one node, before autodiff, so
// that its gradient is one node too. Walks down from the second contraction:
//
//   contract[S](p, v)      p, v in either order
//   (dropout)              at most once
//   softmax[S]
//   * c, / c               rank-0 constants, before or after masking, or on q or k
//   where(m, s, -inf)      any number; `iota[T] >= iota[S]` in any spelling is the causal mask,
//                          every other condition becomes the mask operand
//   contract[K](q, k)      q is the side without S
//
// Casts between floats, transposes and renames may stand between any two. The scores must have no
// other user. Whatever does not fit is left alone: it is right either way, only slower.
#include <algorithm>
#include <cmath>
#include <optional>

#include "ir/passes.h"
#include "ir/raise_attention_match.h"

namespace cad::ir {

namespace {

bool holds(const std::vector<DimId>& dims, DimId dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

class AttentionRaiser {
 public:
  explicit AttentionRaiser(Graph& g) : g_(g), rewriter_(g) {}

  void run() {
    const std::vector<int32_t> uses = count_uses(g_);
    rewriter_.run([&](Builder& b, NodeId id) {
      if (g_.node(id).op != Op::kContract || g_.node(id).attrs.dims.size() != 1) return false;
      for (size_t side : {size_t{0}, size_t{1}}) {
        std::optional<AttentionMatch> match = AttentionMatcher(g_, uses).match(g_.node(id), side);
        if (match && raise(b, id, *match)) return true;
      }
      return false;
    });
  }

 private:
  bool raise(Builder& b, NodeId id, const AttentionMatch& m) {
    const std::optional<DimId> query = check(m);
    if (!query) return false;
    const Type result = g_.type(g_.node(id).results[0]);
    const ValueId q = renamed(b, m.q, m.before, m.before.size(), false);
    const ValueId k = renamed(b, m.k, m.before, m.before.size(), false);
    ValueId v = renamed(b, m.v, m.after, m.after.size(), true);
    // The op keeps K out of v: values with the same dim get a stand-in, taken back from the result.
    RenameItems values;
    if (g_.type(v).has(m.contracted)) {
      const Dim contracted = g_.dim(m.contracted);
      values.emplace_back(m.contracted, g_.add_dim(contracted.name, contracted.size));
      v = rename_once(b, v, values, false);
    }
    Attrs attrs;
    attrs.dims = {*query, m.key, m.contracted};
    attrs.scalar = m.scale;
    attrs.causal = m.causal_query.valid();
    attrs.masked = !m.masks.empty();
    attrs.p = m.p;
    attrs.site = m.site;
    attrs.probs = m.probs;
    std::vector<ValueId> operands = {q, k, v};
    if (attrs.masked) operands.push_back(mask(b, m));
    operands.insert(operands.end(), m.loop_numbers.begin(), m.loop_numbers.end());
    ValueId out = b.make_all(Op::kAttention, std::move(operands), attrs)[0];
    out = rename_once(b, out, values, true);
    for (size_t i = m.after.size(); i-- > 0;) out = rename_once(b, out, m.after[i], false);
    rewriter_.replace(g_.node(id).results[0], conform(b, out, result));
    return true;
  }

  // The dims must be those of attention: shared ones on all three sides, queries on q alone.
  // Returns the query dim.
  std::optional<DimId> check(const AttentionMatch& m) const {
    const auto q = renamed_dims(m.q, m.before, false);
    const auto k = renamed_dims(m.k, m.before, false);
    const auto v = renamed_dims(m.v, m.after, true);
    if (!q || !k || !v) return std::nullopt;
    if (g_.type(m.q).dtype != g_.type(m.v).dtype || g_.type(m.k).dtype != g_.type(m.v).dtype)
      return std::nullopt;
    if (!holds(*k, m.key) || holds(*q, m.key) || !holds(*v, m.key) || !holds(*q, m.contracted))
      return std::nullopt;
    std::vector<DimId> batch, queries;
    for (DimId dim : *q) {
      if (dim != m.contracted) (holds(*k, dim) ? batch : queries).push_back(dim);
    }
    if (k->size() != batch.size() + 2 || queries.empty()) return std::nullopt;
    for (DimId dim : batch) {
      if (!holds(*v, dim)) return std::nullopt;
    }
    for (DimId dim : queries) {
      if (holds(*v, dim)) return std::nullopt;
    }
    for (const AttentionMatch::Mask& mask : m.masks) {
      const auto dims = renamed_dims(mask.value, m.before, false, mask.renames);
      if (!dims) return std::nullopt;
      for (DimId dim : *dims) {
        if (!holds(batch, dim) && !holds(queries, dim) && dim != m.key) return std::nullopt;
      }
    }
    if (m.causal_query.valid()) {
      return holds(queries, m.causal_query) ? std::optional<DimId>(m.causal_query) : std::nullopt;
    }
    for (DimId dim : queries) {
      if (g_.dim(dim).size == g_.dim(m.key).size) return dim;
    }
    return queries[0];
  }

  // Dims after `count` renames, innermost (last) first; nullopt when a dim would stand twice.
  std::optional<std::vector<DimId>> renamed_dims(ValueId value,
                                                 const std::vector<RenameItems>& renames,
                                                 bool inverse, size_t count = SIZE_MAX) const {
    std::vector<DimId> dims = g_.type(value).dims;
    count = std::min(count, renames.size());
    for (size_t i = 0; i < count; ++i) {
      const RenameItems& items = renames[inverse ? i : count - 1 - i];
      for (DimId& dim : dims) dim = renamed_dim(dim, items, inverse);
    }
    std::vector<DimId> sorted = dims;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return std::nullopt;
    return dims;
  }

  ValueId renamed(Builder& b, ValueId value, const std::vector<RenameItems>& renames, size_t count,
                  bool inverse) {
    for (size_t i = 0; i < count; ++i) {
      value = rename_once(b, value, renames[inverse ? i : count - 1 - i], inverse);
    }
    return value;
  }

  ValueId rename_once(Builder& b, ValueId value, const RenameItems& items, bool inverse) {
    Attrs attrs;
    for (DimId dim : g_.type(value).dims) {
      const DimId now = renamed_dim(dim, items, inverse);
      if (now != dim) attrs.groups.push_back({{dim}, {now}});
    }
    return attrs.groups.empty() ? value : b.make(Op::kRename, {value}, attrs);
  }

  // All masks in one: true shows.
  ValueId mask(Builder& b, const AttentionMatch& m) {
    ValueId all;
    for (const AttentionMatch::Mask& item : m.masks) {
      ValueId one = renamed(b, item.value, m.before, item.renames, false);
      if (item.hides) one = b.unary(Op::kNot, one);
      if (!all.valid()) {
        all = one;
        continue;
      }
      Attrs attrs;
      attrs.dims = g_.type(all).dims;
      for (DimId dim : g_.type(one).dims) {
        if (!holds(attrs.dims, dim)) attrs.dims.push_back(dim);
      }
      all = b.make(Op::kAnd, {all, one}, attrs);
    }
    return all;
  }

  Graph& g_;
  Rewriter rewriter_;
};

}  // namespace

Graph raise_attention(Graph g) {
  AttentionRaiser(g).run();
  return eliminate_dead(std::move(g));
}

}  // namespace cad::ir
