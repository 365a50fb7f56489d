// ir/recompute.cc -- see recompute.h.
#include "ir/recompute.h"

#include <unordered_map>
#include <vector>

#include "ir/rewrite.h"
#include "ir/step_kinds.h"

namespace cad::ir {

using Choice = SavePolicy::Choice;

SaveChoices::SaveChoices(const Graph& g, RegionId region, const SavePolicy& policy)
    : g_(g), policy_(policy) {
  std::vector<ValueId> work;
  std::unordered_set<int> here;  // nodes of the region
  for (const NodeId id : g.region(region).nodes) {
    here.insert(id.index);
    for (const ValueId v : g.node(id).results) {
      const bool loop = g.node(id).op == Op::kRepeat;
      if (!loop && g.value(v).saving == Saving::kCheckpoint) work.push_back(v);
    }
  }
  while (!work.empty()) {
    const Node& made = g.node(g.value(work.back()).def);
    work.pop_back();
    for (const ValueId v : made.operands) {
      const NodeId def = g.value(v).def;
      const Saving saving = g.value(v).saving;
      if (!def.valid() || here.count(def.index) == 0 || saving == Saving::kKeep ||
          saving == Saving::kCheckpoint)
        continue;
      if (g.node(def).op == Op::kInput || g.node(def).op == Op::kRepeat) continue;
      if (below_checkpoints_.insert(v.index).second) work.push_back(v);
    }
  }
}

// What a loop collects for its own backward pass goes the way of its first result: there is one
// loop, which runs again or not.
Choice SaveChoices::chosen(ValueId value) const {
  if (!policy_.choose) return Choice::kAuto;
  const Choice choice = policy_.choose(g_, value);
  const NodeId def = g_.value(value).def;
  if (choice != Choice::kAuto || !def.valid() || g_.node(def).op != Op::kRepeat) return choice;
  const ValueId first = g_.node(def).results[0];
  return first == value ? choice : policy_.choose(g_, first);
}

Choice SaveChoices::of(ValueId value) const {
  const Choice choice = chosen(value);
  if (choice != Choice::kAuto) return choice;
  switch (g_.value(value).saving) {
    case Saving::kKeep:
    case Saving::kCheckpoint:
      return Choice::kSave;
    case Saving::kRecompute:
      return Choice::kRecompute;
    case Saving::kAuto:
      break;
  }
  return below_checkpoints_.count(value.index) != 0 ? Choice::kRecompute : Choice::kAuto;
}

namespace {

class TopRecomputer {
 public:
  TopRecomputer(Graph& g, std::vector<char> again, size_t forward)
      : g_(g), again_(std::move(again)), forward_(forward) {}

  void run() {
    std::vector<NodeId>& top = g_.region(RegionId{0}).nodes;
    const std::vector<NodeId> nodes = top;
    top.resize(forward_);
    for (size_t i = forward_; i < nodes.size(); ++i) {
      for (size_t k = 0; k < g_.node(nodes[i]).operands.size(); ++k) {
        const ValueId copy = available(g_.node(nodes[i]).operands[k]);
        g_.node(nodes[i]).operands[k] = copy;
      }
      g_.region(RegionId{0}).nodes.push_back(nodes[i]);
    }
  }

 private:
  // The value itself, or its copy: made now, with those of the chain below, last first. A chain may
  // be as long as the program, so nothing recurses.
  ValueId available(ValueId value) {
    std::vector<ValueId> work = {value};
    while (!work.empty()) {
      const ValueId v = work.back();
      if (!runs_again(v) || copies_.count(v.index) != 0) {
        work.pop_back();
        continue;
      }
      const NodeId def = g_.value(v).def;
      bool ready = true;
      for (const ValueId operand : g_.node(def).operands) {
        if (!runs_again(operand) || copies_.count(operand.index) != 0) continue;
        work.push_back(operand);
        ready = false;
      }
      if (!ready) continue;
      const std::vector<ValueId> results = g_.node(def).results;
      const std::vector<ValueId> made =
          clone_node(g_, def, RegionId{0}, [this](ValueId x) { return copy_of(x); });
      Node& clone = g_.node(g_.value(made[0]).def);
      if (clone.attrs.site.empty()) clone.attrs.site = "again";
      for (size_t r = 0; r < results.size(); ++r) copies_[results[r].index] = made[r];
      work.pop_back();
    }
    return copy_of(value);
  }
  [[nodiscard]] bool runs_again(ValueId v) const {
    const auto at = static_cast<size_t>(v.index);
    return at < again_.size() && again_[at] != 0;
  }
  [[nodiscard]] ValueId copy_of(ValueId v) const {
    const auto copy = copies_.find(v.index);
    return copy == copies_.end() ? v : copy->second;
  }

  Graph& g_;
  std::vector<char> again_;  // by value
  size_t forward_;
  std::unordered_map<int, ValueId> copies_;
};

}  // namespace

void recompute_at_top(Graph& g, size_t forward_nodes, const SavePolicy& policy) {
  const SaveChoices choices(g, RegionId{0}, policy);
  std::vector<char> again(g.values.size(), 0);
  bool any = false;
  for (size_t i = 0; i < forward_nodes; ++i) {
    const Node& n = g.node(g.region(RegionId{0}).nodes[i]);
    if (n.op == Op::kInput || n.op == Op::kRepeat) continue;
    for (const ValueId v : n.results) {
      const Choice choice = choices.of(v);
      // A view holds the storage of what it shows, so it goes the same way.
      const bool follows = choice == Choice::kAuto && is_view_op(g, n) &&
                           again[static_cast<size_t>(n.operands[0].index)] != 0;
      const bool chosen = choice == Choice::kRecompute || follows;
      again[static_cast<size_t>(v.index)] = chosen ? 1 : 0;
      any = any || chosen;
    }
  }
  if (any) TopRecomputer(g, std::move(again), forward_nodes).run();
}

}  // namespace cad::ir
