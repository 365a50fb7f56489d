// frontend/ast_print.cc -- see ast_print.h.
#include "frontend/ast_print.h"

#include <fmt/format.h>

#include <utility>

namespace cad::frontend {
namespace {

class Printer {
 public:
  explicit Printer(const Ast& ast) : ast_(ast) {}

  std::string file() {
    line("(file");
    ++indent_;
    for (const Item& each : ast_.items) item(each);
    --indent_;
    close();
    return std::move(out_);
  }

  std::string take_expr(ExprId id) {
    expr(id);
    return std::move(out_);
  }

  std::string take_type(TypeId id) {
    type(id);
    return std::move(out_);
  }

 private:
  void line(std::string_view text) {
    if (!out_.empty()) out_ += '\n';
    out_.append(static_cast<size_t>(indent_) * 2, ' ');
    out_ += text;
  }
  void put(std::string_view text) { out_ += text; }
  void close() { out_ += ')'; }

  void item(const Item& item) {
    switch (item.kind) {
      case ItemKind::kError:
        line("(error)");
        return;
      case ItemKind::kImport:
        line(fmt::format("(import {}", quoted(item.path)));
        if (!item.name.empty()) put(" as " + item.name.text);
        return close();
      case ItemKind::kDim:
        line("(dim");
        binds(item.binds);
        return close();
      case ItemKind::kLet:
        line(fmt::format("(let {} ", item.name.text));
        expr(item.value);
        return close();
      case ItemKind::kDef:
        return def(ast_.def(item.def));
      case ItemKind::kSection:
        return section(ast_.section(item.section));
    }
  }

  void binds(const std::vector<DimBind>& list) {
    for (const DimBind& bind : list) {
      put(" (" + bind.name.text);
      if (bind.value.valid()) {
        put(" ");
        expr(bind.value);
      }
      close();
    }
  }

  void def(const Def& def) {
    line(fmt::format("({} {}", def_keyword(def.kind), def.name.empty() ? "?" : def.name.text));
    if (!def.dims.empty()) {
      put(" [");
      for (size_t i = 0; i < def.dims.size(); ++i) {
        put((i == 0 ? "" : ", ") + def.dims[i].from.text);
        if (!def.dims[i].to.empty()) put(" -> " + def.dims[i].to.text);
      }
      put("]");
    }
    for (const Param& param : def.params) {
      put(fmt::format(" ({}: ", param.name.text));
      type(param.type);
      if (param.value.valid()) {
        put(" = ");
        expr(param.value);
      }
      close();
    }
    put(" -> ");
    type(def.result);
    body(def.body);
    close();
  }

  void body(const std::vector<StmtId>& statements) {
    ++indent_;
    for (const StmtId id : statements) stmt(ast_.stmt(id));
    --indent_;
  }

  void names(const std::vector<Name>& list) {
    for (const Name& name : list) put(" " + name.text);
  }

  void stmt(const Stmt& stmt) {
    switch (stmt.kind) {
      case StmtKind::kError:
        line("(error");
        names(stmt.names);
        break;
      case StmtKind::kDim:
        line("(dim");
        binds(stmt.binds);
        break;
      case StmtKind::kParam:
      case StmtKind::kState:
        line(stmt.kind == StmtKind::kParam ? "(param" : "(state");
        bound(stmt);
        break;
      case StmtKind::kUse:
        line("(use");
        bound(stmt);
        break;
      case StmtKind::kBind:
        line("(bind");
        bound(stmt);
        break;
      case StmtKind::kReturn:
        line("(return");
        for (const ExprId value : stmt.values) {
          put(" ");
          expr(value);
        }
        break;
      case StmtKind::kRepeat:
        line("(repeat ");
        expr(stmt.value);
        if (!stmt.label.empty()) put(" as " + stmt.label.text);
        break;
    }
    for (const Annotation& annotation : stmt.annotations) {
      put(" @" + annotation.name.text);
      if (!annotation.args.empty()) args(annotation.args);
    }
    body(stmt.body);
    close();
  }

  void bound(const Stmt& stmt) {
    names(stmt.names);
    if (stmt.type.valid()) {
      put(" : ");
      type(stmt.type);
    }
    if (stmt.value.valid()) {
      put(" = ");
      expr(stmt.value);
    }
  }

  void section(const Section& section) {
    line("(" + section.kind.text);
    if (!section.name.empty()) put(" " + section.name.text);
    ++indent_;
    for (const Entry& entry : section.entries) {
      if (entry.section.valid()) {
        this->section(ast_.section(entry.section));
        continue;
      }
      line(fmt::format("({}: ", entry.key.text));
      expr(entry.value);
      close();
    }
    --indent_;
    close();
  }

