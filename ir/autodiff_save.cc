// ir/autodiff_save.cc -- what a loop's backward body reads back and what it computes again: a
// minimum cut, as in rematerialisation partitioners. Every value of the forward body is an edge
// whose capacity is its bytes; the source feeds what must not be computed again, the sink drains
// what the backward needs; the cut edges are saved. Among equal cuts the one nearest to the sink is
// taken (least recomputation). Dinic's algorithm on graphs of a body's size.
#include <algorithm>
#include <limits>
#include <queue>
#include <unordered_map>

#include "ir/autodiff_internal.h"
#include "ir/collective.h"
#include "ir/recompute.h"

namespace cad::ir {

namespace {

constexpr int64_t kInfinite = std::numeric_limits<int64_t>::max() / 4;
constexpr int64_t kRoughSize = 64;

class FlowNetwork {
 public:
  int add_node() {
    edges_of_.emplace_back();
    return static_cast<int>(edges_of_.size()) - 1;
  }
  void add_edge(int from, int to, int64_t capacity) {
    edges_of_[static_cast<size_t>(from)].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({to, capacity});
    edges_of_[static_cast<size_t>(to)].push_back(static_cast<int>(edges_.size()));
    edges_.push_back({from, 0});
  }
  void maximise(int source, int sink) {
    while (levels(source, sink)) {
      next_.assign(edges_of_.size(), 0);
      while (push(source, sink)) {
      }
    }
  }
  // Nodes from which the sink can still be reached.
  [[nodiscard]] std::vector<char> sink_side(int sink) const {
    std::vector<char> seen(edges_of_.size(), 0);
    std::vector<int> stack = {sink};
    seen[static_cast<size_t>(sink)] = 1;
    while (!stack.empty()) {
      const int node = stack.back();
      stack.pop_back();
      for (int e : edges_of_[static_cast<size_t>(node)]) {
        const int from = edges_[static_cast<size_t>(e)].to;
        if (edges_[static_cast<size_t>(e ^ 1)].left <= 0 || seen[static_cast<size_t>(from)] != 0)
          continue;
        seen[static_cast<size_t>(from)] = 1;
        stack.push_back(from);
      }
    }
    return seen;
  }

 private:
  struct Edge {
    int to;
    int64_t left;
  };

  bool levels(int source, int sink) {
    level_.assign(edges_of_.size(), -1);
    level_[static_cast<size_t>(source)] = 0;
    std::queue<int> queue;
    queue.push(source);
    while (!queue.empty()) {
      const int node = queue.front();
      queue.pop();
      for (int e : edges_of_[static_cast<size_t>(node)]) {
        const Edge& edge = edges_[static_cast<size_t>(e)];
        if (edge.left <= 0 || level_[static_cast<size_t>(edge.to)] >= 0) continue;
        level_[static_cast<size_t>(edge.to)] = level_[static_cast<size_t>(node)] + 1;
        queue.push(edge.to);
      }
    }
    return level_[static_cast<size_t>(sink)] >= 0;
  }

  // One augmenting path along the levels; an explicit path, so that deep bodies do not recurse.
  bool push(int source, int sink) {
    std::vector<int> path;
    int node = source;
    while (node != sink) {
      size_t& next = next_[static_cast<size_t>(node)];
      const std::vector<int>& out = edges_of_[static_cast<size_t>(node)];
      while (next < out.size()) {
        const Edge& edge = edges_[static_cast<size_t>(out[next])];
        if (edge.left > 0 &&
            level_[static_cast<size_t>(edge.to)] == level_[static_cast<size_t>(node)] + 1)
          break;
        ++next;
      }
      if (next < out.size()) {
        path.push_back(out[next]);
        node = edges_[static_cast<size_t>(out[next])].to;
        continue;
      }
      if (path.empty()) return false;
      node = edges_[static_cast<size_t>(path.back() ^ 1)].to;
      path.pop_back();
      ++next_[static_cast<size_t>(node)];
    }
    int64_t amount = kInfinite;
    for (int e : path) amount = std::min(amount, edges_[static_cast<size_t>(e)].left);
    for (int e : path) {
      edges_[static_cast<size_t>(e)].left -= amount;
      edges_[static_cast<size_t>(e ^ 1)].left += amount;
    }
    return true;
  }

