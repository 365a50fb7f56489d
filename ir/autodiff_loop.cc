// ir/autodiff_loop.cc -- the gradient of `repeat` is a `repeat` the other way.
//
// The backward nodes are first appended to the forward body itself, where they may read any forward
// value ("joint body"). Then they move to a body of their own: what they read there is the number,
// scanned operands and invariants (given again), values that the forward loop now collects, and
// values recomputed from those. An inner loop has been split by then: the values its forward half
// collects are ordinary values of this body, which this loop collects in turn.
//
//   backward carries    cotangents of carries, then a sum (f32 at least) for each active invariant
//   backward scanned    saved values, forward scanned operands, cotangents of collected results
//   backward collected  cotangents of the scanned operands
#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "ir/autodiff_internal.h"
#include "ir/rewrite.h"

namespace cad::ir {

struct Differentiator::LoopWork {
  NodeId node;
  Loop loop;  // as it was
  size_t forward_nodes = 0;
  std::vector<ValueId> args;  // of the forward body
  // Parallel lists: which carry / collected result / scanned / invariant, its cotangent on the way
  // in (a stand-in inside the joint body) and on the way out.
  struct Part {
    size_t index;  // within its group
    ValueId stand_in, result;
  };
  std::vector<Part> carries, collected, scanned, invariants;
  std::vector<NodeId> backward;  // live nodes, in order
  std::unordered_set<ValueId> saved;
  // The backward body.
  RegionId body;
  std::unordered_map<ValueId, ValueId> map;  // joint value -> value in `body`
  std::vector<ValueId> saved_order, saved_args;
  std::vector<size_t> scanned_read, invariants_read;
  std::vector<ValueId> scanned_args, invariant_args, collected_args;
};

std::vector<char> Differentiator::carries_with_cotangents(const Node& node) const {
  const Region& body = g_.region(node.loop.body);
  const auto carries = static_cast<size_t>(node.loop.carries);
  std::vector<char> live(carries, 0);
  std::unordered_set<ValueId> reached;
  for (size_t i = 0; i < node.results.size(); ++i) {
    if (!cotangent(node.results[i]).valid()) continue;
    if (i < carries) live[i] = 1;
    if (active(body.results[i])) reached.insert(body.results[i]);
  }
  for (bool grew = true; grew;) {
    for (size_t n = body.nodes.size(); n-- > 0;) {
      const Node& inner = g_.node(body.nodes[n]);
      bool hit = false;
      for (ValueId result : inner.results) hit = hit || reached.count(result) != 0;
      if (!hit) continue;
      for (ValueId operand : inner.operands) {
        if (active(operand)) reached.insert(operand);
      }
    }
    grew = false;
    for (size_t i = 0; i < carries; ++i) {
      if (live[i] != 0 || reached.count(body.args[i + 1]) == 0) continue;
      live[i] = 1;
      grew = true;
      if (active(body.results[i])) reached.insert(body.results[i]);
    }
  }
  for (size_t i = 0; i < carries; ++i) {
    if (!active(body.args[i + 1]) && !active(body.results[i])) live[i] = 0;
  }
  return live;
}

// Stand-ins for incoming cotangents, which seed the sweep over the body.
void Differentiator::open_body(LoopWork& work) {
  const Node node = g_.node(work.node);
  const RegionId body = work.loop.body;
  const std::vector<ValueId> results = g_.region(body).results;
  const std::vector<char> live = carries_with_cotangents(node);
  Builder b(g_, body);
  const auto carries = static_cast<size_t>(work.loop.carries);
  for (size_t i = 0; i < results.size(); ++i) {
    const bool carry = i < carries;
    if (carry ? live[i] == 0 : !cotangent(node.results[i]).valid() || !active(results[i])) continue;
    const Type type = g_.type(results[i]);
    const ValueId stand_in = g_.add_value(body, type);
    (carry ? work.carries : work.collected).push_back({carry ? i : i - carries, stand_in, {}});
    accumulate(b, results[i], stand_in);
  }
}

// What leaves the joint body. False when nothing that leads to a wanted input does.
bool Differentiator::close_body(LoopWork& work) {
  Builder b(g_, work.loop.body);
  const std::vector<ValueId> operands = g_.node(work.node).operands;
  const auto carries = static_cast<size_t>(work.loop.carries);
  const auto scanned = static_cast<size_t>(work.loop.scanned);
  bool any = false;
  for (LoopWork::Part& part : work.carries) {
    const ValueId arg = work.args[part.index + 1];
    const Type type = g_.type(arg);
    const ValueId out = cotangent(arg);
    part.result = out.valid() ? conform(b, out, type) : b.zeros(type);
    any = any || active(operands[part.index]);
  }
  for (size_t i = carries; i < operands.size(); ++i) {
    const ValueId out = cotangent(work.args[i + 1]);
    if (!out.valid() || !active(operands[i])) continue;
    any = true;
    Type type = g_.type(work.args[i + 1]);
    if (i < carries + scanned) {
      work.scanned.push_back({i - carries, {}, conform(b, out, type)});
      continue;
    }
    type.dtype = DType::kF32;
    const ValueId sum = g_.add_value(work.loop.body, type);
    const ValueId term = conform(b, out, type);
    work.invariants.push_back({i - carries - scanned, sum, b.add(sum, term)});
  }
  return any;
}

// Live backward nodes, the forward values they read, and which of these are saved.
void Differentiator::plan_body(LoopWork& work) {
  std::vector<NodeId>& nodes = g_.region(work.loop.body).nodes;
  std::unordered_set<ValueId> live;
  for (const auto* list : {&work.carries, &work.scanned, &work.invariants}) {
    for (const LoopWork::Part& part : *list) live.insert(part.result);
  }
  for (size_t i = nodes.size(); i-- > work.forward_nodes;) {
    const Node& node = g_.node(nodes[i]);
    bool used = false;
    for (ValueId result : node.results) used = used || live.count(result) != 0;
    if (!used) continue;
    work.backward.push_back(nodes[i]);
    live.insert(node.operands.begin(), node.operands.end());
  }
  std::reverse(work.backward.begin(), work.backward.end());
  nodes.resize(work.forward_nodes);
  std::vector<ValueId> needed;
  for (ValueId arg : work.args) {
    if (live.count(arg) != 0) needed.push_back(arg);
  }
  for (NodeId id : nodes) {
    for (ValueId result : g_.node(id).results) {
      if (live.count(result) != 0) needed.push_back(result);
    }
  }
  work.saved = plan_saves(g_, work.loop, needed, policy_);
  for (ValueId arg : work.args) {
    if (work.saved.count(arg) != 0) work.saved_order.push_back(arg);
  }
  for (NodeId id : nodes) {
    for (ValueId result : g_.node(id).results) {
      if (work.saved.count(result) != 0) work.saved_order.push_back(result);
    }
  }
}

// `value` of the joint body as seen in the backward body: mapped, read again, or recomputed here,
// just before its first use. Depth first with a stack of its own, as chains may be long.
ValueId Differentiator::emit(LoopWork& work, ValueId value) {
  std::vector<ValueId> stack = {value};
  while (!stack.empty()) {
    const ValueId top = stack.back();
    const NodeId def = g_.value(top).def;
    if (work.map.count(top) != 0) {
      stack.pop_back();
      continue;
    }
    if (!def.valid()) {
      read_again(work, top);
      continue;
    }
    const size_t depth = stack.size();
    for (ValueId operand : g_.node(def).operands) {
      if (work.map.count(operand) == 0) stack.push_back(operand);
    }
    if (stack.size() > depth) {
      std::reverse(stack.begin() + static_cast<ptrdiff_t>(depth),
                   stack.end());  // the first operand first
      continue;
    }
    const std::vector<ValueId> copies =
        clone_node(g_, def, work.body, [&work](ValueId v) { return work.map.at(v); });
    const std::vector<ValueId> results = g_.node(def).results;
    for (size_t i = 0; i < results.size(); ++i) work.map.emplace(results[i], copies[i]);
  }
  return work.map.at(value);
}

// A scanned operand or an invariant of the forward loop, given to the backward loop too.
void Differentiator::read_again(LoopWork& work, ValueId arg) {
  const Type type = g_.type(arg);
  const std::string name = g_.value(arg).name;
  const auto carries = static_cast<size_t>(work.loop.carries);
  const auto scanned = static_cast<size_t>(work.loop.scanned);
  const auto index = static_cast<size_t>(g_.value(arg).result);
  CAD_CHECK(index > carries, "backward body of `{}` reads carry {} that was not saved",
            g_.dim(work.loop.dim).name, index - 1);
  const ValueId again = g_.add_value(work.body, type, name);
  const bool is_scanned = index - 1 < carries + scanned;
  (is_scanned ? work.scanned_read : work.invariants_read).push_back(index - 1);
  (is_scanned ? work.scanned_args : work.invariant_args).push_back(again);
  work.map.emplace(arg, again);
}

// Moves the backward nodes into their own body.
void Differentiator::split_body(LoopWork& work) {
  work.body = g_.add_region(NodeId{});
  const auto arg_for = [&](ValueId joint) {
    const Type type = g_.type(joint);
    const std::string name = g_.value(joint).name;
    const ValueId arg = g_.add_value(work.body, type, name);
    work.map.emplace(joint, arg);
    return arg;
  };
  std::vector<ValueId> args = {arg_for(work.args[0])};
  for (const LoopWork::Part& part : work.carries) args.push_back(arg_for(part.stand_in));
  for (const LoopWork::Part& part : work.invariants) args.push_back(arg_for(part.stand_in));
  for (ValueId value : work.saved_order) work.saved_args.push_back(arg_for(value));
  for (const LoopWork::Part& part : work.collected)
    work.collected_args.push_back(arg_for(part.stand_in));
  for (NodeId id : work.backward) {
    for (const ValueId operand : std::vector<ValueId>(g_.node(id).operands)) emit(work, operand);
    Node& node = g_.node(id);
    for (ValueId& operand : node.operands) operand = work.map.at(operand);
    node.region = work.body;
    for (ValueId result : node.results) {
      g_.value(result).region = work.body;
      work.map.emplace(result, result);
    }
    g_.region(work.body).nodes.push_back(id);
  }
  std::vector<ValueId> results;
  for (const auto* list : {&work.carries, &work.invariants, &work.scanned}) {
    for (const LoopWork::Part& part : *list) results.push_back(emit(work, part.result));
  }
  for (const auto* list :
       {&work.saved_args, &work.scanned_args, &work.collected_args, &work.invariant_args}) {
    args.insert(args.end(), list->begin(), list->end());
  }
  for (size_t i = 0; i < args.size(); ++i) g_.value(args[i]).result = static_cast<int32_t>(i);
  g_.region(work.body).args = std::move(args);
  g_.region(work.body).results = std::move(results);
}

// The forward node collects what is saved; the backward node follows at the end of `outer`.
void Differentiator::append_backward(Builder& outer, LoopWork& work) {
  const RegionId region = outer.region();
  const auto carries = static_cast<size_t>(work.loop.carries);
  const auto scanned = static_cast<size_t>(work.loop.scanned);
  std::vector<ValueId> stacked;
  for (ValueId value : work.saved_order) {
    const std::vector<ValueId>& results = g_.region(work.loop.body).results;
    size_t at = carries;
    while (at < results.size() && results[at] != value) ++at;
    if (at == results.size()) {
      Type type = g_.type(value);
      type.dims.insert(type.dims.begin(), work.loop.dim);
      const std::string name = g_.value(value).name;
      const ValueId result = g_.add_value(region, std::move(type), name);
      g_.value(result).def = work.node;
      g_.value(result).result = static_cast<int32_t>(at);
      g_.region(work.loop.body).results.push_back(value);
      g_.node(work.node).results.push_back(result);
      ++g_.node(work.node).loop.collected;
    }
    stacked.push_back(g_.node(work.node).results[at]);
  }
  const Node forward = g_.node(work.node);
  std::vector<ValueId> operands;
  for (const LoopWork::Part& part : work.carries) {
    const ValueId result = forward.results[part.index];
    const Type type = g_.type(result);
    operands.push_back(cotangent(result).valid() ? conform(outer, cotangent(result), type)
                                                 : outer.zeros(type));
  }
  for (const LoopWork::Part& part : work.invariants) {
    operands.push_back(outer.zeros(Type(g_.type(part.stand_in))));
  }
  operands.insert(operands.end(), stacked.begin(), stacked.end());
  for (size_t index : work.scanned_read) operands.push_back(forward.operands[index]);
  for (const LoopWork::Part& part : work.collected) {
    const ValueId result = forward.results[carries + part.index];
    operands.push_back(conform(outer, cotangent(result), Type(g_.type(result))));
  }
  for (size_t index : work.invariants_read) operands.push_back(forward.operands[index]);

  Loop loop;
  loop.body = work.body;
  loop.dim = work.loop.dim;
  loop.carries = static_cast<int>(work.carries.size() + work.invariants.size());
  loop.scanned =
      static_cast<int>(stacked.size() + work.scanned_read.size() + work.collected.size());
  loop.invariants = static_cast<int>(work.invariants_read.size());
  loop.collected = static_cast<int>(work.scanned.size());
  loop.reverse = !work.loop.reverse;
  const NodeId id = append_repeat(g_, region, loop, std::move(operands));
  g_.node(id).span = forward.span;
  g_.node(id).scope = forward.scope;
  const std::vector<ValueId> results = g_.node(id).results;
  size_t next = 0;
  for (const LoopWork::Part& part : work.carries) {
    accumulate(outer, forward.operands[part.index], results[next++]);
  }
  for (const LoopWork::Part& part : work.invariants) {
    accumulate(outer, forward.operands[carries + scanned + part.index], results[next++]);
  }
  for (const LoopWork::Part& part : work.scanned) {
    accumulate(outer, forward.operands[carries + part.index], results[next++]);
  }
}

void Differentiator::differentiate_loop(Builder& outer, NodeId id) {
  LoopWork work;
  work.node = id;
  work.loop = g_.node(id).loop;
  work.args = g_.region(work.loop.body).args;
  work.forward_nodes = g_.region(work.loop.body).nodes.size();
  open_body(work);
  sweep(work.loop.body, work.forward_nodes);
  if (!close_body(work)) {
    g_.region(work.loop.body).nodes.resize(work.forward_nodes);
    return;
  }
  plan_body(work);
  split_body(work);
  append_backward(outer, work);
}

}  // namespace cad::ir
