// ir/step_groups.cc -- see step_groups.h. Groups grow from the last node to the first: a node joins
// the group that reads it when the two are one nest of loops and no other step has to run between.
// Sizes are compared as numbers with a value of its own for every symbol, so equal means equal for
// all bindings.
#include "ir/step_groups.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <set>
#include <string>
#include <unordered_map>

#include "ir/op.h"
#include "ir/step_kinds.h"

namespace cad::ir {

namespace {

constexpr double kSlack = 1e-9;  // relative, of equal volumes
constexpr double kMayRepeat = 3.05;

enum class Kind : uint8_t { kNone, kLibrary, kView, kFree, kFusible };

bool same(double a, double b) {
  return std::abs(a - b) <= kSlack * std::max(std::abs(a), std::abs(b));
}

// Views whose elements do not lie one after the other.
bool is_sparse_view(Op op) {
  return op == Op::kTranspose || op == Op::kSlice || op == Op::kFlip || op == Op::kBroadcast;
}

bool is_reduction(Op op) {
  switch (op) {
    case Op::kSum:
    case Op::kMean:
    case Op::kReduceMax:
    case Op::kReduceMin:
    case Op::kArgmax:
    case Op::kLogSumExp:
    case Op::kSoftmax:
      return true;
    default:
      return false;
  }
}

class RegionCut {
 public:
  RegionCut(const Graph& g, const std::vector<double>& extents, std::vector<ValueId>& base,
            RegionId region)
      : g_(g), extents_(extents), base_(base), region_(region) {}

  std::vector<StepGroup> run() {
    find_live();
    classify();
    find_demanded();
    find_users();
    grow();
    grow();  // what had several readers may have one now
    return ordered();
  }

 private:
  struct Group {
    std::vector<size_t> nodes;  // places in nodes_, sorted
    bool library = false, alive = true;
  };

  [[nodiscard]] const Node& node(size_t place) const { return g_.node(nodes_[place]); }
  [[nodiscard]] double volume(const std::vector<DimId>& dims) const {
    double product = 1;
    for (DimId dim : dims) product *= extents_[static_cast<size_t>(dim.index)];
    return product;
  }
  [[nodiscard]] double volume(ValueId value) const { return volume(g_.type(value).dims); }
  [[nodiscard]] int place_of(ValueId value) const {
    const auto found = place_.find(value);
    return found == place_.end() ? -1 : found->second;
  }

  void find_live() {
    const Region& region = g_.region(region_);
    std::set<ValueId> wanted(region.results.begin(), region.results.end());
    for (auto n = region.nodes.rbegin(); n != region.nodes.rend(); ++n) {
      const Node& node = g_.node(*n);
      const bool used = std::any_of(node.results.begin(), node.results.end(),
                                    [&](ValueId v) { return wanted.count(v) != 0; });
      if (!used) continue;
      nodes_.push_back(*n);
      wanted.insert(node.operands.begin(), node.operands.end());
    }
    std::reverse(nodes_.begin(), nodes_.end());
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (ValueId v : node(i).results) place_[v] = static_cast<int>(i);
    }
  }

