// backend/schedule.cc -- one Scheduler walks the regions, a Block each. The order of steps is the
// partition's. A value is placed, in this order of preference,
//   1. where it has to be in the end: an output's buffer, a loop's carry, its slice of a stack;
//   2. in the buffer of an operand that dies at the step and may be overwritten;
//   3. in a buffer of its own.
#include "backend/schedule.h"

#include <algorithm>
#include <cmath>

#include "backend/arena.h"
#include "base/check.h"
#include "ir/interpreter.h"

namespace cad::backend {

namespace {

using ir::ValueId;

// Where a region's result must be when the region ends.
struct Destination {
  Address place;
  bool accumulate = false;
  ValueId occupant;              // an argument (or input) that lives there until it is overwritten
};

// What is known about one region while its block is made.
struct RegionState {
  ir::RegionId region;
  int32_t block = 0;
  int32_t depth = 0;             // of loops
  double times = 1;
  int32_t end = 0;               // number of steps: the place of final copies
  std::vector<int32_t> info_of;  // by step
};

class Scheduler {
 public:
  Scheduler(ProgramImpl& program, const Partition& partition, int threads)
      : program_(program), graph_(program.graph), partition_(partition), threads_(threads) {
    places_.resize(graph_.values.size());
    last_use_.assign(graph_.values.size(), -1);
    uses_.assign(graph_.values.size(), 0);
    def_step_.assign(graph_.values.size(), -1);
    direct_.resize(graph_.values.size());
  }

  void place_inputs();
  int32_t block_of(ir::RegionId region, const std::vector<Destination>& destinations, int32_t depth, double times);
  void resolve();

 private:
  [[nodiscard]] const Layout& layout(ValueId v) const { return partition_.layouts[index(v)]; }
  [[nodiscard]] ValueId base(ValueId v) const { return layout(v).base; }
  static size_t index(ValueId v) { return static_cast<size_t>(v.index); }
  [[nodiscard]] Block& block(const RegionState& r) { return program_.blocks[static_cast<size_t>(r.block)]; }
  [[nodiscard]] int64_t elements(ValueId v) const {
    int64_t n = 1;
    for (const int64_t extent : ir::extents_of(graph_, graph_.type(v), program_.bindings)) n *= extent;
    return n;
  }
  [[nodiscard]] int64_t bytes(ValueId v) const { return elements(v) * ir::dtype_bytes(graph_.type(v).dtype); }
  [[nodiscard]] const ir::Node& node_of(const Step& step) const { return graph_.node(step.nodes.front()); }

  void analyse(const RegionState& r, const std::vector<Step>& steps);
  // A carry that is handed on unchanged. An argument that goes to memory of its own: copied first, so
  // that its place may be overwritten (the input of a layer, saved for the backward pass).
  [[nodiscard]] bool passed_on(ValueId v, const Destination& d) const { return base(v) == v && d.occupant == v; }
  [[nodiscard]] bool copied_early(ValueId v, const Destination& d) const {
    return def_step_[index(base(v))] < 0 && !d.occupant.valid();
  }
  void choose_destinations(const RegionState& r, const std::vector<Step>& steps,
                           const std::vector<Destination>& destinations);
  bool may_go_direct(const RegionState& r, const std::vector<Step>& steps, ValueId v, const Destination& d);

  // The address of a value's first element: its base's place and the layout's offset.
  Address element(ValueId v);
  Address& place_of(ValueId v);
  Address new_buffer(const RegionState& r, int64_t size, int32_t first, int32_t last, const std::string& name,
                     const std::string& scope);
  bool take_over(const RegionState& r, const Step& step, int32_t at, size_t output);
  void place_outputs(const RegionState& r, const Step& step, int32_t at);

