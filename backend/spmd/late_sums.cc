// backend/spmd/late_sums.cc -- a loop that sums something over devices in every iteration and only
// collects it, as the gradients of small layers are, sums what it has collected instead:
//
//   repeat i { g = all_reduce(contract(p, q)); collect g }
//   ->  repeat i { collect contract(p, q) };  all_reduce(gs)
//
// One meeting of the devices instead of one an iteration, the same additions in the same order, no
// byte more to send. Where an iteration's sum is large the meeting is not what takes the time, and
// it goes on beside the iteration's products: that stays in the loop. So does what is scattered:
// its operand is larger than what it leaves. The arena may grow by what is collected: a run whose
// budget that exceeds does without (LocalGraph::late_sums).
#include <algorithm>
#include <utility>

#include "backend/spmd/lowering.h"
#include "ir/passes.h"
#include "ir/rewrite.h"

namespace cad::backend {

using ir::NodeId;
using ir::Op;
using ir::ValueId;

namespace {

// Of one iteration; of all that one loop collects so, which the arena holds until it is summed.
constexpr int64_t kSmall = 64 << 10, kTogether = 256 << 10;

class LateSums {
 public:
  explicit LateSums(ir::Graph& g) : g_(g), rewriter_(g), uses_(ir::count_uses(g)) {}

  void run() {
    rewriter_.run([this](ir::Builder& b, NodeId id) {
      if (g_.node(id).op != Op::kRepeat) return false;
      const std::vector<size_t> sums = find(g_.node(id));
      if (sums.empty()) return false;
      g_.region(b.region()).nodes.push_back(id);  // what is built next stands after the loop
      for (const size_t result : sums) sum_later(b, id, result);
      return true;
    });
  }

 private:
  [[nodiscard]] int64_t bytes(const ir::Type& type) const {
    int64_t n = ir::dtype_bytes(type.dtype);
    for (const ir::DimId d : type.dims) {
      const auto size = g_.dim(d).size.constant();
      if (!size) return kTogether + 1;
      n *= *size;
    }
    return n;
  }

  // Results of the loop that are collected sums of its iterations and nothing else, small ones
  // first.
  [[nodiscard]] std::vector<size_t> find(const ir::Node& loop) const {
    std::vector<std::pair<int64_t, size_t>> sums;  // bytes, number
    const ir::Region& body = g_.region(loop.loop.body);
    for (auto i = static_cast<size_t>(loop.loop.carries); i < body.results.size(); ++i) {
      const ValueId value = body.results[i];
      const auto at = static_cast<size_t>(value.index);
      const ir::Node* sum = ir::defined_by(g_, value, Op::kAllReduce);
      if (sum == nullptr || sum->attrs.reduction != ir::Reduction::kSum) continue;
      if (at >= uses_.size() || uses_[at] != 1 || bytes(g_.type(value)) > kSmall) continue;
      sums.emplace_back(bytes(g_.type(loop.results[i])), i);
    }
    std::sort(sums.begin(), sums.end());
    std::vector<size_t> found;
    int64_t total = 0;
    for (const auto& [size, i] : sums) {
      total += size;
      if (total <= kTogether) found.push_back(i);
    }
    return found;
  }

  void sum_later(ir::Builder& b, NodeId id, size_t result) {
    const ValueId old = g_.node(id).results[result];
    const ValueId summed = g_.region(g_.node(id).loop.body).results[result];
    const ir::Node sum = g_.node(g_.value(summed).def);
    const ValueId summands = g_.add_value(b.region(), ir::Type(g_.type(old)), g_.value(old).name);
    ir::Node& loop = g_.node(id);
    g_.value(summands).def = id;
    g_.value(summands).result = static_cast<int32_t>(loop.results.size());
    loop.results.push_back(summands);
    ++loop.loop.collected;
    g_.region(loop.loop.body).results.push_back(sum.operands[0]);
    b.span = sum.span;
    b.scope = sum.scope;
    rewriter_.replace(old, b.make(Op::kAllReduce, {summands}, sum.attrs));
  }

  ir::Graph& g_;
  ir::Rewriter rewriter_;
  std::vector<int32_t> uses_;
};

}  // namespace

ir::Graph sum_after_loops(ir::Graph g) {
  LateSums(g).run();
  return ir::eliminate_dead(std::move(g));
}

}  // namespace cad::backend
