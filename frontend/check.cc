// frontend/check.cc -- check(): the phases in order, and definitions in the order of their calls,
// callees first, so that a caller finds the conditions of what it calls.
#include <algorithm>

#include <fmt/format.h>

#include "frontend/elaborator.h"
#include "frontend/lint.h"
#include "frontend/resolve.h"
#include "frontend/sections.h"
#include "frontend/settings.h"

namespace cad::frontend {

namespace {

constexpr int kMaxCalls = 200;  // how deep calls nest

void names_in_type(const Ast& ast, TypeId id, std::set<std::string>& names) {
  if (!id.valid()) return;
  for (const DimTerm& t : ast.type(id).terms) collect_names(ast, t.dim, names);
  for (TypeId e : ast.type(id).elements) names_in_type(ast, e, names);
}

struct Mentions {
  std::set<std::string> names;
  std::vector<ExprId> callees;
  std::set<std::string> uses;
};

void mentions(const Ast& ast, const std::vector<StmtId>& body, Mentions& out) {
  for (StmtId id : body) {
    const Stmt& s = ast.stmt(id);
    collect_names(ast, s.value, out.names);
    names_in_type(ast, s.type, out.names);
    if (s.value.valid()) {
      collect_callees(ast, s.value, out.callees);
      if (s.kind == StmtKind::kUse) {
        ExprId e = s.value;
        while (ast.expr(e).kind == ExprKind::kCall || ast.expr(e).kind == ExprKind::kDims)
          e = ast.expr(e).left;
        out.callees.push_back(e);
        if (!s.names.empty()) out.uses.insert(s.names[0].text);
      }
    }
    for (ExprId v : s.values) {
      collect_names(ast, v, out.names);
      collect_callees(ast, v, out.callees);
    }
    for (const DimBind& b : s.binds) collect_names(ast, b.value, out.names);
    mentions(ast, s.body, out);
  }
}

// Callees and the dims of the file that the definition and its callees' signatures name.
void analyse(Module& module, Definition& d) {
  const Ast& ast = d.unit->ast;
  const Def& def = d.def();
  Mentions found;
  mentions(ast, def.body, found);
  for (const Param& p : def.params) names_in_type(ast, p.type, found.names);
  names_in_type(ast, def.result, found.names);
  for (const std::string& name : found.names) {
    if (d.unit->dims.count(name) != 0 && d.signature.find_formal(name) < 0)
      d.file_dims.insert(name);
  }
  for (ExprId callee : found.callees) {
    const Expr& e = ast.expr(callee);
    Definition* target = nullptr;
    if (e.kind == ExprKind::kName && found.uses.count(e.text) == 0) {
      target = module.find(*d.unit, e.text);
    } else if (e.kind == ExprKind::kMember && ast.expr(e.left).kind == ExprKind::kName) {
      target = const_cast<Definition*>(
          module.find_member(*d.unit, ast.expr(e.left).text, e.member.text));
    }
    if (target == nullptr) continue;
    if (std::find(d.callees.begin(), d.callees.end(), target) == d.callees.end())
      d.callees.push_back(target);
    for (const std::vector<TypePattern>* list : {&target->signature.results}) {
      for (const TypePattern& t : *list) {
        for (const TypePattern::Term& term : t.terms) {
          if (!term.dots && term.formal < 0) d.file_dims.insert(term.name);
        }
      }
    }
    for (const Parameter& p : target->signature.parameters) {
      for (const TypePattern::Term& term : p.type.terms) {
        if (!term.dots && term.formal < 0) d.file_dims.insert(term.name);
      }
    }
  }
}

// Depth first over calls without recursion; a definition met on its own path calls itself.
class Order {
 public:
  explicit Order(Diagnostics& diagnostics) : diagnostics_(diagnostics) {}