  int32_t add_info(const RegionState& r, const Step& step, const std::string& name, double flops);
  Instruction& add(const RegionState& r, Instruction instruction) {
    block(r).instructions.push_back(std::move(instruction));
    return block(r).instructions.back();
  }
  void add_copy(const RegionState& r, ValueId from, const Address& to, bool accumulate, int32_t info);
  void add_copy(const RegionState& r, const Address& from, const Address& to, int64_t count, ir::DType dtype,
                bool accumulate, int32_t info);
  void add_checks(Instruction& instruction, const Step& step);

  void step_work(const RegionState& r, const Step& step, int32_t at);
  void step_loop(RegionState& r, const Step& step, int32_t at);
  void copies(const RegionState& r, const std::vector<Destination>& destinations, bool early);
  void lay_out(const RegionState& r);

  ProgramImpl& program_;
  const ir::Graph& graph_;
  const Partition& partition_;
  int threads_;
  std::vector<Address> places_;          // by value, bases only
  std::vector<int32_t> last_use_;        // by value, bases only: step of its region, `end` for results
  std::vector<int32_t> uses_;            // by value, bases only: operands and results that read it
  std::vector<int32_t> def_step_;        // by value: the step that writes it
  std::vector<const Destination*> direct_;  // by value: written straight to a destination
};

std::string name_of(const ir::Graph& g, ValueId v) {
  const ir::Value& value = g.value(v);
  if (!value.name.empty()) return value.name;
  return value.def.valid() ? ir::op_name(g.node(value.def).op) : "argument";
}

Address& Scheduler::place_of(ValueId v) {
  Address& place = places_[index(v)];
  CAD_CHECK(place.valid(), "value {} `{}` has no place", v.index, name_of(graph_, v));
  return place;
}

Address Scheduler::element(ValueId v) {
  const Layout& l = layout(v);
  CAD_CHECK(l.base.valid(), "value {} `{}` is read but not stored", v.index, name_of(graph_, v));
  Address address = place_of(l.base);
  address.offset += l.offset * ir::dtype_bytes(graph_.type(v).dtype);
  return address;
}

Address Scheduler::new_buffer(const RegionState& r, int64_t size, int32_t first, int32_t last,
                              const std::string& name, const std::string& scope) {
  Address address;
  address.root = Address::kArena;
  address.block = r.block;
  address.buffer = static_cast<int32_t>(block(r).buffers.size());
  block(r).buffers.push_back({size, first, std::max(first, last), 0, 0, 0, name, scope});
  return address;
}

void Scheduler::place_inputs() {
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    const ValueId v = graph_.inputs[i].value;
    if (v.valid()) places_[index(v)].root = 1 + static_cast<int32_t>(i);
  }
}

// Definitions and last uses. A view's use is its base's.
void Scheduler::analyse(const RegionState& r, const std::vector<Step>& steps) {
  for (size_t s = 0; s < steps.size(); ++s) {
    if (steps[s].kind == Step::Kind::kView) continue;
    for (const ValueId v : steps[s].inputs) {
      CAD_CHECK(base(v).valid(), "step reads value {} `{}`, which is not stored", v.index, name_of(graph_, v));
      last_use_[index(base(v))] = static_cast<int32_t>(s);
      ++uses_[index(base(v))];
    }
    for (const ValueId v : steps[s].outputs) def_step_[index(v)] = static_cast<int32_t>(s);
  }
  for (const ValueId v : graph_.region(r.region).results) ++uses_[index(base(v))];
}

// Can v be written to its destination at once? Not when it is a view or argument, when something
// there is still needed, or when it has to be added and its step cannot do that.
bool Scheduler::may_go_direct(const RegionState& r, const std::vector<Step>& steps, ValueId v,
                              const Destination& d) {
  const int32_t def = def_step_[index(v)];
  if (base(v) != v || def < 0 || def >= r.end || direct_[index(v)] != nullptr) return false;
  const Step& step = steps[static_cast<size_t>(def)];
  if (d.accumulate) {
    if (uses_[index(v)] != 1) return false;
    if (step.kind == Step::Kind::kContract) return true;
    if (step.kind != Step::Kind::kLoop) return false;
    const ir::Loop& loop = node_of(step).loop;
    return graph_.value(v).result >= loop.carries;   // collected: its slices are added in the body
  }
  if (!d.occupant.valid()) return true;
  const int32_t needed = last_use_[index(d.occupant)];
  if (needed < def) return true;
  if (needed > def) return false;
  if (step.kind == Step::Kind::kLoop) {
    // An inner loop that carries on the very value that lives there.
    const ir::Node& node = node_of(step);
    const auto at = static_cast<size_t>(graph_.value(v).result);
    const auto readers = std::count_if(node.operands.begin(), node.operands.end(),
                                       [&](ValueId x) { return base(x) == d.occupant; });
    return readers == 1 && at < static_cast<size_t>(node.loop.carries) && node.operands[at] == d.occupant;
  }
  if (step.kind != Step::Kind::kKernel) return false;
  const auto output = std::find(step.outputs.begin(), step.outputs.end(), v) - step.outputs.begin();
  if (static_cast<size_t>(output) >= step.may_overwrite.size()) return false;
  const std::vector<int32_t>& allowed = step.may_overwrite[static_cast<size_t>(output)];
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    if (base(step.inputs[i]) != d.occupant) continue;
    if (std::find(allowed.begin(), allowed.end(), static_cast<int32_t>(i)) == allowed.end()) return false;
  }
  return true;
}

