// frontend/ast_builder.h -- parse tree to Ast. Left-leaning chains are walked iteratively; all
// other recursion is bounded by kMaxNesting, which tidy_tokens() enforces. Includes ANTLR: only
// for parse.cc and ast_builder*.cc.
#pragma once

#include "CadParser.h"

#include "base/diagnostic.h"
#include "frontend/ast.h"
#include "frontend/tokens.h"

namespace cad::frontend {

class AstBuilder {
 public:
  using P = grammar::CadParser;
  AstBuilder(const Sources& sources, FileId file, const TokenList& tokens, Ast& ast,
             Diagnostics& diagnostics);
  void file(P::FileContext* context);
  ExprId expr(P::ExprContext* context);

 private:
  // ast_builder.cc: items, statements, sections
  void item(P::ItemContext* context);
  DefId def(P::DefItemContext* context);
  void head(P::DefHeadContext* context, Def& def);
  std::vector<StmtId> block(P::BlockContext* context, Span& braces, bool& broken);
  StmtId stmt(P::StmtContext* context);
  void stmt_parts(P::StmtContext* context, Stmt& stmt);
  void repeat(P::RepeatStmtContext* context, Stmt& stmt);
  SectionId section(P::SectionContext* context);
  Entry entry(P::EntryContext* context);
  std::vector<DimBind> dim_binds(P::DimDeclContext* context);
  std::vector<Annotation> annotations(const std::vector<P::AnnotContext*>& contexts);
  TypeId type(P::TypeContext* context);
  void guess_names(const Stmt& stmt, std::vector<Name>& names) const;

  // ast_builder_expr.cc
  ExprId atom(P::AtomExprContext* context);
  ExprId leaf(P::ExprContext* context);
  ExprId extend(ExprId left, P::ExprContext* context);
  ExprId binary(ExprId left, P::BinaryExprContext* context);
  ExprId error_expr(Span span);
  void number(std::string_view text, Expr& expr);
  Arg arg(P::ArgContext* context);
  std::vector<Arg> args(const std::vector<P::ArgContext*>& contexts);
  DimItem dim_item(P::DimArgContext* context);
  DimSide dim_side(P::ExprContext* context);
  DimSide side_of(ExprId id);
  void check_dim_item(const DimItem& item);

  ExprId add(Expr expr);
  [[nodiscard]] Span span(const antlr4::ParserRuleContext* context) const;
  [[nodiscard]] Span span(const antlr4::Token* token) const;
  [[nodiscard]] Span span(antlr4::tree::TerminalNode* node) const;
  [[nodiscard]] Name name(antlr4::tree::TerminalNode* node) const;
  [[nodiscard]] Name name(const antlr4::Token* token) const;
  [[nodiscard]] std::string_view text(Span span) const;
  [[nodiscard]] Span braces(antlr4::tree::TerminalNode* open,
                            antlr4::tree::TerminalNode* close) const;
  // An error was reported for a token in [first, last] of the context, or the context has one.
  [[nodiscard]] bool faulty(const antlr4::ParserRuleContext* context) const;
  void report(Span place, Diagnostic diagnostic);

  const Sources& sources_;
  const FileId file_;
  const TokenList& tokens_;
  Ast& ast_;
  Diagnostics& diagnostics_;
  std::vector<bool> reported_;
};

}  // namespace cad::frontend
