// frontend/elaborate_expand.cc -- what a matched call gives: in checking, values of the result
// types and the callee's conditions; in lowering, the callee's body walked with its actual dims.
//
// Inside a definition its dim parameters, local dims and the dims of `..` are distinct whatever
// they are bound to. A parameter keeps the caller's dim where that is unambiguous; else it gets a
// stand-in of equal size, and renames lead in and out.
#include <algorithm>

#include "base/suggest.h"
#include "frontend/elaborator.h"

namespace cad::frontend {

using ir::ValueId;

const ScopeNames& Elaborator::names_of(const Definition& d) {
  std::unique_ptr<ScopeNames>& names = scope_names_[&d];
  if (!names) names = std::make_unique<ScopeNames>(name_scopes(module, d));
  return *names;
}

std::string Elaborator::component(ExprId callee, const std::string& name) const {
  if (body->names != nullptr) {
    auto at = body->names->calls.find(callee.index);
    if (at != body->names->calls.end()) return at->second;
  }
  const size_t dot = name.rfind('.');
  return snake_case(dot == std::string::npos ? name : name.substr(dot + 1));
}

namespace {

std::string joined(const std::string& path, const std::string& component) {
  if (component.empty()) return path;
  return path.empty() ? component : path + "." + component;
}

// Matches the arguments. What the call gives is known then in checking, and where anything is
// wrong; nullopt: the body has to be walked.
std::optional<EValue> results_without_body(Elaborator& e, const Definition& d, Call& call,
                                           Elaborator::Bound& bound) {
  if (!e.bind_arguments(d, call, bound)) return EValue{};
  if (!e.check_result_dims(d, bound, call)) return EValue{};
  if (e.mode != Elaborator::Mode::kCheck) return std::nullopt;
  ensure_checked(const_cast<Module&>(e.module), const_cast<Definition&>(d), *e.diagnostics);
  if (!e.call_conditions(d, bound, call)) return EValue{};
  return e.results_by_signature(d, bound, call);
}

}  // namespace

EValue Elaborator::call_definition(const Definition& d, Call& call) {
  if (body->definition != nullptr && body->definition->kind == DefKind::kFn &&
      d.kind != DefKind::kFn) {
    Diagnostic& e =
        error(DiagId::E0114, call.name_span,
              fmt::format("a `fn` cannot call the {} `{}`", def_keyword(d.kind), d.name),
              "it has parameters of its own");
    e.label(body->definition->def().keyword, "make this a `layer`");
    return {};
  }
  if (d.signature.broken) {
    statement_failed_ = true;
    return {};
  }
  Bound bound;
  if (!bind_formals(d, call.dims, call.dims_span, call.name_span, bound.formals)) return {};
  if (auto results = results_without_body(*this, d, call, bound)) return *results;
  const std::string name = component(call.callee, call.name);
  const bool top_model = body->definition == nullptr && d.kind == DefKind::kModel;
  const bool owns_path = d.kind != DefKind::kFn && !top_model;
  Path path = owns_path ? body->path.child(name) : top_model ? Path{} : body->path;
  const std::string site = top_model ? section_site(d) : joined(body->site, name);
  return expand(d, bound, call, std::move(path), site);
}

// A model mentioned again in a section is the same instance, but draws randomness of its own.
std::string Elaborator::section_site(const Definition& d) {
  const int n = section_counts_[d.name]++;
  return n == 0 ? "" : snake_case(d.name) + "_" + std::to_string(n);
}

EValue Elaborator::call_instance(Instance& instance, Call& call) {
  const Definition& d = *instance.definition;
  if (d.signature.broken) {
    statement_failed_ = true;
    return {};
  }
  if (call.dims != nullptr) {
    error(DiagId::E0110, call.dims_span,
          fmt::format("the dims of `{}` were bound by its `use`", call.name), "bound again");
    return {};
  }
  Bound bound;
  bound.formals = instance.dims;
  bound.args = instance.constants;
  if (auto results = results_without_body(*this, d, call, bound)) return *results;
  return expand(d, bound, call, instance.path,
                joined(body->site, component(call.callee, call.name)));
}

// -------------------------------------------------------------------------------------- checking

bool Elaborator::check_result_dims(const Definition& d, const Bound& bound, const Call& call) {
  for (const TypePattern& r : d.signature.results) {
    const DimList dims = *pattern_dims(r, bound.formals, bound.pack, d.unit);
    for (size_t i = 0; i < dims.size(); ++i) {
      if (std::find(dims.begin(), dims.begin() + static_cast<ptrdiff_t>(i), dims[i]) ==
          dims.begin() + static_cast<ptrdiff_t>(i)) {
        continue;
      }
      const std::string name = graph.dim(dims[i]).name;
      Diagnostic& e =
          error(DiagId::E0204, call.dims != nullptr ? call.dims_span : call.name_span,
                fmt::format("the result of `{}` would hold {} twice", d.name, dim_text(dims[i])),
                fmt::format("gives [{}]", show(dims)));
      e.help(fmt::format("use an alias: `dim {}2 = {}`, and `{}2` here", name, name, name));
      return false;
    }
  }
  return true;
}

bool Elaborator::call_conditions(const Definition& d, const Bound& bound, const Call& call) {
  if (d.conditions.empty()) return true;
  std::map<std::string, ir::Size> by;
  std::map<std::string, std::string> names;
  for (size_t i = 0; i < bound.formals.size(); ++i) {
    by.emplace("$" + d.signature.formals[i].name, size(bound.formals[i]));
    if (bound.formals[i].size() == 1)
      names[d.signature.formals[i].name] = graph.dim(bound.formals[i][0]).name;
  }
  by.emplace("$..", size(bound.pack));
  for (const Parameter& p : d.signature.parameters) {
    auto at = bound.args.find(p.name);
    if (at == bound.args.end() || !at->second.is_number()) continue;
    if (auto s = at->second.number->as_size()) by.emplace("$" + p.name, *s);
  }
  for (const DefCondition& c : d.conditions) {
    DefCondition here = c;
    here.left = c.left.substitute(by);
    here.right = c.right.substitute(by);
    here.span = call.span;
    here.dim = names.count(c.dim) != 0 ? names[c.dim] : "";
    if (!need(std::move(here))) return false;
  }
  return true;
}

EValue Elaborator::results_by_signature(const Definition& d, const Bound& bound, const Call& call) {
  std::vector<EValue> out;
  for (const TypePattern& r : d.signature.results) {
    ir::Type t;
    t.dtype = r.dtype;
    t.dims = *pattern_dims(r, bound.formals, bound.pack, d.unit);
    out.push_back(tensor_of(opaque(t, d.name), call.span));
  }
  return several(std::move(out), call.span);
}

EValue Elaborator::several(std::vector<EValue> values, Span span) {
  if (values.size() == 1) return values[0];
  EValue v;
  v.kind = EValue::Kind::kMany;
  v.many = std::make_shared<std::vector<EValue>>(std::move(values));
  v.span = span;
  return v;
}

// -------------------------------------------------------------------------------------- lowering

void Elaborator::bind_body(BodyFrame& frame, const Definition& d, const Bound& bound) {
  frame.definition = &d;
  frame.unit = d.unit;
  frame.ast = &d.unit->ast;
  frame.names = &names_of(d);
  frame.has_pack = d.signature.dots;
  for (const std::string& name : d.file_dims) frame.used.insert(file_dim(name));
  std::set<ir::DimId> outside(bound.pack.begin(), bound.pack.end());
  for (const DimList& list : bound.formals) outside.insert(list.begin(), list.end());
  auto inside = [&](ir::DimId dim) {
    if (frame.used.insert(dim).second) return dim;
    const ir::DimId other = alternate(
        dim, [&](ir::DimId c) { return frame.used.count(c) != 0 || outside.count(c) != 0; });
    frame.used.insert(other);
    return other;
  };
  for (ir::DimId dim : bound.pack) frame.pack.push_back(inside(dim));
  for (const DimList& list : bound.formals) {
    DimList inner;
    for (ir::DimId dim : list) inner.push_back(inside(dim));
    frame.formals.push_back(std::move(inner));
  }
}

// Pairs (outside, inside) of a type's dims.
std::vector<std::pair<ir::DimId, ir::DimId>> Elaborator::dim_pairs(const TypePattern& t,
                                                                   const Bound& bound,
                                                                   const BodyFrame& frame) const {
  std::vector<std::pair<ir::DimId, ir::DimId>> pairs;
  auto add = [&](const DimList& out, const DimList& in) {
    for (size_t i = 0; i < out.size(); ++i) pairs.emplace_back(out[i], in[i]);
  };
  for (const TypePattern::Term& term : t.terms) {
    if (term.dots) add(bound.pack, frame.pack);
    if (term.formal >= 0) {
      add(bound.formals[static_cast<size_t>(term.formal)],
          frame.formals[static_cast<size_t>(term.formal)]);
    }
  }
  return pairs;
}

void Elaborator::bind_parameters(BodyFrame& frame, const Definition& d, const Bound& bound) {
  for (const Parameter& p : d.signature.parameters) {
    auto at = bound.args.find(p.name);
    if (at == bound.args.end()) continue;
    Binding b;
    b.kind = BindKind::kArgument;
    b.span = p.span;
    b.value = at->second;
    if (b.value.tensor())
      b.value.value = rename(local(b.value.value), dim_pairs(p.type, bound, frame));
    b.value.span = p.span;
    frame.values[p.name] = std::move(b);
  }
}

EValue Elaborator::expand(const Definition& d, const Bound& bound, const Call& call, Path path,
                          std::string site) {
  BodyFrame frame;
  frame.caller = body;
  frame.path = std::move(path);
  frame.site = std::move(site);
  bind_body(frame, d, bound);
  builder.span = call.span;
  bind_parameters(frame, d, bound);
  BodyFrame* saved = body;
  body = &frame;
  statements(d.def().body);
  body = saved;
  if (!frame.returned) {
    statement_failed_ = true;
    return {};
  }
  std::vector<EValue> out;
  for (size_t i = 0; i < frame.returned->size(); ++i) {
    EValue v = (*frame.returned)[i];
    std::vector<std::pair<ir::DimId, ir::DimId>> back;
    for (const auto& [outer, inner] : dim_pairs(d.signature.results[i], bound, frame))
      back.emplace_back(inner, outer);
    builder.span = call.span;
    v.value = rename(local(v.value), back);
    v.span = call.span;
    out.push_back(std::move(v));
  }
  statement_failed_ = false;
  return several(std::move(out), call.span);
}

// ------------------------------------------------------------------------------- member of
// instance

namespace {

EValue unknown_member(Elaborator& e, const BodyFrame& frame, const Definition& d,
                      const Name& member) {
  Diagnostic& err = e.error(DiagId::E0113, member.span,
                            fmt::format("`{}` has no member `{}`", d.name, member.text),
                            "no such parameter, state or instance");
  std::vector<std::string> names;
  for (const auto& [name, b] : frame.values) {
    if (b.kind != BindKind::kArgument) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  if (auto near = suggest(member.text, names)) {
    err.help(fmt::format("did you mean `{}`?", *near));
  } else if (!names.empty()) {
    err.note(fmt::format("it has `{}`", fmt::join(names, "`, `")));
  }
  return {};
}

// A member has dims of its instance's body: as those of the place where the instance stands.
EValue in_dims_of_use(Elaborator& e, EValue member, const BodyFrame& frame,
                      const Elaborator::Bound& bound, const Expr& expr) {
  std::vector<std::pair<ir::DimId, ir::DimId>> back;
  for (size_t i = 0; i < bound.formals.size(); ++i) {
    for (size_t k = 0; k < bound.formals[i].size(); ++k)
      back.emplace_back(frame.formals[i][k], bound.formals[i][k]);
  }
  DimList dims;
  for (ir::DimId dim : e.type(member.value).dims) {
    const auto at =
        std::find_if(back.begin(), back.end(), [&](const auto& pair) { return pair.first == dim; });
    if (at != back.end()) dim = at->second;
    if (e.contains(dims, dim)) {
      const std::string& name = e.graph.dim(dim).name;
      e.error(DiagId::E0204, expr.member.span,
              fmt::format("`{}` would hold {} twice", expr.member.text, e.dim_text(dim)),
              "both dims of it are bound to the same")
          .help(fmt::format("bind an alias in `use`: `dim {}2 = {}`", name, name));
      return {};
    }
    dims.push_back(dim);
  }
  e.builder.span = expr.span;
  member.value = e.rename(e.local(member.value), back);
  member.span = expr.span;
  return member;
}

}  // namespace

EValue Elaborator::member(const EValue& v, const Expr& e) {
  if (v.kind != EValue::Kind::kInstance) {
    error(DiagId::E0113, e.member.span, fmt::format("a tensor has no member `{}`", e.member.text),
          "only instances have members");
    return {};
  }
  const Instance& instance = *v.instance;
  const Definition& d = *instance.definition;
  if (d.signature.broken) return {};
  Bound bound;
  bound.formals = instance.dims;
  bound.args = instance.constants;
  BodyFrame frame;
  frame.caller = body;
  frame.path = instance.path;
  frame.site = instance.site;
  frame.declare_only = true;
  bind_body(frame, d, bound);
  for (const Parameter& p : d.signature.parameters) {
    if (p.type.kind != TypePattern::Kind::kConstant || bound.args.count(p.name) != 0 ||
        !p.value.valid())
      continue;
    bound.args[p.name] = default_value(d, p, bound);
  }
  bind_parameters(frame, d, bound);
  BodyFrame* saved = body;
  Diagnostics silent;
  Diagnostics* loud = diagnostics;
  const bool failed = statement_failed_;
  body = &frame;
  diagnostics = &silent;
  statements(d.def().body);
  EValue out;
  auto at = frame.values.find(e.member.text);
  const bool found = at != frame.values.end() && at->second.kind != BindKind::kArgument;
  if (found) out = read_binding(e.member.text, at->second, e.span);
  body = saved;
  diagnostics = loud;
  statement_failed_ = failed;
  if (!found) return unknown_member(*this, frame, d, e.member);
  return out.tensor() ? in_dims_of_use(*this, std::move(out), frame, bound, e) : out;
}

}  // namespace cad::frontend