void Scheduler::choose_destinations(const RegionState& r, const std::vector<Step>& steps,
                                    const std::vector<Destination>& destinations) {
  const std::vector<ValueId>& results = graph_.region(r.region).results;
  // Arguments that are copied at the end are needed until then.
  for (size_t i = 0; i < results.size(); ++i) {
    if (def_step_[index(base(results[i]))] >= 0 || copied_early(results[i], destinations[i]) ||
        passed_on(results[i], destinations[i])) {
      continue;
    }
    last_use_[index(base(results[i]))] = r.end;
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const ValueId v = results[i];
    const Destination& d = destinations[i];
    if (copied_early(v, d) || passed_on(v, d)) continue;
    if (may_go_direct(r, steps, v, d)) {
      direct_[index(v)] = &d;
      places_[index(v)] = d.place;
    } else {
      last_use_[index(base(v))] = r.end;
    }
  }
}

// An output takes the buffer of an operand that dies here.
bool Scheduler::take_over(const RegionState& r, const Step& step, int32_t at, size_t output) {
  if (output >= step.may_overwrite.size()) return false;
  const ValueId out = step.outputs[output];
  for (const int32_t i : step.may_overwrite[output]) {
    const ValueId in = step.inputs[static_cast<size_t>(i)];
    const ValueId owner = base(in);
    const Address& place = places_[index(owner)];
    if (owner != in || last_use_[index(owner)] != at || place.root != Address::kArena || !place.numbers.empty() ||
        graph_.value(owner).region != r.region || def_step_[index(owner)] < 0 || bytes(owner) != bytes(out)) {
      continue;
    }
    if (direct_[index(owner)] != nullptr) continue;  // its place belongs to an enclosing loop
    // Another operand may read the same buffer through a view, or another output may have taken it.
    bool alone = true;
    for (size_t j = 0; j < step.inputs.size(); ++j) {
      if (static_cast<int32_t>(j) == i) continue;
      const ValueId other = base(step.inputs[j]);
      const Address& there = places_[index(other)];
      if (other == owner || there == place) {
        alone = false;
      }
    }
    for (size_t j = 0; j < output && alone; ++j) {
      alone = !(places_[index(step.outputs[j])] == place);
    }
    if (!alone) continue;
    places_[index(out)] = place;
    ArenaBuffer& buffer = block(r).buffers[static_cast<size_t>(place.buffer)];
    buffer.last = std::max({buffer.last, at, last_use_[index(out)]});
    return true;
  }
  return false;
}

