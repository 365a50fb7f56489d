// frontend/expression.cc -- see expression.h.
#include "frontend/expression.h"

#include <algorithm>

#include "base/check.h"
#include "frontend/elaborator.h"
#include "frontend/parse.h"

namespace cad::frontend {

namespace {

// Components in source order, as the body of a layer gives them (paths.cc), counted on over inputs.
class TypedNamer {
 public:
  TypedNamer(const Typed& typed, std::map<std::string, int>& counts)
      : ast_(typed.ast), path_(typed.path), counts_(counts) {}

  void statements(const std::vector<StmtId>& list) {
    for (StmtId id : list) {
      const Stmt& s = ast_.stmt(id);
      if (s.kind == StmtKind::kRepeat) {
        names_.repeats[id.index] = next(s.label.empty() ? "repeat" : s.label.text);
        statements(s.body);
      } else if (s.kind != StmtKind::kUse && s.kind != StmtKind::kError) {
        expression(s.value);
      }
    }
  }

  void expression(ExprId id) {
    if (!id.valid()) return;
    std::vector<ExprId> found;
    collect_callees(ast_, id, found);
    std::stable_sort(found.begin(), found.end(), [&](ExprId a, ExprId b) {
      return ast_.expr(a).span.begin < ast_.expr(b).span.begin;
    });
    for (ExprId callee : found) {
      if (names_.calls.count(callee.index) != 0) continue;
      const Expr& e = ast_.expr(callee);
      names_.calls[callee.index] =
          next(snake_case(e.kind == ExprKind::kMember ? e.member.text : e.text));
    }
  }

  ScopeNames take() { return std::move(names_); }

 private:
  std::string next(const std::string& base) {
    const int n = counts_[path_ + "." + base]++;
    return n == 0 ? base : base + "_" + std::to_string(n);
  }

  const Ast& ast_;
  const std::string& path_;
  std::map<std::string, int>& counts_;
  ScopeNames names_;
};

// The grammar knows statements only in a body: the text is put into one.
std::optional<Typed> parse_statement(Sources& sources, FileId file, Diagnostics& diagnostics) {
  static const std::string kHead = "layer input() -> f32[] {";
  const std::string text = sources.file(file).text;
  const FileId whole = sources.add(sources.file(file).path, kHead + text + "\n}\n");
  sources.add_piece(whole, static_cast<uint32_t>(kHead.size()), file,
                    static_cast<uint32_t>(text.size()));
  Typed typed;
  typed.kind = TypedKind::kStatement;
  const size_t before = diagnostics.errors();
  typed.ast = parse(sources, whole, diagnostics);
  if (diagnostics.errors() > before) return std::nullopt;
  if (typed.ast.items.size() == 1 && typed.ast.items[0].kind == ItemKind::kDef) {
    typed.statements = typed.ast.def(typed.ast.items[0].def).body;
    if (!typed.statements.empty()) return typed;
  }
  // The text closed the body itself.
  diagnostics.add(make_diagnostic(DiagId::E0004, Span{file, 0, 1},
                                  "a closing bracket without an opening one", "in this input"));
  return std::nullopt;
}

}  // namespace

std::optional<Typed> parse_typed(Sources& sources, FileId file, TypedKind kind,
                                 const std::string& site, std::map<std::string, int>& counts,
                                 Diagnostics& diagnostics) {
  Typed typed;
  if (kind == TypedKind::kStatement) {
    auto parsed = parse_statement(sources, file, diagnostics);
    if (!parsed) return std::nullopt;
    typed = std::move(*parsed);
  } else {
    typed.ast.file = file;
    typed.expression = parse_expression(sources, file, typed.ast, diagnostics);
    if (!typed.expression.valid()) return std::nullopt;
  }
  typed.site = site;
  if (const std::vector<std::string> names = typed.bound(); !names.empty()) {
    typed.site = names[0];
    const StmtKind first = typed.ast.stmt(typed.statements[0]).kind;
    if (first == StmtKind::kBind || first == StmtKind::kRepeat) typed.path = names[0];
  }
  TypedNamer namer(typed, counts);
  namer.statements(typed.statements);
  namer.expression(typed.expression);
  typed.names = std::make_shared<ScopeNames>(namer.take());
  return typed;
}

std::vector<std::string> Typed::bound() const {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  };
  for (StmtId id : statements) {
    const Stmt& s = ast.stmt(id);
    for (const Name& name : s.names) add(name.text);
    if (s.kind != StmtKind::kRepeat) continue;
    for (const std::string& name : assigned_names(ast, s.body)) add(name);
  }
  return names;
}

