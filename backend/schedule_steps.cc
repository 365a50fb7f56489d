// backend/schedule_steps.cc -- Scheduler's second half: instructions for steps, loops and copies,
// with their plans and what traces say about them.
#include <algorithm>
#include <cmath>

#include "backend/scheduler.h"
#include "ir/collective.h"

namespace cad::backend {

std::vector<char> forward_nodes(const ir::Graph& g) {
  std::vector<ir::NodeId> open;
  std::vector<char> needed(g.nodes.size(), 0);
  const auto need = [&](ValueId v) {
    const ir::NodeId node = g.value(v).def;
    if (!node.valid() || needed[static_cast<size_t>(node.index)] != 0) return;
    needed[static_cast<size_t>(node.index)] = 1;
    open.push_back(node);
  };
  const std::vector<ValueId>& results = g.region(ir::RegionId{0}).results;
  bool has_loss = false;
  for (size_t o = 0; o < g.outputs.size(); ++o) {
    if (g.outputs[o].name != "loss") continue;
    has_loss = true;
    need(results[o]);
  }
  if (!has_loss) return std::vector<char>(g.nodes.size(), 1);
  while (!open.empty()) {
    const ir::Node& node = g.node(open.back());
    open.pop_back();
    for (const ValueId v : node.operands) need(v);
    if (node.op != ir::Op::kRepeat) continue;
    // what the loop collects for its gradient is made there too
    for (const ir::NodeId inner : g.region(node.loop.body).nodes) need(g.node(inner).results[0]);
  }
  return needed;
}

int32_t Scheduler::add_info(const RegionState& r, const Step& step, const std::string& name,
                            double flops) {
  StepInfo info;
  info.name = name;
  const ir::Node& node = node_of(step);
  using Kind = StepInfo::Kind;
  info.kind = step.kind == Step::Kind::kContract        ? Kind::kProduct
              : step.kind == Step::Kind::kAttention     ? Kind::kAttention
              : step.kind == Step::Kind::kAttentionGrad ? Kind::kAttention
              : step.kind == Step::Kind::kCollective    ? Kind::kCollective
              : step.kind == Step::Kind::kLoop          ? Kind::kLoop
                                                        : Kind::kOther;
  info.axes = info.kind == Kind::kCollective ? node.attrs.axes : 0;
  info.backward = forward_[static_cast<size_t>(step.nodes.front().index)] == 0;
  info.scope = node.scope;
  info.last_scope = graph_.node(step.nodes.back()).scope;
  info.span = node.span;
  info.depth = r.depth;
  info.times = r.times;
  info.flops = flops;
  for (const ValueId v : step.inputs) info.bytes += static_cast<double>(bytes(v));
  for (const ValueId v : step.outputs) info.bytes += static_cast<double>(bytes(v));
  program_.infos.push_back(std::move(info));
  return static_cast<int32_t>(program_.infos.size()) - 1;
}

void Scheduler::add_copy(const RegionState& r, const Address& from, const Address& to,
                         int64_t count, ir::DType dtype, Adds adds, int32_t info) {
  Instruction copy;
  copy.kind = Instruction::Kind::kCopy;
  copy.operands = {from, to};
  copy.writes = {0, 1};
  copy.detail = static_cast<int32_t>(program_.copies.size());
  copy.adds = adds;
  copy.info = info;
  program_.copies.push_back({count, dtype});
  add(r, std::move(copy));
}

void Scheduler::add_copy(const RegionState& r, ValueId from, const Address& to, Adds adds,
                         int32_t info) {
  add_copy(r, element(from), to, elements(from), graph_.type(from).dtype, adds, info);
}

// What debug_nan compares: float operands and results, and whether -inf may come into being here.
void Scheduler::add_checks(Instruction& instruction, const Step& step) {
  for (const ValueId v : step.outputs) {
    if (ir::is_float(graph_.type(v).dtype)) {
      instruction.checked.push_back({place_of(v), elements(v), graph_.type(v).dtype, v});
    }
  }
  for (const ValueId v : step.inputs) {
    // What a view shows lies in its base; the rest of that counts as read, too.
    const ValueId whole = base(v);
    if (whole.valid() && ir::is_float(graph_.type(whole).dtype)) {
      instruction.read.push_back(
          {place_of(whole), elements(whole), graph_.type(whole).dtype, whole});
    }
  }
  for (const ir::NodeId id : step.nodes) {
    const ir::Node& node = graph_.node(id);
    const bool masks = node.op == ir::Op::kReduceMax || node.op == ir::Op::kReduceMin ||
                       node.op == ir::Op::kLogSumExp || node.op == ir::Op::kAttention;
    bool infinite =
        node.op == ir::Op::kWhere || node.op == ir::Op::kPad || node.op == ir::Op::kWindow;
    if (node.op == ir::Op::kConst) {
      const std::optional<double> number = node.attrs.scalar.evaluate(program_.bindings);
      infinite = number && std::isinf(*number);
    }
    instruction.may_be_minus_infinity |= masks || infinite;
  }
}

namespace {

GemmPlan gemm_of(const ir::Graph& g, const ir::Node& node, const std::vector<Layout>& layouts,
                 const ir::Bindings& bindings) {
  const ValueId a = node.operands[0], b = node.operands[1], c = node.results[0];
  const auto stride = [&](ValueId v, ir::DimId dim) {
    const int at = g.type(v).position(dim);
    return at < 0 ? 0 : layouts[static_cast<size_t>(v.index)].strides[static_cast<size_t>(at)];
  };
  std::vector<GemmDim> batch, m, n, k;
  const auto put = [&](ir::DimId dim, std::vector<GemmDim>& to) {
    to.push_back(
        {g.dim(dim).size.evaluate(bindings).value, stride(a, dim), stride(b, dim), stride(c, dim)});
  };
  for (const ir::DimId dim : g.type(c).dims) {
    const bool left = g.type(a).has(dim), right = g.type(b).has(dim);
    put(dim, left && right ? batch : left ? m : n);
  }
  for (const ir::DimId dim : node.attrs.dims) put(dim, k);
  return plan_gemm(std::move(batch), std::move(m), std::move(n), std::move(k), g.type(a).dtype,
                   g.type(b).dtype, g.type(c).dtype);
}

}  // namespace

// What a step does: its instruction's kind and plan. Operands follow (step_work).
Scheduler::PlannedWork Scheduler::plan_work(const Step& step) {
  const ir::Node& node = node_of(step);
  PlannedWork work;
  Instruction& made = work.made;
  work.name = ir::op_name(node.op);
  const auto routine = [&](Instruction::Kind kind, RoutinePlan plan) {
    made.kind = kind;
    made.detail = static_cast<int32_t>(program_.routines.size());
    work.scratch = plan.scratch_bytes;
    program_.routines.push_back(std::move(plan));
  };
  switch (step.kind) {
    case Step::Kind::kKernel: {
      const KernelCall& call = partition_.calls[static_cast<size_t>(step.kernel)];
      made.kind = Instruction::Kind::kKernel;
      made.detail = step.kernel;
      work.name = partition_.kernels[static_cast<size_t>(call.kernel)].name;
      work.flops = call.flops;
      work.scratch = call.scratch_bytes;
      break;
    }
    case Step::Kind::kContract: {
      made.kind = Instruction::Kind::kContract;
      made.detail = static_cast<int32_t>(program_.gemms.size());
      program_.gemms.push_back(gemm_of(graph_, node, partition_.layouts, program_.bindings));
      work.flops = program_.gemms.back().flops();
      made.adds = adds_of(step.outputs[0]);
      break;
    }
    case Step::Kind::kAttention:
    case Step::Kind::kAttentionGrad: {
      made.kind = step.kind == Step::Kind::kAttention ? Instruction::Kind::kAttention
                                                      : Instruction::Kind::kAttentionGrad;
      made.detail = static_cast<int32_t>(program_.attentions.size());
      program_.attentions.push_back(
          plan_attention(graph_, node, partition_.layouts, program_.bindings, threads_));
      work.flops = program_.attentions.back().flops;
      work.scratch = program_.attentions.back().scratch_bytes;
      break;
    }
    case Step::Kind::kScatterAdd:
      routine(Instruction::Kind::kScatterAdd, plan_scatter_add(graph_, node, program_.bindings));
      made.adds = adds_of(step.outputs[0]);
      break;
    case Step::Kind::kTopK:
      routine(Instruction::Kind::kTopK, plan_top_k(graph_, node, program_.bindings));
      break;
    case Step::Kind::kCumSum:
      routine(Instruction::Kind::kCumSum, plan_cum_sum(graph_, node, program_.bindings));
      break;
    case Step::Kind::kSlots:
      routine(Instruction::Kind::kSlots, plan_slots(graph_, node, program_.bindings));
      break;
    case Step::Kind::kCollective:
      made.kind = Instruction::Kind::kCollective;
      made.detail = static_cast<int32_t>(program_.collectives.size());
      program_.collectives.push_back(
          plan_collective(graph_, step.nodes.front(), program_.bindings));
      if (ir::moves_parts(node)) work.name = "permute";
      break;
    default:
      CAD_CHECK(false, "no routine for step `{}` (kind {})", work.name,
                static_cast<int>(step.kind));
  }
  return work;
}

// Everything but loops.
void Scheduler::step_work(RegionState& r, const Step& step, int32_t at) {
  const ir::Node& node = node_of(step);
  place_outputs(r, step, at);
  PlannedWork work = plan_work(step);
  Instruction& made = work.made;
  if (step.kind == Step::Kind::kKernel) {
    for (const ValueId v : partition_.calls[static_cast<size_t>(step.kernel)].buffers) {
      made.operands.push_back(place_of(base(v)));
      made.writes.push_back(
          std::find(step.outputs.begin(), step.outputs.end(), v) != step.outputs.end() ? 1 : 0);
    }
  } else {
    for (const ValueId v : node.operands) made.operands.push_back(element(v));
    made.writes.assign(made.operands.size(), 0);
    for (const ValueId v : node.results) made.operands.push_back(place_of(v));
    made.writes.resize(made.operands.size(), 1);
  }
  if (work.scratch > 0)
    made.scratch = new_buffer(r, work.scratch, at, at, "scratch of " + work.name, node.scope);
  made.info = add_info(r, step, work.name, work.flops);
  if (step.kind == Step::Kind::kCollective) return add_collective(r, step, at, std::move(made));
  add_checks(made, step);
  add(r, std::move(made));
}

// Whether a carry can lie in its initial value's own buffer: that dies here, and nothing else of
// the loop reads it.
bool Scheduler::initial_place_is_free(const ir::Node& loop, ValueId init, int32_t at) const {
  const Address& there = places_[index(base(init))];
  const auto readers = std::count_if(loop.operands.begin(), loop.operands.end(),
                                     [&](ValueId v) { return base(v) == base(init); });
  return base(init) == init && readers == 1 && last_use_[index(init)] == at &&
         def_step_[index(init)] >= 0 && there.root == Address::kArena && there.numbers.empty() &&
         direct_[index(init)] == nullptr && !in_flight(init, at);
}

void Scheduler::step_loop(RegionState& r, const Step& step, int32_t at) {
  const ir::Node& node = node_of(step);
  const ir::Loop& loop = node.loop;
  const ir::Region& body = graph_.region(loop.body);
  const auto carries = static_cast<size_t>(loop.carries),
             scanned = static_cast<size_t>(loop.scanned);
  Instruction made;
  made.kind = Instruction::Kind::kLoop;
  made.level = r.depth;
  made.reverse = loop.reverse;
  made.count = graph_.dim(loop.dim).size.evaluate(program_.bindings).value;
  made.info = add_info(r, step, "repeat " + graph_.dim(loop.dim).name, 0);
  program_.levels = std::max(program_.levels, r.depth + 1);
  std::vector<Destination> destinations(body.results.size());

  for (size_t i = 0; i < node.results.size(); ++i) {
    const ValueId result = node.results[i];
    const bool carried = i < carries;
    place_term(r, step, result, at);
    Address& place = places_[index(result)];
    bool filled = false;
    if (!place.valid() && carried && initial_place_is_free(node, node.operands[i], at)) {
      place = places_[index(base(node.operands[i]))];
      ArenaBuffer& buffer = block(r).buffers[static_cast<size_t>(place.buffer)];
      buffer.last = std::max({buffer.last, at, last_use_[index(result)]});
      filled = true;
    }
    if (!place.valid()) {
      place = new_buffer(r, bytes(result), at, last_use_[index(result)], name_of(graph_, result),
                         node.scope);
    }
    filled |= carried && element(node.operands[i]) == place;
    if (carried && !filled) add_copy(r, node.operands[i], place, Adds::kNo, made.info);
    Destination& d = destinations[i];
    d.place = place;
    if (carried) {
      d.occupant = body.args[1 + i];
      places_[index(d.occupant)] = place;
    } else {
      const int64_t slice = bytes(body.results[i]);
      d.place.numbers.emplace_back(r.depth, slice);
      d.adds = adds_of(result);
    }
  }
  for (size_t i = carries; i < node.operands.size(); ++i) {
    const ValueId arg = body.args[1 + i];
    Address& place = places_[index(arg)];
    place = element(node.operands[i]);
    if (i < carries + scanned) place.numbers.emplace_back(r.depth, bytes(arg));
  }
  const int32_t parent = r.block;
  made.block =
      block_of(loop.body, destinations, r.depth + 1, r.times * static_cast<double>(made.count));
  Block& inner = program_.blocks[static_cast<size_t>(made.block)];
  inner.parent = parent;
  inner.parent_buffer =
      new_buffer(r, inner.bytes, at, at, "body of repeat " + graph_.dim(loop.dim).name, node.scope)
          .buffer;
  made.number = places_[index(body.args[0])];
  add(r, std::move(made));
}

// Results that were not written in place. With `early`: arguments that go to memory of their own.
// At the end: the rest; carries that swap places go through a buffer.
void Scheduler::copies(const RegionState& r, const std::vector<Destination>& destinations,
                       bool early) {
  const std::vector<ValueId>& results = graph_.region(r.region).results;
  struct Move {
    Address from;
    size_t result;
  };
  std::vector<Move> moves;
  StepInfo info;
  info.name = early ? "save" : "copy of results";
  const std::vector<ir::NodeId>& nodes = graph_.region(r.region).nodes;
  info.backward = r.region.index != 0 && !nodes.empty() &&
                  forward_[static_cast<size_t>(nodes.front().index)] == 0;
  info.depth = r.depth;
  info.times = r.times;
  const auto info_index = static_cast<int32_t>(program_.infos.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const ValueId v = results[i];
    const Destination& d = destinations[i];
    if (copied_early(v, d) != early || passed_on(v, d) || direct_[index(whole(v))] == &d) continue;
    Address from = element(v);
    const bool occupied = std::any_of(destinations.begin(), destinations.end(),
                                      [&](const Destination& x) { return x.occupant == base(v); });
    if (occupied && !early) {
      const Address aside = new_buffer(r, bytes(v), r.end, r.end, name_of(graph_, v), "");
      add_copy(r, from, aside, elements(v), graph_.type(v).dtype, Adds::kNo, info_index);
      from = aside;
    }
    info.bytes += 2.0 * static_cast<double>(bytes(v));
    moves.push_back({from, i});
  }
  if (moves.empty()) return;
  program_.infos.push_back(info);
  for (const Move& move : moves) {
    const ValueId v = results[move.result];
    const Destination& d = destinations[move.result];
    add_copy(r, move.from, d.place, elements(v), graph_.type(v).dtype, d.adds, info_index);
  }
}

}  // namespace cad::backend