  void add(Definition* root) {
    if (done_.count(root) != 0) return;
    std::vector<std::pair<Definition*, size_t>> path{{root, 0}};
    on_path_.insert(root);
    while (!path.empty()) {
      auto& [d, next] = path.back();
      if (next < d->callees.size()) {
        Definition* callee = d->callees[next++];
        if (on_path_.count(callee) != 0) {
          circle(path, callee);
        } else if (done_.count(callee) == 0) {
          on_path_.insert(callee);
          path.emplace_back(callee, 0);
        }
        continue;
      }
      on_path_.erase(d);
      done_.insert(d);
      measure(d);
      order_.push_back(d);
      path.pop_back();
    }
  }
  std::vector<Definition*> take() { return std::move(order_); }

 private:
  // Lowering expands calls, one in the other.
  void measure(Definition* d) {
    int& depth = depth_[d];
    for (const Definition* callee : d->callees) depth = std::max(depth, depth_[callee] + 1);
    if (depth <= kMaxCalls) return;
    d->signature.broken = true;  // so that its callers are silent
    if (depth != kMaxCalls + 1) return;
    Diagnostic e =
        make_diagnostic(DiagId::E0005, d->name_span(), "calls nest too deeply",
                        fmt::format("`{}` is more than {} calls deep", d->name, kMaxCalls));
    e.help("iterate with `repeat`");
    diagnostics_.add(std::move(e));
  }

  void circle(const std::vector<std::pair<Definition*, size_t>>& path, Definition* callee) {
    std::string way;
    bool in = false;
    for (const auto& [d, next] : path) {
      in = in || d == callee;
      if (!in) continue;
      if (!reported_.insert(d).second) return;
      d->signature.broken = true;
      way += "`" + d->name + "` calls ";
    }
    Diagnostic e = make_diagnostic(DiagId::E0105, callee->name_span(),
                                   fmt::format("`{}` calls itself", callee->name), "in a circle");
    if (path.back().first != callee) e.note(way + "`" + callee->name + "`");
    e.help("iterate with `repeat`");
    diagnostics_.add(std::move(e));
  }

  Diagnostics& diagnostics_;
  std::set<Definition*> done_, on_path_, reported_;
  std::map<const Definition*, int> depth_;  // of the calls below
  std::vector<Definition*> order_;
};

void decide_pending(Module& module, Diagnostics& diagnostics) {
  for (const DefCondition& c : module.pending) {
    LowerOptions options;
    Elaborator e(module, Elaborator::Mode::kLower, options, diagnostics);
    e.need(c);  // with the final bindings; what they leave open stays open
  }
}

}  // namespace

bool ensure_checked(Module& module, Definition& definition, Diagnostics& diagnostics) {
  using State = Definition::State;
  if (definition.state == State::kChecking) return false;
  if (definition.state == State::kChecked || definition.state == State::kFailed)
    return definition.state == State::kChecked;
  resolve_signature(module, definition, diagnostics);
  if (definition.def().broken) {  // what its body means depends on what could not be read
    definition.signature.broken = true;
    definition.state = State::kFailed;
    return false;
  }
  definition.state = State::kChecking;
  LowerOptions options;
  options.check = true;
  Elaborator e(module, Elaborator::Mode::kCheck, options, diagnostics);
  const bool ok = e.check_definition(definition) && !definition.signature.broken;
  definition.state = ok ? State::kChecked : State::kFailed;
  return ok;
}

std::shared_ptr<const Module> check(Sources& sources, FileId file, FileReader& reader,
                                    const CheckOptions& options, Diagnostics& diagnostics) {
  auto module = std::make_shared<Module>();
  module->sources = &sources;
  module->options = options;
  load_units(*module, file, reader, diagnostics);
  read_settings(*module, diagnostics);
  load_library(*module, diagnostics);
  resolve_dims_and_lets(*module, diagnostics);
  for (size_t i = 0; i < module->definitions.size(); ++i)
    resolve_signature(*module, *module->definitions[i], diagnostics);
  for (auto& d : module->definitions) analyse(*module, *d);
  Order order(diagnostics);
  for (auto& d : module->definitions) {
    if (!d->unit->library) order.add(d.get());
  }
  for (Definition* d : order.take()) ensure_checked(*module, *d, diagnostics);
  check_sections(*module, diagnostics);
  if (!diagnostics.has_errors()) decide_pending(*module, diagnostics);
  lint(*module, diagnostics);
  return module;
}

}  // namespace cad::frontend
