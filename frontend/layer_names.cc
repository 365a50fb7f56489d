// frontend/layer_names.cc -- see the header. The walk gives calls and loops the components that
// lowering gives them (frontend/paths.cc).
#include "frontend/layer_names.h"

#include "frontend/elaborator.h"

namespace cad::frontend {

namespace {

class LayerWalk {
 public:
  explicit LayerWalk(const Module& module) : module_(module) {}

  void definition(const Definition& d, const std::string& scope) {
    const ScopeNames names = name_scopes(module_, d);
    statements(*d.unit, names, d.def().body, scope);
  }
  std::map<std::string, std::string> take() { return std::move(found_); }

 private:
  static std::string joined(const std::string& scope, const std::string& component) {
    return scope.empty() ? component : scope + "." + component;
  }

  // The layer or model that a callee names; nullptr for functions, instances, built-in ones.
  const Definition* owner(const Unit& unit, ExprId callee) const {
    const Expr& e = unit.ast.expr(callee);
    const Definition* d = nullptr;
    if (e.kind == ExprKind::kName) d = module_.find(unit, e.text);
    if (e.kind == ExprKind::kMember) {
      const Expr& left = unit.ast.expr(e.left);
      if (left.kind == ExprKind::kName) d = module_.find_member(unit, left.text, e.member.text);
    }
    return d != nullptr && d->kind != DefKind::kFn ? d : nullptr;
  }

  void enter(const Definition* d, const std::string& scope) {
    if (d == nullptr || !found_.emplace(scope, d->name).second) return;
    definition(*d, scope);
  }

  void statements(const Unit& unit, const ScopeNames& names, const std::vector<StmtId>& body,
                  const std::string& scope) {
    for (StmtId id : body) {
      const Stmt& s = unit.ast.stmt(id);
      if (s.kind == StmtKind::kRepeat) {
        statements(unit, names, s.body, joined(scope, names.repeats.at(id.index) + ".{}"));
        continue;
      }
      if (s.kind == StmtKind::kUse) {
        if (s.names.empty()) continue;
        ExprId callee = s.value;
        while (unit.ast.expr(callee).kind == ExprKind::kCall ||
               unit.ast.expr(callee).kind == ExprKind::kDims)
          callee = unit.ast.expr(callee).left;
        enter(owner(unit, callee), joined(scope, s.names[0].text));
        continue;
      }
      std::vector<ExprId> callees;
      if (s.value.valid()) collect_callees(unit.ast, s.value, callees);
      for (ExprId value : s.values) collect_callees(unit.ast, value, callees);
      for (ExprId callee : callees) {
        const auto component = names.calls.find(callee.index);
        if (component != names.calls.end())
          enter(owner(unit, callee), joined(scope, component->second));
      }
    }
  }

  const Module& module_;
  std::map<std::string, std::string> found_;
};

}  // namespace

std::map<std::string, std::string> layer_names(const Module& module) {
  LayerWalk walk(module);
  for (const auto& d : module.definitions) {
    if (d->kind == DefKind::kModel && !d->unit->library) walk.definition(*d, "");
  }
  return walk.take();
}

}  // namespace cad::frontend
