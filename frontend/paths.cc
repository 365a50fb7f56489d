// frontend/paths.cc -- the components of parameter paths: one per call of a layer and per repeat,
// numbered in source order within their scope (a body, or the body of a repeat). Calls of fns,
// instances and random ops get names of their own that key random streams, not parameters.
#include <algorithm>
#include <cctype>
#include <set>

#include "frontend/elaborator.h"

namespace cad::frontend {

Path Path::child(const std::string& component) const {
  Path p = *this;
  p.text += (p.text.empty() ? "" : ".") + component;
  return p;
}

// `_` before a capital that follows a small letter or digit, and before the last capital of a run
// that a small letter follows: RMSNorm is rms_norm, MLP is mlp, SwiGLU is swi_glu.
std::string snake_case(const std::string& name) {
  auto upper = [&](size_t i) {
    return i < name.size() && std::isupper(static_cast<unsigned char>(name[i])) != 0;
  };
  auto lower = [&](size_t i) {
    return i < name.size() && std::islower(static_cast<unsigned char>(name[i])) != 0;
  };
  auto digit = [&](size_t i) {
    return i < name.size() && std::isdigit(static_cast<unsigned char>(name[i])) != 0;
  };
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    if (upper(i) && i > 0) {
      const bool after_small = lower(i - 1) || digit(i - 1);
      const bool ends_run = upper(i - 1) && lower(i + 1);
      if ((after_small || ends_run) && out.back() != '_') out += '_';
    }
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return out;
}

namespace {

void callees_of(const Ast& ast, ExprId id, std::vector<ExprId>& out, bool callee);

// The name or member under the brackets of a callee, and what its brackets and arguments hold.
void callee_parts(const Ast& ast, ExprId id, std::vector<ExprId>& out) {
  const Expr& e = ast.expr(id);
  if (e.kind == ExprKind::kDims) {
    callee_parts(ast, e.left, out);
    for (const DimItem& item : e.dims) {
      if (item.value.valid()) callees_of(ast, item.value, out, false);
      if (item.end.valid()) callees_of(ast, item.end, out, false);
    }
  } else if (e.kind == ExprKind::kName || e.kind == ExprKind::kMember) {
    out.push_back(id);
  } else {
    callees_of(ast, id, out, false);
  }
}

void callees_of(const Ast& ast, ExprId id, std::vector<ExprId>& out, bool callee) {
  if (!id.valid()) return;
  if (callee) {
    callee_parts(ast, id, out);
    return;
  }
  const std::vector<ExprId> spine = left_spine(ast, id);
  // A call's callee is the part of the spine under it: reached through the call node.
  for (size_t i = 0; i < spine.size(); ++i) {
    const Expr& e = ast.expr(spine[i]);
    switch (e.kind) {
      case ExprKind::kParen:
        callees_of(ast, e.left, out, false);
        break;
      case ExprKind::kTuple:
        for (const Arg& a : e.args) callees_of(ast, a.value, out, false);
        break;
      case ExprKind::kUnary:
        callees_of(ast, e.right, out, false);
        break;
      case ExprKind::kCall: {
        const Expr& left = ast.expr(e.left);
        if (left.kind == ExprKind::kName || left.kind == ExprKind::kMember) out.push_back(e.left);
        if (left.kind == ExprKind::kDims) {
          const Expr& inner = ast.expr(left.left);
          if (inner.kind == ExprKind::kName || inner.kind == ExprKind::kMember)
            out.push_back(left.left);
        }
        for (const Arg& a : e.args) callees_of(ast, a.value, out, false);
        break;
      }
      case ExprKind::kDims:
        for (const DimItem& item : e.dims) {
          if (item.value.valid()) callees_of(ast, item.value, out, false);
          if (item.end.valid()) callees_of(ast, item.end, out, false);
        }
        break;
      case ExprKind::kBinary:
        if (e.op == AstOp::kPipe) {
          const Expr& right = ast.expr(e.right);
          callees_of(ast, e.right, out, right.kind != ExprKind::kCall);
        } else {
          callees_of(ast, e.right, out, false);
        }
        break;
      default:
        break;
    }
  }
}

class ScopeNamer {
 public:
  ScopeNamer(const Module& module, const Definition& definition)
      : module_(module), unit_(*definition.unit), ast_(unit_.ast) {
    collect_uses(definition.def().body);
    for (const Parameter& p : definition.signature.parameters) values_.insert(p.name);
    scope(definition.def().body);
  }
  ScopeNames take() { return std::move(names_); }