  // Views; constants, indices and short chains over those and rank-0 values are free.
  void classify() {
    std::set<ValueId> dense;
    for (ValueId v : g_.region(region_).results) dense.insert(v);
    for (NodeId id : nodes_) {
      const Node& n = g_.node(id);
      if (wants_dense_operands(n.op)) dense.insert(n.operands.begin(), n.operands.end());
    }
    std::unordered_map<ValueId, int> chain;
    for (ValueId v : g_.region(region_).args) {
      if (g_.type(v).rank() == 0) chain[v] = 0;
      base_[static_cast<size_t>(v.index)] = v;
    }
    kinds_.assign(nodes_.size(), Kind::kFusible);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& n = node(i);
      const ValueId result = n.results[0];
      const bool bound = n.op == Op::kInput || n.op == Op::kAxisIndex;
      if (bound || is_library_step(n.op)) {
        kinds_[i] = bound ? Kind::kNone : Kind::kLibrary;
        for (ValueId v : n.results) {
          base_[static_cast<size_t>(v.index)] = v;
          if (g_.type(v).rank() == 0) chain[v] = 0;
        }
        continue;
      }
      const bool view = is_view_op(g_, n);
      int length = view ? 0 : 1;
      bool light = view || n.op == Op::kConst || n.op == Op::kIota || n.op == Op::kSelect ||
                   is_light_arithmetic(n.op);
      for (ValueId v : n.operands) {
        const auto found = chain.find(v);
        if (found == chain.end()) light = false;
        if (found != chain.end()) length += found->second;
      }
      light = light && length <= kMaxFreeChain;
      if (light || g_.type(result).rank() == 0) chain[result] = light ? length : 0;
      const bool apart = view && is_sparse(n.operands[0], n.op) && dense.count(result) != 0;
      if (view && !apart) {
        kinds_[i] = Kind::kView;
      } else if ((light || n.op == Op::kSelect) && !apart) {
        kinds_[i] = Kind::kFree;
      }
      const ValueId below =
          base_[static_cast<size_t>(n.operands.empty() ? result.index : n.operands[0].index)];
      base_[static_cast<size_t>(result.index)] = kinds_[i] == Kind::kView ? below : result;
      if (view && (is_sparse_view(n.op) || sparse_.count(n.operands[0]) != 0))
        sparse_.insert(result);
    }
  }
  [[nodiscard]] bool is_sparse(ValueId operand, Op op) const {
    return is_sparse_view(op) || sparse_.count(operand) != 0;
  }

