// ir/mask_tails.cc -- in a graph that devices run, a dim that does not divide is padded to equal
// parts, and beyond its own part a device holds anything, even NaN. Ops that treat elements one by
// one leave it there; those that mix elements along such a dim get a neutral value in its place.
// Run after the gradient is taken: the backward pass mixes along other dims than the forward.
//
// Collectives and the views around them keep tails tails, since parts lie side by side in order and
// what lies beyond the whole's end is cut off (backend/spmd/convert.h).
#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "ir/passes.h"
#include "ir/rewrite.h"
#include "ir/shard.h"
#include "ir/shard_nodes.h"

namespace cad::ir {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class TailMasker {
 public:
  explicit TailMasker(Graph& g) : g_(g) {
    for (size_t d = 0; d < g.dims.size(); ++d) {
      const DimId id{static_cast<int32_t>(d)};
      uneven_.push_back(g.dim(id).whole.valid() && is_uneven(g, id, {}) ? 1 : 0);
    }
  }

  void run() {
    Rewriter rewriter(g_);
    rewriter.run([this](Builder& b, NodeId id) {
      visit(b, id);
      return false;
    });
  }

 private:
  [[nodiscard]] bool uneven(DimId dim) const {
    const auto at = static_cast<size_t>(dim.index);
    return at < uneven_.size() && uneven_[at] != 0;
  }

  void visit(Builder& b, NodeId id) {
    const Node n = g_.node(id);
    switch (n.op) {
      case Op::kContract:
        for (const size_t k : {0, 1}) mask_all(b, id, k, n.attrs.dims, 0);
        break;
      case Op::kSum:
      case Op::kMean:
        for (size_t k = 0; k < n.operands.size(); ++k) mask_all(b, id, k, n.attrs.dims, 0);
        break;
      case Op::kReduceMax:
      case Op::kArgmax:
      case Op::kLogSumExp:
      case Op::kSoftmax:
        mask_all(b, id, 0, n.attrs.dims, -kInfinity);
        break;
      case Op::kReduceMin:
        mask_all(b, id, 0, n.attrs.dims, kInfinity);
        break;
      case Op::kCumSum:
        mask_all(b, id, 0, {n.attrs.dim}, 0);
        break;
      case Op::kScatterAdd: {  // ids outside add nothing
        std::vector<DimId> summed;
        for (const DimId d : g_.type(n.operands[1]).dims) {
          if (!g_.type(n.results[0]).has(d)) summed.push_back(d);
        }
        mask_all(b, id, 1, summed, -1);
        break;
      }
      case Op::kAttentionGrad:
        // rows of q, and dims of one of k and v alone, are summed over: with all of these 0 they
        // add nothing
        for (const size_t k : {0, 1, 2, 3, 4, 5}) {
          std::vector<DimId> summed;
          for (const DimId d : g_.type(n.operands[k]).dims) {
            for (const ValueId result : n.results) {
              if (!g_.type(result).has(d)) summed.push_back(d);
            }
          }
          mask_all(b, id, k, summed, 0);
        }
        break;
      default:
        break;
    }
  }

  void mask_all(Builder& b, NodeId id, size_t operand, const std::vector<DimId>& dims,
                double neutral) {
    std::vector<DimId> done;
    for (const DimId d : dims) {
      const ValueId x = g_.node(id).operands[operand];
      if (!uneven(d) || !g_.type(x).has(d)) continue;
      if (std::find(done.begin(), done.end(), d) != done.end()) continue;
      done.push_back(d);
      b.span = g_.node(id).span;
      b.scope = g_.node(id).scope;
      const ValueId masked = mask(b, x, d, neutral);
      g_.node(id).operands[operand] = masked;
    }
  }

  ValueId mask(Builder& b, ValueId x, DimId dim, double neutral) {
    ValueId& own = own_[{b.region().index, dim.index}];
    if (!own.valid()) {
      Attrs attrs;
      attrs.dim = dim;
      const ValueId index = b.make(Op::kIota, {}, std::move(attrs));
      own = b.make(Op::kLt, {index, own_extent_node(b, dim)});
    }
    ValueId& known = masked_[{x.index, dim.index, neutral}];
    if (known.valid()) return known;
    const DType dtype = g_.type(x).dtype;
    Scalar value(neutral);
    if (dtype == DType::kI32 && neutral == kInfinity)
      value = Scalar(static_cast<double>(std::numeric_limits<int32_t>::max()));
    if (dtype == DType::kI32 && neutral == -kInfinity)
      value = Scalar(static_cast<double>(std::numeric_limits<int32_t>::min()));
    return known = b.where(own, x, b.constant(value, dtype));
  }

  Graph& g_;
  std::vector<char> uneven_;                                // by dim
  std::map<std::pair<int, int>, ValueId> own_;              // by region and dim: bool[dim]
  std::map<std::tuple<int, int, double>, ValueId> masked_;  // by value, dim, neutral value
};

}  // namespace

Graph mask_tails(Graph g) {
  TailMasker(g).run();
  return g;
}

}  // namespace cad::ir
