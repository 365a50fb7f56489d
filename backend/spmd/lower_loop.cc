// backend/spmd/lower_loop.cc -- loops: one for each run of iterations that the plan treats alike,
// and what their bodies read from outside. A run in segments (planner::RunPlacement::segment) is a
// loop over segments around a loop over the iterations of one:
//
//   repeat segment carries(x) { x = repeat iteration carries(x) { .. } }
//
// Everything that the inner loop gives is marked to run again, so the gradient keeps the carry
// before each segment, and the outer loop's backward body runs the inner one once more, which
// then collects what its iterations save. Iterations keep their numbers in the whole loop, so that
// random draws are the same whichever way they are reached.
#include "backend/spmd/lowering.h"
#include "base/check.h"

namespace cad::backend {

using ir::NodeId;
using ir::Op;
using ir::RegionId;
using ir::ValueId;
using planner::BodyPlacement;
using planner::Layout;
using planner::RunPlacement;

namespace {

const ir::Type kNumber{ir::DType::kI32, {}};

ValueId number(ir::Builder& b, int64_t x) {
  return b.constant(ir::Scalar(static_cast<double>(x)), ir::DType::kI32);
}

void set_arguments(ir::Graph& g, RegionId region, std::vector<ValueId> args) {
  for (size_t i = 0; i < args.size(); ++i) g.value(args[i]).result = static_cast<int32_t>(i);
  g.region(region).args = std::move(args);
}

}  // namespace

// Of a tensor with one more dim in front.
Layout Lowering::deeper(Layout layout) {
  for (int8_t& axis : layout.axis) {
    if (axis >= 0) ++axis;
  }
  return layout;
}

std::vector<ir::DimId> Stretch::leading() const {
  if (segment == 0) return {dim};
  return {segments, within};
}

ValueId Lowering::scan(Frame& f, ValueId outer) {
  for (const LoopArguments::Read& read : f.arguments->scanned) {
    if (read.outer == outer) return read.argument;
  }
  ir::Type type = out_.graph.type(outer);
  const std::string name = out_.graph.value(outer).name;
  LoopArguments::Read read;
  read.outer = outer;
  const std::vector<ir::DimId> dims = f.stretch.leading();
  for (size_t i = 0; i < dims.size(); ++i) {
    CAD_CHECK(type.rank() > 0 && type.dims[0] == dims[i], "a scanned value lacks the loop's dim");
    type.dims.erase(type.dims.begin());
    const bool last = i + 1 == dims.size();
    (last ? read.argument : read.middle) =
        out_.graph.add_value(last ? f.region : f.middle, type, name);
  }
  f.arguments->scanned.push_back(read);
  return read.argument;
}

ValueId Lowering::invariant(Frame& f, ValueId outer) {
  for (const LoopArguments::Read& read : f.arguments->invariants) {
    if (read.outer == outer) return read.argument;
  }
  const ir::Type type = out_.graph.type(outer);
  const std::string name = out_.graph.value(outer).name;
  LoopArguments::Read read;
  read.outer = outer;
  if (f.middle.valid()) read.middle = out_.graph.add_value(f.middle, type, name);
  read.argument = out_.graph.add_value(f.region, type, name);
  f.arguments->invariants.push_back(read);
  return read.argument;
}

// The stretch's iterations of a value that has the loop's whole dim in front; in segments, with
// the dims of both loops.
ValueId Lowering::stretch_of(ir::Builder& b, ValueId x, const Stretch& s) {
  const ir::DimId whole = g_.node(s.loop).loop.dim;
  if (s.dim != whole) {
    const int64_t length = s.count * s.period;
    ir::Attrs slice;
    slice.dim = whole;
    slice.to = s.period == 1 ? s.dim : dims_->padded(s.dim, length);
    slice.start = ir::Size(s.first - s.position);
    const ir::DimId cut = slice.to;
    x = b.make(Op::kSlice, {x}, std::move(slice));
    if (s.period > 1) {
      ir::Attrs split;
      const ir::DimId position = dims_->padded(whole, s.period);
      split.groups.push_back({{cut}, {s.dim, position}});
      x = b.make(Op::kReshape, {x}, std::move(split));
      ir::Attrs pick;
      pick.dim = position;
      x = b.make(Op::kSelect, {x, number(b, s.position)}, std::move(pick));
    }
  }
  if (s.segment == 0) return x;
  ir::Attrs split;
  split.groups.push_back({{s.dim}, s.leading()});
  return b.make(Op::kReshape, {x}, std::move(split));
}

ValueId Lowering::from_outside(Frame& f, ValueId v, const Layout& layout) {
  const size_t index = *argument_index(f, v);
  const auto carries = static_cast<size_t>(f.node.loop.carries);
  CAD_CHECK(index >= carries, "a carried value has no home");
  const ValueId operand = f.node.operands[index];
  if (index >= carries + static_cast<size_t>(f.node.loop.scanned))
    return invariant(f, get(*f.parent, operand, layout));
  const ValueId outer = get(*f.parent, operand, deeper(layout));
  ir::Builder b = builder(*f.parent);
  return scan(f, stretch_of(b, outer, f.stretch));
}

Layout Lowering::carried(const BodyPlacement& body, ValueId argument) const {
  const auto at = body.copies.find(argument.index);
  return at == body.copies.end() ? Layout{} : reached(at->second);
}

// The placement's runs of a loop of so many iterations. One that runs backwards has one body.
std::vector<RunPlacement> Lowering::runs_of(const Frame& f, NodeId id, int64_t trips) const {
  std::vector<RunPlacement> runs;
  if (const auto at = f.placement->loops.find(id.index); at != f.placement->loops.end())
    runs = at->second;
  if (!runs.empty() && !g_.node(id).loop.reverse && trips > 0) {
    int64_t covered = 0;
    for (const RunPlacement& run : runs) {
      covered += run.count * static_cast<int64_t>(run.pattern.size());
      CAD_CHECK(run.segment == 0 || run.count % run.segment == 0,
                "{} iterations do not divide into segments of {}", run.count, run.segment);
    }
    CAD_CHECK(covered == trips, "runs of {} iterations, the loop has {}", covered, trips);
    return runs;
  }
  RunPlacement one;
  one.count = trips;
  if (runs.empty()) {
    one.pattern.emplace_back();
  } else {
    one.pattern.push_back(runs[0].pattern[0]);
    const int64_t segment = runs[0].segment;
    if (segment > 0 && trips > 0 && trips % segment == 0) one.segment = segment;
  }
  return {one};
}

void Lowering::loop(Frame& f, NodeId id) {
  const ir::Node n = g_.node(id);
  const std::vector<ValueId>& args = g_.region(n.loop.body).args;
  const auto carries = static_cast<size_t>(n.loop.carries);
  const std::vector<RunPlacement> runs =
      runs_of(f, id, extents_[static_cast<size_t>(n.loop.dim.index)]);
  LoopState state;
  for (size_t i = 0; i < carries; ++i) {
    const Layout layout = carried(runs[0].pattern[0], args[i + 1]);
    state.carries.push_back({get(f, n.operands[i], layout), layout});
  }
  state.collected.resize(static_cast<size_t>(n.loop.collected));
  Stretch stretch;
  stretch.loop = id;
  stretch.several = runs.size() > 1 || runs[0].pattern.size() > 1;
  for (size_t r = 0; r < runs.size(); ++r) {
    stretch.run = static_cast<int>(r);
    stretch.count = runs[r].count;
    stretch.period = static_cast<int64_t>(runs[r].pattern.size());
    stretch.segment = runs[r].segment;
    std::vector<Layout> leaving;
    for (size_t i = 0; i < carries; ++i) {
      leaving.push_back(r + 1 < runs.size() ? carried(runs[r + 1].pattern[0], args[i + 1])
                                            : state.carries[i].layout);
    }
    loop_run(f, n, runs[r], stretch, state, leaving);
    stretch.first += stretch.count * stretch.period;
  }
  for (size_t i = 0; i < carries; ++i) f.homes[n.results[i].index] = state.carries[i];
  collect(f, n, state);
  save_results(f, id);
}

// Regions, dims and arguments for numbers and carries.
Lowering::LoopRun Lowering::open_run(const ir::Node& n, Stretch& stretch,
                                     const std::vector<Frame::Home>& carries) {
  ir::Graph& g = out_.graph;
  const std::string name = g_.dim(n.loop.dim).name;
  LoopRun run;
  stretch.dim = stretch.several
                    ? g.add_dim(name + "." + std::to_string(stretch.run), ir::Size(stretch.count))
                    : n.loop.dim;
  run.body = g.add_region({});
  run.number = g.add_value(run.body, kNumber, "i");
  if (stretch.segment > 0) {
    stretch.segments =
        g.add_dim(g.dim(stretch.dim).name + ".segments", ir::Size(stretch.count / stretch.segment));
    stretch.within = g.add_dim(g.dim(stretch.dim).name + ".within", ir::Size(stretch.segment));
    run.middle = g.add_region({});
    run.segment_number = g.add_value(run.middle, kNumber, "segment");
    ir::Builder b(g, run.middle);
    run.segment_first =
        b.add(b.mul(run.segment_number, number(b, stretch.segment * stretch.period)),
              number(b, stretch.first));
    save(run.segment_first, Choice::kRecompute);
    run.first = g.add_value(run.body, kNumber, "first");
  }
  const std::vector<ValueId>& args = g_.region(n.loop.body).args;
  for (size_t i = 0; i < carries.size(); ++i) {
    const ir::Type type = g.type(carries[i].value);
    const std::string& carry = g_.value(args[i + 1]).name;
    if (run.middle.valid()) run.segment_carries.push_back(g.add_value(run.middle, type, carry));
    const ValueId arg = g.add_value(run.body, type, carry);
    run.carries.push_back(arg);
    run.state.push_back({arg, carries[i].layout});
  }
  return run;
}

// The number of an iteration in the whole loop.
ValueId Lowering::whole_number(const LoopRun& run, const Stretch& s) {
  if (!s.several && s.segment == 0) return run.number;
  ir::Builder b(out_.graph, run.body);
  ValueId first;
  if (s.segment == 0) {
    first = number(b, s.first);
  } else {
    first = s.position == 0 ? run.first : b.add(run.first, number(b, s.position));
  }
  return b.add(b.mul(run.number, number(b, s.period)), first);
}

// One position of the run's pattern, after those before it.
void Lowering::iteration(Frame& f, const ir::Node& n, const RunPlacement& placed,
                         const Stretch& stretch, LoopRun& run, LoopState& loop) {
  const ir::Region& body = g_.region(n.loop.body);
  const auto k = static_cast<size_t>(stretch.position);
  Frame inner;
  inner.region = run.body;
  inner.middle = run.middle;
  inner.placement = &placed.pattern[k];
  inner.parent = &f;
  inner.node = n;
  inner.stretch = stretch;
  inner.arguments = &run.arguments;
  inner.homes[body.args[0].index] = {whole_number(run, stretch), Layout{}};
  for (size_t i = 0; i < run.state.size(); ++i) {
    // the copy that the users of the carry share is where it comes in
    inner.homes[body.args[i + 1].index] = run.state[i];
    const auto copy = placed.pattern[k].copy_saving.find(body.args[i + 1].index);
    if (copy != placed.pattern[k].copy_saving.end())
      save(run.state[i].value, copy->second == ir::Saving::kKeep ? Choice::kSave : Choice::kAuto);
  }
  region(inner, n.loop.body);
  for (size_t i = 0; i < run.state.size(); ++i) {
    const Layout next = k + 1 < placed.pattern.size()
                            ? carried(placed.pattern[k + 1], body.args[i + 1])
                            : loop.carries[i].layout;
    run.state[i] = {get(inner, body.results[i], next), next};
  }
  run.collected.resize(loop.collected.size());
  for (size_t c = 0; c < loop.collected.size(); ++c) {
    const ValueId value = body.results[loop.carries.size() + c];
    if (loop.layouts.size() <= c) {
      const auto home = inner.homes.find(value.index);
      loop.layouts.push_back(home == inner.homes.end() ? Layout{} : reached(home->second.layout));
    }
    run.collected[c].push_back(get(inner, value, loop.layouts[c]));
  }
}

// The loop, or both; what it gives: carries, then what is collected, by position.
std::vector<ValueId> Lowering::close_run(Frame& f, const ir::Node& n, const Stretch& stretch,
                                         LoopRun& run, const std::vector<Frame::Home>& carries) {
  ir::Graph& g = out_.graph;
  const bool segments = run.middle.valid();
  std::vector<ValueId> args = {run.number}, middle = {run.segment_number}, operands, results;
  for (size_t i = 0; i < carries.size(); ++i) {
    args.push_back(run.carries[i]);
    if (segments) middle.push_back(run.segment_carries[i]);
    operands.push_back(carries[i].value);
    results.push_back(run.state[i].value);
  }
  for (const auto* list : {&run.arguments.scanned, &run.arguments.invariants}) {
    for (const LoopArguments::Read& read : *list) {
      args.push_back(read.argument);
      if (segments) middle.push_back(read.middle);
      operands.push_back(read.outer);
    }
  }
  ir::Loop l;
  l.body = run.body;
  l.dim = segments ? stretch.within : stretch.dim;
  l.carries = n.loop.carries;
  l.scanned = static_cast<int>(run.arguments.scanned.size());
  l.invariants = static_cast<int>(run.arguments.invariants.size());
  l.reverse = n.loop.reverse;
  for (const std::vector<ValueId>& list : run.collected) {
    results.insert(results.end(), list.begin(), list.end());
    l.collected += static_cast<int>(list.size());
  }
  if (segments) args.push_back(run.first);
  set_arguments(g, run.body, std::move(args));
  g.region(run.body).results = std::move(results);
  if (segments) {
    ir::Loop within = l;
    ++within.invariants;
    std::vector<ValueId> given(middle.begin() + 1, middle.end());
    given.push_back(run.segment_first);
    ir::Builder b(g, run.middle);
    b.span = n.span;
    b.scope = n.scope;
    std::vector<ValueId> made = b.repeat(within, std::move(given));
    for (const ValueId v : made) save(v, Choice::kRecompute);
    set_arguments(g, run.middle, std::move(middle));
    g.region(run.middle).results = std::move(made);
    l.body = run.middle;
    l.dim = stretch.segments;
  }
  ir::Builder b = builder(f);
  b.span = n.span;
  b.scope = n.scope;
  return b.repeat(l, std::move(operands));
}

void Lowering::loop_run(Frame& f, const ir::Node& n, const RunPlacement& placed, Stretch stretch,
                        LoopState& loop, const std::vector<Layout>& leaving) {
  ir::Graph& g = out_.graph;
  const int64_t start = stretch.first;
  LoopRun run = open_run(n, stretch, loop.carries);
  for (size_t k = 0; k < placed.pattern.size(); ++k) {
    stretch.position = static_cast<int>(k);
    stretch.first = start + static_cast<int64_t>(k);
    iteration(f, n, placed, stretch, run, loop);
  }
  const std::vector<ValueId> results = close_run(f, n, stretch, run, loop.carries);
  for (size_t i = 0; i < loop.carries.size(); ++i) {
    Frame::Home& carry = loop.carries[i];
    g.value(results[i]).name = g_.value(n.results[i]).name;
    carry.value =
        convert(f, results[i], n.results[i], carry.layout, leaving[i], Choice::kRecompute);
    carry.layout = leaving[i];
  }
  ir::Builder b = builder(f);
  b.span = n.span;
  b.scope = n.scope;
  size_t at = loop.carries.size();
  for (std::vector<ValueId>& list : loop.collected) {
    std::vector<ValueId> parts(
        results.begin() + static_cast<std::ptrdiff_t>(at),
        results.begin() + static_cast<std::ptrdiff_t>(at + placed.pattern.size()));
    at += placed.pattern.size();
    for (ValueId& part : parts) {
      if (stretch.segment == 0) break;
      ir::Attrs merge;
      merge.groups.push_back({stretch.leading(), {stretch.dim}});
      part = b.make(Op::kReshape, {part}, std::move(merge));
    }
    ValueId whole = parts[0];
    if (parts.size() > 1) {  // [count, position, ..] is in the iterations' order
      ir::Attrs stack;
      stack.to = dims_->padded(n.loop.dim, stretch.period);
      const ValueId stacked = b.make(Op::kStack, parts, stack);
      std::vector<ir::DimId> order = g.type(parts[0]).dims;
      order.insert(order.begin() + 1, stack.to);
      const ir::DimId merged = dims_->padded(stretch.dim, stretch.count * stretch.period);
      ir::Attrs merge;
      merge.groups.push_back({{stretch.dim, stack.to}, {merged}});
      whole = b.make(Op::kReshape, {b.ordered(stacked, order)}, std::move(merge));
    }
    list.push_back(whole);
  }
}

// Collected values of all runs, one after another along the loop's dim.
void Lowering::collect(Frame& f, const ir::Node& n, const LoopState& loop) {
  ir::Builder b = builder(f);
  b.span = n.span;
  b.scope = n.scope;
  for (size_t c = 0; c < loop.collected.size(); ++c) {
    const std::vector<ValueId>& parts = loop.collected[c];
    ValueId whole = parts[0];
    if (parts.size() > 1) {
      ir::Attrs attrs;
      for (const ValueId part : parts) attrs.dims.push_back(out_.graph.type(part).dims[0]);
      attrs.to = n.loop.dim;
      whole = b.make(Op::kConcat, parts, std::move(attrs));
    } else if (const ir::DimId dim = out_.graph.type(whole).dims[0]; dim != n.loop.dim) {
      ir::Attrs attrs;
      attrs.groups.push_back({{dim}, {n.loop.dim}});
      whole = b.make(Op::kRename, {whole}, std::move(attrs));
    }
    const ValueId result = n.results[static_cast<size_t>(n.loop.carries) + c];
    f.homes[result.index] = {whole, deeper(loop.layouts[c])};
  }
}

}  // namespace cad::backend
