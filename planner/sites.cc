// planner/sites.cc -- see sites.h. Grouping: a light node joins the group of its users when all of
// them are in one, so a group has one output and is convex. Roots: renames keep positions, so the
// layouts of a value and of its renamed self are the same numbers.
#include "planner/sites.h"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "base/check.h"
#include "ir/autodiff.h"

namespace cad::planner {

using ir::NodeId;
using ir::Op;
using ir::RegionId;
using ir::ValueId;

namespace {

enum class Kind : uint8_t { kFree, kParam, kActivation };

struct Root {
  ValueId value;
  Kind kind = Kind::kFree;
  int param = -1;
  bool invariant = false;
};

bool is_heavy(Op op) {
  switch (op) {
    case Op::kContract:
    case Op::kAttention:
    case Op::kAttentionGrad:
    case Op::kScatterAdd:
    case Op::kWindow:
    case Op::kUnwindow:
    case Op::kTopK:
    case Op::kSlots:
    case Op::kCumSum:
      return true;
    default:
      return false;
  }
}

bool is_reduction(Op op) {
  return op == Op::kSum || op == Op::kMean || op == Op::kReduceMax || op == Op::kReduceMin ||
         op == Op::kLogSumExp || op == Op::kSoftmax || op == Op::kArgmax;
}

class Finder {
 public:
  explicit Finder(const ir::Graph& g) : g_(g) { out_.graph = &g; }

  SiteGraph run() {
    std::vector<ValueId> sources;
    for (const ir::Input& input : g_.inputs) {
      if (input.kind == ir::InputKind::kParam && !input.frozen && input.value.valid())
        sources.push_back(input.value);
    }
    out_.active = ir::active_values(g_, sources);
    link_arguments(RegionId{0});
    free_.assign(g_.values.size(), 2);
    ir::BackwardCosts costs(g_);
    region(RegionId{0}, costs);
    ValueId loss = ir::output_value(g_, "loss");
    if (!loss.valid() && !g_.regions[0].results.empty()) loss = g_.regions[0].results[0];
    if (loss.valid()) out_.loss = root(loss).value;
    mark_epilogues();
    return std::move(out_);
  }

 private:
  // Which outer value a loop argument stands for.
  void link_arguments(RegionId region) {
    for (NodeId id : g_.region(region).nodes) {
      const ir::Node& n = g_.node(id);
      if (n.op != Op::kRepeat) continue;
      const std::vector<ValueId>& args = g_.region(n.loop.body).args;
      for (size_t i = static_cast<size_t>(n.loop.carries); i < n.operands.size(); ++i) {
        outer_[args[i + 1].index] = n.operands[i];
        if (i >= static_cast<size_t>(n.loop.carries + n.loop.scanned))
          invariant_.insert(args[i + 1].index);
      }
      link_arguments(n.loop.body);
    }
  }

  // Depends on nothing but constants, positions, data and states: free to have anywhere.
  bool is_free(ValueId v) {
    char& known = free_[static_cast<size_t>(v.index)];
    if (known != 2) return known != 0;
    known = 0;
    const ir::Value& value = g_.value(v);
    if (!value.def.valid()) {
      const auto at = outer_.find(v.index);
      if (at != outer_.end())
        known = is_free(at->second) ? 1 : 0;
      else
        known = ir::is_float(value.type.dtype) || value.type.rank() > 0 ? 0 : 1;  // the number
      return free_[static_cast<size_t>(v.index)] != 0;
    }
    const ir::Node& n = g_.node(value.def);
    bool free = n.op != Op::kRepeat && !is_heavy(n.op);
    if (n.op == Op::kInput) {
      free = g_.inputs[static_cast<size_t>(n.attrs.input.index)].kind != ir::InputKind::kParam;
    }
    for (ValueId operand : n.operands) free = free && is_free(operand);
    free_[static_cast<size_t>(v.index)] = free ? 1 : 0;
    return free;
  }