  void find_demanded() {
    const auto demand = [this](ValueId v) {
      const ValueId base = base_[static_cast<size_t>(v.index)];
      if (base.valid()) demanded_.insert(base);
    };
    for (ValueId v : g_.region(region_).results) demand(v);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (kinds_[i] != Kind::kLibrary) continue;
      for (ValueId v : node(i).operands) demand(v);
    }
    group_of_.assign(nodes_.size(), -1);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const bool wanted = demanded_.count(node(i).results[0]) != 0;
      if (kinds_[i] == Kind::kNone || kinds_[i] == Kind::kView) continue;
      if (kinds_[i] == Kind::kFree && !wanted) continue;
      group_of_[i] = static_cast<int>(groups_.size());
      groups_.push_back({{i}, kinds_[i] == Kind::kLibrary, true});
    }
  }

  // Nodes in groups that read a value, also through views and free nodes.
  void find_users() {
    users_.resize(nodes_.size());
    std::unordered_map<ValueId, std::set<size_t>> users;
    for (size_t i = nodes_.size(); i-- > 0;) {
      std::set<size_t> mine;
      for (ValueId r : node(i).results) mine.insert(users[r].begin(), users[r].end());
      const bool through = kinds_[i] == Kind::kView || kinds_[i] == Kind::kFree;
      for (ValueId v : node(i).operands) {
        std::set<size_t>& here = users[v];
        if (group_of_[i] >= 0) here.insert(i);
        if (through) here.insert(mine.begin(), mine.end());
      }
      users_[i].assign(mine.begin(), mine.end());
    }
  }

  [[nodiscard]] bool makes_cycle(int producer, int consumer) const {
    std::vector<char> seen(groups_.size(), 0);
    std::vector<int> work;
    const auto push = [&](int group, bool own) {
      for (size_t i : groups_[static_cast<size_t>(group)].nodes) {
        for (size_t u : users_[i]) {
          const int to = group_of_[u];
          if (own && (to == producer || to == consumer)) continue;
          if (seen[static_cast<size_t>(to)] != 0) continue;
          seen[static_cast<size_t>(to)] = 1;
          work.push_back(to);
        }
      }
    };
    push(producer, true);
    push(consumer, true);
    while (!work.empty()) {
      const int at = work.back();
      work.pop_back();
      if (at == producer || at == consumer) return true;
      push(at, false);
    }
    return false;
  }

  // One nest of loops: reductions that are read inside keep the same rows; what is much smaller
  // than the nest is a row's.
  [[nodiscard]] bool one_nest(const std::vector<size_t>& nodes) const {
    double full = 0, rows = 0;
    const std::set<size_t> members(nodes.begin(), nodes.end());
    std::vector<double> kept;
    for (size_t i : nodes) {
      const Node& n = node(i);
      full = std::max(full, volume(n.results[0]));
      if (!is_reduction(n.op)) continue;
      const double operand = volume(n.operands[0]);
      full = std::max(full, operand);
      const double mine = operand / std::max(volume(n.attrs.dims), 1e-300);
      const bool inside =
          n.op == Op::kSoftmax || std::any_of(users_[i].begin(), users_[i].end(),
                                              [&](size_t u) { return members.count(u) != 0; });
      if (!inside) {
        kept.push_back(mine);
        continue;
      }
      if (rows != 0 && !same(rows, mine)) return false;
      rows = mine;
    }
    double columns = 0;
    for (double mine : kept) {
      if (rows == 0) rows = mine;
      if (same(rows, mine)) continue;
      if (columns != 0 && !same(columns, mine)) return false;
      columns = mine;
    }
    for (size_t i : nodes) {
      const Node& n = node(i);
      const double mine = is_reduction(n.op) ? volume(n.operands[0]) : volume(n.results[0]);
      if (full <= mine * kMayRepeat || (rows != 0 && mine <= rows * (1 + kSlack))) continue;
      if (n.op == Op::kConst || n.op == Op::kIota || n.op == Op::kSelect || is_view_op(g_, n))
        continue;
      return false;
    }
    return true;
  }

  bool try_merge(int consumer, int producer) {
    Group& a = groups_[static_cast<size_t>(consumer)];
    Group& b = groups_[static_cast<size_t>(producer)];
    if (a.library || b.library || !a.alive || !b.alive) return false;
    if (a.nodes.size() + b.nodes.size() > kMaxGroupNodes) return false;
    std::vector<size_t> merged;
    std::merge(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(),
               std::back_inserter(merged));
    if (!one_nest(merged) || makes_cycle(producer, consumer)) return false;
    a.nodes = std::move(merged);
    b.alive = false;
    for (size_t i : a.nodes) group_of_[i] = consumer;
    return true;
  }

  void grow() {
    for (size_t i = nodes_.size(); i-- > 0;) {
      int here = group_of_[i];
      if (here < 0 || groups_[static_cast<size_t>(here)].library) continue;
      std::set<int> candidates;
      for (size_t u : users_[i]) candidates.insert(group_of_[u]);
      for (int candidate : candidates) {
        if (candidate != here && try_merge(candidate, here)) here = candidate;
      }
    }
  }

  // Stored values that a group reads, through views and free nodes; those it writes.
  void fill(StepGroup& step, const Group& group, int index) {
    std::set<ValueId> reads, seen;
    std::vector<ValueId> work;
    for (size_t i : group.nodes) {
      const Node& n = node(i);
      step.nodes.push_back(nodes_[i]);
      work.insert(work.end(), n.operands.begin(), n.operands.end());
      for (ValueId v : n.results) {
        const bool outside = group.library || demanded_.count(v) != 0 ||
                             std::any_of(users_[i].begin(), users_[i].end(),
                                         [&](size_t u) { return group_of_[u] != index; });
        if (outside) step.writes.push_back(v);
        if (!outside) base_[static_cast<size_t>(v.index)] = ValueId{};
      }
    }
    while (!work.empty()) {
      const ValueId v = work.back();
      work.pop_back();
      if (!seen.insert(v).second) continue;
      const int place = place_of(v);
      if (place < 0 || group_of_[static_cast<size_t>(place)] >= 0 ||
          kinds_[static_cast<size_t>(place)] == Kind::kNone) {
        if (place < 0 || group_of_[static_cast<size_t>(place)] != index) reads.insert(v);
        continue;
      }
      const Node& n = node(static_cast<size_t>(place));
      work.insert(work.end(), n.operands.begin(), n.operands.end());
    }
    step.reads.assign(reads.begin(), reads.end());
    step.library = group.library;
  }

  // Of the groups that are ready, the one whose last node came first.
  std::vector<StepGroup> ordered() {
    std::vector<std::set<int>> after(groups_.size());
    std::vector<int> waits(groups_.size(), 0);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const int from = group_of_[i];
      if (from < 0) continue;
      for (size_t u : users_[i]) {
        const int to = group_of_[u];
        if (to != from && after[static_cast<size_t>(from)].insert(to).second)
          ++waits[static_cast<size_t>(to)];
      }
    }
    using Entry = std::pair<size_t, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    const auto push = [&](size_t k) {
      ready.emplace(groups_[k].nodes.back(), static_cast<int>(k));
    };
    for (size_t k = 0; k < groups_.size(); ++k) {
      if (groups_[k].alive && waits[k] == 0) push(k);
    }
    std::vector<StepGroup> steps;
    while (!ready.empty()) {
      const int at = ready.top().second;
      ready.pop();
      steps.emplace_back();
      fill(steps.back(), groups_[static_cast<size_t>(at)], at);
      for (int to : after[static_cast<size_t>(at)]) {
        if (--waits[static_cast<size_t>(to)] == 0) push(static_cast<size_t>(to));
      }
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {  // free nodes, and views of what is fused away
      const ValueId v = node(i).results[0];
      ValueId& base = base_[static_cast<size_t>(v.index)];
      if (kinds_[i] == Kind::kFree && group_of_[i] < 0) base = ValueId{};
      if (kinds_[i] == Kind::kView) base = base_[static_cast<size_t>(node(i).operands[0].index)];
    }
    return steps;
  }

  const Graph& g_;
  const std::vector<double>& extents_;
  std::vector<ValueId>& base_;
  RegionId region_;
  std::vector<NodeId> nodes_;  // live ones, in order
  std::unordered_map<ValueId, int> place_;
  std::vector<Kind> kinds_;
  std::set<ValueId> sparse_, demanded_;
  std::vector<std::vector<size_t>> users_;  // by node
  std::vector<int> group_of_;               // by node; -1: none
  std::vector<Group> groups_;
};

