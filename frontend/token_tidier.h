// frontend/token_tidier.h -- the state of tidy_tokens(): one pass over the raw tokens that builds
// the statement-structured list. tokens.cc holds the rules of statements, token_brackets.cc those
// of brackets and their repair. Only these two include this.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/tokens.h"

namespace cad::frontend {

class TokenTidier {
 public:
  TokenTidier(const Sources& sources, FileId file, Diagnostics& diagnostics);
  TokenList run();

 private:
  struct Opener {
    Tok kind = Tok::NONE;  // LPAREN, LBRACK (also for `@[`), LBRACE
    Span span;
    int indent = 0;   // of its line; of a block's, that of the statement it belongs to
    int dedent = -1;  // `{`: the token in `out_` before a line that stands too far left
  };
  // Operators that make the parser recurse, within one bracket level: `-` and `^`, and `not`.
  struct Chain {
    int tight = 0, loose = 0;
  };

  // tokens.cc
  void take(size_t i);
  void take_newline(size_t i);
  void take_bad(size_t& i);
  void take_string(size_t i);
  void take_number(size_t& i);
  void take_word(size_t i);
  void take_other(size_t i);
  Tok item_keyword_for(size_t i);
  Tok statement_keyword_for(size_t i);
  void report_keyword(size_t i, Tok meant, const std::vector<std::string>& candidates);
  bool header_wants_brace(size_t next);
  bool section_header_wants_brace(size_t next) const;
  bool count_chain(Tok kind, size_t i);
  void emit(Tok kind, uint32_t begin, uint32_t end, bool inserted = false);
  void insert_newline();

  // token_brackets.cc
  [[nodiscard]] bool brackets_balance() const;
  void resync_line(size_t i);
  bool open_bracket(size_t i);  // false: the token is dropped
  void close_round(size_t i);   // `)` and `]`
  void close_brace(size_t i);
  void close_all();
  void pop_repaired();  // closes the innermost `(` or `[` that was never closed
  void pop_brace_repaired(bool report_it);
  void report_unclosed(const Opener& opener, int before);
  [[nodiscard]] int end_of_dims(const Opener& opener, int before) const;
  void too_deep(size_t i);
  bool skip_orphans(size_t i);  // true: dropped, skip_to_ is set
  void push(Tok kind, Span span, int indent);
  void pop();

  [[nodiscard]] bool at_start() const;             // of an item, a statement or an entry
  [[nodiscard]] bool item_starts(size_t i) const;  // an item's keyword in column 0
  [[nodiscard]] bool binding_starts(size_t i) const;
  [[nodiscard]] bool in_round() const;
  [[nodiscard]] Tok raw_kind(size_t i) const;
  [[nodiscard]] std::string_view raw_text(size_t i) const;
  [[nodiscard]] size_t next_significant(size_t i) const;  // skips line ends
  [[nodiscard]] Span span(uint32_t begin, uint32_t end) const { return {file_, begin, end}; }
  [[nodiscard]] Span after_last() const;
  Diagnostic* report(Diagnostic diagnostic);  // null when this statement has its error already
  Diagnostic* report_in(int32_t statement, Diagnostic diagnostic);
  [[nodiscard]] Tok last() const { return out_.tokens.empty() ? Tok::NL : out_.tokens.back().kind; }

  const FileId file_;
  const std::string_view text_;
  Diagnostics& diagnostics_;
  std::vector<Token> raw_;   // without comments
  std::vector<bool> first_;  // the first token of its line
  std::vector<int> indent_;  // of its line, in bytes
  bool balanced_ = true;     // brackets match as written: nothing to repair
  TokenList out_;
  std::vector<Opener> stack_;
  std::vector<Chain> chains_{1};
  int chained_ = 0;  // sum of chains_
  int32_t statement_ = 0;
  size_t statement_begin_ = 0;  // in out_
  int statement_indent_ = 0;    // of the line it starts on
  size_t item_begin_ = 0;       // in out_
  bool in_section_ = false;
  std::optional<size_t> skip_to_;  // raw tokens before it are dropped (after `too deep`)
};

}  // namespace cad::frontend