void Scheduler::place_outputs(const RegionState& r, const Step& step, int32_t at) {
  for (size_t o = 0; o < step.outputs.size(); ++o) {
    const ValueId v = step.outputs[o];
    if (places_[index(v)].valid() || take_over(r, step, at, o)) continue;
    places_[index(v)] = new_buffer(r, bytes(v), at, last_use_[index(v)], name_of(graph_, v), node_of(step).scope);
  }
}

int32_t Scheduler::add_info(const RegionState& r, const Step& step, const std::string& name, double flops) {
  StepInfo info;
  info.name = name;
  const ir::Node& node = node_of(step);
  info.scope = node.scope;
  info.span = node.span;
  info.depth = r.depth;
  info.times = r.times;
  info.flops = flops;
  for (const ValueId v : step.inputs) info.bytes += static_cast<double>(bytes(v));
  for (const ValueId v : step.outputs) info.bytes += static_cast<double>(bytes(v));
  program_.infos.push_back(std::move(info));
  return static_cast<int32_t>(program_.infos.size()) - 1;
}

void Scheduler::add_copy(const RegionState& r, const Address& from, const Address& to, int64_t count,
                         ir::DType dtype, bool accumulate, int32_t info) {
  Instruction copy;
  copy.kind = Instruction::Kind::kCopy;
  copy.operands = {from, to};
  copy.detail = static_cast<int32_t>(program_.copies.size());
  copy.accumulate = accumulate;
  copy.info = info;
  program_.copies.push_back({count, dtype});
  add(r, std::move(copy));
}

void Scheduler::add_copy(const RegionState& r, ValueId from, const Address& to, bool accumulate, int32_t info) {
  add_copy(r, element(from), to, elements(from), graph_.type(from).dtype, accumulate, info);
}

// What debug_nan compares: float operands and results, and whether -inf may come into being here.
void Scheduler::add_checks(Instruction& instruction, const Step& step) {
  for (const ValueId v : step.outputs) {
    if (ir::is_float(graph_.type(v).dtype)) {
      instruction.checked.push_back({place_of(v), elements(v), graph_.type(v).dtype, v});
    }
  }
  for (const ValueId v : step.inputs) {
    if (ir::is_float(graph_.type(v).dtype) && base(v).valid() && base(v) == v) {
      instruction.read.push_back({place_of(v), elements(v), graph_.type(v).dtype, v});
    }
  }
  for (const ir::NodeId id : step.nodes) {
    const ir::Node& node = graph_.node(id);
    const bool masks = node.op == ir::Op::kReduceMax || node.op == ir::Op::kReduceMin ||
                       node.op == ir::Op::kLogSumExp || node.op == ir::Op::kAttention;
    bool infinite = node.op == ir::Op::kWhere || node.op == ir::Op::kPad || node.op == ir::Op::kWindow;
    if (node.op == ir::Op::kConst) {
      const std::optional<double> number = node.attrs.scalar.evaluate(program_.bindings);
      infinite = number && std::isinf(*number);
    }
    instruction.may_be_minus_infinity |= masks || infinite;
  }
}

GemmPlan gemm_of(const ir::Graph& g, const ir::Node& node, const std::vector<Layout>& layouts,
                 const ir::Bindings& bindings) {
  const ValueId a = node.operands[0], b = node.operands[1], c = node.results[0];
  const auto stride = [&](ValueId v, ir::DimId dim) {
    const int at = g.type(v).position(dim);
    return at < 0 ? 0 : layouts[static_cast<size_t>(v.index)].strides[static_cast<size_t>(at)];
  };
  std::vector<GemmDim> batch, m, n, k;
  const auto put = [&](ir::DimId dim, std::vector<GemmDim>& to) {
    to.push_back({g.dim(dim).size.evaluate(bindings).value, stride(a, dim), stride(b, dim), stride(c, dim)});
  };
  for (const ir::DimId dim : g.type(c).dims) {
    const bool left = g.type(a).has(dim), right = g.type(b).has(dim);
    put(dim, left && right ? batch : left ? m : n);
  }
  for (const ir::DimId dim : node.attrs.dims) put(dim, k);
  return plan_gemm(std::move(batch), std::move(m), std::move(n), std::move(k), g.type(a).dtype, g.type(b).dtype,
                   g.type(c).dtype);
}

