// backend/spmd/lower.cc -- see lower.h and lowering.h: values in the layouts that are asked for,
// regions, loops.
#include "backend/spmd/lower.h"

#include <algorithm>

#include "backend/spmd/lowering.h"
#include "base/check.h"
#include "ir/rewrite.h"

namespace cad::backend {

using ir::NodeId;
using ir::Op;
using ir::RegionId;
using ir::ValueId;
using planner::BodyPlacement;
using planner::Layout;
using planner::RunPlacement;

namespace {

// Of a tensor with one more dim in front.
Layout deeper(Layout layout) {
  for (int8_t& axis : layout.axis) {
    if (axis >= 0) ++axis;
  }
  return layout;
}

}  // namespace

Lowering::Lowering(const ir::Graph& whole, const ir::Bindings& bindings,
                   const planner::Placement& placement)
    : g_(whole),
      extents_(planner::dim_extents(whole, bindings)),
      placement_(placement),
      dims_(std::make_unique<LocalDims>(out_.graph, whole, extents_, placement.mesh)),
      converter_(std::make_unique<Converter>(*dims_, placement.mesh)) {
  out_.mesh = placement.mesh;
  out_.graph.batch_dim = whole.batch_dim;
  for (const ir::Node& n : whole.nodes) {
    if (n.op != Op::kRepeat) continue;
    const std::vector<ValueId>& args = whole.region(n.loop.body).args;
    for (size_t i = static_cast<size_t>(n.loop.carries); i < n.operands.size(); ++i)
      outer_[args[i + 1].index] = n.operands[i];
  }
}

ir::Builder Lowering::builder(const Frame& f) const {
  return ir::Builder(const_cast<ir::Graph&>(out_.graph), f.region);
}

void Lowering::save(ValueId local, Choice choice) {
  if (choice == Choice::kAuto) return;
  const auto at = static_cast<size_t>(local.index);
  if (at >= out_.saving.size()) out_.saving.resize(at + 1, Choice::kAuto);
  out_.saving[at] = choice;
}

Layout Lowering::reached(const Layout& layout) const {
  Layout out = layout;
  for (int8_t& axis : out.axis) {
    if (axis == planner::kPartial) axis = planner::kReplicated;
  }
  return out;
}

// What a conversion makes runs again where the backward pass needs it, unless `choice` says that it
// is saved; on the way, everything runs again.
ValueId Lowering::convert(Frame& f, ValueId x, ValueId whole, const Layout& from, const Layout& to,
                          Choice choice) {
  if (from == to) return x;
  ir::Builder b = builder(f);
  if (const NodeId def = out_.graph.value(x).def; def.valid()) {
    b.scope = out_.graph.node(def).scope;
    b.span = out_.graph.node(def).span;
  }
  const size_t first = out_.graph.values.size();
  const ValueId made = converter_->convert(b, x, g_.type(whole), from, to);
  for (size_t v = first; v < out_.graph.values.size(); ++v)
    save(ValueId{static_cast<int32_t>(v)}, Choice::kRecompute);
  if (made != x) {
    save(made, choice);
    out_.graph.value(made).name = g_.value(whole).name;
  }
  return made;
}

// From where the op that makes it leaves it, through the copy that its users share.
ValueId Lowering::from_home(Frame& f, ValueId v, const Layout& layout) {
  const Frame::Home home = f.homes.at(v.index);
  const auto saving_of = [&](const std::map<int, ir::Saving>& list) {
    const auto at = list.find(v.index);
    if (at == list.end()) return Choice::kAuto;
    return at->second == ir::Saving::kKeep ? Choice::kSave : Choice::kRecompute;
  };
  Frame::Home from = home;
  // what is at hand in the backward pass is converted again, else the converted one is kept
  Choice converted =
      saving_of(f.placement->saving) == Choice::kAuto ? Choice::kSave : Choice::kRecompute;
  const auto copy = f.placement->copies.find(v.index);
  if (copy != f.placement->copies.end()) {
    const Choice choice = saving_of(f.placement->copy_saving);
    if (copy->second != home.layout) {
      const auto [at, fresh] = f.made.emplace(std::make_pair(v.index, copy->second), ValueId{});
      if (fresh) {
        at->second = convert(f, home.value, v, home.layout, copy->second, choice);
      }
      from = {at->second, copy->second};
    }
    if (choice != Choice::kAuto) converted = Choice::kRecompute;
  }
  return convert(f, from.value, v, from.layout, layout, converted);
}

std::optional<size_t> Lowering::argument_index(const Frame& f, ValueId v) const {
  if (f.parent == nullptr || g_.value(v).def.valid()) return std::nullopt;
  return static_cast<size_t>(g_.value(v).result) - 1;  // among the operands
}

ValueId Lowering::scan(Frame& f, ValueId outer) {
  for (const auto& [value, arg] : f.arguments->scanned) {
    if (value == outer) return arg;
  }
  ir::Type type = out_.graph.type(outer);
  CAD_CHECK(type.rank() > 0 && type.dims[0] == f.stretch.dim,
            "a scanned value lacks the loop's dim");
  type.dims.erase(type.dims.begin());
  const ValueId arg = out_.graph.add_value(f.region, type, out_.graph.value(outer).name);
  f.arguments->scanned.emplace_back(outer, arg);
  return arg;
}

ValueId Lowering::invariant(Frame& f, ValueId outer) {
  for (const auto& [value, arg] : f.arguments->invariants) {
    if (value == outer) return arg;
  }
  const ValueId arg =
      out_.graph.add_value(f.region, out_.graph.type(outer), out_.graph.value(outer).name);
  f.arguments->invariants.emplace_back(outer, arg);
  return arg;
}

// The stretch's iterations of a value that has the loop's whole dim in front.
ValueId Lowering::stretch_of(ir::Builder& b, ValueId x, const Stretch& s, ir::DimId whole,
                             ir::DimId dim) {
  if (dim == whole) return x;
  const int64_t length = s.count * s.period;
  ir::Attrs slice;
  slice.dim = whole;
  slice.to = s.period == 1 ? dim : dims_->padded(dim, length);
  slice.start = ir::Size(s.first - s.position);
  const ir::DimId cut = slice.to;
  x = b.make(Op::kSlice, {x}, std::move(slice));
  if (s.period == 1) return x;
  ir::Attrs split;
  const ir::DimId position = dims_->padded(whole, s.period);
  split.groups.push_back({{cut}, {dim, position}});
  x = b.make(Op::kReshape, {x}, std::move(split));
  ir::Attrs pick;
  pick.dim = position;
  const ValueId number = b.constant(ir::Scalar(static_cast<double>(s.position)), ir::DType::kI32);
  return b.make(Op::kSelect, {x, number}, std::move(pick));
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
  return scan(f, stretch_of(b, outer, f.stretch, f.node.loop.dim, f.stretch.dim));
}

ValueId Lowering::input(Frame& f, ValueId v, const Layout& layout) {
  CAD_CHECK(f.parent == nullptr, "an input inside a loop");
  const ir::InputId id = g_.node(g_.value(v).def).attrs.input;
  const ir::Input& whole = g_.inputs[static_cast<size_t>(id.index)];
  ir::Input local = whole;
  ir::Builder b = builder(f);
  std::vector<int64_t> extents = planner::tensor_extents(g_.type(v), extents_);
  int64_t copies = 0;
  for (const LocalInput& other : out_.inputs) copies += other.name == whole.path ? 1 : 0;
  if (copies > 0) local.path += "#" + std::to_string(copies);
  out_.inputs.push_back({whole.path, local.path, std::move(extents), layout});
  return b.input(std::move(local), dims_->type(g_.type(v), layout));
}

// An op that the placement does not name, split as its result is wanted.
ValueId Lowering::on_demand(Frame& f, ValueId v, const Layout& layout) {
  const NodeId id = g_.value(v).def;
  const ir::Node& n = g_.node(id);
  if (n.op == Op::kInput) return input(f, v, layout);
  const auto result = static_cast<size_t>(g_.value(v).result);
  const planner::OpSharding& rule = sharding(id);
  planner::Assignment assignment{planner::kUnused, planner::kUnused, planner::kUnused};
  if (layout.order == 0) {
    for (size_t a = 0; a < out_.mesh.axes.size(); ++a) {
      if (layout.axis[a] < 0) continue;
      const ir::DimId dim = g_.type(v).dims[static_cast<size_t>(layout.axis[a])];
      const int factor = rule.factor_of_result(result, dim);
      if (factor < 0 ||
          rule.rule().factors[static_cast<size_t>(factor)].kind != ir::Factor::Kind::kMap)
        continue;
      assignment[a] = static_cast<int8_t>(factor);
    }
  }
  auto strategy = rule.strategy(assignment, out_.mesh);
  const auto partial = [&](const planner::Strategy& s) {
    return std::any_of(s.results.begin(), s.results.end(), [&](const Layout& l) {
      return planner::axes_with(l, out_.mesh, planner::kPartial) != 0;
    });
  };
  if (!strategy || partial(*strategy)) {
    assignment = {planner::kUnused, planner::kUnused, planner::kUnused};
    strategy = rule.strategy(assignment, out_.mesh);
  }
  CAD_CHECK(strategy.has_value(), "`{}` cannot run whole", ir::op_name(n.op));
  const std::vector<ValueId> results = emit(f, id, *strategy);
  for (size_t r = 0; r < results.size(); ++r) {
    f.made.emplace(std::make_pair(n.results[r].index, strategy->results[r]), results[r]);
  }
  return convert(f, results[result], v, strategy->results[result], layout, Choice::kRecompute);
}

ValueId Lowering::get(Frame& f, ValueId v, const Layout& layout) {
  const auto known = f.made.find({v.index, layout});
  if (known != f.made.end()) return known->second;
  ValueId made;
  const auto home = f.homes.find(v.index);
  if (const int parameter_input = parameter_of(v); parameter_input >= 0) {
    const ValueId stored = parameter(f, v, parameter_input);
    made = convert(f, stored, v, placed(f, v, parameter_input).storage, layout, Choice::kRecompute);
  } else if (home != f.homes.end()) {
    made = home->second.layout == layout ? home->second.value : from_home(f, v, layout);
  } else if (const Layout whole = reached(layout); whole != layout) {
    made = convert(f, get(f, v, whole), v, whole, layout, Choice::kRecompute);
  } else if (!g_.value(v).def.valid()) {
    made = from_outside(f, v, layout);
  } else if (const ir::Node& n = g_.node(g_.value(v).def);
             n.op == Op::kRename || n.op == Op::kStop) {
    // positions stay
    const ValueId x = get(f, n.operands[0], layout);
    ir::Builder b = builder(f);
    b.scope = n.scope;
    b.span = n.span;
    ir::Attrs attrs;
    const ir::Type from = out_.graph.type(x), to = dims_->type(g_.type(v), layout);
    for (size_t p = 0; p < to.rank() && n.op == Op::kRename; ++p) {
      if (from.dims[p] != to.dims[p]) attrs.groups.push_back({{from.dims[p]}, {to.dims[p]}});
    }
    made = n.op == Op::kRename && attrs.groups.empty() ? x : b.make(n.op, {x}, std::move(attrs));
    save(made, Choice::kRecompute);
  } else {
    made = on_demand(f, v, layout);
  }
  f.made[{v.index, layout}] = made;
  return made;
}

void Lowering::save_results(const Frame& f, NodeId id) {
  for (const ValueId result : g_.node(id).results) {
    const auto at = f.placement->saving.find(result.index);
    const auto home = f.homes.find(result.index);
    if (at == f.placement->saving.end() || home == f.homes.end()) continue;
    save(home->second.value, at->second == ir::Saving::kKeep ? Choice::kSave : Choice::kRecompute);
  }
}

void Lowering::region(Frame& f, RegionId id) {
  for (const NodeId node : g_.region(id).nodes) {
    const ir::Node& n = g_.node(node);
    if (n.op == Op::kRepeat) {
      loop(f, node);
      continue;
    }
    const auto at = f.placement->ops.find(node.index);
    if (at == f.placement->ops.end()) continue;  // when it is asked for
    const auto strategy = sharding(node).strategy(at->second, out_.mesh);
    CAD_CHECK(strategy.has_value(), "`{}` in `{}` cannot be split so", ir::op_name(n.op), n.scope);
    const std::vector<ValueId> results = emit(f, node, *strategy);
    for (size_t r = 0; r < results.size(); ++r) {
      f.homes[n.results[r].index] = {results[r], strategy->results[r]};
    }
    save_results(f, node);
  }
}

Layout Lowering::carried(const BodyPlacement& body, ValueId argument) const {
  const auto at = body.copies.find(argument.index);
  return at == body.copies.end() ? Layout{} : reached(at->second);
}

void Lowering::loop(Frame& f, NodeId id) {
  const ir::Node n = g_.node(id);
  const std::vector<ValueId>& args = g_.region(n.loop.body).args;
  const int64_t trips = extents_[static_cast<size_t>(n.loop.dim.index)];
  const auto carries = static_cast<size_t>(n.loop.carries);
  std::vector<RunPlacement> runs;
  if (const auto at = f.placement->loops.find(id.index); at != f.placement->loops.end())
    runs = at->second;
  static const BodyPlacement kWhole;
  int64_t covered = 0;
  for (const RunPlacement& run : runs)
    covered += run.count * static_cast<int64_t>(run.pattern.size());
  // One that runs backwards has one body for all.
  const bool once = runs.empty() || n.loop.reverse || trips == 0;
  if (once) {
    const BodyPlacement body = runs.empty() ? kWhole : runs[0].pattern[0];
    runs.assign(1, {trips, {body}});
  } else {
    CAD_CHECK(covered == trips, "runs of {} iterations, the loop has {}", covered, trips);
  }
  std::vector<Frame::Home> state;
  for (size_t i = 0; i < carries; ++i) {
    const Layout layout = carried(runs[0].pattern[0], args[i + 1]);
    state.push_back({get(f, n.operands[i], layout), layout});
  }
  std::vector<std::vector<ValueId>> collected(static_cast<size_t>(n.loop.collected));
  std::vector<Layout> layouts;  // of collected values
  Stretch stretch;
  stretch.loop = id;
  stretch.several = runs.size() > 1 || runs[0].pattern.size() > 1;
  for (size_t r = 0; r < runs.size(); ++r) {
    stretch.run = static_cast<int>(r);
    stretch.count = runs[r].count;
    stretch.period = static_cast<int64_t>(runs[r].pattern.size());
    std::vector<Layout> leaving;
    for (size_t i = 0; i < carries; ++i) {
      leaving.push_back(r + 1 < runs.size() ? carried(runs[r + 1].pattern[0], args[i + 1])
                                            : state[i].layout);
    }
    loop_run(f, n, runs[r], stretch, state, collected, layouts, leaving);
    stretch.first += stretch.count * stretch.period;
  }
  for (size_t i = 0; i < carries; ++i) f.homes[n.results[i].index] = state[i];
  collect(f, n, collected, layouts);
  save_results(f, id);
}

void Lowering::loop_run(Frame& f, const ir::Node& n, const RunPlacement& run, Stretch stretch,
                        std::vector<Frame::Home>& carries,
                        std::vector<std::vector<ValueId>>& collected, std::vector<Layout>& layouts,
                        const std::vector<Layout>& leaving) {
  ir::Graph& g = out_.graph;
  const ir::Region& body = g_.region(n.loop.body);
  const RegionId region_id = g.add_region({});
  const ir::DimId dim = stretch.several
                            ? g.add_dim(g_.dim(n.loop.dim).name + "." + std::to_string(stretch.run),
                                        ir::Size(stretch.count))
                            : n.loop.dim;
  const int64_t start = stretch.first;
  LoopArguments arguments;
  const ValueId number = g.add_value(region_id, {ir::DType::kI32, {}}, "i");
  std::vector<ValueId> carried_args;
  std::vector<Frame::Home> state;
  for (size_t i = 0; i < carries.size(); ++i) {
    const ValueId arg =
        g.add_value(region_id, g.type(carries[i].value), g_.value(body.args[i + 1]).name);
    carried_args.push_back(arg);
    state.push_back({arg, carries[i].layout});
  }
  std::vector<std::vector<ValueId>> positions(collected.size());
  for (size_t k = 0; k < run.pattern.size(); ++k) {
    Frame inner;
    inner.region = region_id;
    inner.placement = &run.pattern[k];
    inner.parent = &f;
    inner.node = n;
    inner.stretch = stretch;
    inner.stretch.position = static_cast<int>(k);
    inner.stretch.first = start + static_cast<int64_t>(k);
    inner.stretch.dim = dim;
    inner.arguments = &arguments;
    ir::Builder b(g, region_id);
    ValueId own = number;
    if (stretch.several) {
      const auto whole = [&](int64_t x) {
        return b.constant(ir::Scalar(static_cast<double>(x)), ir::DType::kI32);
      };
      own = b.add(b.mul(number, whole(stretch.period)), whole(inner.stretch.first));
    }
    inner.homes[body.args[0].index] = {own, Layout{}};
    for (size_t i = 0; i < state.size(); ++i) {
      // the copy that the users of the carry share is where it comes in
      inner.homes[body.args[i + 1].index] = state[i];
      const auto copy = run.pattern[k].copy_saving.find(body.args[i + 1].index);
      if (copy != run.pattern[k].copy_saving.end())
        save(state[i].value, copy->second == ir::Saving::kKeep ? Choice::kSave : Choice::kAuto);
    }
    region(inner, n.loop.body);
    for (size_t i = 0; i < state.size(); ++i) {
      const Layout next = k + 1 < run.pattern.size() ? carried(run.pattern[k + 1], body.args[i + 1])
                                                     : carries[i].layout;
      state[i] = {get(inner, body.results[i], next), next};
    }
    for (size_t c = 0; c < collected.size(); ++c) {
      const ValueId value = body.results[carries.size() + c];
      if (layouts.size() <= c) {
        const auto home = inner.homes.find(value.index);
        layouts.push_back(home == inner.homes.end() ? Layout{} : reached(home->second.layout));
      }
      positions[c].push_back(get(inner, value, layouts[c]));
    }
  }
  ir::Region& made = g.region(region_id);
  const auto add_argument = [&](ValueId v) {
    g.value(v).result = static_cast<int32_t>(made.args.size());
    made.args.push_back(v);
  };
  std::vector<ValueId> operands;
  add_argument(number);
  for (size_t i = 0; i < carries.size(); ++i) {
    add_argument(carried_args[i]);
    operands.push_back(carries[i].value);
    made.results.push_back(state[i].value);
  }
  for (const auto* list : {&arguments.scanned, &arguments.invariants}) {
    for (const auto& [outer, arg] : *list) {
      add_argument(arg);
      operands.push_back(outer);
    }
  }
  ir::Loop l;
  l.body = region_id;
  l.dim = dim;
  l.carries = n.loop.carries;
  l.scanned = static_cast<int>(arguments.scanned.size());
  l.invariants = static_cast<int>(arguments.invariants.size());
  l.reverse = n.loop.reverse;
  for (const std::vector<ValueId>& list : positions) {
    for (const ValueId v : list) {
      made.results.push_back(v);
      ++l.collected;
    }
  }
  ir::Builder b = builder(f);
  b.span = n.span;
  b.scope = n.scope;
  const std::vector<ValueId> results = b.repeat(l, std::move(operands));
  for (size_t i = 0; i < carries.size(); ++i) {
    g.value(results[i]).name = g_.value(n.results[i]).name;
    carries[i].value =
        convert(f, results[i], n.results[i], carries[i].layout, leaving[i], Choice::kRecompute);
    carries[i].layout = leaving[i];
  }
  size_t at = carries.size();
  for (size_t c = 0; c < collected.size(); ++c) {
    std::vector<ValueId> parts(
        results.begin() + static_cast<std::ptrdiff_t>(at),
        results.begin() + static_cast<std::ptrdiff_t>(at + run.pattern.size()));
    at += run.pattern.size();
    ValueId whole = parts[0];
    if (parts.size() > 1) {  // [count, position, ..] is in the iterations' order
      ir::Attrs stack;
      stack.to = dims_->padded(n.loop.dim, stretch.period);
      const ValueId stacked = b.make(Op::kStack, parts, stack);
      std::vector<ir::DimId> order = g.type(parts[0]).dims;
      order.insert(order.begin() + 1, stack.to);
      const ir::DimId merged = dims_->padded(dim, stretch.count * stretch.period);
      ir::Attrs merge;
      merge.groups.push_back({{dim, stack.to}, {merged}});
      whole = b.make(Op::kReshape, {b.ordered(stacked, order)}, std::move(merge));
    }
    collected[c].push_back(whole);
  }
}

// Collected values of all runs, one after another along the loop's dim.
void Lowering::collect(Frame& f, const ir::Node& n, const std::vector<std::vector<ValueId>>& parts,
                       const std::vector<Layout>& layouts) {
  ir::Builder b = builder(f);
  b.span = n.span;
  b.scope = n.scope;
  for (size_t c = 0; c < parts.size(); ++c) {
    ValueId whole = parts[c][0];
    if (parts[c].size() > 1) {
      ir::Attrs attrs;
      for (const ValueId part : parts[c]) attrs.dims.push_back(out_.graph.type(part).dims[0]);
      attrs.to = n.loop.dim;
      whole = b.make(Op::kConcat, parts[c], std::move(attrs));
    } else if (const ir::DimId dim = out_.graph.type(whole).dims[0]; dim != n.loop.dim) {
      ir::Attrs attrs;
      attrs.groups.push_back({{dim}, {n.loop.dim}});
      whole = b.make(Op::kRename, {whole}, std::move(attrs));
    }
    const ValueId result = n.results[static_cast<size_t>(n.loop.carries) + c];
    f.homes[result.index] = {whole, deeper(layouts[c])};
  }
}

LocalGraph Lowering::run() {
  Frame top;
  top.region = RegionId{0};
  top.placement = &placement_.top;
  region(top, RegionId{0});
  const std::vector<ValueId>& results = g_.region(RegionId{0}).results;
  for (size_t o = 0; o < results.size(); ++o) {
    if (g_.outputs[o].name.rfind("state:", 0) == 0) continue;
    out_.graph.outputs.push_back(g_.outputs[o]);
    const ValueId local = get(top, results[o], Layout{});
    out_.graph.region(RegionId{0}).results.push_back(local);
  }
  add_state_outputs(top);
  return std::move(out_);
}

// "state:PATH" of the whole, once for each of its parts.
void Lowering::add_state_outputs(Frame& top) {
  const std::vector<ValueId>& results = g_.region(RegionId{0}).results;
  for (size_t o = 0; o < results.size(); ++o) {
    if (g_.outputs[o].name.rfind("state:", 0) != 0) continue;
    const std::string path = g_.outputs[o].name.substr(6);
    const ValueId local = get(top, results[o], Layout{});
    const auto is_of = [&](const LocalTensor& t) { return t.path == path; };
    if (std::none_of(out_.tensors.begin(), out_.tensors.end(), is_of)) {  // written, never read
      for (const ir::Input& input : g_.inputs) {
        if (input.path == path) get(top, input.value, Layout{});
      }
    }
    for (const LocalTensor& t : out_.tensors) {
      if (!is_of(t)) continue;
      const std::vector<Stretch>& s = stretches_.at(t.local);
      ValueId part = local;
      if (!s.empty() && s[0].dim != g_.node(s[0].loop).loop.dim) {
        CAD_CHECK(s.size() == 1, "a state in loops of several stretches");
        ir::Builder b = builder(top);
        part = stretch_of(b, local, s[0], g_.node(s[0].loop).loop.dim, s[0].dim);
      }
      out_.graph.outputs.push_back({"state:" + t.local});
      out_.graph.region(RegionId{0}).results.push_back(part);
    }
  }
}

LocalGraph lower_forward(const ir::Graph& forward, const ir::Bindings& bindings,
                         const planner::Placement& placement) {
  LocalGraph local = Lowering(forward, bindings, placement).run();
  local.saving.resize(local.graph.values.size(), Choice::kAuto);
  return local;
}

ir::Graph conversion_graph(const planner::Mesh& mesh, ir::DType dtype, int64_t copies,
                           const std::vector<int64_t>& extents, const Layout& from,
                           const Layout& to) {
  ir::Graph whole;
  ir::Type type;
  type.dtype = dtype;
  planner::Extents sizes;
  for (size_t i = 0; i < extents.size(); ++i) {
    type.dims.push_back(whole.add_dim("d" + std::to_string(i), ir::Size(extents[i])));
    sizes.push_back(extents[i]);
  }
  const ir::DimId stack = whole.add_dim("copies", ir::Size(copies));
  sizes.push_back(copies);
  ir::Graph g;
  LocalDims dims(g, whole, sizes, mesh);
  Converter converter(dims, mesh);
  ir::Builder b(g, RegionId{0});
  ir::Type local = dims.type(type, from);
  local.dims.insert(local.dims.begin(), stack);
  ir::Input input;
  input.path = "x";
  const ValueId x = b.input(std::move(input), local);
  const ValueId y = converter.convert(b, x, type, from, to);
  g.outputs.push_back({"y"});
  g.region(RegionId{0}).results.push_back(y);
  return g;
}

}  // namespace cad::backend
