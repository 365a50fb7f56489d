// frontend/elaborate.cc -- the walk's beginnings: a definition's body on its own (checking), the
// expressions of a section, and the end of a lowering (states out, unread inputs gone).
#include "frontend/elaborate.h"

#include <algorithm>

#include "base/check.h"
#include "base/suggest.h"
#include "frontend/elaborator.h"
#include "frontend/resolve.h"
#include "ir/passes.h"

namespace cad::frontend {

using ir::DType;
using ir::ValueId;

// Dim parameters, `..` and constant arguments as symbols of their own.
bool Elaborator::check_definition(Definition& definition) {
  const Signature& s = definition.signature;
  checking = &definition;
  bodies_.emplace_back();
  BodyFrame& frame = bodies_.back();
  frame.definition = &definition;
  frame.unit = definition.unit;
  frame.ast = &definition.unit->ast;
  frame.has_pack = s.dots;
  for (const Formal& f : s.formals) {
    frame.formals.push_back({graph.add_dim(f.name, ir::Size::symbol("$" + f.name))});
    frame.used.insert(frame.formals.back()[0]);
  }
  if (s.dots) {
    const ir::DimId pack = graph.add_dim("..", ir::Size::symbol("$.."));
    graph.dims[static_cast<size_t>(pack.index)].pack = true;
    frame.pack.push_back(pack);
    frame.used.insert(pack);
  }
  body = &frame;
  bind_checked_parameters(frame, s);
  const size_t before = diagnostics->errors();
  statements(definition.def().body);
  if (!frame.returned && !frame.broken_return && !definition.def().body_broken && !s.broken &&
      !definition.unit->ast.lost_items && !definition.unit->lost) {
    statement_reported_ = false;
    Diagnostic& d = error(DiagId::E0116, definition.name_span(),
                          fmt::format("`{}` returns nothing", definition.name), "no `return`");
    if (!s.results.empty()) d.label(s.results[0].span, "its result is declared here");
  }
  return diagnostics->errors() == before;
}

void Elaborator::bind_checked_parameters(BodyFrame& frame, const Signature& s) {
  for (const Parameter& p : s.parameters) {
    Binding b;
    b.kind = BindKind::kArgument;
    b.span = p.span;
    switch (p.type.kind) {
      case TypePattern::Kind::kError:
        break;
      case TypePattern::Kind::kConstant:
        b.value = p.type.constant == TypePattern::Constant::kBool
                      ? flag_of(-1, p.span)
                      : number_of(ir::Scalar::size(ir::Size::symbol("$" + p.name)),
                                  p.type.constant == TypePattern::Constant::kInt, p.span);
        break;
      case TypePattern::Kind::kTensor: {
        ir::Type t;
        t.dtype = p.type.dtype;
        t.dims = *pattern_dims(p.type, frame.formals, frame.pack, frame.unit);
        b.value = tensor_of(opaque(t, p.name), p.span);
        record(Name{p.name, p.span}, b.value, "argument");
        break;
      }
    }
    if (p.value.valid() && p.type.kind == TypePattern::Kind::kConstant) check_default(p);
    frame.values[p.name] = std::move(b);
  }
}

void Elaborator::check_default(const Parameter& p) {
  statement_reported_ = false;
  EValue v = eval(p.value);
  if (!v.error()) match_constant(p, v, body->ast->expr(p.value).span, checking->name);
}

// ------------------------------------------------------------------------------------- sections

void Elaborator::open_section() {
  bodies_.emplace_back();
  body = &bodies_.back();
  body->unit = &module.main();
  body->ast = &module.main().ast;
  section_names_ = std::make_unique<ScopeNames>();
  body->names = section_names_.get();
}

// Layers called in a section are numbered over all of its expressions, models are not named.
void Elaborator::push_names(const Ast& ast, ExprId expr) {
  std::vector<ExprId> found;
  collect_callees(ast, expr, found);
  for (ExprId callee : found) {
    if (section_names_->calls.count(callee.index) != 0) continue;
    const Expr& e = ast.expr(callee);
    const std::string base = snake_case(e.kind == ExprKind::kMember ? e.member.text : e.text);
    const int n = section_counts_["." + base]++;
    section_names_->calls[callee.index] = n == 0 ? base : base + "_" + std::to_string(n);
  }
}

// Every state that is still read or assigned leaves the graph with its last value.
void Elaborator::finish_states() {
  if (mode != Mode::kLower || !options.training) return;
  std::vector<std::string> order;
  for (const ir::Input& input : graph.inputs) {
    if (input.kind == ir::InputKind::kState) order.push_back(input.path);
  }
  for (const std::string& path : order) {
    auto at = region->states.find(path);
    const ValueId v = at != region->states.end() ? at->second.current : inputs_.at(path);
    graph.regions[0].results.push_back(v);
    graph.outputs.push_back({"state:" + path});
  }
}

namespace {

// Parameters and states whose value nothing uses (`bias: false`) are no inputs. A state kept alive
// by its own update only is unused, too.
void prune_inputs(ir::Graph& g) {
  for (bool again = true; again;) {
    again = false;
    g = ir::eliminate_dead(std::move(g));
    std::vector<int> uses(g.values.size(), 0);
    std::vector<int> as_state(g.values.size(), 0);
    for (const ir::Region& r : g.regions) {
      for (ir::NodeId n : r.nodes) {
        for (ValueId v : g.node(n).operands) ++uses[static_cast<size_t>(v.index)];
      }
    }
    const ir::Region& top = g.regions[0];
    std::map<std::string, size_t> output_of;
    for (size_t i = 0; i < top.results.size(); ++i) {
      ++uses[static_cast<size_t>(top.results[i].index)];
      output_of[g.outputs[i].name] = i;
    }
    std::vector<ir::Input> kept;
    std::vector<ir::InputId> now(g.inputs.size());
    std::vector<size_t> dropped_outputs;
    for (size_t i = 0; i < g.inputs.size(); ++i) {
      const ir::Input& in = g.inputs[i];
      const bool prunable = in.kind == ir::InputKind::kParam || in.kind == ir::InputKind::kState;
      auto out = output_of.find("state:" + in.path);
      int used = uses[static_cast<size_t>(in.value.index)];
      const bool unchanged = in.kind == ir::InputKind::kState && out != output_of.end() &&
                             top.results[out->second] == in.value;
      if (unchanged) --used;
      if (prunable && used == 0) {
        if (out != output_of.end()) {
          dropped_outputs.push_back(out->second);
          again = true;
        }
        continue;
      }
      now[i] = ir::InputId{static_cast<int32_t>(kept.size())};
      kept.push_back(in);
    }
    std::sort(dropped_outputs.rbegin(), dropped_outputs.rend());
    for (size_t i : dropped_outputs) {
      g.regions[0].results.erase(g.regions[0].results.begin() + static_cast<ptrdiff_t>(i));
      g.outputs.erase(g.outputs.begin() + static_cast<ptrdiff_t>(i));
    }
    std::vector<ir::NodeId>& nodes = g.regions[0].nodes;
    nodes.erase(std::remove_if(nodes.begin(), nodes.end(),
                               [&](ir::NodeId n) {
                                 ir::Node& node = g.node(n);
                                 if (node.op != ir::Op::kInput) return false;
                                 const ir::InputId id =
                                     now[static_cast<size_t>(node.attrs.input.index)];
                                 node.attrs.input = id;
                                 return !id.valid();
                               }),
                nodes.end());
    g.inputs = std::move(kept);
  }
}

}  // namespace

// ------------------------------------------------------------------------------------- Lowering

Lowering::Lowering(const Module& module, const LowerOptions& options, Diagnostics& diagnostics) {
  elaborator_ = std::make_unique<Elaborator>(
      module, options.check ? Elaborator::Mode::kCheck : Elaborator::Mode::kLower, options,
      diagnostics);
  elaborator_->open_section();
}

Lowering::~Lowering() = default;

ir::Graph& Lowering::graph() {
  return elaborator_->graph;
}

ir::DimId Lowering::dim(const std::string& name) {
  Elaborator& e = *elaborator_;
  if (e.module.dims.count(name) == 0) return {};
  return e.file_dim(name);
}

ValueId Lowering::add_input(const std::string& path, DType dtype,
                            const std::vector<ir::DimId>& dims) {
  return elaborator_->plain_input(path, dtype, dims, ir::InputKind::kOther, Span{});
}

ValueId Elaborator::plain_input(const std::string& path, DType dtype, const DimList& dims,
                                ir::InputKind kind, Span span) {
  ir::Input input;
  input.kind = kind;
  input.path = path;
  input.span = span;
  ir::Type t;
  t.dtype = dtype;
  t.dims = dims;
  ir::Builder top(graph, ir::RegionId{0});
  top.span = span;
  const ValueId v = top.input(input, t);
  graph.value(v).name = path;
  return v;
}

bool Lowering::add_data(const std::string& name, DType dtype, const std::vector<Name>& dims) {
  Elaborator& e = *elaborator_;
  e.statement_reported_ = false;
  DimList list;
  for (const Name& d : dims) {
    auto found = e.dims_named(d.text, d.span);
    if (!found) return false;
    list.push_back((*found)[0]);
  }
  ValueId v =
      e.plain_input(name, dtype, list, ir::InputKind::kData, dims.empty() ? Span{} : dims[0].span);
  if (!e.graph.batch_dim.valid() && !list.empty()) e.graph.batch_dim = list[0];
  if (ir::is_float(dtype)) v = e.cast(v, e.options.compute);
  bind(name, v);
  return true;
}

void Lowering::bind(const std::string& name, ValueId value) {
  Binding b;
  b.kind = BindKind::kArgument;
  b.value = elaborator_->tensor_of(value, Span{});
  elaborator_->body->values[name] = std::move(b);
}

std::optional<std::vector<SectionValue>> Lowering::expression(ExprId expr) {
  Elaborator& e = *elaborator_;
  e.statement_reported_ = false;
  e.statement_failed_ = false;
  e.push_names(*e.body->ast, expr);
  const EValue v = e.eval(expr);
  if (v.error()) return std::nullopt;
  std::vector<EValue> all = v.kind == EValue::Kind::kMany ? *v.many : std::vector<EValue>{v};
  std::vector<SectionValue> out;
  for (const EValue& part : all) {
    SectionValue s;
    switch (part.kind) {
      case EValue::Kind::kTensor:
        s.value = part.value;
        break;
      case EValue::Kind::kNumber:
        s.kind = SectionValue::Kind::kNumber;
        s.number = *part.number;
        break;
      case EValue::Kind::kBool:
        s.kind = SectionValue::Kind::kBool;
        s.flag = part.flag == 1;
        break;
      default:
        return std::nullopt;
    }
    out.push_back(std::move(s));
  }
  return out;
}

std::optional<ValueId> Lowering::tensor(ExprId expr) {
  Elaborator& e = *elaborator_;
  auto values = expression(expr);
  if (!values) return std::nullopt;
  const Span span = e.body->ast->expr(expr).span;
  if (values->size() != 1) {
    e.error(DiagId::E0213, span, fmt::format("one value is wanted, this is {}", values->size()),
            "several results");
    return std::nullopt;
  }
  const SectionValue& v = (*values)[0];
  e.builder.span = span;
  if (v.kind == SectionValue::Kind::kNumber) return e.constant(v.number, DType::kF32);
  if (v.kind == SectionValue::Kind::kBool)
    return e.constant(ir::Scalar(v.flag ? 1.0 : 0.0), DType::kBool);
  return v.value;
}

std::optional<std::vector<ValueId>> Lowering::call(const Definition& definition,
                                                   const std::vector<ValueId>& leading,
                                                   const std::vector<Arg>& args, Span where) {
  return call(definition, leading, args, {}, where);
}

std::optional<std::vector<ValueId>> Lowering::call(
    const Definition& definition, const std::vector<ValueId>& leading, const std::vector<Arg>& args,
    const std::vector<std::pair<std::string, double>>& constants, Span where) {
  Elaborator& e = *elaborator_;
  e.statement_reported_ = false;
  e.statement_failed_ = false;
  std::vector<ArgValue> values;
  for (ValueId v : leading) values.push_back({Name{}, e.tensor_of(v, where), where});
  for (const Arg& a : args) {
    EValue v = e.eval(a.value);
    if (v.error()) return std::nullopt;
    values.push_back({a.name, std::move(v), e.body->ast->expr(a.value).span});
  }
  for (const auto& [name, number] : constants) {
    const int at = definition.signature.find_parameter(name);
    const bool flag = at >= 0 &&
                      definition.signature.parameters[static_cast<size_t>(at)].type.kind ==
                          TypePattern::Kind::kConstant &&
                      definition.signature.parameters[static_cast<size_t>(at)].type.constant ==
                          TypePattern::Constant::kBool;
    Name n;
    n.text = name;
    n.span = where;
    values.push_back(
        {n,
         flag ? e.flag_of(number != 0 ? 1 : 0, where)
              : e.number_of(ir::Scalar(number),
                            number == static_cast<double>(static_cast<int64_t>(number)), where),
         where});
  }
  const EValue v = e.section_call(definition, std::move(values), where);
  if (v.error()) return std::nullopt;
  std::vector<EValue> all = v.kind == EValue::Kind::kMany ? *v.many : std::vector<EValue>{v};
  std::vector<ValueId> out;
  for (const EValue& part : all) out.push_back(part.value);
  return out;
}

// A call that no expression wrote: paths below it have no component for it.
EValue Elaborator::section_call(const Definition& definition, std::vector<ArgValue> args,
                                Span where) {
  if (definition.signature.broken) return {};
  Call call;
  call.name = definition.name;
  call.name_span = where;
  call.span = where;
  call.args = std::move(args);
  Bound bound;
  if (!bind_formals(definition, nullptr, where, where, bound.formals)) return {};
  if (!bind_arguments(definition, call, bound)) return {};
  if (!check_result_dims(definition, bound, call)) return {};
  if (mode == Mode::kCheck) {
    ensure_checked(const_cast<Module&>(module), const_cast<Definition&>(definition), *diagnostics);
    if (!call_conditions(definition, bound, call)) return {};
    return results_by_signature(definition, bound, call);
  }
  return expand(definition, bound, call, body->path, body->site);
}

void Lowering::output(const std::string& name, ValueId value) {
  graph().regions[0].results.push_back(value);
  graph().outputs.push_back({name});
}

ir::Graph Lowering::take() {
  return elaborator_->finish();
}

ir::Graph Elaborator::finish() {
  finish_states();
  if (mode == Mode::kLower) prune_inputs(graph);
  return std::move(graph);
}

// ------------------------------------------------------------------------------------ constants

std::optional<ir::Scalar> constant_expression(const Module& module, const Ast& ast, ExprId expr,
                                              Diagnostics& diagnostics) {
  const Constant c = evaluate_constant(
      ast, expr, constant_names(const_cast<Module&>(module), module.main(), diagnostics),
      diagnostics);
  if (c.kind == Constant::Kind::kNumber) return c.number;
  if (c.kind == Constant::Kind::kBool) {
    diagnostics.add(
        make_diagnostic(DiagId::E0208, ast.expr(expr).span, "a number is needed here", "a bool"));
  }
  return std::nullopt;
}

std::optional<ir::Scalar> constant_expression(const Module& module, const Unit& unit, ExprId expr,
                                              Diagnostics& diagnostics) {
  const Constant c = evaluate_constant(
      unit.ast, expr, constant_names(const_cast<Module&>(module), unit, diagnostics), diagnostics);
  if (c.kind == Constant::Kind::kNumber) return c.number;
  if (c.kind == Constant::Kind::kBool) {
    diagnostics.add(make_diagnostic(DiagId::E0208, unit.ast.expr(expr).span,
                                    "a number is needed here", "a bool"));
  }
  return std::nullopt;
}

std::optional<ir::Size> size_expression(const Module& module, const Unit& unit, ExprId expr,
                                        Diagnostics& diagnostics) {
  auto scalar = constant_expression(module, unit, expr, diagnostics);
  if (!scalar) return std::nullopt;
  auto size = scalar->as_size();
  if (!size) {
    diagnostics.add(make_diagnostic(DiagId::E0220, unit.ast.expr(expr).span,
                                    "a size is needed here", "not a whole number of dims"));
  }
  return size;
}

const Definition* find_definition(const Module& module, const std::string& dotted) {
  const size_t dot = dotted.find('.');
  if (dot == std::string::npos) return module.find(module.main(), dotted);
  return module.find_member(module.main(), dotted.substr(0, dot), dotted.substr(dot + 1));
}

}  // namespace cad::frontend
