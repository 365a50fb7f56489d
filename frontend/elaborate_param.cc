// frontend/elaborate_param.cc -- what a body owns: parameters and states with their initialisers,
// and instances made by `use`. Reading them from inside loops is elaborate_repeat.cc.
#include <algorithm>
#include <cmath>

#include "base/suggest.h"
#include "frontend/elaborator.h"

namespace cad::frontend {

using ir::ValueId;

void Elaborator::param_statement(const Stmt& s) {
  const bool state = s.kind == StmtKind::kState;
  const char* what = state ? "state" : "param";
  auto fail = [&] {
    for (const Name& n : s.names) {
      if (body->values.count(n.text) == 0) bind_error(n);
    }
  };
  if (body->definition != nullptr && body->definition->kind == DefKind::kFn) {
    error(DiagId::E0114, s.keyword, fmt::format("a `fn` has no `{}`", what),
          "only layers and models own parameters")
        .label(body->definition->def().keyword, "make this a `layer`");
    return fail();
  }
  auto pattern = body_type(s.type);
  if (!pattern) return fail();
  if (!state && !ir::is_float(pattern->dtype)) {
    error(DiagId::E0205, pattern->span,
          fmt::format("a parameter is trained, so it is a float, not `{}`",
                      ir::dtype_name(pattern->dtype)));
    return fail();
  }
  const DimList dims = *pattern_dims(*pattern, body->formals, body->pack, nullptr);
  if (!s.value.valid()) {
    error(DiagId::E0118, s.span, fmt::format("a {} needs an initialiser", what), "no `= ..`")
        .help(state ? "`= zeros`" : "`= normal(0.02)`, `= zeros`, ..");
    return fail();
  }
  auto init = initialiser(s.value, dims);
  if (!init) return fail();
  check_annotations(s, &dims);
  for (const Name& n : s.names) {
    if (!check_binding_name(n, true)) continue;
    Binding b;
    b.kind = state ? BindKind::kState : BindKind::kParam;
    b.span = n.span;
    ir::Type t;
    t.dtype = pattern->dtype;
    t.dims = dims;
    if (mode == Mode::kCheck) {
      b.value = tensor_of(opaque(t, n.text), n.span);
      record(n, b.value, what);
    } else {
      declare_input(s, n, t, *init, b);
    }
    body->values[n.text] = std::move(b);
  }
}

// Makes the input's description; the input itself is made when somebody reads it.
void Elaborator::declare_input(const Stmt& s, const Name& name, const ir::Type& t,
                               const ir::Init& init, Binding& b) {
  b.path = body->path.child(name.text).text;
  b.loops = body->path.loops;
  b.value = EValue{};
  b.value.kind = EValue::Kind::kTensor;
  PendingInput p;
  p.input.kind = s.kind == StmtKind::kState ? ir::InputKind::kState : ir::InputKind::kParam;
  p.input.path = b.path;
  p.input.loop_dims = static_cast<int>(b.loops.size());
  p.input.init = init;
  p.input.span = name.span;
  for (const Annotation& a : s.annotations) {
    if (a.name.text == "frozen") p.input.frozen = true;
    if (a.name.text == "decay") p.input.decay = ir::Input::Decay::kAlways;
    if (a.name.text == "no_decay") p.input.decay = ir::Input::Decay::kNever;
  }
  p.type = t;
  p.pins = pins_of(s, t.dims);
  p.saving = saving_of(s);
  pending_inputs_[b.path] = std::move(p);
  if (s.kind == StmtKind::kState) state_loops_[b.path] = b.loops;
}

namespace {

// sqrt(twice / fan)
ir::Scalar root_of_fan(double twice, const ir::Size& fan) {
  return ir::Scalar::call("sqrt",
                          {ir::Scalar::call("div", {ir::Scalar(twice), ir::Scalar::size(fan)})});
}

// Fan-in or fan-out: dims of the parameter.
std::optional<DimList> fan_dims(Elaborator& e, const std::string& name, const DimSide& side,
                                const DimList& dims) {
  auto list = e.dims_of_side(side, fmt::format("`{}`", name));
  if (!list) return std::nullopt;
  for (ir::DimId d : *list) {
    if (e.contains(dims, d)) continue;
    e.error(DiagId::E0118, side.span,
            fmt::format("{} is not a dim of this parameter", e.dim_text(d)),
            "names its fan-in and fan-out");
    return std::nullopt;
  }
  return list;
}

// constant(x), normal(s), uniform(a)
std::optional<ir::Init> scaled_init(Elaborator& e, const std::string& name, ExprId argument) {
  const EValue v = e.eval(argument);
  if (v.error()) return std::nullopt;
  if (!v.is_number()) {
    e.error(DiagId::E0208, v.span, fmt::format("`{}` takes a constant", name), e.describe(v));
    return std::nullopt;
  }
  ir::Init init;
  init.kind = name == "constant" ? ir::Init::Kind::kConstant
              : name == "normal" ? ir::Init::Kind::kNormal
                                 : ir::Init::Kind::kUniform;
  init.scale = *v.number;
  const auto value = e.value_of(init.scale);
  const bool fine =
      !value || (name == "constant" ? !std::isnan(*value) : *value >= 0 && std::isfinite(*value));
  if (fine) return init;
  e.error(DiagId::E0215, v.span, fmt::format("`{}({})` is no initialiser", name, *value),
          name == "constant" ? "not a number" : "a finite number, at least 0");
  return std::nullopt;
}

std::optional<ir::Init> kaiming_init(Elaborator& e, const Expr& expr, const DimList& dims) {
  DimList in;
  for (const DimItem& item : expr.dims) {
    auto part = fan_dims(e, "kaiming", item.left, dims);
    if (!part) return std::nullopt;
    in.insert(in.end(), part->begin(), part->end());
  }
  ir::Init init;
  init.kind = ir::Init::Kind::kNormal;
  init.scale = root_of_fan(2.0, e.size(in));
  return init;
}

std::optional<ir::Init> xavier_init(Elaborator& e, const DimItem& item, const DimList& dims) {
  auto in = fan_dims(e, "xavier", item.left, dims), out = fan_dims(e, "xavier", item.right, dims);
  if (!in || !out) return std::nullopt;
  ir::Init init;
  init.kind = ir::Init::Kind::kUniform;
  init.scale = root_of_fan(6.0, e.size(*in) + e.size(*out));
  return init;
}

void unknown_init(Elaborator& e, const std::string& name, Span span) {
  Diagnostic& d = e.error(DiagId::E0118, span, "not an initialiser", "unknown");
  const std::vector<std::string> all = {"zeros",   "ones",    "constant", "normal",
                                        "uniform", "kaiming", "xavier"};
  if (auto near = suggest(name, all); near && *near != name)
    d.help(fmt::format("did you mean `{}`?", *near));
  d.note(
      "initialisers are `zeros`, `ones`, `constant(x)`, `normal(s)`, `uniform(a)`, `kaiming[D]` "
      "and `xavier[D -> F]`");
}

}  // namespace

std::optional<ir::Init> Elaborator::initialiser(ExprId id, const DimList& dims) {
  const Ast& ast = *body->ast;
  const Expr& e = ast.expr(strip_parens(ast, id));
  const Expr* callee = &e;
  if (e.kind == ExprKind::kCall || e.kind == ExprKind::kDims) callee = &ast.expr(e.left);
  const std::string& name = callee->text;
  if (e.kind == ExprKind::kName && name == "zeros") return ir::Init{};
  if (e.kind == ExprKind::kName && name == "ones") {
    ir::Init init;
    init.kind = ir::Init::Kind::kConstant;
    init.scale = ir::Scalar(1.0);
    return init;
  }
  if (e.kind == ExprKind::kCall && callee->kind == ExprKind::kName && e.args.size() == 1 &&
      (name == "constant" || name == "normal" || name == "uniform"))
    return scaled_init(*this, name, e.args[0].value);
  if (e.kind == ExprKind::kDims && name == "kaiming") return kaiming_init(*this, e, dims);
  if (e.kind == ExprKind::kDims && name == "xavier" && e.dims.size() == 1 &&
      e.dims[0].kind == DimItemKind::kArrow)
    return xavier_init(*this, e.dims[0], dims);
  if (e.kind == ExprKind::kError)
    statement_failed_ = true;
  else
    unknown_init(*this, name, e.span);
  return std::nullopt;
}

void Elaborator::use_statement(const Stmt& s) {
  const Name& name = s.names.empty() ? Name{} : s.names[0];
  if (!check_binding_name(name, true)) return bind_error(name);
  auto instance = make_instance(s, name);
  if (!instance) return bind_error(name);
  check_annotations(s, nullptr);
  Binding b;
  b.kind = BindKind::kUse;
  b.span = name.span;
  b.value.kind = EValue::Kind::kInstance;
  b.value.instance = *instance;
  b.value.span = s.span;
  body->values[name.text] = std::move(b);
}

namespace {

// The constants that a `use` gives by name: `use a = Attention[..](scale: 0.5)`.
bool constants_of_use(Elaborator& e, const Definition& d, const Expr& call, Instance& instance) {
  for (const Arg& a : call.args) {
    EValue v = e.eval(a.value);
    if (v.error()) return false;
    const int at = a.name.empty() ? -1 : d.signature.find_parameter(a.name.text);
    const Parameter* p = at < 0 ? nullptr : &d.signature.parameters[static_cast<size_t>(at)];
    if (p == nullptr || p->type.kind != TypePattern::Kind::kConstant) {
      Diagnostic& err =
          e.error(p == nullptr ? DiagId::E0108 : DiagId::E0208, a.span,
                  a.name.empty() ? "`use` takes constant arguments by name"
                  : p == nullptr ? fmt::format("`{}` has no argument `{}`", d.name, a.name.text)
                                 : fmt::format("argument `{}` is not a constant", a.name.text),
                  "in a `use`");
      if (p != nullptr) err.help("give it when the instance is called");
      return false;
    }
    if (!e.match_constant(*p, v, a.span, d.name)) return false;
    instance.constants[a.name.text] = std::move(v);
  }
  return true;
}

}  // namespace

std::optional<Instance*> Elaborator::make_instance(const Stmt& s, const Name& name) {
  const Ast& ast = *body->ast;
  const Expr* e = &ast.expr(s.value);
  const Expr* call_expr = e->kind == ExprKind::kCall ? e : nullptr;
  ExprId callee = call_expr != nullptr ? call_expr->left : s.value;
  const Expr* dims = ast.expr(callee).kind == ExprKind::kDims ? &ast.expr(callee) : nullptr;
  if (dims != nullptr) callee = dims->left;
  const Expr& target = ast.expr(callee);
  if (target.kind == ExprKind::kError) {
    statement_failed_ = true;
    return std::nullopt;
  }
  Call call;
  call.callee = callee;
  call.span = e->span;
  const Definition* d = nullptr;
  if (target.kind == ExprKind::kName || target.kind == ExprKind::kMember)
    d = find_callee(callee, call.name, call.name_span);
  if (d == nullptr) {
    if (target.kind == ExprKind::kName || target.kind == ExprKind::kMember) {
      unknown_callee(callee, call);
    } else {
      error(DiagId::E0112, e->span, "`use` takes a layer or a model", "neither");
    }
    return std::nullopt;
  }
  if (d->kind == DefKind::kFn ||
      (body->definition != nullptr && body->definition->kind == DefKind::kFn)) {
    const bool callee_fn = d->kind == DefKind::kFn;
    error(DiagId::E0114, target.span,
          callee_fn ? fmt::format("`{}` is a `fn`: it has nothing to share", d->name)
                    : fmt::format("a `fn` cannot hold an instance of `{}`", d->name),
          callee_fn ? "`use` takes a layer or a model" : "it has parameters of its own");
    return std::nullopt;
  }
  if (d->signature.broken) {
    statement_failed_ = true;
    return std::nullopt;
  }
  Instance instance;
  instance.definition = d;
  if (!bind_formals(*d, dims != nullptr ? &dims->dims : nullptr,
                    dims != nullptr ? dims->op_span : target.span, target.span, instance.dims)) {
    return std::nullopt;
  }
  if (call_expr != nullptr && !constants_of_use(*this, *d, *call_expr, instance))
    return std::nullopt;
  instance.path = body->path.child(name.text);
  instance.site = body->site.empty() ? name.text : body->site + "." + name.text;
  instances_.push_back(std::move(instance));
  return &instances_.back();
}

}  // namespace cad::frontend