  void type(TypeId id) {
    if (!id.valid()) return put("?");
    const TypeNode& node = ast_.type(id);
    switch (node.kind) {
      case TypeKind::kError:
        return put("?");
      case TypeKind::kName:
        return put(node.dtype.text);
      case TypeKind::kTensor:
        put(node.dtype.text + "[");
        for (size_t i = 0; i < node.terms.size(); ++i) {
          if (i > 0) put(", ");
          if (node.terms[i].dots) {
            put("..");
          } else {
            expr(node.terms[i].dim);
          }
        }
        return put("]");
      case TypeKind::kTuple:
        put("(");
        for (size_t i = 0; i < node.elements.size(); ++i) {
          if (i > 0) put(", ");
          type(node.elements[i]);
        }
        return put(")");
    }
  }

  // A chain a + b + c prints as (+ (+ a b) c): all openings, the first operand, then the rest.
  void expr(ExprId id) {
    if (!id.valid()) return put("?");
    const std::vector<ExprId> spine = left_spine(ast_, id);
    for (size_t i = spine.size(); i-- > 1;) open(ast_.expr(spine[i]));
    leaf(ast_.expr(spine[0]));
    for (size_t i = 1; i < spine.size(); ++i) finish(ast_.expr(spine[i]));
  }

  void open(const Expr& expr) {
    switch (expr.kind) {
      case ExprKind::kBinary:
        put("(");
        if (expr.op == AstOp::kContract) {
          put("@[");
          items(expr.dims);
          put("] ");
        } else {
          put(fmt::format("{} ", op_text(expr.op)));
        }
        return;
      case ExprKind::kCall:
        return put("(call ");
      case ExprKind::kDims:
        return put("(dims ");
      default:
        return put("(. ");
    }
  }

  void finish(const Expr& expr) {
    switch (expr.kind) {
      case ExprKind::kBinary:
        put(" ");
        this->expr(expr.right);
        break;
      case ExprKind::kCall:
        for (const Arg& each : expr.args) {
          put(" ");
          arg(each);
        }
        break;
      case ExprKind::kDims:
        put(" [");
        items(expr.dims);
        put("]");
        break;
      default:
        put(" " + expr.member.text);
    }
    close();
  }

  void leaf(const Expr& expr) {
    switch (expr.kind) {
      case ExprKind::kName:
      case ExprKind::kNumber:
        return put(expr.text);
      case ExprKind::kQuantity:
        return put(fmt::format("<{} {}>", expr.text, expr.unit.text));
      case ExprKind::kString:
        return put(quoted(expr.text));
      case ExprKind::kParen:
        put("(paren ");
        this->expr(expr.left);
        return close();
      case ExprKind::kTuple:
        put("(tuple");
        for (const Arg& each : expr.args) {
          put(" ");
          arg(each);
        }
        return close();
      case ExprKind::kUnary:
        put(expr.op == AstOp::kNeg ? "(neg " : "(not ");
        this->expr(expr.right);
        return close();
      default:
        return put("?");
    }
  }

  void arg(const Arg& arg) {
    if (!arg.name.empty()) put(arg.name.text + ": ");
    expr(arg.value);
  }

  void args(const std::vector<Arg>& list) {
    put("(");
    for (size_t i = 0; i < list.size(); ++i) {
      if (i > 0) put(", ");
      arg(list[i]);
    }
    close();
  }

  void side(const DimSide& side) {
    if (side.tuple) put("(");
    for (size_t i = 0; i < side.dims.size(); ++i) {
      if (i > 0) put(", ");
      expr(side.dims[i]);
    }
    if (side.tuple) close();
  }

  void items(const std::vector<DimItem>& list) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (i > 0) put(", ");
      const DimItem& item = list[i];
      switch (item.kind) {
        case DimItemKind::kDots:
          put("..");
          break;
        case DimItemKind::kPlain:
          side(item.left);
          break;
        case DimItemKind::kArrow:
          side(item.left);
          put(" -> ");
          side(item.right);
          break;
        case DimItemKind::kIndex:
        case DimItemKind::kSlice:
          put(item.name.text + " = ");
          expr(item.value);
          if (item.kind == DimItemKind::kSlice) {
            put(" : ");
            expr(item.end);
            put(" -> ");
            side(item.right);
          }
          break;
      }
    }
  }

  static std::string quoted(std::string_view text) {
    std::string result = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') result += '\\';
      if (c == '\n') {
        result += "\\n";
      } else if (c == '\t') {
        result += "\\t";
      } else {
        result += c;
      }
    }
    return result + '"';
  }

  const Ast& ast_;
  std::string out_;
  int indent_ = 0;
};

}  // namespace

std::string print_ast(const Ast& ast) {
  return Printer(ast).file() + "\n";
}
std::string print_expr(const Ast& ast, ExprId id) {
  return Printer(ast).take_expr(id);
}
std::string print_type(const Ast& ast, TypeId id) {
  return Printer(ast).take_type(id);
}

}  // namespace cad::frontend