  Root root(ValueId v) {
    Root r;
    ValueId at = v;
    bool invariant = false;
    while (true) {
      const ir::Value& value = g_.value(at);
      if (!value.def.valid()) {
        const auto outer = outer_.find(at.index);
        if (outer == outer_.end()) break;
        if (invariant_.count(at.index) != 0) invariant = true;
        // a parameter, or free; an activation from outside stays an argument
        if (Root o = root(outer->second); o.kind == Kind::kParam) {
          o.invariant = o.invariant || invariant;
          return o;
        }
        break;
      }
      const ir::Node& n = g_.node(value.def);
      if (n.op == Op::kInput) {
        const int input = n.attrs.input.index;
        if (g_.inputs[static_cast<size_t>(input)].kind == ir::InputKind::kParam) {
          r = {at, Kind::kParam, input, invariant};
          return r;
        }
        break;
      }
      if (n.op == Op::kRename || n.op == Op::kStop) {
        at = n.operands[0];
        continue;
      }
      if (n.op == Op::kCast && ir::is_float(n.attrs.dtype)) {
        // of a parameter: part of reading it
        const Root o = root(n.operands[0]);
        if (o.kind == Kind::kParam) return o;
      }
      break;
    }
    r.value = at;
    r.kind = is_free(at) ? Kind::kFree : Kind::kActivation;
    return r;
  }

  [[nodiscard]] bool skipped(const ir::Node& n) {
    if (n.op == Op::kInput || n.op == Op::kConst || n.op == Op::kIota) return true;
    if (n.op == Op::kRename || n.op == Op::kStop) return true;
    if (n.op == Op::kRepeat) return false;
    return is_free(n.results[0]) || root(n.results[0]).kind == Kind::kParam;
  }

  [[nodiscard]] bool light(const ir::Node& n) {
    if (is_heavy(n.op) || n.op == Op::kRepeat || n.results.size() != 1) return false;
    if (n.op == Op::kGather || n.op == Op::kSelect) {
      return root(n.operands[0]).kind != Kind::kParam;
    }
    return true;
  }

  void region(RegionId id, ir::BackwardCosts& costs) {
    const ir::Region& r = g_.region(id);
    std::unordered_map<int, int> group_of;            // node -> group number
    std::unordered_map<int, std::vector<int>> users;  // root value -> nodes (-1: region result)
    for (NodeId n : r.nodes) {
      if (g_.node(n).op != Op::kRepeat && skipped(g_.node(n))) continue;
      for (ValueId operand : g_.node(n).operands)
        users[root(operand).value.index].push_back(n.index);
    }
    for (ValueId result : r.results) users[root(result).value.index].push_back(-1);
    int groups = 0;
    for (size_t i = r.nodes.size(); i-- > 0;) {
      const NodeId n = r.nodes[i];
      const ir::Node& node = g_.node(n);
      if (node.op == Op::kRepeat || skipped(node)) continue;
      bool used = false;
      for (ValueId result : node.results) used = used || users.count(result.index) != 0;
      if (!used) continue;
      int joined = -1;
      if (light(node)) {
        const std::vector<int>& of = users[node.results[0].index];
        for (int user : of) {
          const auto at = user < 0 ? group_of.end() : group_of.find(user);
          const int group = at != group_of.end() && light(g_.node(NodeId{user})) ? at->second : -1;
          if (group < 0 || (joined >= 0 && joined != group)) {
            joined = -1;
            break;
          }
          joined = group;
        }
      }
      group_of[n.index] = joined >= 0 ? joined : groups++;
    }
    emit(id, group_of, costs);
  }

  void emit(RegionId id, const std::unordered_map<int, int>& group_of, ir::BackwardCosts& costs) {
    const ir::Region& r = g_.region(id);
    // a group stands where its last node (its output) stands
    std::unordered_map<int, std::vector<NodeId>> members;
    for (NodeId n : r.nodes) {
      const auto at = group_of.find(n.index);
      if (at != group_of.end()) members[at->second].push_back(n);
    }
    for (NodeId n : r.nodes) {
      if (g_.node(n).op == Op::kRepeat) {
        loop(id, n, costs);
        continue;
      }
      const auto at = group_of.find(n.index);
      if (at == group_of.end() || members[at->second].back() != n) continue;
      out_.order[id.index].push_back(static_cast<int>(out_.sites.size()));
      out_.sites.push_back(make_site(id, members[at->second], costs));
    }
  }

