// ir/raise_attention_match.h -- what raise_attention.cc looks for: the pieces of one attention,
// read off the graph without changing it. Names of dims are those that hold at the softmax.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/rewrite.h"

namespace cad::ir {

using RenameItems = std::vector<std::pair<DimId, DimId>>;  // from -> to, all at once
DimId renamed_dim(DimId dim, const RenameItems& items, bool inverse);

struct AttentionMatch {
  ValueId q, k, v;
  DimId key, contracted;
  Scalar scale = Scalar(1.0);
  DimId causal_query;  // valid when causal: key position <= its position
  struct Mask {
    ValueId value;
    bool hides;      // true positions are hidden, not shown
    size_t renames;  // how many of `before`, from the first, lie above it
  };
  std::vector<Mask> masks;
  Scalar p = Scalar(0.0);  // dropout
  std::string site;
  std::vector<ValueId> loop_numbers;
  std::vector<DimId> probs;
  std::vector<RenameItems> before;  // between softmax and q @ k, the softmax's side first
  std::vector<RenameItems> after;   // between p @ v and softmax, the contraction's side first
};

class AttentionMatcher {
 public:
  AttentionMatcher(const Graph& g, const std::vector<int32_t>& uses) : g_(g), uses_(uses) {}
  // `outer` contracts one dim; operand `side` is the probabilities.
  std::optional<AttentionMatch> match(const Node& outer, size_t side);

 private:
  const Node* only_use(ValueId value) const;  // its node, when nothing else reads it
  bool passes_through(const Node& node, ValueId& next, std::vector<RenameItems>& renames) const;
  bool probabilities(ValueId value, DimId key);
  bool scores(ValueId value);
  bool query_and_key(const Node& inner);
  bool scaled(const Node& node, ValueId& next);
  bool masked(const Node& node, ValueId& next);
  bool condition(ValueId value, bool hides);
  bool causal(const Node& node, bool hides);
  DimId position_dim(ValueId value) const;
  DimId above(DimId dim) const;  // as named at the softmax
  void pull_scale(ValueId& operand);
  [[nodiscard]] bool positive_scale() const;

  const Graph& g_;
  const std::vector<int32_t>& uses_;
  AttentionMatch m_;
};

}  // namespace cad::ir
