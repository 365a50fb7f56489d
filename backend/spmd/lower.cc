// backend/spmd/lower.cc -- see lower.h and lowering.h: values in the layouts that are asked for,
// regions, outputs. Loops are in lower_loop.cc.
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
using planner::Layout;

Lowering::Lowering(const ir::Graph& whole, const ir::Bindings& bindings,
                   const planner::Placement& placement, const SharedParameters& shared)
    : g_(whole),
      extents_(planner::dim_extents(whole, bindings)),
      placement_(placement),
      shared_(shared),
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
    made = convert(f, stored, v, lying(f, v, placed(f, v, parameter_input).storage), layout,
                   Choice::kRecompute);
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
      if (!s.empty() && (s[0].segment > 0 || s[0].dim != g_.node(s[0].loop).loop.dim)) {
        CAD_CHECK(s.size() == 1, "a state in loops of several stretches");
        ir::Builder b = builder(top);
        part = stretch_of(b, local, s[0]);
      }
      out_.graph.outputs.push_back({"state:" + t.local});
      out_.graph.region(RegionId{0}).results.push_back(part);
    }
  }
}

LocalGraph lower_forward(const ir::Graph& forward, const ir::Bindings& bindings,
                         const planner::Placement& placement, const SharedParameters& shared) {
  LocalGraph local = Lowering(forward, bindings, placement, shared).run();
  local.saving.resize(local.graph.values.size(), Choice::kAuto);
  return local;
}

LocalGraph lower_forward(const ir::Graph& forward, const ir::Bindings& bindings,
                         const planner::Placement& placement) {
  SharedParameters shared;
  place_shared(forward, bindings, placement, read_in_several_ways(forward), shared);
  return lower_forward(forward, bindings, placement, shared);
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