// A number of its own for every symbol.
std::vector<double> stand_in_extents(const Graph& g) {
  std::set<std::string> symbols;
  for (const Dim& dim : g.dims) {
    for (const std::string& symbol : dim.size.symbols()) symbols.insert(symbol);
  }
  Bindings bindings;
  int64_t next = 1009;
  for (const std::string& symbol : symbols) {
    bindings.emplace(symbol, next);
    next += 1000 + 2 * static_cast<int64_t>(bindings.size());
  }
  std::vector<double> extents;
  for (const Dim& dim : g.dims) extents.push_back(dim.size.evaluate_real(bindings).value_or(1));
  return extents;
}

}  // namespace

StepGroups step_groups(const Graph& g) {
  StepGroups groups;
  groups.base.resize(g.values.size());
  groups.regions.resize(g.regions.size());
  const std::vector<double> extents = stand_in_extents(g);
  std::vector<RegionId> pending = {RegionId{0}};
  while (!pending.empty()) {
    const RegionId region = pending.back();
    pending.pop_back();
    auto& steps = groups.regions[static_cast<size_t>(region.index)];
    steps = RegionCut(g, extents, groups.base, region).run();
    for (const StepGroup& step : steps) {
      const Node& node = g.node(step.nodes[0]);
      if (node.op == Op::kRepeat) pending.push_back(node.loop.body);
    }
  }
  return groups;
}

}  // namespace cad::ir