 private:
  void collect_uses(const std::vector<StmtId>& body) {
    for (StmtId id : body) {
      const Stmt& s = ast_.stmt(id);
      if (s.kind == StmtKind::kUse && !s.names.empty()) uses_.insert(s.names[0].text);
      if (s.kind == StmtKind::kRepeat) collect_uses(s.body);
    }
  }

  struct Pools {
    std::set<std::string> taken, sites;
  };

  static std::string next(std::set<std::string>& taken, const std::string& base) {
    std::string name = base;
    for (int i = 1; !taken.insert(name).second; ++i) name = base + "_" + std::to_string(i);
    return name;
  }

  void scope(const std::vector<StmtId>& body) {
    Pools pools;
    for (StmtId id : body) {
      const Stmt& s = ast_.stmt(id);
      if (s.kind == StmtKind::kParam || s.kind == StmtKind::kState || s.kind == StmtKind::kUse) {
        for (const Name& n : s.names) pools.taken.insert(n.text);
      }
    }
    for (StmtId id : body) {
      const Stmt& s = ast_.stmt(id);
      if (s.kind == StmtKind::kRepeat) {
        names_.repeats[id.index] = next(pools.taken, s.label.empty() ? "repeat" : s.label.text);
        scope(s.body);
        continue;
      }
      std::vector<ExprId> found;
      if (s.kind != StmtKind::kUse) callees_of(ast_, s.value, found, false);
      for (ExprId v : s.values) callees_of(ast_, v, found, false);
      std::stable_sort(found.begin(), found.end(), [&](ExprId a, ExprId b) {
        return ast_.expr(a).span.begin < ast_.expr(b).span.begin;
      });
      for (ExprId callee : found) name_call(callee, pools);
    }
  }

  void name_call(ExprId callee, Pools& pools) {
    if (names_.calls.count(callee.index) != 0) return;
    const Expr& e = ast_.expr(callee);
    const Definition* d = nullptr;
    std::string name = e.text;
    if (e.kind == ExprKind::kMember) {
      const Expr& left = ast_.expr(e.left);
      name = e.member.text;
      if (left.kind == ExprKind::kName && uses_.count(left.text) == 0) {
        d = module_.find_member(unit_, left.text, name);
      }
    } else if (uses_.count(name) == 0) {
      d = module_.find(unit_, name);
    }
    if (d != nullptr && d->kind != DefKind::kFn) {
      names_.calls[callee.index] = next(pools.taken, snake_case(name));
    } else {
      names_.calls[callee.index] = next(pools.sites, snake_case(name));
    }
  }

  const Module& module_;
  const Unit& unit_;
  const Ast& ast_;
  std::set<std::string> uses_, values_;
  ScopeNames names_;
};

}  // namespace

void collect_callees(const Ast& ast, ExprId expr, std::vector<ExprId>& out) {
  callees_of(ast, expr, out, false);
}

ScopeNames name_scopes(const Module& module, const Definition& definition) {
  return ScopeNamer(module, definition).take();
}

std::vector<std::string> assigned_names(const Ast& ast, const std::vector<StmtId>& body) {
  std::vector<std::string> names;
  for (StmtId id : body) {
    const Stmt& s = ast.stmt(id);
    if (s.kind == StmtKind::kBind) {
      for (const Name& n : s.names) names.push_back(n.text);
    } else if (s.kind == StmtKind::kRepeat) {
      const std::vector<std::string> inner = assigned_names(ast, s.body);
      names.insert(names.end(), inner.begin(), inner.end());
    }
  }
  return names;
}

}  // namespace cad::frontend
