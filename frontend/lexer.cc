// frontend/lexer.cc -- runs the generated lexer over the bytes of a text. Bytes, not code points,
// so that positions are byte offsets; anything outside ASCII is legal only in strings and comments
// and comes out as BAD bytes elsewhere. No rules of the language here: see tokens.cc.
#include "CadLexer.h"

#include "base/check.h"
#include "frontend/tokens.h"

namespace cad::frontend {
namespace {

using Generated = grammar::CadLexer;
#define CAD_TOKEN_ASSERT(name) \
  static_assert(static_cast<int>(Tok::name) == static_cast<int>(Generated::name));
CAD_LEXER_TOKENS(CAD_TOKEN_ASSERT)
#undef CAD_TOKEN_ASSERT

// One element a byte.
class ByteStream : public antlr4::ANTLRInputStream {
 public:
  explicit ByteStream(std::string_view text) {
    _data.reserve(text.size());
    for (const char c : text) _data.push_back(static_cast<unsigned char>(c));
  }
};

}  // namespace

std::vector<Token> lex(std::string_view text) {
  ByteStream stream(text);
  Generated lexer(&stream);
  lexer.removeErrorListeners();
  std::vector<Token> tokens;
  tokens.reserve(text.size() / 4);
  for (;;) {
    const std::unique_ptr<antlr4::Token> token = lexer.nextToken();
    Token t;
    t.begin = static_cast<uint32_t>(token->getStartIndex());
    if (token->getType() == antlr4::Token::EOF) {
      t.kind = Tok::END;
      t.begin = t.end = static_cast<uint32_t>(text.size());
      tokens.push_back(t);
      return tokens;
    }
    t.kind = static_cast<Tok>(token->getType());
    t.end = static_cast<uint32_t>(token->getStopIndex() + 1);
    CAD_CHECK(t.end > t.begin && t.end <= text.size(), "token {}..{} of {}", t.begin, t.end,
              text.size());
    tokens.push_back(t);
  }
}

}  // namespace cad::frontend
