// frontend/ast_builder.cc -- items, statements, types and sections of the syntax tree. Expressions
// are in ast_builder_expr.cc.
#include "frontend/ast_builder.h"

#include <algorithm>
#include <utility>

namespace cad::frontend {

using P = grammar::CadParser;

AstBuilder::AstBuilder(const Sources& sources, FileId file, const TokenList& tokens, Ast& ast,
                       Diagnostics& diagnostics)
    : sources_(sources),
      file_(file),
      tokens_(tokens),
      ast_(ast),
      diagnostics_(diagnostics),
      reported_(tokens.reported) {}

void AstBuilder::file(P::FileContext* context) {
  for (P::ItemContext* node : context->item()) item(node);
}

void AstBuilder::item(P::ItemContext* context) {
  Item item;
  item.span = span(context);
  item.broken = faulty(context);
  if (auto* node = context->importItem()) {
    item.kind = ItemKind::kImport;
    item.keyword = span(node->IMPORT());
    if (node->STRING() != nullptr) {
      item.path_span = span(node->STRING());
      const std::string_view quoted = text(item.path_span);
      item.path = quoted.size() > 1 ? quoted.substr(1, quoted.size() - 2) : "";
    }
    if (node->NAME() != nullptr) item.name = name(node->NAME());
  } else if (auto* node = context->dimDecl()) {
    item.kind = ItemKind::kDim;
    item.keyword = span(node->DIM());
    item.binds = dim_binds(node);
  } else if (auto* node = context->letItem()) {
    item.kind = ItemKind::kLet;
    item.keyword = span(node->LET());
    if (node->NAME() != nullptr) item.name = name(node->NAME());
    item.value = item.broken ? error_expr(span(node)) : expr(node->expr());
  } else if (auto* node = context->defItem()) {
    item.kind = ItemKind::kDef;
    item.def = def(node);
    item.keyword = ast_.def(item.def).keyword;
    item.name = ast_.def(item.def).name;
    item.broken = ast_.def(item.def).broken || ast_.def(item.def).body_broken;
    ast_.lost_items = ast_.lost_items || item.name.empty();
  } else if (auto* node = context->section()) {
    item.kind = ItemKind::kSection;
    item.section = section(node);
    item.keyword = ast_.section(item.section).kind.span;
  }
  // Names that a broken item hides.
  const bool nameless = item.kind == ItemKind::kLet && item.name.empty();
  if (item.kind == ItemKind::kError || nameless || (item.kind == ItemKind::kDim && item.broken)) {
    ast_.lost_items = true;
  }
  ast_.items.push_back(std::move(item));
}

std::vector<DimBind> AstBuilder::dim_binds(P::DimDeclContext* context) {
  std::vector<DimBind> binds;
  const bool broken = faulty(context);
  for (P::DimBindContext* node : context->dimBind()) {
    if (node->NAME() == nullptr) continue;
    DimBind bind;
    bind.name = name(node->NAME());
    bind.span = span(node);
    if (node->ASSIGN() != nullptr) bind.value = broken ? error_expr(bind.span) : expr(node->expr());
    binds.push_back(std::move(bind));
  }
  return binds;
}

DefId AstBuilder::def(P::DefItemContext* context) {
  Def def;
  def.span = span(context);
  if (P::DefHeadContext* node = context->defHead()) {
    head(node, def);
  } else {
    def.broken = true;
  }
  if (P::BlockContext* node = context->block()) {
    def.body = block(node, def.braces, def.body_broken);
  } else {
    def.broken = true;
  }
  ast_.defs.push_back(std::move(def));
  return DefId{static_cast<int32_t>(ast_.defs.size()) - 1};
}

void AstBuilder::head(P::DefHeadContext* context, Def& def) {
  def.header = span(context);
  def.broken = faulty(context);
  if (context->kind != nullptr) {
    def.keyword = span(context->kind);
    const size_t type = context->kind->getType();
    def.kind = type == P::FN ? DefKind::kFn : type == P::LAYER ? DefKind::kLayer : DefKind::kModel;
  }
  if (context->NAME() != nullptr) def.name = name(context->NAME());
  if (P::DimParamsContext* node = context->dimParams()) {
    for (P::DimParamContext* each : node->dimParam()) {
      if (each->from == nullptr) continue;
      DimParam param;
      param.from = name(each->from);
      if (each->to != nullptr) param.to = name(each->to);
      if (each->ARROW() != nullptr) param.arrow = span(each->ARROW());
      param.span = span(each);
      def.dims.push_back(std::move(param));
    }
  }
  if (P::ParamsContext* node = context->params()) {
    for (P::ParamContext* each : node->param()) {
      if (each->NAME() == nullptr) continue;
      Param param;
      param.name = name(each->NAME());
      param.type = type(each->type());
      if (each->ASSIGN() != nullptr) param.value = expr(each->expr());
      param.span = span(each);
      def.params.push_back(std::move(param));
    }
  }
  if (context->type() != nullptr) def.result = type(context->type());
  if (!def.result.valid()) def.broken = true;
  if (def.broken) {  // what was read of it may be anything
    def.dims.clear();
    def.params.clear();
    def.result = type(nullptr);
  }
}

TypeId AstBuilder::type(P::TypeContext* context) {
  TypeNode node;
  if (context != nullptr) node.span = span(context);
  if (context == nullptr || context->exception != nullptr) {
    node.kind = TypeKind::kError;
  } else if (auto* tensor = dynamic_cast<P::TensorTypeContext*>(context)) {
    node.kind = TypeKind::kTensor;
    if (tensor->NAME() != nullptr) node.dtype = name(tensor->NAME());
    for (P::DimTermContext* each : tensor->dimTerm()) {
      DimTerm term;
      term.span = span(each);
      term.dots = each->DOTS() != nullptr;
      if (!term.dots) term.dim = expr(each->expr());
      node.terms.push_back(term);
    }
  } else if (auto* plain = dynamic_cast<P::NameTypeContext*>(context)) {
    node.kind = TypeKind::kName;
    node.dtype = name(plain->NAME());
  } else if (auto* tuple = dynamic_cast<P::TupleTypeContext*>(context)) {
    node.kind = TypeKind::kTuple;
    for (P::TypeContext* each : tuple->type()) node.elements.push_back(type(each));
  }
  ast_.types.push_back(std::move(node));
  return TypeId{static_cast<int32_t>(ast_.types.size()) - 1};
}

std::vector<StmtId> AstBuilder::block(P::BlockContext* context, Span& place, bool& broken) {
  std::vector<StmtId> body;
  place = braces(context->LBRACE(), context->RBRACE());
  for (P::StmtContext* node : context->stmt()) body.push_back(stmt(node));
  broken = broken || faulty(context);
  return body;
}

StmtId AstBuilder::stmt(P::StmtContext* context) {
  Stmt stmt;
  stmt.span = span(context);
  stmt.broken = faulty(context);
  stmt_parts(context, stmt);
  if (stmt.kind != StmtKind::kRepeat) stmt.broken = faulty(context);  // building reports, too
  if (stmt.kind == StmtKind::kError ||
      (stmt.broken && (stmt.kind == StmtKind::kBind || stmt.kind == StmtKind::kParam))) {
    guess_names(stmt, stmt.names);
  }
  ast_.stmts.push_back(std::move(stmt));
  return StmtId{static_cast<int32_t>(ast_.stmts.size()) - 1};
}

void AstBuilder::stmt_parts(P::StmtContext* context, Stmt& stmt) {
  if (auto* node = dynamic_cast<P::DimStmtContext*>(context)) {
    stmt.kind = StmtKind::kDim;
    stmt.keyword = span(node->dimDecl()->DIM());
    stmt.binds = dim_binds(node->dimDecl());
  } else if (auto* node = dynamic_cast<P::ParamStmtContext*>(context)) {
    stmt.kind = node->kind->getType() == P::PARAM ? StmtKind::kParam : StmtKind::kState;
    stmt.keyword = span(node->kind);
    for (auto* each : node->NAME()) stmt.names.push_back(name(each));
    stmt.type = type(node->type());
    if (node->ASSIGN() != nullptr) stmt.value = expr(node->expr());
    stmt.annotations = annotations(node->annot());
  } else if (auto* node = dynamic_cast<P::UseStmtContext*>(context)) {
    stmt.kind = StmtKind::kUse;
    stmt.keyword = span(node->USE());
    if (node->NAME() != nullptr) stmt.names.push_back(name(node->NAME()));
    stmt.value = expr(node->expr());
    stmt.annotations = annotations(node->annot());
  } else if (auto* node = dynamic_cast<P::RepeatStmtContext*>(context)) {
    repeat(node, stmt);
  } else if (auto* node = dynamic_cast<P::ReturnStmtContext*>(context)) {
    stmt.kind = StmtKind::kReturn;
    stmt.keyword = span(node->RETURN());
    for (P::ExprContext* each : node->expr()) stmt.values.push_back(expr(each));
    stmt.annotations = annotations(node->annot());
  } else if (auto* node = dynamic_cast<P::BindStmtContext*>(context)) {
    stmt.kind = StmtKind::kBind;
    for (auto* each : node->NAME()) stmt.names.push_back(name(each));
    if (node->type() != nullptr) stmt.type = type(node->type());
    stmt.value = expr(node->expr());
    stmt.annotations = annotations(node->annot());
  }
}

void AstBuilder::repeat(P::RepeatStmtContext* context, Stmt& stmt) {
  stmt.kind = StmtKind::kRepeat;
  stmt.broken = false;
  if (P::RepeatHeadContext* head = context->repeatHead()) {
    stmt.broken = faulty(head);
    stmt.keyword = span(head->REPEAT());
    stmt.value = expr(head->expr());
    if (head->NAME() != nullptr) stmt.label = name(head->NAME());
    stmt.annotations = annotations(head->annot());
  }
  if (P::BlockContext* node = context->block()) {
    stmt.body = block(node, stmt.braces, stmt.broken);
  } else {
    stmt.broken = true;
  }
}

// The names a statement that was not understood would have bound: those before its `=` or `:`.
void AstBuilder::guess_names(const Stmt& stmt, std::vector<Name>& names) const {
  if (!names.empty()) return;
  const auto& list = tokens_.tokens;
  auto it = std::lower_bound(list.begin(), list.end(), stmt.span.begin,
                             [](const Token& t, uint32_t at) { return t.begin < at; });
  std::vector<Name> found;
  for (; it != list.end() && it->kind != Tok::NL && it->kind != Tok::END; ++it) {
    if (it->kind == Tok::ASSIGN || it->kind == Tok::COLON) {
      names = std::move(found);
      return;
    }
    if (it->kind == Tok::NAME) {
      const Span place{file_, it->begin, it->end};
      found.push_back({std::string(text(place)), place});
    }
  }
}

std::vector<Annotation> AstBuilder::annotations(const std::vector<P::AnnotContext*>& contexts) {
  std::vector<Annotation> list;
  for (P::AnnotContext* node : contexts) {
    if (node->NAME() == nullptr) continue;
    Annotation annotation;
    annotation.name = name(node->NAME());
    annotation.args = args(node->arg());
    annotation.span = span(node);
    list.push_back(std::move(annotation));
  }
  return list;
}

SectionId AstBuilder::section(P::SectionContext* context) {
  Section section;
  section.span = span(context);
  if (P::SectionHeadContext* head = context->sectionHead()) {
    section.broken = faulty(head);
    const auto names = head->NAME();
    if (!names.empty()) section.kind = name(names[0]);
    if (names.size() > 1) section.name = name(names[1]);
  }
  section.braces = braces(context->LBRACE(), context->RBRACE());
  for (P::EntryContext* node : context->entry()) section.entries.push_back(entry(node));
  section.broken = section.broken || faulty(context);
  ast_.sections.push_back(std::move(section));
  return SectionId{static_cast<int32_t>(ast_.sections.size()) - 1};
}

Entry AstBuilder::entry(P::EntryContext* context) {
  Entry entry;
  entry.span = span(context);
  entry.broken = faulty(context);
  if (P::SettingContext* node = context->setting()) {
    if (node->NAME() != nullptr) entry.key = name(node->NAME());
    entry.value = entry.broken ? error_expr(entry.span) : expr(node->expr());
  } else if (P::SectionContext* node = context->section()) {
    entry.section = section(node);
    entry.broken = ast_.section(entry.section).broken;
  } else {
    entry.value = error_expr(entry.span);
  }
  return entry;
}

// ------------------------------------------------------------------------------- positions

Span AstBuilder::span(const antlr4::ParserRuleContext* context) const {
  auto* node = const_cast<antlr4::ParserRuleContext*>(context);
  const Span first = span(node->getStart());
  const Span last = node->getStop() != nullptr ? span(node->getStop()) : first;
  return {file_, first.begin, std::max(first.begin, last.end)};
}

Span AstBuilder::span(const antlr4::Token* token) const {
  const Token& t = tokens_.tokens[token->getTokenIndex()];
  return {file_, t.begin, t.end};
}

Span AstBuilder::span(antlr4::tree::TerminalNode* node) const {
  return node == nullptr ? Span{file_, 0, 0} : span(node->getSymbol());
}

Name AstBuilder::name(antlr4::tree::TerminalNode* node) const {
  return name(node->getSymbol());
}

Name AstBuilder::name(const antlr4::Token* token) const {
  const Span place = span(token);
  return {std::string(text(place)), place};
}

std::string_view AstBuilder::text(Span place) const {
  return sources_.text(place);
}

Span AstBuilder::braces(antlr4::tree::TerminalNode* open, antlr4::tree::TerminalNode* close) const {
  if (open == nullptr) return {};
  Span place = span(open);
  if (close != nullptr) place.end = std::max(place.end, span(close).end);
  return place;
}

bool AstBuilder::faulty(const antlr4::ParserRuleContext* context) const {
  auto* node = const_cast<antlr4::ParserRuleContext*>(context);
  if (node->exception != nullptr) return true;
  const size_t first = node->getStart()->getTokenIndex();
  const size_t last = node->getStop() != nullptr ? node->getStop()->getTokenIndex() : first;
  const int32_t from = tokens_.tokens[first].statement;
  const int32_t to = tokens_.tokens[std::max(first, last)].statement;
  for (int32_t s = from; s <= to; ++s) {
    if (reported_[static_cast<size_t>(s)]) return true;
  }
  return false;
}

// Adds a diagnostic unless the statement at `place` has one already.
void AstBuilder::report(Span place, Diagnostic diagnostic) {
  const auto& list = tokens_.tokens;
  auto it = std::upper_bound(list.begin(), list.end(), place.begin,
                             [](uint32_t at, const Token& t) { return at < t.begin; });
  if (it != list.begin()) --it;
  const auto statement = static_cast<size_t>(it->statement);
  if (reported_[statement]) return;
  reported_[statement] = true;
  diagnostics_.add(std::move(diagnostic));
  ast_.broken = true;
}

}  // namespace cad::frontend
