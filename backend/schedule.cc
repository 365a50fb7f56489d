// backend/schedule.cc -- one Scheduler walks the regions, a Block each. The order of steps is the
// partition's. A value is placed, in this order of preference,
//   1. where it has to be in the end: an output's buffer, a loop's carry, its slice of a stack;
//   2. where the sum lies that it is a term of (backend/schedule_sums.cc);
//   3. in the buffer of an operand that dies at the step and may be overwritten;
//   4. in a buffer of its own.
// The instructions themselves: backend/schedule_steps.cc.
#include "backend/schedule.h"

#include <algorithm>

#include "backend/arena.h"
#include "backend/scheduler.h"

namespace cad::backend {

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
  // Numbers along the mesh lie in a table that every device has of its own.
  for (const ir::Node& node : graph_.nodes) {
    if (node.op != ir::Op::kAxisIndex) continue;
    std::vector<uint32_t>& known = program_.axis_indices;
    auto at = std::find(known.begin(), known.end(), node.attrs.axes);
    if (at == known.end()) at = known.insert(at, node.attrs.axes);
    Address& place = places_[index(node.results[0])];
    place.root = static_cast<int32_t>(1 + graph_.inputs.size() + graph_.outputs.size());
    place.offset = 4 * (at - known.begin());
  }
}

void Scheduler::count_uses(ir::RegionId region, const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    if (step.kind == Step::Kind::kView) continue;
    for (const ValueId v : step.inputs) {
      CAD_CHECK(base(v).valid(), "step reads value {} `{}`, which is not stored", v.index,
                name_of(graph_, v));
      ++uses_[index(base(v))];
    }
  }
  for (const ValueId v : graph_.region(region).results) ++uses_[index(base(v))];
}

// Definitions and last uses. A view's use is its base's.
void Scheduler::analyse(const std::vector<Step>& steps) {
  for (size_t s = 0; s < steps.size(); ++s) {
    if (steps[s].kind == Step::Kind::kView) continue;
    for (const ValueId v : steps[s].inputs) last_use_[index(base(v))] = static_cast<int32_t>(s);
    for (const ValueId v : steps[s].outputs) def_step_[index(v)] = static_cast<int32_t>(s);
  }
}

// The value that a view shows as it lies, under other names at most; of other views they
// themselves.
ValueId Scheduler::whole(ValueId v) const {
  const ValueId of = base(v);
  if (!of.valid() || of == v || layout(v).offset != 0 || bytes(of) != bytes(v)) return v;
  if (graph_.type(of).dtype != graph_.type(v).dtype) return v;
  const std::vector<int64_t> extents = ir::extents_of(graph_, graph_.type(v), program_.bindings);
  int64_t stride = 1;
  for (size_t d = extents.size(); d-- > 0; stride *= extents[d])
    if (extents[d] != 1 && layout(v).strides[d] != stride) return v;
  return of;
}

// Can v be written to its destination at once? Not when it is a view or argument, when something
// there is still needed, or when it has to be added and its step cannot do that.
bool Scheduler::may_go_direct(const RegionState& r, const std::vector<Step>& steps, ValueId v,
                              const Destination& d) {
  const int32_t def = def_step_[index(v)];
  if (base(v) != v || def < 0 || def >= r.end || direct_[index(v)] != nullptr) return false;
  const Step& step = steps[static_cast<size_t>(def)];
  if (d.adds != Adds::kNo && uses_[index(v)] != 1) return false;
  if (const Sum* sum = sum_at(step)) return sum_may_go_direct(*sum, d);
  if (d.adds != Adds::kNo) return can_add(step, v);
  if (!d.occupant.valid()) return true;
  if (in_flight(d.occupant, def)) return false;
  const int32_t needed = last_use_[index(d.occupant)];
  if (needed < def) return true;
  if (needed > def) return false;
  if (step.kind == Step::Kind::kLoop) {
    // An inner loop that carries on the very value that lives there.
    const ir::Node& node = node_of(step);
    const auto at = static_cast<size_t>(graph_.value(v).result);
    const auto readers = std::count_if(node.operands.begin(), node.operands.end(),
                                       [&](ValueId x) { return base(x) == d.occupant; });
    return readers == 1 && at < static_cast<size_t>(node.loop.carries) &&
           node.operands[at] == d.occupant;
  }
  if (step.kind != Step::Kind::kKernel && step.kind != Step::Kind::kCollective) return false;
  const auto output = std::find(step.outputs.begin(), step.outputs.end(), v) - step.outputs.begin();
  if (static_cast<size_t>(output) >= step.may_overwrite.size()) return false;
  const std::vector<int32_t>& allowed = step.may_overwrite[static_cast<size_t>(output)];
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    if (base(step.inputs[i]) != d.occupant) continue;
    if (std::find(allowed.begin(), allowed.end(), static_cast<int32_t>(i)) == allowed.end())
      return false;
  }
  return true;
}