bool Typed::mentions(const std::string& name) const {
  if (std::any_of(ast.exprs.begin(), ast.exprs.end(),
                  [&](const Expr& e) { return e.kind == ExprKind::kName && e.text == name; }))
    return true;
  // A repeat carries the names that its body binds again.
  for (StmtId id : statements) {
    const Stmt& s = ast.stmt(id);
    if (s.kind != StmtKind::kRepeat) continue;
    const std::vector<std::string> assigned = assigned_names(ast, s.body);
    if (std::find(assigned.begin(), assigned.end(), name) != assigned.end()) return true;
  }
  return false;
}

// -------------------------------------------------------------------------------------- the body

SessionBody::SessionBody(const Module& module, Walk walk, Diagnostics& diagnostics) {
  LowerOptions options;
  options.check = walk == Walk::kCheck;
  options.training = false;
  elaborator_ = std::make_unique<Elaborator>(
      module, options.check ? Elaborator::Mode::kCheck : Elaborator::Mode::kLower, options,
      diagnostics);
  elaborator_->open_section();
}

SessionBody::~SessionBody() = default;

// The program's names with the input's own tree: types written in it are looked up there.
void SessionBody::enter(const Typed& typed) {
  Elaborator& e = *elaborator_;
  const Unit& main = e.module.main();
  auto unit = std::make_unique<Unit>();
  unit->ast = typed.ast;
  unit->definitions = main.definitions;
  unit->lets = main.lets;
  unit->imports = main.imports;
  unit->dim_order = main.dim_order;
  unit->dims = main.dims;
  units_.push_back(std::move(unit));
  e.body->unit = units_.back().get();
  e.body->ast = &units_.back()->ast;
  e.body->names = typed.names.get();
  e.body->site = typed.site;
  e.body->path = Path{typed.path, {}};
  e.statement_failed_ = false;
  e.statement_reported_ = false;
}

bool SessionBody::run(const Typed& typed) {
  Elaborator& e = *elaborator_;
  enter(typed);
  const size_t before = e.diagnostics->errors();
  for (StmtId id : typed.statements) {
    const Stmt& s = e.body->ast->stmt(id);
    if (s.kind == StmtKind::kReturn) {
      e.error(DiagId::E0116, s.keyword, "`return` outside a definition", "nothing to return from")
          .help("type the expression alone to see its value");
      return false;
    }
    // A prompt may bind any of its names anew.
    for (const Name& name : s.names) {
      auto at = e.body->values.find(name.text);
      if (at != e.body->values.end() && at->second.kind != BindKind::kState)
        at->second.kind = BindKind::kValue;
      if (at != e.body->values.end() &&
          (s.kind == StmtKind::kParam || s.kind == StmtKind::kState || s.kind == StmtKind::kUse))
        e.body->values.erase(at);
    }
    e.statement(id);
    if (e.diagnostics->errors() > before) return false;
  }
  return true;
}

std::optional<std::vector<SectionValue>> SessionBody::evaluate(const Typed& typed) {
  Elaborator& e = *elaborator_;
  enter(typed);
  const EValue v = e.eval(typed.expression);
  if (v.error()) return std::nullopt;
  const std::vector<EValue> all = v.kind == EValue::Kind::kMany ? *v.many : std::vector<EValue>{v};
  std::vector<SectionValue> out;
  for (const EValue& part : all) {
    SectionValue s;
    if (part.kind == EValue::Kind::kInstance) {
      e.error(DiagId::E0112, part.span, "an instance is not a value", "an instance")
          .help("call it: `name(x)`");
      return std::nullopt;
    }
    s.kind = part.tensor()      ? SectionValue::Kind::kTensor
             : part.is_number() ? SectionValue::Kind::kNumber
                                : SectionValue::Kind::kBool;
    s.value = part.value;
    if (part.number) s.number = *part.number;
    s.flag = part.flag == 1;
    out.push_back(std::move(s));
  }
  return out;
}