  void note(const char* text) {
    std::vector<std::string>& notes = out_.unsupported;
    if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.emplace_back(text);
  }

  void loop(RegionId outer, NodeId n, ir::BackwardCosts& costs) {
    const ir::Node& node = g_.node(n);
    const ir::Region& body = g_.region(node.loop.body);
    LoopSite site;
    site.node = n;
    site.region = outer;
    site.body = node.loop.body;
    for (int i = 0; i < node.loop.carries; ++i) {
      const auto c = static_cast<size_t>(i);
      if (!ir::is_float(g_.type(body.args[c + 1]).dtype)) continue;
      if (site.carry.valid()) {
        note("a loop with several carried values");
        continue;
      }
      site.init = root(node.operands[c]).value;
      site.carry = body.args[c + 1];
      site.next = root(body.results[c]).value;
      site.result = node.results[c];
    }
    for (size_t i = static_cast<size_t>(node.loop.carries); i < node.operands.size(); ++i) {
      if (root(node.operands[i]).kind == Kind::kActivation)
        note("a loop that reads activations from outside");
    }
    if (node.loop.collected > 0) note("a loop that collects");
    region(node.loop.body, costs);
    out_.order[outer.index].push_back(-1 - static_cast<int>(out_.loops.size()));
    out_.loops.push_back(site);
  }

  Site make_site(RegionId region, const std::vector<NodeId>& nodes, ir::BackwardCosts& costs) {
    Site site;
    site.region = region;
    site.nodes = nodes;
    site.light = light(g_.node(nodes.back()));
    site.path = site_path(g_, nodes);
    for (ValueId result : g_.node(nodes.back()).results) site.outputs.push_back(result);
    std::unordered_set<int> inside;
    for (NodeId n : nodes) {
      for (ValueId result : g_.node(n).results) inside.insert(result.index);
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      const ir::Node& n = g_.node(nodes[i]);
      site.backward.push_back(costs.of(nodes[i]));
      bool active = false;
      for (ValueId result : n.results)
        active = active || out_.active[static_cast<size_t>(result.index)] != 0;
      site.active = site.active || active;
      for (size_t k = 0; k < n.operands.size(); ++k) {
        const Root r = root(n.operands[k]);
        if (r.kind == Kind::kFree || inside.count(r.value.index) != 0) continue;
        std::vector<Use>& list = r.kind == Kind::kParam ? site.params : site.inputs;
        auto use =
            std::find_if(list.begin(), list.end(), [&](const Use& u) { return u.root == r.value; });
        if (use == list.end()) {
          list.push_back({r.value, n.operands[k], {}, false, r.param, r.invariant});
          use = list.end() - 1;
        }
        use->places.emplace_back(static_cast<int>(i), static_cast<int>(k));
        if (out_.active[static_cast<size_t>(n.operands[k].index)] != 0 && active &&
            site.backward[i].gradients[k].exists)
          use->gradient = true;
      }
    }
    make_variants(site);
    return site;
  }

  // Light sites that only add parameters to a product's result which nothing else reads.
  void mark_epilogues() {
    std::unordered_map<int, const Site*> products;
    std::unordered_map<int, int> users;
    for (const Site& site : out_.sites) {
      if (g_.node(site.nodes[0]).op == Op::kContract) products[site.outputs[0].index] = &site;
      for (const Use& use : site.inputs) ++users[use.root.index];
    }
    for (const ir::Region& r : g_.regions) {
      for (ValueId result : r.results) ++users[root(result).value.index];
      for (NodeId n : r.nodes) {
        if (g_.node(n).op != Op::kRepeat) continue;
        for (ValueId operand : g_.node(n).operands) ++users[root(operand).value.index];
      }
    }
    for (Site& site : out_.sites) {
      if (!site.light || site.inputs.size() != 1 || site.params.empty()) continue;
      const int from = site.inputs[0].root.index;
      const auto made = products.find(from);
      if (made == products.end() || made->second->region != site.region || users[from] != 1)
        continue;
      site.epilogue = std::all_of(site.nodes.begin(), site.nodes.end(), [&](NodeId n) {
        const Op op = g_.node(n).op;
        return op == Op::kAdd || op == Op::kBroadcast || op == Op::kCast || op == Op::kTranspose;
      });
    }
  }