// Everything but loops.
void Scheduler::step_work(const RegionState& r, const Step& step, int32_t at) {
  const ir::Node& node = node_of(step);
  Instruction made;
  std::string name = ir::op_name(node.op);
  double flops = 0;
  int64_t scratch = 0;
  place_outputs(r, step, at);
  const auto routine = [&](Instruction::Kind kind, RoutinePlan plan) {
    made.kind = kind;
    made.detail = static_cast<int32_t>(program_.routines.size());
    scratch = plan.scratch_bytes;
    program_.routines.push_back(std::move(plan));
  };
  switch (step.kind) {
    case Step::Kind::kKernel: {
      const KernelCall& call = partition_.calls[static_cast<size_t>(step.kernel)];
      made.kind = Instruction::Kind::kKernel;
      made.detail = step.kernel;
      name = partition_.kernels[static_cast<size_t>(call.kernel)].name;
      flops = call.flops;
      scratch = call.scratch_bytes;
      break;
    }
    case Step::Kind::kContract: {
      made.kind = Instruction::Kind::kContract;
      made.detail = static_cast<int32_t>(program_.gemms.size());
      program_.gemms.push_back(gemm_of(graph_, node, partition_.layouts, program_.bindings));
      flops = program_.gemms.back().flops();
      const Destination* direct = direct_[index(step.outputs[0])];
      made.accumulate = direct != nullptr && direct->accumulate;
      break;
    }
    case Step::Kind::kAttention:
    case Step::Kind::kAttentionGrad: {
      made.kind = step.kind == Step::Kind::kAttention ? Instruction::Kind::kAttention
                                                      : Instruction::Kind::kAttentionGrad;
      made.detail = static_cast<int32_t>(program_.attentions.size());
      program_.attentions.push_back(
          plan_attention(graph_, node, partition_.layouts, program_.bindings, threads_));
      flops = program_.attentions.back().flops;
      scratch = program_.attentions.back().scratch_bytes;
      break;
    }
    case Step::Kind::kScatterAdd:
      routine(Instruction::Kind::kScatterAdd, plan_scatter_add(graph_, node, program_.bindings));
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
    default:
      CAD_CHECK(false, "no routine for step `{}` (kind {})", name, static_cast<int>(step.kind));
  }
  if (step.kind == Step::Kind::kKernel) {
    for (const ValueId v : partition_.calls[static_cast<size_t>(step.kernel)].buffers) {
      made.operands.push_back(place_of(base(v)));
    }
  } else {
    for (const ValueId v : node.operands) made.operands.push_back(element(v));
    for (const ValueId v : node.results) made.operands.push_back(place_of(v));
  }
  if (scratch > 0) made.scratch = new_buffer(r, scratch, at, at, "scratch of " + name, node.scope);
  made.info = add_info(r, step, name, flops);
  add_checks(made, step);
  add(r, std::move(made));
}