std::optional<SectionValue> SessionBody::value(const std::string& name) {
  Elaborator& e = *elaborator_;
  auto at = e.body->values.find(name);
  if (at == e.body->values.end() || at->second.value.error() ||
      at->second.value.kind == EValue::Kind::kInstance)
    return std::nullopt;
  const EValue v = e.read_binding(name, at->second, at->second.span);
  SectionValue s;
  s.kind = v.tensor()      ? SectionValue::Kind::kTensor
           : v.is_number() ? SectionValue::Kind::kNumber
                           : SectionValue::Kind::kBool;
  s.value = v.value;
  if (v.number) s.number = *v.number;
  s.flag = v.flag == 1;
  return s;
}

void SessionBody::give(const std::string& name, const std::string& input, ir::DType dtype,
                       const std::vector<std::string>& dims) {
  Elaborator& e = *elaborator_;
  DimList list;
  for (const std::string& dim : dims) list.push_back(e.file_dim(dim));
  const ir::ValueId v = e.plain_input(input, dtype, list, ir::InputKind::kOther, Span{});
  Binding b;
  b.kind = BindKind::kValue;
  b.value = e.tensor_of(v, Span{});
  e.body->values[name] = std::move(b);
}

const ir::Graph& SessionBody::graph() const {
  return elaborator_->graph;
}

void SessionBody::output(const std::string& name, ir::ValueId value) {
  elaborator_->graph.regions[0].results.push_back(value);
  elaborator_->graph.outputs.push_back({name});
}

ir::Graph SessionBody::take() {
  return elaborator_->finish();
}

// ------------------------------------------------------------------------- a definition on its own

Result<ir::Graph> lower_definition(const Module& module, const Definition& definition) {
  Diagnostics diagnostics;
  const auto failed = [&]() -> Diagnostic {
    if (!diagnostics.all().empty()) return diagnostics.all()[0];
    return make_diagnostic(DiagId::E0112, definition.name_span(),
                           fmt::format("`{}` has errors", definition.name));
  };
  if (!ensure_checked(const_cast<Module&>(module), const_cast<Definition&>(definition),
                      diagnostics))
    return failed();
  LowerOptions options;
  options.training = false;
  Elaborator e(module, Elaborator::Mode::kLower, options, diagnostics);
  e.open_section();
  return e.lower_alone(definition) ? Result<ir::Graph>(e.finish()) : Result<ir::Graph>(failed());
}

bool Elaborator::lower_alone(const Definition& d) {
  Bound bound;
  for (const Formal& f : d.signature.formals)
    bound.formals.push_back({graph.add_dim(f.name, ir::Size::symbol(f.name))});
  DimList pack;
  if (d.signature.dots) pack.push_back(graph.add_dim("N", ir::Size::symbol("N")));
  Call call;
  call.name = d.name;
  call.name_span = call.span = d.name_span();
  for (const Parameter& p : d.signature.parameters) {
    EValue v;
    if (p.type.kind == TypePattern::Kind::kTensor) {
      const DimList dims = *pattern_dims(p.type, bound.formals, pack, d.unit);
      ir::ValueId input = plain_input(p.name, p.type.dtype, dims, ir::InputKind::kData, p.span);
      v = tensor_of(p.type.plain ? cast(input, options.compute) : input, p.span);
    } else if (p.value.valid()) {
      continue;
    } else if (p.type.constant == TypePattern::Constant::kBool) {
      v = flag_of(1, p.span);
    } else {
      v = number_of(ir::Scalar::size(ir::Size::symbol(p.name)),
                    p.type.constant == TypePattern::Constant::kInt, p.span);
    }
    call.args.push_back({Name{p.name, p.span}, std::move(v), p.span});
  }
  if (!bind_arguments(d, call, bound)) return false;
  const EValue result = expand(d, bound, call, Path{}, "");
  if (result.error()) return false;
  const std::vector<EValue> values =
      result.kind == EValue::Kind::kMany ? *result.many : std::vector<EValue>{result};
  for (size_t i = 0; i < values.size(); ++i) {
    graph.regions[0].results.push_back(values[i].value);
    graph.outputs.push_back({"result:" + std::to_string(i)});
  }
  return true;
}

}  // namespace cad::frontend
