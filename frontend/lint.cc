// frontend/lint.cc -- L0001 a pipe whose left side is a binary expression, L0002 `a @[D] b * c @[D]
// d` without parentheses, L0003 names out of convention. Purely on the tree of the program's own
// file.
#include "frontend/lint.h"

#include <cctype>

#include <fmt/format.h>

namespace cad::frontend {

namespace {

class Linter {
 public:
  Linter(const Module& module, const Ast& ast, Diagnostics& diagnostics)
      : module_(module), ast_(ast), diagnostics_(diagnostics) {}

  void run() {
    for (size_t i = 0; i < ast_.exprs.size(); ++i) expression(ast_.exprs[i]);
    for (const Item& item : ast_.items) {
      if (item.broken) continue;
      for (const DimBind& b : item.binds) dim(b.name);
      if (item.kind == ItemKind::kLet) value(item.name, "let");
    }
    for (const Def& def : ast_.defs) definition(def);
    for (const Stmt& s : ast_.stmts) statement(s);
  }

 private:
  static bool capital(const Name& n) {
    return std::isupper(static_cast<unsigned char>(n.text[0])) != 0;
  }
  static bool small(const Name& n) {
    return std::islower(static_cast<unsigned char>(n.text[0])) != 0;
  }

  void expression(const Expr& e) {
    if (e.kind != ExprKind::kBinary) return;
    const Expr& left = ast_.expr(e.left);
    if (e.op == AstOp::kPipe && left.kind == ExprKind::kBinary && left.op != AstOp::kPipe) {
      Diagnostic d =
          make_diagnostic(DiagId::L0001, e.op_span, "`|>` takes the whole expression before it",
                          "binds looser than any operator");
      d.label(left.span, "all of this is piped");
      parentheses(d, left.span, "say so with parentheses");
      diagnostics_.add(std::move(d));
    }
    if (e.op != AstOp::kContract || left.kind != ExprKind::kBinary) return;
    if (left.op != AstOp::kMul && left.op != AstOp::kDiv) return;
    const Expr& first = ast_.expr(left.left);
    if (first.kind != ExprKind::kBinary || first.op != AstOp::kContract) return;
    Diagnostic d =
        make_diagnostic(DiagId::L0002, e.op_span,
                        fmt::format("`@` and `{}` bind alike, from the left", op_text(left.op)),
                        "contracts everything before it");
    d.label(left.span, "its left side");
    const Expr& second = ast_.expr(left.right);
    Span meant = second.span;
    meant.end = e.span.end;
    parentheses(d, meant, "put parentheses around the second contraction");
    diagnostics_.add(std::move(d));
  }

  void parentheses(Diagnostic& d, Span span, const std::string& text) {
    Help help;
    help.span = span;
    help.replacement = "(" + std::string(module_.sources->text(span)) + ")";
    help.text = fmt::format("{}: `{}`", text, *help.replacement);
    if (help.replacement->find('\n') != std::string::npos) help.text = text;
    d.helps.push_back(std::move(help));
  }

  void convention(const Name& n, const char* what, const char* how, const std::string& better) {
    Diagnostic d =
        make_diagnostic(DiagId::L0003, n.span, fmt::format("{} `{}` is not {}", what, n.text, how));
    d.help(fmt::format("by convention: `{}`", better));
    diagnostics_.add(std::move(d));
  }

  void dim(const Name& n) {
    if (n.empty() || !small(n)) return;
    std::string better = n.text;
    for (char& c : better) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    convention(n, "dim", "upper case", better);
  }

  void value(const Name& n, const char* what) {
    if (n.empty() || !capital(n) || module_.main().dims.count(n.text) != 0)
      return;  // E0104 says more
    std::string better = n.text;
    for (char& c : better) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    convention(n, what, "lower case", better);
  }

  void definition(const Def& def) {
    if (def.broken || def.name.empty()) return;
    for (const DimParam& p : def.dims) {
      dim(p.from);
      if (!p.to.empty()) dim(p.to);
    }
    for (const Param& p : def.params) value(p.name, "argument");
    if (def.kind == DefKind::kFn) return value(def.name, "fn");
    // An optimizer is a layer, named like what it is written as in a section.
    const bool optimizer = !def.params.empty() && def.params[0].name.text == "p";
    if (!optimizer && small(def.name)) {
      std::string better;
      bool up = true;
      for (char c : def.name.text) {
        if (c == '_') {
          up = true;
          continue;
        }
        better += up ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
        up = false;
      }
      convention(def.name, def_keyword(def.kind), "CamelCase", better);
    }
  }

  void statement(const Stmt& s) {
    if (s.broken) return;
    if (s.kind == StmtKind::kBind) {
      for (const Name& n : s.names) value(n, "value");
    }
    for (const DimBind& b : s.binds) dim(b.name);
  }

  const Module& module_;
  const Ast& ast_;
  Diagnostics& diagnostics_;
};

}  // namespace

void lint(const Module& module, Diagnostics& diagnostics) {
  if (!module.units.empty()) Linter(module, module.main().ast, diagnostics).run();
}

}  // namespace cad::frontend
