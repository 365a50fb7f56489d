// frontend/elaborate_repeat.cc -- `repeat` becomes one kRepeat node whatever its count: rebound
// names are carried, parameters and states made inside are scanned (their inputs have the loop's
// dim first), everything else captured is an invariant. Also reading parameters and states from
// inside loops, and `collect`.
#include <algorithm>

#include "base/check.h"
#include "frontend/elaborator.h"
#include "ir/rewrite.h"

namespace cad::frontend {

using ir::Attrs;
using ir::Op;
using ir::ValueId;

// ------------------------------------------------------------------------- parameters and states

bool Elaborator::add_input(const std::string& path, const std::vector<RegionFrame*>& loops) {
  PendingInput& p = pending_inputs_.at(path);
  if (inputs_.count(path) != 0) return same_input(p, loops);
  ir::Type t = p.type;
  DimList dims;
  for (RegionFrame* f : loops) dims.push_back(f->loop_dim);
  t.dims.insert(t.dims.begin(), dims.begin(), dims.end());
  ir::Builder top(graph, ir::RegionId{0});
  top.span = p.input.span;
  const ValueId v = top.input(p.input, t);
  graph.value(v).name = path;
  graph.value(v).pins = p.pins;
  graph.value(v).saving = p.saving;
  inputs_[path] = v;
  return true;
}

// Models of one section share the parameters of equal path: of equal type, too.
bool Elaborator::same_input(const PendingInput& p, const std::vector<RegionFrame*>& loops) {
  const ir::Type& made = type(inputs_.at(p.input.path));
  bool same = made.dtype == p.type.dtype && made.rank() == p.type.rank() + loops.size();
  for (size_t i = 0; same && i < p.type.rank(); ++i) {
    same = decide_equal(size({made.dims[loops.size() + i]}), size({p.type.dims[i]}), *known) !=
           Decision::kNo;
  }
  if (same) return true;
  error(DiagId::E0120, p.input.span,
        fmt::format("two parameters of path `{}` have different types", p.input.path), show(p.type))
      .note(fmt::format("the other one is {}", show(made)));
  return false;
}

ValueId Elaborator::read_parameter(const Binding& b) {
  add_input(b.path, b.loops);
  const ValueId input = inputs_.at(b.path);
  ValueId v = parameter_in(region, b.path, input, b.loops);
  const ir::Type& wanted = pending_inputs_.at(b.path).type;
  if (type(v).dims != wanted.dims && type(v).rank() == wanted.rank()) {
    std::vector<std::pair<ir::DimId, ir::DimId>> pairs;
    for (size_t i = 0; i < wanted.rank(); ++i) pairs.emplace_back(type(v).dims[i], wanted.dims[i]);
    v = rename(v, pairs);
  }
  return ir::is_float(type(v).dtype) ? cast(v, options.compute) : v;
}

ValueId Elaborator::parameter_in(RegionFrame* frame, const std::string& path, ValueId input,
                                 const std::vector<RegionFrame*>& loops) {
  if (frame->parent == nullptr) return input;
  if (auto at = frame->scanned_parameters.find(path); at != frame->scanned_parameters.end())
    return at->second;
  const ValueId outer = parameter_in(frame->parent, path, input, loops);
  const bool scanned = std::find(loops.begin(), loops.end(), frame) != loops.end();
  ir::Type t = graph.type(outer);
  if (scanned) t.dims.erase(t.dims.begin());
  const ValueId arg = graph.add_value(frame->region, t, graph.value(outer).name);
  ir::copy_pins(graph, outer, arg);
  (scanned ? frame->scanned : frame->invariants).push_back({outer, arg});
  frame->scanned_parameters[path] = arg;
  return arg;
}

RegionFrame::State& Elaborator::state_in(RegionFrame* frame, const std::string& path) {
  if (auto at = frame->states.find(path); at != frame->states.end()) return at->second;
  const std::vector<RegionFrame*>& loops = state_loops_.at(path);
  RegionFrame::State s;
  if (frame->parent == nullptr) {
    add_input(path, loops);
    s.arg = s.current = inputs_.at(path);
  } else {
    s.outer = state_in(frame->parent, path).current;
    s.scanned = std::find(loops.begin(), loops.end(), frame) != loops.end();
    ir::Type t = graph.type(s.outer);
    if (s.scanned) t.dims.erase(t.dims.begin());
    s.arg = s.current = graph.add_value(frame->region, t, graph.value(s.outer).name);
  }
  return frame->states.emplace(path, s).first->second;
}

std::vector<ValueId> Elaborator::loop_numbers() {
  std::vector<ValueId> numbers;
  for (RegionFrame* f = region; f->parent != nullptr; f = f->parent)
    numbers.insert(numbers.begin(), f->number);
  for (ValueId& n : numbers) n = local(n);
  return numbers;
}

// ------------------------------------------------------------------------------------- the loop

ir::DimId Elaborator::loop_dim(const std::string& component, const ir::Size& count) {
  const std::string key = body->path.text + "." + component;
  auto at = loop_dims_.find(key);
  if (at != loop_dims_.end() && graph.dim(at->second).size == count) return at->second;
  const ir::DimId d = graph.add_dim(component, count);
  loop_dims_[key] = d;
  return d;
}

void Elaborator::repeat_statement(StmtId id, const Stmt& s) {
  std::vector<std::string> rebound = assigned_names(*body->ast, s.body);
  auto fail = [&] {
    for (const std::string& n : rebound) {
      auto at = body->values.find(n);
      if (at != body->values.end() &&
          (at->second.kind == BindKind::kArgument || at->second.kind == BindKind::kValue)) {
        at->second.value = EValue{};
      } else if (at == body->values.end()) {
        body->broken_names.insert(n);
      }
    }
  };
  auto count = size_of(s.value, "the count of a `repeat`");
  if (!count) return fail();
  Need whole;
  whole.what = "the count of a `repeat`";
  whole.span = body->ast->expr(s.value).span;
  if (!need_whole(*count, whole)) return fail();
  if (!s.label.empty() && !check_binding_name(s.label, false)) return fail();
  check_annotations(s, nullptr);

  std::string component = s.label.empty() ? "repeat" : s.label.text;
  if (body->names != nullptr) {
    if (auto at = body->names->repeats.find(id.index); at != body->names->repeats.end())
      component = at->second;
  }
  regions_.emplace_back();
  RegionFrame& frame = regions_.back();
  frame.parent = region;
  frame.loop_dim = loop_dim(component, *count);
  std::vector<Carry> carries = open_loop(frame, rebound);

  // The body sees what stands before it; its own names end with it.
  const auto saved_values = body->values;
  const auto saved_dims = body->local_dims;
  const auto saved_spans = body->local_dim_spans;
  const Path saved_path = body->path;
  const std::string saved_site = body->site;
  enter_loop(frame, s, component, carries);
  ++body->in_repeat;
  statements(s.body);
  --body->in_repeat;
  statement_reported_ = false;
  statement_failed_ = false;
  std::vector<ValueId> results = loop_results(frame, s, carries);
  region = frame.parent;
  body->values = saved_values;
  body->local_dims = saved_dims;
  body->local_dim_spans = saved_spans;
  body->path = saved_path;
  body->site = saved_site;
  close_loop(frame, s, carries, std::move(results));
  if (const ir::Saving saving = saving_of(s); saving != ir::Saving::kAuto) {
    const ir::NodeId owner = graph.region(frame.region).owner;
    if (!owner.valid()) return;
    for (ValueId result : graph.node(owner).results) graph.value(result).saving = saving;
  }
}

std::vector<Elaborator::Carry> Elaborator::open_loop(RegionFrame& frame,
                                                     const std::vector<std::string>& rebound) {
  frame.region = graph.add_region(ir::NodeId{});
  std::vector<Carry> carries;
  for (const std::string& name : rebound) {
    auto at = body->values.find(name);
    if (at == body->values.end() || at->second.value.error()) continue;
    Binding& b = at->second;
    if (b.kind != BindKind::kArgument && b.kind != BindKind::kValue) continue;
    if (std::any_of(carries.begin(), carries.end(), [&](const Carry& c) { return c.name == name; }))
      continue;
    if (b.value.kind == EValue::Kind::kMany || b.value.kind == EValue::Kind::kInstance) continue;
    Carry c;
    c.name = name;
    c.span = b.span;
    c.entry = *as_tensor(b.value, std::nullopt, b.span, "a carried value");
    c.entry_value = b.value;
    c.arg = graph.add_value(frame.region, type(c.entry), name);
    carries.push_back(std::move(c));
  }
  return carries;
}

void Elaborator::enter_loop(RegionFrame& frame, const Stmt& s, const std::string& component,
                            const std::vector<Carry>& carries) {
  ir::Type number;
  number.dtype = ir::DType::kI32;
  frame.number = graph.add_value(frame.region, number, s.label.empty() ? component : s.label.text);
  for (const Carry& c : carries) {
    Binding& b = body->values[c.name];
    const std::string from = b.value.from;
    const Span span = b.value.span;
    b.kind = BindKind::kValue;
    b.value = tensor_of(c.arg, span);
    b.value.from = from;
  }
  if (!s.label.empty()) {
    Binding b;
    b.kind = BindKind::kLoop;
    b.span = s.label.span;
    b.value = tensor_of(frame.number, s.label.span);
    body->values[s.label.text] = std::move(b);
  }
  body->path = body->path.child(component).child("{}");
  body->path.loops.push_back(&frame);
  body->site += (body->site.empty() ? "" : ".") + component + ".{}";
  region = &frame;
}

// What the body hands on: carried names with the type they came with. Invalid ids: errors.
std::vector<ValueId> Elaborator::loop_results(RegionFrame& /*frame*/, const Stmt& s,
                                              const std::vector<Carry>& carries) {
  std::vector<ValueId> results;
  for (const Carry& c : carries) {
    const Binding& b = body->values.at(c.name);
    results.push_back(ValueId{});
    if (b.value.error()) continue;
    const ir::Type wanted = type(c.arg);
    statement_reported_ = false;
    // A carry of a constant takes its dtype from the body only if that says f32.
    auto x = as_tensor(b.value, wanted.dtype, b.span, fmt::format("carried `{}`", c.name));
    if (!x) continue;
    const bool floats = ir::is_float(type(*x).dtype) && ir::is_float(wanted.dtype);
    const bool same = type(*x).rank() == wanted.rank() &&
                      std::all_of(wanted.dims.begin(), wanted.dims.end(),
                                  [&](ir::DimId d) { return type(*x).has(d); });
    if (!same || (!floats && type(*x).dtype != wanted.dtype)) {
      Diagnostic& d = error(DiagId::E0210, b.span,
                            fmt::format("`{}` changes its type in `repeat`: {} becomes {}", c.name,
                                        show(wanted), show(*x)),
                            fmt::format("leaves the body as {}", describe(b.value)));
      d.label(c.span, fmt::format("enters as {}", describe(c.entry_value)));
      d.label(s.keyword, "carried from one iteration to the next");
      if (c.entry_value.is_number()) {
        ir::Type t = type(*x);
        d.help(fmt::format("give it its type before the loop: `{}: {} = ..`", c.name, show(t)));
      }
      continue;
    }
    ValueId v = cast(*x, wanted.dtype);
    if (type(v).dims != wanted.dims) {
      Attrs attrs;
      attrs.dims = wanted.dims;
      v = node(Op::kTranspose, {v}, std::move(attrs));
    }
    results.back() = v;
  }
  return results;
}

namespace {

// Of a repeat, in its order: the iteration's number, carries, states that the body assigns, scanned
// values, invariants; results collect scanned states and what `collect` names behind the carries.
struct LoopValues {
  std::vector<ValueId> operands, args, results;
  std::vector<std::string> carried_states, collected_states;  // paths
};

LoopValues loop_values(RegionFrame& frame, const std::vector<Elaborator::Carry>& carries,
                       const std::vector<ValueId>& results, ir::Loop& loop) {
  LoopValues v;
  v.args = {frame.number};
  const auto pass = [&](ValueId outer, ValueId inner) {
    v.operands.push_back(outer);
    v.args.push_back(inner);
  };
  for (size_t i = 0; i < carries.size(); ++i) {
    pass(carries[i].entry, carries[i].arg);
    // A carry that failed is carried unchanged, so that the graph stays whole.
    v.results.push_back(results[i].valid() ? results[i] : carries[i].arg);
  }
  std::vector<ValueId> collected;
  for (const auto& [path, state] : frame.states) {
    if (state.scanned) {
      frame.scanned.push_back({state.outer, state.arg});
      if (!state.assigned) continue;
      collected.push_back(state.current);
      v.collected_states.push_back(path);
    } else if (state.assigned) {
      pass(state.outer, state.arg);
      v.results.push_back(state.current);
      v.carried_states.push_back(path);
    } else {
      frame.invariants.push_back({state.outer, state.arg});
    }
  }
  for (const RegionFrame::Collect& c : frame.collects) collected.push_back(c.value);
  loop.carries = static_cast<int>(v.results.size());
  loop.scanned = static_cast<int>(frame.scanned.size());
  loop.invariants = static_cast<int>(frame.invariants.size());
  loop.collected = static_cast<int>(collected.size());
  for (const RegionFrame::Slot& slot : frame.scanned) pass(slot.outer, slot.inner);
  for (const RegionFrame::Slot& slot : frame.invariants) pass(slot.outer, slot.inner);
  v.results.insert(v.results.end(), collected.begin(), collected.end());
  return v;
}

}  // namespace

void Elaborator::close_loop(RegionFrame& frame, const Stmt& s, const std::vector<Carry>& carries,
                            std::vector<ValueId> results) {
  ir::Loop loop;
  loop.body = frame.region;
  loop.dim = frame.loop_dim;
  const LoopValues values = loop_values(frame, carries, results, loop);
  graph.region(frame.region).args = values.args;
  for (size_t i = 0; i < values.args.size(); ++i)
    graph.value(values.args[i]).result = static_cast<int32_t>(i);
  graph.region(frame.region).results = values.results;

  ir::Builder b(graph, region->region);
  b.span = s.keyword;
  b.scope = body->site;
  const ir::Builder::Made made = b.try_repeat(loop, values.operands);
  CAD_CHECK(made.ok(), "elaborator: repeat: {}",
            made.shape.errors.empty() ? "" : made.shape.errors[0].detail);
  size_t next = 0;
  for (const Carry& c : carries) {
    Binding& bound = body->values.at(c.name);
    const bool bad = !results[next].valid();
    const ValueId v = made.results[next++];
    const std::string from = bound.value.from;
    bound.value = bad ? EValue{} : tensor_of(v, bound.span);
    bound.value.from = from;
    bound.kind = BindKind::kValue;
    if (graph.value(v).name.empty()) graph.value(v).name = c.name;
  }
  for (const std::string& path : values.carried_states) set_state(path, made.results[next++]);
  for (const std::string& path : values.collected_states) set_state(path, made.results[next++]);
  for (const RegionFrame::Collect& c : frame.collects)
    bind_collected(c, frame, made.results[next++]);
}

void Elaborator::set_state(const std::string& path, ValueId v) {
  RegionFrame::State& state = state_in(region, path);
  state.current = v;
  state.assigned = true;
}

// -------------------------------------------------------------------------------------- collect

void Elaborator::bind_collected(const RegionFrame::Collect& c, const RegionFrame& frame,
                                ValueId v) {
  statement_reported_ = false;
  builder.span = c.span;
  const ValueId renamed = regroup(v, {frame.loop_dim}, c.dims);
  EValue value = tensor_of(renamed, c.span);
  bind(c.name, std::move(value), ExprId{});
}

// `hs = collect[T](h)` in the body of a repeat. True when the statement is one.
bool Elaborator::collect_statement(const Stmt& s) {
  const Ast& ast = *body->ast;
  const Expr& call = ast.expr(s.value);
  if (call.kind != ExprKind::kCall) return false;
  const Expr& left = ast.expr(call.left);
  const Expr& name = left.kind == ExprKind::kDims ? ast.expr(left.left) : left;
  if (name.kind != ExprKind::kName || name.text != "collect" ||
      module.find(*body->unit, "collect") != nullptr)
    return false;
  if (body->in_repeat == 0) {
    error(DiagId::E0219, call.span, "`collect` stands in the body of a `repeat`", "not in a loop");
    return true;
  }
  if (left.kind != ExprKind::kDims || left.dims.size() != 1 ||
      left.dims[0].kind != DimItemKind::kPlain || call.args.size() != 1 || s.names.size() != 1 ||
      s.type.valid()) {
    error(DiagId::E0219, call.span, "`collect` is written `hs = collect[T](h)`",
          "one dim, one value, one name");
    return true;
  }
  auto dims = dims_of_side(left.dims[0].left, "`collect`");
  if (!dims) return true;
  EValue v = eval(call.args[0].value);
  if (v.error()) return true;
  auto x = as_tensor(v, std::nullopt, call.span, "`collect`");
  if (!x) return true;
  for (ir::DimId d : *dims) {
    if (!type(*x).has(d)) continue;
    error(DiagId::E0204, left.op_span,
          fmt::format("the result of `collect` would hold {} twice", dim_text(d)), describe(v));
    return true;
  }
  Need n;
  n.what = fmt::format("`collect` along `{}` and the count of the `repeat`", show(*dims));
  n.span = left.op_span;
  if (!need_equal(size(*dims), graph.dim(region->loop_dim).size, n)) return true;
  if (!check_binding_name(s.names[0], false)) return true;
  region->collects.push_back({s.names[0], *x, *dims, s.span});
  return true;
}

}  // namespace cad::frontend