// Nobody else is at the destination: then an operand that v's step may overwrite can be made there
// too, and one of that operand's.
void Scheduler::go_direct(const RegionState& r, const std::vector<Step>& steps, ValueId v,
                          const Destination& d) {
  direct_[index(v)] = &d;
  places_[index(v)] = d.place;
  const int32_t def = def_step_[index(v)];
  const Step& step = steps[static_cast<size_t>(def)];
  if (const Sum* sum = sum_at(step)) {
    const std::vector<ValueId>& terms = sum->copied;
    const bool begun = std::find(terms.begin(), terms.end(), d.occupant) != terms.end();
    return place_sum(*sum, d.place, begun ? Adds::kAlways : d.adds);
  }
  if (d.occupant.valid() || d.adds != Adds::kNo) return;
  // Collectives move: what is in flight is nobody else's place.
  const auto fixed = [&](const Step& s) { return s.kind != Step::Kind::kCollective; };
  if (step.kind == Step::Kind::kLoop || !fixed(step)) return;
  const auto output = static_cast<size_t>(std::find(step.outputs.begin(), step.outputs.end(), v) -
                                          step.outputs.begin());
  if (output >= step.may_overwrite.size()) return;
  for (const int32_t i : step.may_overwrite[output]) {
    const ValueId in = step.inputs[static_cast<size_t>(i)];
    const int32_t made = def_step_[index(in)];
    if (base(in) != in || made < 0 || made >= def || graph_.value(in).region != r.region) continue;
    if (uses_[index(in)] != 1 || bytes(in) != bytes(v) || direct_[index(in)] != nullptr) continue;
    if (places_[index(in)].valid()) continue;
    if (!fixed(steps[static_cast<size_t>(made)])) continue;
    return go_direct(r, steps, in, d);
  }
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
    if (may_go_direct(r, steps, whole(v), d)) {
      go_direct(r, steps, whole(v), d);
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
    if (owner != in || last_use_[index(owner)] != at || place.root != Address::kArena ||
        !place.numbers.empty() || graph_.value(owner).region != r.region ||
        def_step_[index(owner)] < 0 || bytes(owner) != bytes(out)) {
      continue;
    }
    if (direct_[index(owner)] != nullptr) continue;  // its place belongs to an enclosing loop
    if (in_flight(owner, at)) continue;
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
    place_term(r, step, v, at);
    if (places_[index(v)].valid() || take_over(r, step, at, o)) continue;
    places_[index(v)] =
        new_buffer(r, bytes(v), at, last_use_[index(v)], name_of(graph_, v), node_of(step).scope);
  }
}

void Scheduler::lay_out(const RegionState& r) {
  Block& mine = block(r);
  std::vector<Interval> intervals;
  for (const ArenaBuffer& buffer : mine.buffers)
    intervals.push_back({buffer.bytes, buffer.first, buffer.last, 0});
  mine.bytes = place(intervals);
  const auto info_at = [&](int32_t step) {
    const auto last = static_cast<int32_t>(program_.infos.size()) - 1;
    return step < static_cast<int32_t>(r.info_of.size())
               ? std::min(r.info_of[static_cast<size_t>(step)], last)
               : last;
  };
  for (size_t i = 0; i < intervals.size(); ++i) {
    mine.buffers[i].offset = intervals[i].offset;
    mine.buffers[i].first_info = std::max(info_at(mine.buffers[i].first), 0);
    mine.buffers[i].last_info = std::max(mine.buffers[i].first_info, info_at(mine.buffers[i].last));
  }
}