  std::vector<Edge> edges_;
  std::vector<std::vector<int>> edges_of_;
  std::vector<int> level_;
  std::vector<size_t> next_;
};

bool never_recomputed(const Node& node) {
  switch (node.op) {
    case Op::kContract:
    case Op::kRepeat:
    case Op::kAttention:
    case Op::kAttentionGrad:
    case Op::kSum:
    case Op::kMean:
    case Op::kReduceMax:
    case Op::kReduceMin:
    case Op::kArgmax:
    case Op::kLogSumExp:
    case Op::kSoftmax:
    case Op::kCumSum:
    case Op::kStepTotal:
    case Op::kGather:
    case Op::kScatterAdd:
    case Op::kTopK:
    case Op::kSlots:
    case Op::kUnwindow:
      return true;
    default:
      return is_collective(node.op);
  }
}

class SavePlanner {
 public:
  SavePlanner(const Graph& g, const Loop& loop, const SavePolicy& policy)
      : g_(g),
        loop_(loop),
        policy_(policy),
        choices_(g, loop.body, policy),
        source_(network_.add_node()),
        sink_(network_.add_node()) {
    const NodeId owner = g.region(loop.body).owner;
    if (!owner.valid()) return;
    for (ValueId result : g.node(owner).results)
      checkpoint_ = checkpoint_ || g.value(result).saving == Saving::kCheckpoint;
  }

  std::unordered_set<ValueId> run(const std::vector<ValueId>& needed) {
    for (ValueId value : needed) {
      if (const int in = visit(value); in >= 0) network_.add_edge(in + 1, sink_, kInfinite);
    }
    while (!pending_.empty()) {
      const ValueId value = pending_.back();
      pending_.pop_back();
      expand(value);
    }
    network_.maximise(source_, sink_);
    const std::vector<char> side = network_.sink_side(sink_);
    std::unordered_set<ValueId> saved;
    for (const auto& [value, in] : node_of_) {
      if (side[static_cast<size_t>(in)] == 0 && side[static_cast<size_t>(in) + 1] != 0)
        saved.insert(value);
    }
    return saved;
  }

 private:
  [[nodiscard]] bool is_carry(ValueId value) const {
    const Value& v = g_.value(value);
    return !v.def.valid() && v.result >= 1 && v.result <= loop_.carries;
  }

  // The network's entry node of a value (its exit is the next one); -1: free to read again.
  int visit(ValueId value) {
    const auto found = node_of_.find(value);
    if (found != node_of_.end()) return found->second;
    if (!g_.value(value).def.valid() && !is_carry(value)) return -1;
    const int in = network_.add_node();
    network_.add_node();
    node_of_.emplace(value, in);
    pending_.push_back(value);
    return in;
  }

  SavePolicy::Choice choice_of(ValueId value) const {
    const SavePolicy::Choice choice = choices_.of(value);
    if (choice != SavePolicy::Choice::kAuto) return choice;
    return checkpoint_ ? SavePolicy::Choice::kRecompute : choice;
  }

  void expand(ValueId value) {
    const int in = node_of_.at(value);
    const auto choice = choice_of(value);
    const bool recompute = choice == SavePolicy::Choice::kRecompute && !is_carry(value);
    network_.add_edge(in, in + 1,
                      recompute                             ? kInfinite
                      : choice == SavePolicy::Choice::kSave ? 1
                                                            : bytes(value));
    const NodeId def = g_.value(value).def;
    const bool fixed = !def.valid() || choice == SavePolicy::Choice::kSave ||
                       (!recompute && never_recomputed(g_.node(def)));
    if (fixed) return network_.add_edge(source_, in, kInfinite);
    for (ValueId operand : g_.node(def).operands) {
      if (const int from = visit(operand); from >= 0) network_.add_edge(from + 1, in, kInfinite);
    }
  }

  int64_t bytes(ValueId value) {
    const Type& type = g_.type(value);
    double total = dtype_bytes(type.dtype);
    for (DimId dim : type.dims) total *= static_cast<double>(extent(dim));
    return std::max<int64_t>(1, static_cast<int64_t>(std::min(total, 1e17)));
  }

  int64_t extent(DimId dim) {
    const auto found = extents_.find(dim);
    if (found != extents_.end()) return found->second;
    const Size& size = g_.dim(dim).size;
    Bindings bindings = policy_.bindings;
    for (const std::string& symbol : size.symbols()) bindings.emplace(symbol, kRoughSize);
    const Size::Evaluated evaluated = size.evaluate(bindings);
    const int64_t extent = evaluated.ok() ? evaluated.value : kRoughSize;
    extents_.emplace(dim, extent);
    return extent;
  }

  const Graph& g_;
  const Loop& loop_;
  const SavePolicy& policy_;
  SaveChoices choices_;
  FlowNetwork network_;
  int source_, sink_;
  bool checkpoint_ = false;  // `repeat .. @checkpoint`
  std::unordered_map<ValueId, int> node_of_;
  std::unordered_map<DimId, int64_t> extents_;
  std::vector<ValueId> pending_;
};

}  // namespace

std::unordered_set<ValueId> plan_saves(const Graph& g, const Loop& loop,
                                       const std::vector<ValueId>& needed,
                                       const SavePolicy& policy) {
  return SavePlanner(g, loop, policy).run(needed);
}

}  // namespace cad::ir
