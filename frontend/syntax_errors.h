// frontend/syntax_errors.h -- the words for a syntax error: from where the parser stood (rule,
// offending token, what it expected) to a Diagnostic. The one place that phrases parse errors;
// faults seen before parsing (brackets, characters, keywords) are in tokens.cc.
#pragma once

#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "frontend/tokens.h"

namespace cad::frontend {

struct SyntaxFault {
  std::vector<std::string> rules;  // names in Cad.g4, innermost first
  size_t at = 0;                   // the offending token
  std::vector<Tok> expected;
};

Diagnostic describe_fault(const Sources& sources, FileId file, const TokenList& tokens,
                          const SyntaxFault& fault);

// "`,`", "the end of the line", "a name"
std::string token_words(Tok kind);

}  // namespace cad::frontend