void Scheduler::step_loop(RegionState& r, const Step& step, int32_t at) {
  const ir::Node& node = node_of(step);
  const ir::Loop& loop = node.loop;
  const ir::Region& body = graph_.region(loop.body);
  const auto carries = static_cast<size_t>(loop.carries), scanned = static_cast<size_t>(loop.scanned);
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
    Address& place = places_[index(result)];
    bool filled = false;
    if (!place.valid() && carried) {
      // The initial value's own buffer, when it dies here and nothing else of the loop reads it.
      const ValueId init = node.operands[i];
      const Address& there = places_[index(base(init))];
      const auto readers = std::count_if(node.operands.begin(), node.operands.end(),
                                         [&](ValueId v) { return base(v) == base(init); });
      if (base(init) == init && readers == 1 && last_use_[index(init)] == at && def_step_[index(init)] >= 0 &&
          there.root == Address::kArena && there.numbers.empty() && direct_[index(init)] == nullptr) {
        place = there;
        ArenaBuffer& buffer = block(r).buffers[static_cast<size_t>(there.buffer)];
        buffer.last = std::max({buffer.last, at, last_use_[index(result)]});
        filled = true;
      }
    }
    if (!place.valid()) {
      place = new_buffer(r, bytes(result), at, last_use_[index(result)], name_of(graph_, result), node.scope);
    }
    filled |= carried && element(node.operands[i]) == place;
    if (carried && !filled) add_copy(r, node.operands[i], place, false, made.info);
    Destination& d = destinations[i];
    d.place = place;
    if (carried) {
      d.occupant = body.args[1 + i];
      places_[index(d.occupant)] = place;
    } else {
      const int64_t slice = bytes(body.results[i]);
      d.place.numbers.emplace_back(r.depth, slice);
      const Destination* direct = direct_[index(result)];
      d.accumulate = direct != nullptr && direct->accumulate;
    }
  }
  for (size_t i = carries; i < node.operands.size(); ++i) {
    const ValueId arg = body.args[1 + i];
    Address& place = places_[index(arg)];
    place = element(node.operands[i]);
    if (i < carries + scanned) place.numbers.emplace_back(r.depth, bytes(arg));
  }
  const int32_t parent = r.block;
  made.block = block_of(loop.body, destinations, r.depth + 1, r.times * static_cast<double>(made.count));
  Block& inner = program_.blocks[static_cast<size_t>(made.block)];
  inner.parent = parent;
  inner.parent_buffer = new_buffer(r, inner.bytes, at, at, "body of repeat " + graph_.dim(loop.dim).name, node.scope).buffer;
  made.number = places_[index(body.args[0])];
  add(r, std::move(made));
}