  // Values that the gradients of the site's active nodes read.
  std::vector<ValueId> read_in_backward(const Site& site) {
    std::vector<ValueId> reads;
    for (size_t i = 0; i < site.nodes.size(); ++i) {
      const ir::Node& n = g_.node(site.nodes[i]);
      for (size_t k = 0; k < n.operands.size(); ++k) {
        if (out_.active[static_cast<size_t>(n.operands[k].index)] == 0) continue;
        const ir::GradientCost& gradient = site.backward[i].gradients[k];
        if (gradient.exists)
          reads.insert(reads.end(), gradient.reads.begin(), gradient.reads.end());
      }
    }
    return reads;
  }

  // `keep_reductions`: results of reductions inside are saved rather than computed again.
  Variant make_variant(const Site& site, Kept kept, bool keep_reductions) {
    Variant v;
    v.kept = kept;
    v.needs.assign(site.inputs.size(), 0);
    v.needs_param.assign(site.params.size(), 0);
    v.again.assign(site.nodes.size(), 0);
    std::unordered_map<int, int> node_of;
    for (size_t i = 0; i < site.nodes.size(); ++i) {
      for (ValueId result : g_.node(site.nodes[i]).results)
        node_of[result.index] = static_cast<int>(i);
    }
    const ValueId output = site.outputs[0];
    std::vector<ValueId> pending = read_in_backward(site);
    if (kept == Kept::kAgain) pending.push_back(output);
    std::set<int> seen;
    while (!pending.empty()) {
      const Root r = root(pending.back());
      pending.pop_back();
      if (r.kind == Kind::kFree || !seen.insert(r.value.index).second) continue;
      const auto inside = node_of.find(r.value.index);
      if (inside == node_of.end()) {
        for (size_t i = 0; i < site.inputs.size(); ++i) {
          if (site.inputs[i].root == r.value) v.needs[i] = 1;
        }
        for (size_t i = 0; i < site.params.size(); ++i) {
          if (site.params[i].root == r.value) v.needs_param[i] = 1;
        }
        continue;
      }
      const ir::Node& n = g_.node(site.nodes[static_cast<size_t>(inside->second)]);
      const bool result =
          std::find(site.outputs.begin(), site.outputs.end(), r.value) != site.outputs.end();
      if (result && kept == Kept::kSaved) {
        if (r.value != output) v.saved.push_back(r.value);
        continue;
      }
      if (!result && keep_reductions && is_reduction(n.op)) {
        v.saved.push_back(r.value);
        continue;
      }
      v.again[static_cast<size_t>(inside->second)] = 1;
      pending.insert(pending.end(), n.operands.begin(), n.operands.end());
    }
    return v;
  }

  void make_variants(Site& site) {
    for (const Kept kept : {Kept::kNo, Kept::kSaved, Kept::kAgain}) {
      for (const bool keep : {false, true}) {
        Variant v = make_variant(site, kept, keep);
        if (keep && v.saved.empty()) continue;
        // a heavy op that must run again to have its own result: that is kAgain
        if (!site.light && kept == Kept::kNo && v.again[0] != 0) continue;
        if (keep) {
          const Variant& lean = site.variants.back();
          if (lean.kept == kept && lean.saved == v.saved) continue;
        }
        site.variants.push_back(std::move(v));
      }
    }
  }

  const ir::Graph& g_;
  SiteGraph out_;
  std::unordered_map<int, ValueId> outer_;
  std::set<int> invariant_;
  std::vector<char> free_;
};

}  // namespace

std::string site_path(const ir::Graph& graph, const std::vector<NodeId>& nodes) {
  std::string scope = graph.node(nodes.back()).scope;
  for (NodeId n : nodes) {
    if (graph.node(n).scope.size() > scope.size()) scope = graph.node(n).scope;
  }
  return scope.empty() ? ir::op_name(graph.node(nodes.back()).op) : scope;
}

SiteGraph find_sites(const ir::Graph& graph) {
  return Finder(graph).run();
}

}  // namespace cad::planner
