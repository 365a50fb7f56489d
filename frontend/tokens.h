// frontend/tokens.h -- the token list between lexer and parser. lex() cuts the text (the generated
// lexer); tidy_tokens() applies the rules of statements: which newlines count, where `layer` and
// the like are keywords, quantities, balanced brackets. It reports what it repairs, so the parser
// always sees balanced brackets, bounded nesting and a NL after every statement.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "base/source.h"
#include "frontend/ast.h"

namespace cad::frontend {

// The order is that of the token types ANTLR assigns to grammar/Cad.g4; lexer.cc and parse.cc
// assert it. QUANTITY is joined from NUMBER and NAME, the lexer does not know it.
// clang-format off
#define CAD_LEXER_TOKENS(X) \
  X(IMPORT) X(AS) X(DIM) X(LET) X(FN) X(LAYER) X(MODEL) X(PARAM) X(STATE) X(USE) X(REPEAT) \
  X(RETURN) X(NOT) X(AND) X(OR) X(ATL) X(AT) X(ARROW) X(PIPE) X(DOTS) X(DOT) X(LE) X(GE) \
  X(EQ) X(NE) X(LT) X(GT) X(ASSIGN) X(COLON) X(COMMA) X(LPAREN) X(RPAREN) X(LBRACK) \
  X(RBRACK) X(LBRACE) X(RBRACE) X(PLUS) X(MINUS) X(STAR) X(SLASH) X(PERCENT) X(DSLASH) \
  X(CARET) X(NUMBER) X(NAME) X(STRING) X(OPEN_STRING) X(COMMENT) X(WS) X(NL) X(BAD)
// clang-format on

enum class Tok : int8_t {
  END = -1,  // of the file
  NONE = 0,
#define CAD_TOKEN_ENUMERATOR(name) name,
  CAD_LEXER_TOKENS(CAD_TOKEN_ENUMERATOR) QUANTITY
#undef CAD_TOKEN_ENUMERATOR
};

struct Token {
  Tok kind = Tok::NONE;
  uint32_t begin = 0, end = 0;  // bytes
  // Statements are numbered: each NL, `{` and `}` ends one (and belongs to it). One error each.
  int32_t statement = 0;
  bool inserted = false;  // not in the text: a repair, or the NL before `}`
};

// Everything in the text but blanks, END last. NL tokens are raw: one for every line end.
std::vector<Token> lex(std::string_view text);

struct TokenList {
  std::vector<Token> tokens;  // END last
  std::vector<Comment> comments;
  std::vector<bool> reported;  // by statement number: an error was reported for it
  bool lost_items = false;     // see Ast::lost_items
};

TokenList tidy_tokens(const Sources& sources, FileId file, Diagnostics& diagnostics);

bool ends_operand(Tok kind);    // a name, a number, a closer ..: an operator or separator follows
bool starts_operand(Tok kind);  // a name, a number, `(`, `-`, `not` ..
bool is_operator(Tok kind);     // binary operators, with `|>` and `@[`
bool is_reserved(Tok kind);     // param state use repeat return as not and or
std::vector<std::string> item_keywords();
std::vector<std::string> statement_keywords();
Tok keyword_kind(std::string_view word);  // NONE when `word` is no keyword
bool is_unit(std::string_view word);      // GiB, us, TFLOPS ..
const std::vector<std::string>& units();

}  // namespace cad::frontend
