// backend/partition_groups.cc -- grows groups of a region from the last node to the first: a node
// joins the group that reads it when the two are one nest of loops, nothing costly is computed
// twice, and no other step has to run in between. Then groups that read the same large value join.
#include "backend/partition_groups.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "base/check.h"
#include "ir/step_kinds.h"

namespace cad::backend::fuse {

using ir::NodeId;
using ir::Op;
using ir::ValueId;

namespace {

constexpr size_t kMaxBuffers = 28;
constexpr size_t kMaxRowStreams =
    6;  // large values of a kernel of rows and columns: more fight for cache ways
constexpr int64_t kLargeValue = 1024;  // elements worth reading once only

}  // namespace

std::vector<Cluster> RegionPartition::run() {
  find_live();
  assign_layouts();
  find_free();
  find_demanded();
  find_users();
  if (fuse_) {
    grow();
    join_siblings();
    grow();  // what had several readers may have one now
  }
  return ordered();
}

void RegionPartition::find_live() {
  const ir::Region& region = g_.region(region_);
  std::set<ValueId> wanted(region.results.begin(), region.results.end());
  std::vector<NodeId> live;
  for (auto n = region.nodes.rbegin(); n != region.nodes.rend(); ++n) {
    const ir::Node& node = g_.node(*n);
    bool used = false;
    for (ValueId v : node.results) used = used || wanted.count(v) != 0;
    if (!used) continue;
    live.push_back(*n);
    wanted.insert(node.operands.begin(), node.operands.end());
  }
  nodes_.assign(live.rbegin(), live.rend());
  order_.assign(g_.nodes.size(), 0);
  for (size_t i = 0; i < nodes_.size(); ++i) order_[static_cast<size_t>(nodes_[i].index)] = i;
}

// Every value as a view where it can be one, else dense storage of its own; what must be dense and
// is not gets storage of its own, until nothing changes.
void RegionPartition::assign_layouts() {
  const ir::Region& region = g_.region(region_);
  for (bool changed = true; changed;) {
    changed = false;
    for (ValueId v : region.args) layouts_[static_cast<size_t>(v.index)] = dense_layout(c_, v);
    for (NodeId id : nodes_) {
      const ir::Node& n = g_.node(id);
      for (ValueId v : n.results) {
        Layout& layout = layouts_[static_cast<size_t>(v.index)];
        layout = dense_layout(c_, v);
        if (!ir::is_view_op(g_, n) || own_storage_.count(v) != 0) continue;
        auto view = view_layout(c_, n, layouts_[static_cast<size_t>(n.operands[0].index)]);
        if (view) layout = *view;
      }
    }
    auto want_dense = [&](ValueId v) {
      if (is_dense(c_, v, layouts_[static_cast<size_t>(v.index)])) return;
      changed = own_storage_.insert(v).second || changed;
    };
    for (ValueId v : region.results) want_dense(v);
    for (NodeId id : nodes_)
      if (ir::wants_dense_operands(g_.node(id).op))
        for (ValueId v : g_.node(id).operands) want_dense(v);
  }
}

// Index maps, and short chains of arithmetic on constants, iotas and rank-0 values.
void RegionPartition::find_free() {
  std::map<ValueId, int> chain;  // ops of a value made of nothing large
  for (ValueId v : g_.region(region_).args)
    if (g_.type(v).rank() == 0) chain[v] = 0;
  for (NodeId id : nodes_) {
    const ir::Node& n = g_.node(id);
    const auto at = static_cast<size_t>(id.index);
    c_.fusible[at] = classify(n) == NodeClass::kFusible ? 1 : 0;
    if (c_.fusible[at] == 0) {
      for (ValueId v : n.results)
        if (g_.type(v).rank() == 0) chain[v] = 0;
      continue;
    }
    const bool leaf = n.op == Op::kConst || n.op == Op::kIota;
    const bool map = ir::is_view_op(g_, n) || n.op == Op::kSelect;
    const bool arithmetic = ir::is_light_arithmetic(n.op);
    int length = leaf || map ? 0 : 1;
    bool light = leaf || map || arithmetic;
    for (ValueId v : n.operands) {
      auto found = chain.find(v);
      if (found == chain.end())
        light = false;
      else
        length += found->second;
    }
    if (light && length <= ir::kMaxFreeChain)
      chain[n.results[0]] = length;
    else if (g_.type(n.results[0]).rank() == 0)
      chain[n.results[0]] = 0;  // stored: one element
    c_.free[at] = leaf || map || (light && length <= ir::kMaxFreeChain) ? 1 : 0;
  }
}

void RegionPartition::find_demanded() {
  auto demand = [this](ValueId v) {
    demanded_.insert(layouts_[static_cast<size_t>(v.index)].base);
  };
  for (ValueId v : g_.region(region_).results) demand(v);
  for (ValueId v : own_storage_) demanded_.insert(v);
  cluster_.assign(g_.nodes.size(), -1);
  for (NodeId id : nodes_)
    if (classify(g_.node(id)) == NodeClass::kLibrary)
      for (ValueId v : g_.node(id).operands) demand(v);
  for (NodeId id : nodes_) {
    const ir::Node& n = g_.node(id);
    const NodeClass kind = classify(n);
    if (kind == NodeClass::kNone) continue;
    const bool wanted = kind == NodeClass::kFusible && demanded_.count(n.results[0]) != 0;
    if (kind == NodeClass::kFusible && c_.free[static_cast<size_t>(id.index)] != 0 && !wanted)
      continue;
    cluster_[static_cast<size_t>(id.index)] = static_cast<int>(clusters_.size());
    Cluster cluster;
    cluster.library = kind == NodeClass::kLibrary;
    cluster.group.nodes = {id};
    clusters_.push_back(std::move(cluster));
  }
}

// Who evaluates or reads a value: users, and users of the free nodes that stand between.
void RegionPartition::find_users() {
  std::map<ValueId, std::set<NodeId>> users;
  for (auto it = nodes_.rbegin(); it != nodes_.rend(); ++it) {
    const ir::Node& n = g_.node(*it);
    for (ValueId v : n.operands) {
      std::set<NodeId>& here = users[v];
      if (cluster_of(*it) >= 0) here.insert(*it);
      if (c_.free[static_cast<size_t>(it->index)] != 0)
        for (ValueId r : n.results) here.insert(users[r].begin(), users[r].end());
    }
  }
  for (auto& [v, set] : users) users_[v] = {set.begin(), set.end()};
  for (Cluster& c : clusters_)
    if (!c.library) c.group.stored = stored_by(c.group.nodes, cluster_of(c.group.nodes[0]), -1);
}

// Values of the nodes that are read outside of clusters a and b.
std::vector<ValueId> RegionPartition::stored_by(const std::vector<NodeId>& nodes, int a,
                                                int b) const {
  std::vector<ValueId> result;
  for (NodeId id : nodes) {
    ValueId v = g_.node(id).results[0];
    bool stored = demanded_.count(v) != 0;
    auto users = users_.find(v);
    if (users != users_.end())
      for (NodeId u : users->second) {
        const int cluster = cluster_of(u);
        stored = stored || (cluster != a && cluster != b);
      }
    // a free node is evaluated again by whoever needs it
    if (c_.free[static_cast<size_t>(id.index)] != 0 && demanded_.count(v) == 0) stored = false;
    if (stored) result.push_back(v);
  }
  return result;
}

// Whether some other cluster has to run after a or b and before a or b.
bool RegionPartition::makes_cycle(int a, int b) const {
  std::set<int> seen;
  std::vector<int> work;
  auto push_users = [&](int cluster, bool own) {
    for (NodeId id : clusters_[static_cast<size_t>(cluster)].group.nodes)
      for (ValueId v : g_.node(id).results) {
        auto users = users_.find(v);
        if (users == users_.end()) continue;
        for (NodeId u : users->second) {
          const int to = cluster_of(u);
          if (own && (to == a || to == b)) continue;
          if (seen.insert(to).second) work.push_back(to);
        }
      }
  };
  push_users(a, true);
  push_users(b, true);
  while (!work.empty()) {
    const int at = work.back();
    work.pop_back();
    if (at == a || at == b) return true;
    push_users(at, false);
  }
  return false;
}

bool RegionPartition::worth_it(const LoopProgram& program) const {
  for (const auto& [id, times] : program.work) {
    if (c_.free[static_cast<size_t>(id.index)] != 0) continue;
    if (times > (ir::is_costly(g_.node(id).op) ? 1.05 : 3.05)) return false;
  }
  std::set<ValueId> buffers;
  for (const LoopExpr& e : program.exprs)
    if (e.kind == kernel::Expr::Kind::kLoad) buffers.insert(e.buffer);
  if (buffers.size() + program.stores.size() + program.columns.size() > kMaxBuffers) return false;
  if (!program.columns.empty()) {
    const auto large =
        static_cast<size_t>(std::count_if(buffers.begin(), buffers.end(), [this](ValueId v) {
          return c_.elements(g_.type(v)) >= kLargeValue;
        }));
    const auto written = static_cast<size_t>(std::count_if(
        program.stores.begin(), program.stores.end(), [](const LoopStore& s) { return !s.row; }));
    if (large + written > kMaxRowStreams) return false;
  }
  if (starves_threads(program)) return false;
  LoopProgram reloaded = program;
  reload_stored(c_, reloaded);
  return !recomputes(reloaded);
}

bool RegionPartition::try_merge(int into, int from) {
  Cluster& a = clusters_[static_cast<size_t>(into)];
  Cluster& b = clusters_[static_cast<size_t>(from)];
  if (into == from || a.library || b.library || !a.alive || !b.alive) return false;
  if (a.group.nodes.size() + b.group.nodes.size() > ir::kMaxGroupNodes) return false;
  if (makes_cycle(into, from)) return false;
  Group merged;
  merged.nodes = a.group.nodes;
  merged.nodes.insert(merged.nodes.end(), b.group.nodes.begin(), b.group.nodes.end());
  // node ids need not follow the region's order
  std::sort(merged.nodes.begin(), merged.nodes.end(), [this](NodeId x, NodeId y) {
    return order_[static_cast<size_t>(x.index)] < order_[static_cast<size_t>(y.index)];
  });
  merged.stored = stored_by(merged.nodes, into, from);
  std::optional<LoopProgram> program = evaluate(c_, merged);
  if (!program || !worth_it(*program)) return false;
  a.group = std::move(merged);
  b.alive = false;
  for (NodeId id : a.group.nodes) cluster_[static_cast<size_t>(id.index)] = into;
  return true;
}

void RegionPartition::grow() {
  for (auto it = nodes_.rbegin(); it != nodes_.rend(); ++it) {
    int here = cluster_of(*it);
    if (here < 0 || clusters_[static_cast<size_t>(here)].library) continue;
    auto users = users_.find(g_.node(*it).results[0]);
    if (users == users_.end()) continue;
    std::set<int> candidates;
    for (NodeId u : users->second) candidates.insert(cluster_of(u));
    for (int candidate : candidates) {
      if (candidate == here) continue;
      if (try_merge(candidate, here)) here = candidate;
    }
  }
}

std::set<ValueId> RegionPartition::read_by(const Cluster& c) const {
  std::set<ValueId> result, seen;
  std::vector<ValueId> work;
  const std::set<NodeId> members(c.group.nodes.begin(), c.group.nodes.end());
  for (NodeId id : c.group.nodes)
    work.insert(work.end(), g_.node(id).operands.begin(), g_.node(id).operands.end());
  while (!work.empty()) {
    ValueId v = work.back();
    work.pop_back();
    if (!seen.insert(v).second) continue;
    NodeId def = g_.value(v).def;
    if (def.valid() && members.count(def) != 0) continue;
    if (def.valid() && c_.free[static_cast<size_t>(def.index)] != 0) {
      work.insert(work.end(), g_.node(def).operands.begin(), g_.node(def).operands.end());
      continue;
    }
    if (c_.elements(g_.type(v)) >= kLargeValue)
      result.insert(layouts_[static_cast<size_t>(v.index)].base);
  }
  return result;
}

void RegionPartition::join_siblings() {
  std::map<ValueId, std::vector<int>> readers;
  for (size_t k = 0; k < clusters_.size(); ++k) {
    if (!clusters_[k].alive || clusters_[k].library) continue;
    for (ValueId v : read_by(clusters_[k])) readers[v].push_back(static_cast<int>(k));
  }
  for (auto& [v, list] : readers)
    for (size_t i = 0; i < list.size(); ++i)
      for (size_t j = i + 1; j < list.size(); ++j) {
        if (!clusters_[static_cast<size_t>(list[i])].alive) break;
        try_merge(list[i], list[j]);
      }
}

// Kahn's order; of those that are ready the one whose last node came first in the region.
std::vector<Cluster> RegionPartition::ordered() const {
  std::vector<std::set<int>> after(clusters_.size());
  std::vector<int> waits(clusters_.size(), 0);
  std::vector<int64_t> place(clusters_.size(), 0);
  int64_t position = 0;
  size_t alive = 0;
  for (NodeId id : nodes_) {
    const int from = cluster_of(id);
    ++position;
    if (from < 0) continue;
    place[static_cast<size_t>(from)] = position;
    for (ValueId v : g_.node(id).results) {
      auto users = users_.find(v);
      if (users == users_.end()) continue;
      for (NodeId u : users->second) {
        const int to = cluster_of(u);
        if (to != from && after[static_cast<size_t>(from)].insert(to).second)
          ++waits[static_cast<size_t>(to)];
      }
    }
  }
  using Entry = std::pair<int64_t, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  for (size_t k = 0; k < clusters_.size(); ++k) {
    if (!clusters_[k].alive) continue;
    ++alive;
    if (waits[k] == 0) ready.emplace(place[k], static_cast<int>(k));
  }
  std::vector<Cluster> result;
  while (!ready.empty()) {
    const int at = ready.top().second;
    ready.pop();
    result.push_back(clusters_[static_cast<size_t>(at)]);
    for (int to : after[static_cast<size_t>(at)])
      if (--waits[static_cast<size_t>(to)] == 0) ready.emplace(place[static_cast<size_t>(to)], to);
  }
  CAD_CHECK(result.size() == alive, "fusion made a cycle: {} of {} steps have an order",
            result.size(), alive);
  return result;
}

}  // namespace cad::backend::fuse
