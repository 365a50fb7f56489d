// frontend/elaborate_stmt.cc -- statements of a body: dims, bindings, return.
// Parameters and instances are elaborate_param.cc, repeats elaborate_repeat.cc. A statement that
// fails binds its names to error values, which silence whatever uses them.
#include <algorithm>

#include "base/suggest.h"
#include "frontend/elaborator.h"

namespace cad::frontend {

using ir::DType;
using ir::ValueId;

void Elaborator::statements(const std::vector<StmtId>& list) {
  for (StmtId id : list) {
    if (body->returned && !body->declare_only) {
      const Stmt& s = body->ast->stmt(id);
      statement_reported_ = false;
      error(DiagId::E0116, s.span, "a statement after `return` is never reached",
            "after the return");
      return;
    }
    statement(id);
  }
}

void Elaborator::statement(StmtId id) {
  const Stmt& s = body->ast->stmt(id);
  statement_failed_ = false;
  statement_reported_ = false;
  if (s.broken || s.kind == StmtKind::kError) {
    for (const Name& n : s.names) bind_error(n);
    for (const DimBind& b : s.binds) body->broken_names.insert(b.name.text);
    if (s.kind == StmtKind::kReturn) body->broken_return = true;
    return;
  }
  if (body->declare_only &&
      (s.kind == StmtKind::kRepeat || s.kind == StmtKind::kReturn || s.kind == StmtKind::kBind))
    return;
  builder.span = s.span;
  switch (s.kind) {
    case StmtKind::kDim:
      dim_statement(s);
      return;
    case StmtKind::kParam:
    case StmtKind::kState:
      param_statement(s);
      return;
    case StmtKind::kUse:
      use_statement(s);
      return;
    case StmtKind::kRepeat:
      repeat_statement(id, s);
      return;
    case StmtKind::kReturn:
      return_statement(s);
      return;
    case StmtKind::kBind:
      bind_statement(s);
      return;
    case StmtKind::kError:
      return;
  }
}

void Elaborator::bind_error(const Name& name) {
  if (name.empty()) return;
  body->broken_names.insert(name.text);
  Binding& b = body->values[name.text];
  b.value = EValue{};
  b.kind = BindKind::kValue;
  b.path.clear();
  b.span = name.span;
}

// A name for a new value: not a dim's, not a parameter's or an instance's.
bool Elaborator::check_binding_name(const Name& name, bool declares) {
  const std::string& text = name.text;
  if (text == "inf" || text == "true" || text == "false" || text == "training") {
    error(DiagId::E0111, name.span, fmt::format("`{}` is a constant of the language", text),
          "cannot be bound");
    return false;
  }
  if (find_dims(text)) {
    Diagnostic& d =
        error(DiagId::E0104, name.span, fmt::format("value `{}` is named like a dim", text),
              "dims and values share one namespace");
    if (auto at = body->unit->dims.find(text); at != body->unit->dims.end())
      d.label(at->second, "the dim");
    d.help("by convention values are lower case");
    return false;
  }
  auto at = body->values.find(text);
  if (at == body->values.end()) return true;
  const BindKind kind = at->second.kind;
  const char* what = kind == BindKind::kParam   ? "parameter"
                     : kind == BindKind::kState ? "state"
                                                : "instance";
  if (kind == BindKind::kParam || kind == BindKind::kUse ||
      (declares && kind == BindKind::kState)) {
    Diagnostic& d = error(DiagId::E0111, name.span,
                          fmt::format("{} `{}` cannot be bound again", what, text), "bound again");
    d.label(at->second.span, fmt::format("the {}", what));
    if (!declares) d.help("give the value a name of its own");
    return false;
  }
  if (declares && (kind == BindKind::kArgument || kind == BindKind::kValue) &&
      !at->second.value.error()) {
    Diagnostic& d = error(DiagId::E0103, name.span, fmt::format("`{}` is there already", text),
                          "defined again");
    d.label(at->second.span, "first here");
    return false;
  }
  return true;
}

void Elaborator::dim_statement(const Stmt& s) {
  for (const DimBind& b : s.binds) {
    const std::string& name = b.name.text;
    statement_reported_ = false;
    if (name.empty()) continue;
    if (auto at = body->local_dim_spans.find(name);
        at != body->local_dim_spans.end() && !body->declare_only) {
      error(DiagId::E0103, b.name.span, fmt::format("dim `{}` is defined twice", name), "again")
          .label(at->second, "first here");
      continue;
    }
    const bool formal =
        body->definition != nullptr && body->definition->signature.find_formal(name) >= 0;
    if (formal || body->values.count(name) != 0) {
      error(formal ? DiagId::E0103 : DiagId::E0104, b.name.span,
            formal ? fmt::format("`{}` is a dim parameter already", name)
                   : fmt::format("dim `{}` is named like a value", name),
            "again");
      continue;
    }
    body->local_dim_spans[name] = b.name.span;
    if (!b.value.valid()) {
      error(DiagId::E0220, b.name.span, fmt::format("dim `{}` of a body needs a size", name),
            "no size")
          .help(fmt::format("`dim {} = ..`, or make it a dim of the file", name));
      body->broken_names.insert(name);
      continue;
    }
    auto size = size_of(b.value, "the size of a dim");
    Need whole;
    whole.what = fmt::format("the size of `{}`", name);
    whole.span = body->ast->expr(b.value).span;
    if (!size || !need_whole(*size, whole)) {
      body->broken_names.insert(name);
      continue;
    }
    body->local_dims[name] = {local_dim(name, *size)};
  }
}

std::optional<TypePattern> Elaborator::body_type(TypeId type) {
  const std::function<bool(const std::string&)> is_local = [this](const std::string& name) {
    return body->local_dims.count(name) != 0;
  };
  Diagnostics own;
  TypePattern t = resolve_type(module, *body->unit,
                               body->definition != nullptr ? &body->definition->signature : nullptr,
                               is_local, type, false, own);
  if (t.kind != TypePattern::Kind::kError) return t;
  statement_failed_ = true;
  bool silent = own.all().empty();
  for (const TypePattern::Term& term : t.terms)
    silent = silent || body->broken_names.count(term.name) != 0;
  for (const DimTerm& term : body->ast->type(type).terms) {
    if (term.dim.valid() && body->broken_names.count(body->ast->expr(term.dim).text) != 0)
      silent = true;
  }
  if (!silent && !statement_reported_) {
    statement_reported_ = true;
    diagnostics->add(own.all()[0]);
  }
  return std::nullopt;
}

// ------------------------------------------------------------------------------------- bindings

namespace {

// What made a value, for "from `gelu` at line 20".
std::string maker(const Ast& ast, ExprId id) {
  const Expr& e = ast.expr(strip_parens(ast, id));
  auto callee = [&](const Expr& c) -> std::string {
    const Expr* at = &c;
    if (at->kind == ExprKind::kCall) at = &ast.expr(at->left);
    if (at->kind == ExprKind::kDims) at = &ast.expr(at->left);
    if (at->kind == ExprKind::kName) return "`" + at->text + "`";
    if (at->kind == ExprKind::kMember) return "`" + at->member.text + "`";
    return "";
  };
  switch (e.kind) {
    case ExprKind::kCall:
      return callee(e);
    case ExprKind::kBinary:
      if (e.op == AstOp::kPipe) return callee(ast.expr(e.right));
      return e.op == AstOp::kContract ? "`@`" : fmt::format("`{}`", op_text(e.op));
    case ExprKind::kDims:
      return "a rename or index";
    default:
      return "";
  }
}

}  // namespace

void Elaborator::bind(const Name& name, EValue value, ExprId expr) {
  if (!check_binding_name(name, false)) {
    if (body->values.count(name.text) == 0) bind_error(name);  // its uses stay silent
    return;
  }
  auto at = body->values.find(name.text);
  if (at != body->values.end() && at->second.kind == BindKind::kState)
    return assign_state(name, at->second, value);
  if (value.kind == EValue::Kind::kInstance) {
    error(DiagId::E0112, value.span, "an instance is not a value", "cannot be bound")
        .help(fmt::format("`use {} = ..` makes an instance", name.text));
    return bind_error(name);
  }
  value.from = expr.valid() ? maker(*body->ast, expr) : "";
  if (value.tensor()) {
    ir::Value& v = graph.value(value.value);
    if (v.name.empty()) v.name = name.text;
  }
  Binding& b = body->values[name.text];
  b.kind = BindKind::kValue;
  b.span = name.span;
  b.path.clear();
  b.value = std::move(value);
  body->broken_names.erase(name.text);
  record(name, b.value, "value");
}

void Elaborator::assign_state(const Name& name, Binding& b, const EValue& value) {
  const bool lower = mode == Mode::kLower;
  if (lower && !options.training) return;
  const ir::Type wanted = lower ? pending_inputs_.at(b.path).type : type(b.value.value);
  auto x = as_tensor(value, wanted.dtype, name.span, fmt::format("state `{}`", name.text));
  if (!x) return;
  const bool same =
      type(*x).rank() == wanted.rank() && std::all_of(wanted.dims.begin(), wanted.dims.end(),
                                                      [&](ir::DimId d) { return type(*x).has(d); });
  const bool floats = ir::is_float(type(*x).dtype) && ir::is_float(wanted.dtype);
  if (!same || (!floats && type(*x).dtype != wanted.dtype)) {
    Diagnostic& d =
        error(DiagId::E0207, value.span,
              fmt::format("state `{}` is {}, not {}", name.text, show(wanted), show(*x)),
              describe(value));
    d.label(b.span, "declared here");
    return;
  }
  if (!lower) return;
  ValueId v = cast(*x, wanted.dtype);
  if (type(v).dims != wanted.dims) {
    ir::Attrs attrs;
    attrs.dims = wanted.dims;
    v = node(ir::Op::kTranspose, {v}, std::move(attrs));
  }
  RegionFrame::State& state = state_in(region, b.path);
  state.current = node(ir::Op::kStop, {v});
  state.assigned = true;
}

// A value against a declared type; a smaller one is broadcast where that is allowed.
std::optional<EValue> Elaborator::coerce(EValue v, const TypePattern& t, const DimList& dims,
                                         Span span, const std::string& what,
                                         bool broadcast_allowed) {
  auto x = as_tensor(v, t.dtype, span, what);
  if (!x) return std::nullopt;
  const ir::Type own = type(*x);
  const bool floats = ir::is_float(own.dtype) && ir::is_float(t.dtype);
  ir::Type wanted;
  wanted.dtype = t.dtype;
  wanted.dims = dims;
  if (!floats && own.dtype != t.dtype) {
    Diagnostic& d = error(
        DiagId::E0205, span,
        fmt::format("{} is declared {}, this is {}", what, show(wanted), show(own)), describe(v));
    d.label(t.span, "declared here");
    d.help(fmt::format("cast it: `{}(..)`", ir::dtype_name(t.dtype)));
    return std::nullopt;
  }
  DimList extra, missing;
  for (ir::DimId d : own.dims) {
    if (!contains(dims, d)) extra.push_back(d);
  }
  for (ir::DimId d : dims) {
    if (!own.has(d)) missing.push_back(d);
  }
  if (!extra.empty() || (!missing.empty() && !broadcast_allowed)) {
    Diagnostic& d = error(
        DiagId::E0207, span,
        fmt::format("{} is declared {}, this is {}", what, show(wanted), show(own)), describe(v));
    d.label(t.span, "declared here");
    if (!missing.empty()) d.note(fmt::format("it lacks {}", dims_text(missing)));
    if (!extra.empty())
      d.note(fmt::format("{} {} too many", dims_text(extra), extra.size() == 1 ? "is" : "are"));
    if (extra.empty() && !broadcast_allowed)
      d.help(fmt::format("a typed binding broadcasts: `y: {} = ..`", show(wanted)));
    return std::nullopt;
  }
  ValueId r = *x;
  if (!missing.empty()) r = broadcast(r, dims);
  if (floats && !t.plain && own.dtype != t.dtype) r = cast(r, t.dtype);
  if (floats && t.plain && !v.tensor()) r = cast(r, options.compute);
  EValue out = tensor_of(r, v.span);
  out.bound = v.bound;
  return out;
}

std::string Elaborator::dims_text(const DimList& dims) const {
  std::string text;
  for (ir::DimId d : dims) text += (text.empty() ? "" : ", ") + dim_text(d);
  return text;
}

void Elaborator::bind_statement(const Stmt& s) {
  auto fail = [&] {
    for (const Name& n : s.names) {
      auto at = body->values.find(n.text);
      const bool keep = at != body->values.end() && at->second.kind != BindKind::kArgument &&
                        at->second.kind != BindKind::kValue && at->second.kind != BindKind::kLoop;
      if (!keep) bind_error(n);
    }
  };
  if (collect_statement(s)) {
    if (statement_failed_) fail();
    return;
  }
  // A state's assignment is not even evaluated outside training.
  if (mode == Mode::kLower && !options.training && s.names.size() == 1) {
    auto at = body->values.find(s.names[0].text);
    if (at != body->values.end() && at->second.kind == BindKind::kState) return;
  }
  std::optional<TypePattern> pattern;
  DimList dims;
  if (s.type.valid()) {
    pattern = body_type(s.type);
    if (!pattern) return fail();
    dims = *pattern_dims(*pattern, body->formals, body->pack, nullptr);
  }
  EValue v = eval(s.value, pattern ? &dims : nullptr);
  if (v.error()) return fail();
  if (s.names.size() != (v.kind == EValue::Kind::kMany ? v.many->size() : 1)) {
    const size_t n = v.kind == EValue::Kind::kMany ? v.many->size() : 1;
    Diagnostic& d = error(DiagId::E0213, s.names.back().span,
                          fmt::format("{} name{} for {} value{}", s.names.size(),
                                      s.names.size() == 1 ? "" : "s", n, n == 1 ? "" : "s"));
    d.label(body->ast->expr(s.value).span, n == 1 ? "one value" : fmt::format("{} values", n));
    return fail();
  }
  if (pattern) {
    auto typed = v.kind == EValue::Kind::kMany
                     ? std::nullopt
                     : coerce(v, *pattern, dims, body->ast->expr(s.value).span,
                              fmt::format("`{}`", s.names[0].text), true);
    if (!typed) {
      if (v.kind == EValue::Kind::kMany)
        error(DiagId::E0213, s.names[0].span, "a typed binding has one name", "several");
      return fail();
    }
    v = std::move(*typed);
  }
  if (v.kind == EValue::Kind::kMany) {
    annotate(s, *v.many);
  } else {
    annotate(s, {v});
  }
  if (s.names.size() == 1) return bind(s.names[0], std::move(v), s.value);
  for (size_t i = 0; i < s.names.size(); ++i) bind(s.names[i], (*v.many)[i], s.value);
}

void Elaborator::return_statement(const Stmt& s) {
  if (body->in_repeat > 0) {
    error(DiagId::E0116, s.keyword, "`return` inside `repeat`", "a loop runs to its end")
        .help("bind the result and return it after the loop");
    return;
  }
  std::vector<EValue> values;
  body->broken_return = true;  // until it is known to be fine
  for (ExprId id : s.values) {
    EValue v = eval(id);
    if (v.error()) return;
    if (v.kind == EValue::Kind::kMany) {
      for (EValue& part : *v.many) values.push_back(part);
    } else {
      values.push_back(std::move(v));
    }
  }
  const Signature& signature = body->definition->signature;
  if (signature.results.size() != values.size()) {
    Diagnostic& d = error(DiagId::E0213, s.span,
                          fmt::format("`{}` returns {} value{}, this is {}", body->definition->name,
                                      signature.results.size(),
                                      signature.results.size() == 1 ? "" : "s", values.size()));
    if (!signature.results.empty()) d.label(signature.results[0].span, "declared here");
    return;
  }
  std::vector<EValue> out;
  for (size_t i = 0; i < values.size(); ++i) {
    const TypePattern& t = signature.results[i];
    if (t.kind == TypePattern::Kind::kError) return;
    const DimList dims = *pattern_dims(t, body->formals, body->pack, body->unit);
    const Span span =
        s.values.size() == values.size() ? body->ast->expr(s.values[i]).span : values[i].span;
    const std::string what = values.size() == 1
                                 ? fmt::format("the result of `{}`", body->definition->name)
                                 : fmt::format("result {} of `{}`", i + 1, body->definition->name);
    auto v = coerce(values[i], t, dims, span, what, false);
    if (!v) return;
    out.push_back(std::move(*v));
  }
  annotate(s, out);
  body->broken_return = false;
  body->returned = std::move(out);
}

void Elaborator::record(const Name& name, const EValue& v, const char* kind) {
  if (checking == nullptr || mode != Mode::kCheck || body->definition != checking) return;
  BindingInfo info;
  info.name = name.text;
  info.span = name.span;
  info.kind = kind;
  if (v.tensor()) {
    const DimList& dims = type(v.value).dims;
    info.type = show(v.value);
    info.sizes = sizes_of(dims);
    // once a definition: what is made of it is as large
    if (checking->bindings.empty() || !checking->bindings.back().too_large) {
      info.too_large = too_large(dims);
      if (info.too_large) {
        error(DiagId::E0206, name.span, fmt::format("a tensor is too large: {}", info.type))
            .note(info.sizes)
            .note("one tensor has at most 2^48 elements");
      }
    } else {
      info.too_large = true;
    }
  } else if (v.is_number()) {
    const auto n = value_of(*v.number);
    info.type = n ? fmt::format("{:g}", *n) : v.number->str();
  } else if (v.kind == EValue::Kind::kBool) {
    info.type = v.flag < 0 ? "bool" : v.flag == 1 ? "true" : "false";
  } else {
    return;
  }
  checking->bindings.push_back(std::move(info));
}

}  // namespace cad::frontend