// Results that were not written in place. With `early`: arguments that go to memory of their own.
// At the end: the rest; carries that swap places go through a buffer.
void Scheduler::copies(const RegionState& r, const std::vector<Destination>& destinations, bool early) {
  const std::vector<ValueId>& results = graph_.region(r.region).results;
  struct Move { Address from; size_t result; };
  std::vector<Move> moves;
  StepInfo info;
  info.name = early ? "save" : "copy of results";
  info.depth = r.depth;
  info.times = r.times;
  const auto info_index = static_cast<int32_t>(program_.infos.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const ValueId v = results[i];
    const Destination& d = destinations[i];
    if (copied_early(v, d) != early || passed_on(v, d) || direct_[index(v)] == &d) continue;
    Address from = element(v);
    const bool occupied = std::any_of(destinations.begin(), destinations.end(),
                                      [&](const Destination& x) { return x.occupant == base(v); });
    if (occupied && !early) {
      const Address aside = new_buffer(r, bytes(v), r.end, r.end, name_of(graph_, v), "");
      add_copy(r, from, aside, elements(v), graph_.type(v).dtype, false, info_index);
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
    add_copy(r, move.from, d.place, elements(v), graph_.type(v).dtype, d.accumulate, info_index);
  }
}

void Scheduler::lay_out(const RegionState& r) {
  Block& mine = block(r);
  std::vector<Interval> intervals;
  for (const ArenaBuffer& buffer : mine.buffers) intervals.push_back({buffer.bytes, buffer.first, buffer.last, 0});
  mine.bytes = place(intervals);
  const auto info_at = [&](int32_t step) {
    const auto last = static_cast<int32_t>(program_.infos.size()) - 1;
    return step < static_cast<int32_t>(r.info_of.size()) ? std::min(r.info_of[static_cast<size_t>(step)], last) : last;
  };
  for (size_t i = 0; i < intervals.size(); ++i) {
    mine.buffers[i].offset = intervals[i].offset;
    mine.buffers[i].first_info = std::max(info_at(mine.buffers[i].first), 0);
    mine.buffers[i].last_info = std::max(mine.buffers[i].first_info, info_at(mine.buffers[i].last));
  }
}

int32_t Scheduler::block_of(ir::RegionId region, const std::vector<Destination>& destinations, int32_t depth,
                            double times) {
  const std::vector<Step>& steps = partition_.regions[static_cast<size_t>(region.index)].steps;
  RegionState r;
  r.region = region;
  r.block = static_cast<int32_t>(program_.blocks.size());
  r.depth = depth;
  r.times = times;
  r.end = static_cast<int32_t>(steps.size());
  program_.blocks.emplace_back();
  analyse(r, steps);
  choose_destinations(r, steps, destinations);
  if (region.index != 0) {
    const ValueId number = graph_.region(region).args[0];
    places_[index(number)] = new_buffer(r, 4, 0, r.end, "number", "");
  }
  copies(r, destinations, true);
  for (size_t s = 0; s < steps.size(); ++s) {
    r.info_of.push_back(static_cast<int32_t>(program_.infos.size()));
    const auto at = static_cast<int32_t>(s);
    if (steps[s].kind == Step::Kind::kView) continue;
    if (steps[s].kind == Step::Kind::kLoop) {
      step_loop(r, steps[s], at);
    } else {
      step_work(r, steps[s], at);
    }
  }
  copies(r, destinations, false);
  lay_out(r);
  return r.block;
}

// Arena addresses become absolute; blocks stand after their parents.
void Scheduler::resolve() {
  std::vector<Block>& blocks = program_.blocks;
  for (Block& b : blocks) {
    if (b.parent < 0) continue;
    const Block& parent = blocks[static_cast<size_t>(b.parent)];
    b.base = parent.base + parent.buffers[static_cast<size_t>(b.parent_buffer)].offset;
  }
  const auto absolute = [&](Address& address) {
    if (address.root != Address::kArena || address.buffer < 0) return;
    const Block& owner = blocks[static_cast<size_t>(address.block)];
    address.offset += owner.base + owner.buffers[static_cast<size_t>(address.buffer)].offset;
  };
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (Instruction& instruction : blocks[b].instructions) {
      for (Address& address : instruction.operands) absolute(address);
      absolute(instruction.scratch);
      absolute(instruction.number);
      for (Checked& checked : instruction.checked) absolute(checked.at);
      for (Checked& checked : instruction.read) absolute(checked.at);
    }
    for (const ArenaBuffer& buffer : blocks[b].buffers) {
      const bool body = std::any_of(blocks.begin(), blocks.end(), [&](const Block& other) {
        return other.parent == static_cast<int32_t>(b) && &blocks[b].buffers[static_cast<size_t>(other.parent_buffer)] == &buffer;
      });
      if (body || buffer.bytes == 0) continue;
      program_.buffers.push_back({buffer.name, buffer.scope, blocks[b].base + buffer.offset, buffer.bytes,
                                  buffer.first_info, buffer.last_info});
    }
  }
  program_.transient_bytes = blocks[0].bytes;
}

}  // namespace

void schedule(ProgramImpl& program, Partition partition, const std::vector<OutputPlace>& outputs, int threads) {
  Scheduler scheduler(program, partition, threads);
  scheduler.place_inputs();
  std::vector<Destination> destinations(outputs.size());
  for (size_t o = 0; o < outputs.size(); ++o) {
    destinations[o].place.root = 1 + static_cast<int32_t>(program.graph.inputs.size() + o);
    destinations[o].accumulate = outputs[o].accumulate;
    if (outputs[o].aliased_input >= 0) {
      destinations[o].occupant = program.graph.inputs[static_cast<size_t>(outputs[o].aliased_input)].value;
    }
  }
  scheduler.block_of(ir::RegionId{0}, destinations, 0, 1);
  scheduler.resolve();
  for (const kernel::Kernel& kernel : partition.kernels) program.kernel_names.push_back(kernel.name);
  program.calls = std::move(partition.calls);
}

}  // namespace cad::backend
