// frontend/parse.cc -- drives the generated parser: SLL prediction first and no recovery; only a
// file with errors is parsed again with full prediction and the recovery below. One error a
// statement: a fault ends its statement, the next one goes on. The words are in syntax_errors.cc,
// the tree in ast_builder.cc.
#include "frontend/parse.h"

#include "CadParser.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "frontend/ast_builder.h"
#include "frontend/syntax_errors.h"
#include "frontend/tokens.h"

namespace cad::frontend {
namespace {

using P = grammar::CadParser;
static_assert(static_cast<int>(Tok::QUANTITY) == static_cast<int>(P::QUANTITY));

// The tidied tokens in ANTLR's clothes; indexes stay those of TokenList::tokens.
std::vector<std::unique_ptr<antlr4::Token>> dress(const TokenList& list) {
  std::vector<std::unique_ptr<antlr4::Token>> tokens;
  tokens.reserve(list.tokens.size());
  for (const Token& t : list.tokens) {
    const size_t type = t.kind == Tok::END ? antlr4::Token::EOF : static_cast<size_t>(t.kind);
    auto token = std::make_unique<antlr4::CommonToken>(type);
    token->setStartIndex(t.begin);
    token->setStopIndex(t.end == t.begin ? t.begin : t.end - 1);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// A fault ends its statement: nothing is inserted or deleted, rules return, and the rule of the
// statement (or block, file, section) skips to where the next one starts.
class Recovery : public antlr4::DefaultErrorStrategy {
 public:
  Recovery(const Sources& sources, FileId file, TokenList& tokens, Diagnostics& diagnostics)
      : sources_(sources), file_(file), tokens_(tokens), diagnostics_(diagnostics) {}

  void reportError(antlr4::Parser* parser, const antlr4::RecognitionException& e) override {
    const antlr4::Token* token = e.getOffendingToken();
    fault(parser,
          token != nullptr ? token->getTokenIndex() : parser->getCurrentToken()->getTokenIndex());
  }

  antlr4::Token* recoverInline(antlr4::Parser* parser) override {
    const size_t rule = parser->getContext()->getRuleIndex();
    if (rule == P::RuleBlock &&
        parser->getExpectedTokens().contains(static_cast<ssize_t>(P::LBRACE))) {
      fault(parser, parser->getCurrentToken()->getTokenIndex());
      while (!at(parser, P::LBRACE) && !ends(parser)) parser->consume();
      if (!at(parser, P::LBRACE)) throw antlr4::InputMismatchException(parser);
      antlr4::Token* token = parser->getCurrentToken();
      parser->consume();
      return token;
    }
    const bool separator = rule == P::RuleFile || rule == P::RuleExpression ||
                           rule == P::RuleSection || rule == P::RuleBlock;
    if (!separator || !parser->getExpectedTokens().contains(static_cast<ssize_t>(P::NL))) {
      throw antlr4::InputMismatchException(parser);
    }
    fault(parser, parser->getCurrentToken()->getTokenIndex());
    skip_statement(parser, rule == P::RuleSection);
    antlr4::Token* token = parser->getCurrentToken();
    if (token->getType() == P::NL || token->getType() == P::COMMA) parser->consume();
    return token;
  }

  void recover(antlr4::Parser* parser, std::exception_ptr) override {
    switch (parser->getContext()->getRuleIndex()) {
      case P::RuleItem:
      case P::RuleStmt:
        return skip_statement(parser, false);
      case P::RuleEntry:
      case P::RuleSetting:
        return skip_statement(parser, true);
      case P::RuleDefHead:
      case P::RuleRepeatHead:
      case P::RuleSectionHead:
        while (!at(parser, P::LBRACE) && !ends(parser)) parser->consume();
        return;
      default:
        return;
    }
  }

  void sync(antlr4::Parser* parser) override {
    const size_t rule = parser->getContext()->getRuleIndex();
    if (rule != P::RuleFile && rule != P::RuleBlock && rule != P::RuleSection) return;
    while (!may_start(rule, parser->getCurrentToken()->getType()) &&
           !at(parser, antlr4::Token::EOF)) {
      if (at(parser, P::RBRACE) && rule != P::RuleFile) return;
      fault(parser, parser->getCurrentToken()->getTokenIndex());
      if (at(parser, P::RBRACE)) parser->consume();
      skip_statement(parser, rule == P::RuleSection);
      if (at(parser, P::NL) || at(parser, P::COMMA)) parser->consume();
    }
  }

  bool inErrorRecoveryMode(antlr4::Parser*) override { return false; }

 private:
  static bool at(antlr4::Parser* parser, size_t type) {
    return parser->getCurrentToken()->getType() == type;
  }
  static bool ends(antlr4::Parser* parser) {
    return at(parser, P::NL) || at(parser, P::RBRACE) || at(parser, antlr4::Token::EOF);
  }

  static bool may_start(size_t rule, size_t type) {
    switch (type) {
      case P::NAME:
      case P::RBRACE:
        return type == P::NAME || rule != P::RuleFile;
      case P::IMPORT:
      case P::LET:
      case P::FN:
      case P::LAYER:
      case P::MODEL:
        return rule == P::RuleFile;
      case P::DIM:
        return rule != P::RuleSection;
      case P::PARAM:
      case P::STATE:
      case P::USE:
      case P::REPEAT:
      case P::RETURN:
        return rule == P::RuleBlock;
      default:
        return false;
    }
  }

  // To the end of the statement, over whole blocks; brackets are balanced.
  static void skip_statement(antlr4::Parser* parser, bool comma_ends) {
    int round = 0;
    int braces = 0;
    for (;; parser->consume()) {
      const size_t type = parser->getCurrentToken()->getType();
      if (type == antlr4::Token::EOF) return;
      if (braces == 0 && (type == P::NL || type == P::RBRACE)) return;
      if (braces == 0 && comma_ends && type == P::COMMA && round <= 0) return;
      if (type == P::LPAREN || type == P::LBRACK || type == P::ATL) ++round;
      if (type == P::RPAREN || type == P::RBRACK) --round;
      if (type == P::LBRACE) ++braces;
      if (type == P::RBRACE) --braces;
    }
  }

  void fault(antlr4::Parser* parser, size_t at) {
    const auto statement = static_cast<size_t>(tokens_.tokens[at].statement);
    if (tokens_.reported[statement]) return;
    tokens_.reported[statement] = true;
    SyntaxFault fault;
    fault.at = at;
    int left = 12;  // enough to see the statement
    for (antlr4::RuleContext* c = parser->getContext(); c != nullptr && left > 0; --left) {
      fault.rules.push_back(parser->getRuleNames()[c->getRuleIndex()]);
      c = dynamic_cast<antlr4::RuleContext*>(c->parent);
    }
    const antlr4::misc::IntervalSet expected = parser->getExpectedTokens();
    for (const antlr4::misc::Interval& range : expected.getIntervals()) {
      for (ssize_t type = range.a; type <= range.b; ++type)
        fault.expected.push_back(static_cast<Tok>(type));
    }
    diagnostics_.add(describe_fault(sources_, file_, tokens_, fault));
  }

  const Sources& sources_;
  const FileId file_;
  TokenList& tokens_;
  Diagnostics& diagnostics_;
};

// Runs `rule` twice at most; `use` reads the tree while parser and tokens are alive.
template <class Rule, class Use>
void parse_with(const Sources& sources, FileId file, TokenList& list, Diagnostics& diagnostics,
                Rule rule, Use use) {
  antlr4::ListTokenSource source(dress(list));
  antlr4::CommonTokenStream stream(&source);
  P parser(&stream);
  parser.removeErrorListeners();
  auto* simulator = parser.getInterpreter<antlr4::atn::ParserATNSimulator>();
  simulator->setPredictionMode(antlr4::atn::PredictionMode::SLL);
  parser.setErrorHandler(std::make_shared<antlr4::BailErrorStrategy>());
  try {
    use(rule(parser));
    return;
  } catch (const antlr4::ParseCancellationException&) {
    parser.reset();
  }
  simulator->setPredictionMode(antlr4::atn::PredictionMode::LL);
  parser.setErrorHandler(std::make_shared<Recovery>(sources, file, list, diagnostics));
  use(rule(parser));
}

}  // namespace

Ast parse(const Sources& sources, FileId file, Diagnostics& diagnostics) {
  Ast ast;
  ast.file = file;
  const size_t before = diagnostics.errors();
  TokenList list = tidy_tokens(sources, file, diagnostics);
  ast.comments = std::move(list.comments);
  ast.lost_items = list.lost_items;
  parse_with(
      sources, file, list, diagnostics, [](P& parser) { return parser.file(); },
      [&](P::FileContext* tree) { AstBuilder(sources, file, list, ast, diagnostics).file(tree); });
  ast.broken = diagnostics.errors() > before;
  return ast;
}

ExprId parse_expression(const Sources& sources, FileId file, Ast& ast, Diagnostics& diagnostics) {
  const size_t before = diagnostics.errors();
  TokenList list = tidy_tokens(sources, file, diagnostics);
  ExprId id;
  parse_with(
      sources, file, list, diagnostics, [](P& parser) { return parser.expression(); },
      [&](P::ExpressionContext* tree) {
        if (tree->expr() != nullptr)
          id = AstBuilder(sources, file, list, ast, diagnostics).expr(tree->expr());
      });
  return diagnostics.errors() > before ? ExprId{} : id;
}

}  // namespace cad::frontend