int32_t Scheduler::block_of(ir::RegionId region, const std::vector<Destination>& destinations,
                            int32_t depth, double times) {
  {
    const std::vector<Step>& unmoved = partition_.regions[static_cast<size_t>(region.index)].steps;
    count_uses(region, unmoved);
    find_sums(region, unmoved, destinations);
  }
  const std::vector<Step> steps = started_early(region);
  RegionState r;
  r.region = region;
  r.block = static_cast<int32_t>(program_.blocks.size());
  r.depth = depth;
  r.times = times;
  r.end = static_cast<int32_t>(steps.size());
  program_.blocks.emplace_back();
  analyse(steps);
  choose_awaits(r, steps);
  choose_destinations(r, steps, destinations);
  if (region.index != 0) {
    const ValueId number = graph_.region(region).args[0];
    places_[index(number)] = new_buffer(r, 4, 0, r.end, "number", "");
  }
  copies(r, destinations, true);
  for (size_t s = 0; s < steps.size(); ++s) {
    r.info_of.push_back(static_cast<int32_t>(program_.infos.size()));
    const auto at = static_cast<int32_t>(s);
    r.at = at;
    add_awaits(r, at);
    if (steps[s].kind == Step::Kind::kView) continue;
    if (steps[s].kind == Step::Kind::kLoop) {
      step_loop(r, steps[s], at);
    } else if (const Sum* sum = sum_at(steps[s])) {
      step_sum(r, steps[s], *sum);
    } else {
      step_work(r, steps[s], at);
    }
  }
  r.at = r.end;
  add_awaits(r, r.end);
  copies(r, destinations, false);
  join_starts(r);
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
        return other.parent == static_cast<int32_t>(b) &&
               &blocks[b].buffers[static_cast<size_t>(other.parent_buffer)] == &buffer;
      });
      if (body || buffer.bytes == 0) continue;
      program_.buffers.push_back({buffer.name, buffer.scope, blocks[b].base + buffer.offset,
                                  buffer.bytes, buffer.first_info, buffer.last_info});
    }
  }
  program_.transient_bytes = blocks[0].bytes;
}

namespace {

void schedule_once(ProgramImpl& program, const Partition& partition,
                   const std::vector<OutputPlace>& outputs, int threads, bool overlap,
                   int64_t slack = 0) {
  program.blocks.clear();
  program.gemms.clear();
  program.attentions.clear();
  program.routines.clear();
  program.copies.clear();
  program.collectives.clear();
  program.axis_indices.clear();
  program.infos.clear();
  program.buffers.clear();
  program.tickets = program.levels = 0;
  Scheduler scheduler(program, partition, threads, overlap, slack);
  scheduler.place_inputs();
  std::vector<Destination> destinations(outputs.size());
  for (size_t o = 0; o < outputs.size(); ++o) {
    destinations[o].place.root = 1 + static_cast<int32_t>(program.graph.inputs.size() + o);
    if (outputs[o].accumulate) destinations[o].adds = Adds::kWhenAccumulating;
    if (outputs[o].aliased_input >= 0) {
      destinations[o].occupant =
          program.graph.inputs[static_cast<size_t>(outputs[o].aliased_input)].value;
    }
  }
  scheduler.block_of(ir::RegionId{0}, destinations, 0, 1);
  scheduler.resolve();
}

// Of inputs and outputs.
int64_t bytes_outside(const ProgramImpl& program) {
  const ir::Graph& g = program.graph;
  int64_t sum = 0;
  const auto add = [&](ValueId v) {
    int64_t n = ir::dtype_bytes(g.type(v).dtype);
    for (const int64_t e : ir::extents_of(g, g.type(v), program.bindings)) n *= e;
    sum += n;
  };
  for (const ir::Input& input : g.inputs) add(input.value);
  for (const ValueId v : g.region(ir::RegionId{0}).results) add(v);
  return sum;
}

}  // namespace

void schedule(ProgramImpl& program, const Partition& partition,
              const std::vector<OutputPlace>& outputs, int threads, bool overlap, bool slack) {
  schedule_once(program, partition, outputs, threads, false);
  if (overlap && !program.collectives.empty()) {
    // Small collectives that go together take a little more memory than one by one; all else must
    // fit as it does in order.
    constexpr int64_t kShareOfSlack = 512;
    // of what a small program has in all, up to so much: its many gradients are smaller still
    constexpr int64_t kShareOfSmall = 16, kMostOfSmall = 64 << 10;
    const int64_t in_order = program.transient_bytes;
    const int64_t share = in_order / kShareOfSlack;
    const int64_t small =
        std::min(kMostOfSmall, (in_order + bytes_outside(program)) / kShareOfSmall);
    const int64_t most = std::max(share, small);
    bool fits = false;
    // lives are counted without the gaps that the arena leaves between buffers
    std::vector<int64_t> tries = {most, most / 2, most / 4, 0};
    if (!slack) tries = {0};
    for (const int64_t more : tries) {
      schedule_once(program, partition, outputs, threads, true, more);
      fits = program.transient_bytes <= in_order + (more > 0 ? most : 0);
      if (fits) break;
    }
    if (!fits) schedule_once(program, partition, outputs, threads, false);
  }
  for (const kernel::Kernel& kernel : partition.kernels)
    program.kernel_names.push_back(kernel.name);
  program.calls = partition.calls;
}

}  // namespace cad::backend
