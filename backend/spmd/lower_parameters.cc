// backend/spmd/lower_parameters.cc -- parameters and states on their way to where they are read:
// one input for every stretch of iterations, scanned by the loops around it; or, where several
// loops scan it (shared_parameters.h), one of all iterations, of which each loop takes its stretch,
// so that the gradients of all loops add up in it.
//
// A gradient lies elsewhere than its parameter. So each parameter p is read as attach(p, z): z is
// an input that is never there, in the dual of the gradient's layout and converted to the
// parameter's; the value is p, the gradient goes to z, and on the way the dual of that conversion
// reduces it (inside the loop, iteration by iteration). Once the gradient is taken, attach(p, z) is
// p.
#include <fmt/format.h>

#include "backend/spmd/lowering.h"
#include "base/check.h"

namespace cad::backend {

using ir::Op;
using ir::ValueId;
using planner::Layout;

Lowering::Keys Lowering::keys(const std::vector<Stretch>& stretches) {
  Keys keys;
  for (const Stretch& s : stretches) keys.push_back(s.key());
  return keys;
}

int Lowering::parameter_of(ValueId v) {
  const auto known = parameter_of_.find(v.index);
  if (known != parameter_of_.end()) return known->second;
  const ir::Value& value = g_.value(v);
  int input = -1;
  if (!value.def.valid()) {
    const auto outer = outer_.find(v.index);
    if (outer != outer_.end()) input = parameter_of(outer->second);
  } else {
    const ir::Node& n = g_.node(value.def);
    if (n.op == Op::kInput) {
      const ir::InputKind kind = g_.inputs[static_cast<size_t>(n.attrs.input.index)].kind;
      if (kind == ir::InputKind::kParam || kind == ir::InputKind::kState)
        input = n.attrs.input.index;
    } else if (passes_parameter(n)) {
      input = parameter_of(n.operands[0]);
    }
  }
  return parameter_of_[v.index] = input;
}

bool Lowering::stopped(ValueId v) const {
  while (true) {
    const ir::Value& value = g_.value(v);
    if (!value.def.valid()) {
      v = outer_.at(v.index);
      continue;
    }
    const ir::Node& n = g_.node(value.def);
    if (n.op == Op::kStop) return true;
    if (n.op == Op::kInput) return false;
    v = n.operands[0];
  }
}

// The loops that scan it, outermost first.
std::vector<Stretch> Lowering::stretches(const Frame& f, ValueId v) const {
  const ir::Value& value = g_.value(v);
  if (value.def.valid()) {
    const ir::Node& n = g_.node(value.def);
    return n.op == Op::kInput ? std::vector<Stretch>{} : stretches(f, n.operands[0]);
  }
  const size_t index = *argument_index(f, v);
  std::vector<Stretch> list = stretches(*f.parent, f.node.operands[index]);
  if (index < static_cast<size_t>(f.node.loop.carries + f.node.loop.scanned))
    list.push_back(f.stretch);
  return list;
}

bool Lowering::shared(int input) const {
  return shared_.count(g_.inputs[static_cast<size_t>(input)].path) != 0;
}

Layout Lowering::lying(const Frame& f, ValueId v, Layout layout) {
  const auto loops = static_cast<size_t>(g_.inputs[static_cast<size_t>(parameter_of(v))].loop_dims);
  for (size_t d = stretches(f, v).size(); d < loops; ++d) layout = deeper(layout);
  return layout;
}

planner::ParameterPlacement Lowering::placed(const Frame& f, ValueId v, int input) {
  if (shared(input)) return shared_.at(g_.inputs[static_cast<size_t>(input)].path);
  const auto key = std::make_pair(input, keys(stretches(f, v)));
  const auto known = placed_.find(key);
  if (known != placed_.end()) return known->second;
  planner::ParameterPlacement place;
  for (const Frame* at = &f; at != nullptr; at = at->parent) {
    const auto found = at->placement->parameters.find(input);
    if (found == at->placement->parameters.end()) continue;
    place = found->second;
    break;
  }
  return placed_[key] = place;
}

ValueId Lowering::parameter(Frame& f, ValueId v, int input) {
  const auto known = f.parameters.find(v.index);
  if (known != f.parameters.end()) return known->second;
  const planner::ParameterPlacement place = placed(f, v, input);
  ValueId x = chain(f, v, {input, Kind::kStorage, place.storage}, {});
  const ir::Input& whole = g_.inputs[static_cast<size_t>(input)];
  if (whole.kind == ir::InputKind::kParam && !whole.frozen &&
      ir::is_float(g_.type(whole.value).dtype) && !stopped(v)) {
    const Layout reversed = planner::dual(place.gradient, out_.mesh);
    const ValueId z =
        convert(f, chain(f, v, {input, Kind::kGradient, reversed}, {}), v, lying(f, v, reversed),
                lying(f, v, place.storage), Choice::kRecompute);
    ir::Builder b = builder(f);
    x = b.make(Op::kAttach, {x, z});
    save(x, Choice::kRecompute);
  }
  return f.parameters[v.index] = x;
}

// `suffix`: the stretches of the loops inside of f that scan it. Of a shared one x has all
// iterations of these loops, else those of the stretches.
ValueId Lowering::chain(Frame& f, ValueId v, const Chain& c, std::vector<Stretch> suffix) {
  const ir::Value& value = g_.value(v);
  if (!value.def.valid()) {
    const size_t index = *argument_index(f, v);
    const ValueId operand = f.node.operands[index];
    if (index >= static_cast<size_t>(f.node.loop.carries + f.node.loop.scanned))
      return invariant(f, chain(*f.parent, operand, c, std::move(suffix)));
    suffix.insert(suffix.begin(), f.stretch);
    const ValueId outer = chain(*f.parent, operand, c, std::move(suffix));
    return scan(f, shared(c.input) ? part_of(*f.parent, outer, f.stretch) : outer);
  }
  const ir::Node& n = g_.node(value.def);
  if (n.op == Op::kInput) return parameter_input(v, c, suffix);
  const ValueId x = chain(f, n.operands[0], c, suffix);
  ir::Builder b = builder(f);
  ValueId made = x;
  if (n.op == Op::kCast) {
    made = b.cast(x, n.attrs.dtype);
  } else if (n.op == Op::kStop) {
    made = b.make(Op::kStop, {x});
  } else {
    const ir::Type& whole = g_.type(v);
    const ir::Type from = out_.graph.type(x);
    const bool all = shared(c.input);
    size_t leading = 0;  // dims of loops in `from`; in `whole` each has one
    for (const Stretch& s : suffix) leading += all ? 1 : s.leading().size();
    ir::Attrs attrs;
    for (size_t p = 0; p < suffix.size() && all; ++p) {
      if (from.dims[p] != whole.dims[p]) attrs.groups.push_back({{from.dims[p]}, {whole.dims[p]}});
    }
    for (size_t p = suffix.size(); p < whole.rank(); ++p) {
      const size_t at = p - suffix.size();
      const ir::DimId to = dims_->part(whole.dims[p], axis_order(c.layout, at));
      if (from.dims[leading + at] != to) attrs.groups.push_back({{from.dims[leading + at]}, {to}});
    }
    if (!attrs.groups.empty()) made = b.make(Op::kRename, {x}, std::move(attrs));
  }
  save(made, Choice::kRecompute);
  return made;
}

// A loop's stretch of all iterations; read again where it is needed.
ValueId Lowering::part_of(Frame& f, ValueId all, const Stretch& s) {
  const size_t first = out_.graph.values.size();
  ir::Builder b = builder(f);
  const ValueId part = stretch_of(b, all, s);
  for (size_t v = first; v < out_.graph.values.size(); ++v)
    save(ValueId{static_cast<int32_t>(v)}, Choice::kRecompute);
  return part;
}

ValueId Lowering::parameter_input(ValueId v, const Chain& c, const std::vector<Stretch>& suffix) {
  const ir::Input& whole = g_.inputs[static_cast<size_t>(c.input)];
  // all iterations in one: of several loops, or read outside of loops
  const bool all = shared(c.input) || suffix.size() < static_cast<size_t>(whole.loop_dims);
  const std::vector<Stretch> loops = all ? std::vector<Stretch>{} : suffix;
  ValueId& made = inputs_[{c.input, c.kind, keys(loops)}];
  if (made.valid()) return made;
  const ir::Type& type = g_.type(v);
  const size_t leading = all ? static_cast<size_t>(whole.loop_dims) : loops.size();
  ir::Input local = whole;
  ir::Type local_type;
  local_type.dtype = type.dtype;
  LocalTensor tensor;
  tensor.path = whole.path;
  tensor.kind = whole.kind;
  tensor.iterations = {0};
  for (size_t p = 0; p < leading; ++p) {
    const int64_t trips = extents_[static_cast<size_t>(type.dims[p].index)];
    int64_t first = 0, count = trips, period = 1;
    if (all) {
      local_type.dims.push_back(type.dims[p]);
    } else {
      const Stretch& s = loops[p];
      if (s.several) local.path += fmt::format("#{}.{}", s.run, s.position);
      for (const ir::DimId dim : s.leading()) local_type.dims.push_back(dim);
      first = s.first;
      count = s.count;
      period = s.period;
    }
    std::vector<int64_t> inner;
    for (const int64_t outer : tensor.iterations) {
      for (int64_t i = 0; i < count; ++i) inner.push_back(outer * trips + first + i * period);
    }
    tensor.iterations = std::move(inner);
  }
  local.loop_dims = static_cast<int>(local_type.rank());
  for (size_t p = leading; p < type.rank(); ++p) {
    local_type.dims.push_back(dims_->part(type.dims[p], axis_order(c.layout, p - leading)));
    tensor.extents.push_back(extents_[static_cast<size_t>(type.dims[p].index)]);
  }
  tensor.local = local.path;
  if (c.kind == Kind::kGradient) {
    local.path += kGradientInput;
  } else {
    const planner::ParameterPlacement& place =
        shared(c.input) ? shared_.at(whole.path) : placed_.at({c.input, keys(loops)});
    tensor.storage = place.storage;
    tensor.gradient = place.gradient;
    tensor.optimizer = place.optimizer;
    stretches_[tensor.local] = loops;
    out_.tensors.push_back(std::move(tensor));
  }
  ir::Builder b(out_.graph, ir::RegionId{0});
  return made = b.input(std::move(local), local_type);
}

}  // namespace cad::backend
