// frontend/tokens.cc -- the rules of statements: where a newline counts, where a word is a
// keyword, what a quantity is, and the faults that are best seen before parsing: stray characters,
// misspelt keywords, malformed numbers. Brackets are in token_brackets.cc.
#include "frontend/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/suggest.h"
#include "frontend/token_tidier.h"

namespace cad::frontend {
namespace {

// After these a newline does not end the statement.
bool continues_line(Tok kind) {
  return is_operator(kind) || kind == Tok::COMMA || kind == Tok::ASSIGN || kind == Tok::ARROW ||
         kind == Tok::COLON;
}

bool is_statement_keyword(Tok kind) {
  return kind == Tok::PARAM || kind == Tok::STATE || kind == Tok::USE || kind == Tok::REPEAT ||
         kind == Tok::RETURN;
}

bool is_item_keyword(Tok kind) {
  return kind == Tok::IMPORT || kind == Tok::DIM || kind == Tok::LET || kind == Tok::FN ||
         kind == Tok::LAYER || kind == Tok::MODEL;
}

// What to write instead of a character that is in no token.
std::string advice(std::string_view run) {
  if (run == ";") return "statements end where the line ends";
  if (run.front() == '\'' || run == "\xE2\x80\x9C" || run == "\xE2\x80\x9D") {
    return "strings stand in double quotes: `\"..\"`";
  }
  if (run.front() == '&') return "write `and`";
  if (run.front() == '|') return "write `or`; a pipe is `|>`";
  if (run.front() == '!') return "write `not`; unequal is `!=`";
  if (run == "\xE2\x88\x92" || run == "\xE2\x80\x93")
    return "write the minus sign of the keyboard: `-`";
  if (run == "\xC3\x97") return "write `*`";
  if (run == "\xC2\xA0") return "replace it by a space";
  if (run == "\xEF\xBB\xBF") return "remove it";
  return "";
}

std::string describe_character(std::string_view run) {
  const auto first = static_cast<unsigned char>(run.front());
  if (run == "\xEF\xBB\xBF") return "unexpected byte-order mark (U+FEFF)";
  if (run == "\xC2\xA0") return "unexpected no-break space (U+00A0)";
  if (first < 0x20 || first == 0x7F)
    return fmt::format("unexpected control character U+{:04X}", first);
  return fmt::format("unexpected character `{}`", run);
}

size_t code_point_length(char c) {
  const auto first = static_cast<unsigned char>(c);
  return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

}  // namespace

TokenTidier::TokenTidier(const Sources& sources, FileId file, Diagnostics& diagnostics)
    : file_(file), text_(sources.file(file).text), diagnostics_(diagnostics) {
  uint32_t line_begin = 0;
  bool first = true;
  int indent = 0;
  for (const Token& token : lex(text_)) {
    if (first && token.kind != Tok::NL) indent = static_cast<int>(token.begin - line_begin);
    if (token.kind == Tok::COMMENT) {
      out_.comments.push_back({span(token.begin, token.end), first});
      continue;
    }
    raw_.push_back(token);
    first_.push_back(first && token.kind != Tok::NL);
    indent_.push_back(indent);
    first = token.kind == Tok::NL;
    if (first) line_begin = token.end;
  }
  out_.reported.push_back(false);
  out_.tokens.reserve(raw_.size() + raw_.size() / 8);
}

TokenList TokenTidier::run() {
  balanced_ = brackets_balance();
  for (size_t i = 0; i + 1 < raw_.size(); ++i) {
    if (skip_to_) {
      i = *skip_to_;
      skip_to_.reset();
      if (i + 1 >= raw_.size()) break;
    }
    if (raw_kind(i) == Tok::BAD) {
      take_bad(i);
    } else if (raw_kind(i) == Tok::NUMBER ||
               (raw_kind(i) == Tok::DOT && raw_kind(i + 1) == Tok::NUMBER)) {
      if (first_[i]) resync_line(i);
      take_number(i);
    } else {
      take(i);
    }
  }
  close_all();
  if (last() != Tok::NL && !out_.tokens.empty()) insert_newline();
  const auto end = static_cast<uint32_t>(text_.size());
  emit(Tok::END, end, end);
  return std::move(out_);
}

void TokenTidier::take(size_t i) {
  if (first_[i]) resync_line(i);
  if (at_start() && raw_kind(i) != Tok::NL) {
    statement_begin_ = out_.tokens.size();
    statement_indent_ = indent_[i];
    if (stack_.empty()) {
      item_begin_ = statement_begin_;
      in_section_ = false;
    }
  }
  if (skip_orphans(i)) return;
  switch (raw_kind(i)) {
    case Tok::NL:
      return take_newline(i);
    case Tok::STRING:
    case Tok::OPEN_STRING:
      return take_string(i);
    case Tok::NAME:
    case Tok::IMPORT:
    case Tok::DIM:
    case Tok::LET:
    case Tok::FN:
    case Tok::LAYER:
    case Tok::MODEL:
      return take_word(i);
    case Tok::RPAREN:
    case Tok::RBRACK:
      return close_round(i);
    case Tok::RBRACE:
      return close_brace(i);
    case Tok::LPAREN:
    case Tok::LBRACK:
    case Tok::ATL:
    case Tok::LBRACE:
      if (open_bracket(i)) emit(raw_kind(i), raw_[i].begin, raw_[i].end);
      return;
    default:
      return take_other(i);
  }
}

void TokenTidier::take_other(size_t i) {
  if (count_chain(raw_kind(i), i)) emit(raw_kind(i), raw_[i].begin, raw_[i].end);
}

// Counts prefix operators and `^` towards the nesting limit: each makes the parser recurse.
bool TokenTidier::count_chain(Tok kind, size_t i) {
  Chain& chain = chains_.back();
  const bool prefix = !ends_operand(last());
  if (kind == Tok::NOT) {
    ++chain.loose;
    ++chained_;
  } else if (kind == Tok::CARET || (kind == Tok::MINUS && prefix)) {
    ++chain.tight;
    ++chained_;
  } else {
    chained_ -= chain.tight;
    chain.tight = 0;
    const bool arithmetic =
        is_operator(kind) && kind != Tok::AND && kind != Tok::OR && kind != Tok::PIPE;
    if (!arithmetic && kind != Tok::DOT) {
      chained_ -= chain.loose;
      chain.loose = 0;
    }
  }
  if (static_cast<int>(stack_.size()) + chained_ <= kMaxNesting) return true;
  too_deep(i);
  return false;
}

void TokenTidier::take_newline(size_t i) {
  if (in_round()) return;
  if (at_start() && last() != Tok::COMMA) return;
  const size_t next = next_significant(i);
  const Tok kind = raw_kind(next);
  if (kind == Tok::PIPE && !out_.tokens.empty()) return;
  if (last() == Tok::COMMA && in_section_ && !stack_.empty()) return;
  if (continues_line(last()) && out_.tokens.size() - statement_begin_ > 1) {
    // A dangling operator costs its own statement, not the next one as well.
    const bool fresh = kind == Tok::END || kind == Tok::RBRACE || is_statement_keyword(kind) ||
                       item_starts(next) || (last() != Tok::COMMA && binding_starts(next));
    if (!fresh) return;
  }
  if (header_wants_brace(next)) {
    if (kind == Tok::LBRACE) {
      if (Diagnostic* error =
              report(make_diagnostic(DiagId::E0013, span(raw_[next].begin, raw_[next].end),
                                     "`{` must stand on the line of what it belongs to"))) {
        error->help("move `{` to the end of the line above");
      }
      return;
    }
    push(Tok::LBRACE, after_last(), statement_indent_);
    emit(Tok::LBRACE, after_last().begin, after_last().end, true);
    return;
  }
  for (Chain& chain : chains_) chain = {};
  chained_ = 0;
  emit(Tok::NL, raw_[i].begin, raw_[i].end);
}

// True when a statement that needs a block ends here without its `{`.
bool TokenTidier::header_wants_brace(size_t next) {
  if (statement_begin_ >= out_.tokens.size()) return false;
  const Tok head = out_.tokens[statement_begin_].kind;
  const bool definition = head == Tok::FN || head == Tok::LAYER || head == Tok::MODEL;
  const bool section = section_header_wants_brace(next);
  if (!definition && head != Tok::REPEAT && !section) return false;
  for (size_t k = statement_begin_; k < out_.tokens.size(); ++k) {
    if (out_.tokens[k].kind == Tok::LBRACE || out_.tokens[k].kind == Tok::RBRACE) return false;
  }
  if (raw_kind(next) == Tok::LBRACE) return true;
  if (item_starts(next) || raw_kind(next) == Tok::END) return false;
  bool complete = head == Tok::REPEAT || section;
  for (size_t k = statement_begin_; k < out_.tokens.size(); ++k) {
    complete = complete || out_.tokens[k].kind == Tok::ARROW;
  }
  if (complete && ends_operand(last())) {
    if (Diagnostic* error = report(
            make_diagnostic(DiagId::E0013, after_last(), "missing `{`", "expected `{` here"))) {
      error->help("open the block at the end of this line");
    }
  }
  return true;
}

// `train gpt` or `eval` alone on a line, and a setting on the next.
bool TokenTidier::section_header_wants_brace(size_t next) const {
  if (!in_section_ || out_.tokens.size() - statement_begin_ > 2) return false;
  for (size_t k = statement_begin_; k < out_.tokens.size(); ++k) {
    if (out_.tokens[k].kind != Tok::NAME) return false;
  }
  return raw_kind(next) == Tok::LBRACE ||
         (raw_kind(next) == Tok::NAME && raw_kind(next + 1) == Tok::COLON);
}

void TokenTidier::take_bad(size_t& i) {
  const size_t begin = raw_[i].begin;
  const size_t length = std::min(code_point_length(text_[begin]), text_.size() - begin);
  const std::string_view character = text_.substr(begin, length);
  while (i + 1 < raw_.size() && raw_kind(i + 1) == Tok::BAD && raw_[i + 1].begin < begin + length)
    ++i;
  const Span place = span(static_cast<uint32_t>(begin), static_cast<uint32_t>(begin + length));
  if (Diagnostic* error =
          report(make_diagnostic(DiagId::E0002, place, describe_character(character)))) {
    if (const std::string text = advice(character); !text.empty()) error->help(text);
  }
}

void TokenTidier::take_string(size_t i) {
  const std::string_view text = raw_text(i);
  if (raw_kind(i) == Tok::OPEN_STRING) {
    if (Diagnostic* error =
            report(make_diagnostic(DiagId::E0006, span(raw_[i].begin, raw_[i].end),
                                   "this string is not closed", "no `\"` before the line ends"))) {
      error->help("close it with `\"`");
    }
  }
  for (size_t k = 1; k + 1 < text.size(); ++k) {
    if (text[k] != '\\') continue;
    const std::string_view escaped = text.substr(k + 1, code_point_length(text[k + 1]));
    ++k;
    if (escaped == "n" || escaped == "t" || escaped == "\"" || escaped == "\\") continue;
    const auto at = static_cast<uint32_t>(raw_[i].begin + k - 1);
    if (Diagnostic* error = report(
            make_diagnostic(DiagId::E0007, span(at, at + 1 + static_cast<uint32_t>(escaped.size())),
                            fmt::format("unknown escape `\\{}` in a string", escaped)))) {
      error->help("the escapes are `\\n`, `\\t`, `\\\"` and `\\\\`");
    }
  }
  emit(Tok::STRING, raw_[i].begin, raw_[i].end);
}

namespace {

bool fits_double(std::string digits) {
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  return std::isfinite(std::strtod(digits.c_str(), nullptr));
}

}  // namespace

// Joins `80 GiB` and `300 GB/s`; finds `1e-3x`, `1.` and `.5`.
void TokenTidier::take_number(size_t& i) {
  if (at_start()) statement_begin_ = out_.tokens.size();
  if (raw_kind(i) == Tok::DOT) {  // .5
    if (ends_operand(last())) return take_other(i);
    if (Diagnostic* error =
            report(make_diagnostic(DiagId::E0008, span(raw_[i].begin, raw_[i + 1].end),
                                   fmt::format("malformed number `.{}`", raw_text(i + 1))))) {
      error->help(fmt::format("write `0.{}`", raw_text(i + 1)));
    }
    ++i;
  }
  const Token& number = raw_[i];
  uint32_t end = number.end;
  if (std::string digits(raw_text(i)); !fits_double(digits)) {
    report(make_diagnostic(DiagId::E0008, span(number.begin, number.end),
                           fmt::format("`{}` is too large: numbers end at 1.8e308", digits)));
  }
  if (raw_kind(i + 1) == Tok::NAME || raw_kind(i + 1) == Tok::AS) {
    std::string unit(raw_text(i + 1));
    size_t used = 1;
    if (raw_kind(i + 2) == Tok::SLASH && raw_[i + 2].begin == raw_[i + 1].end &&
        raw_kind(i + 3) == Tok::NAME && raw_[i + 3].begin == raw_[i + 2].end &&
        is_unit(unit + "/s") && raw_text(i + 3) == "s") {
      unit += "/s";
      used = 3;
    }
    if (is_unit(unit)) {
      end = raw_[i + used].end;
      emit(Tok::QUANTITY, number.begin, end);
      i += used;
      return;
    }
    if (raw_[i + 1].begin == number.end) {
      end = raw_[i + 1].end;
      const std::string whole(text_.substr(number.begin, end - number.begin));
      if (Diagnostic* error =
              report(make_diagnostic(DiagId::E0008, span(number.begin, end),
                                     fmt::format("malformed number `{}`", whole)))) {
        if (const auto near = suggest(unit, units()); near && unit.size() > 1) {
          error->help(fmt::format("did you mean `{} {}`?", raw_text(i), *near));
        }
      }
      emit(Tok::NUMBER, number.begin, number.end);
      ++i;
      return;
    }
  }
  if (raw_kind(i + 1) == Tok::DOT && raw_[i + 1].begin == number.end &&
      raw_kind(i + 2) != Tok::NAME) {
    if (Diagnostic* error =
            report(make_diagnostic(DiagId::E0008, span(number.begin, raw_[i + 1].end),
                                   fmt::format("malformed number `{}.`", raw_text(i))))) {
      error->help(fmt::format("write `{}.0`", raw_text(i)));
    }
    emit(Tok::NUMBER, number.begin, number.end);
    ++i;
    return;
  }
  emit(Tok::NUMBER, number.begin, end);
}

// A name, or a word that is a keyword only where an item or a statement starts.
void TokenTidier::take_word(size_t i) {
  Tok kind = raw_kind(i);
  const bool start = at_start() && !in_round();
  if (!start || (in_section_ && !stack_.empty())) {
    emit(Tok::NAME, raw_[i].begin, raw_[i].end);
    return;
  }
  if (kind == Tok::NAME) kind = stack_.empty() ? item_keyword_for(i) : statement_keyword_for(i);
  if (stack_.empty()) in_section_ = kind == Tok::NAME;
  if (kind == Tok::NONE) {  // a definition without its keyword
    emit(Tok::LAYER, raw_[i].begin, raw_[i].begin, true);
    kind = Tok::NAME;
  }
  emit(kind, raw_[i].begin, raw_[i].end);
}

// What a word that is no keyword stands for at the start of an item: itself (a section), a
// misspelt keyword, or NONE, a definition's name without keyword.
Tok TokenTidier::item_keyword_for(size_t i) {
  const Tok next = raw_kind(i + 1);
  const Tok after = raw_kind(i + 2);
  std::vector<std::string> candidates;
  Tok fallback = Tok::NAME;
  if (next == Tok::NAME && (after == Tok::LPAREN || after == Tok::LBRACK)) {
    candidates = {"fn", "layer", "model"};
    fallback = Tok::LAYER;
  } else if (next == Tok::NAME && after == Tok::ASSIGN) {
    candidates = {"dim", "let"};
    fallback = Tok::LET;
  } else if (next == Tok::NAME && (after == Tok::COMMA || after == Tok::NL || after == Tok::END)) {
    candidates = {"dim"};
  } else if (next == Tok::STRING) {
    candidates = {"import"};
    fallback = Tok::IMPORT;
  } else if (next == Tok::LPAREN || next == Tok::LBRACK) {
    int depth = 0;
    for (size_t k = i + 1; k < raw_.size(); ++k) {
      const Tok kind = raw_kind(k);
      if (kind == Tok::LPAREN || kind == Tok::LBRACK) ++depth;
      if (kind == Tok::RPAREN || kind == Tok::RBRACK) --depth;
      if (kind == Tok::LBRACE) {
        if (Diagnostic* error = report(
                make_diagnostic(DiagId::E0011, span(raw_[i].begin, raw_[i].end),
                                fmt::format("`{}` is defined without a keyword", raw_text(i))))) {
          error->help("put `fn`, `layer` or `model` before it");
        }
        return Tok::NONE;
      }
      if (kind == Tok::NL && depth <= 0) break;
    }
    return Tok::NAME;
  } else {
    return Tok::NAME;
  }
  const auto near = suggest(raw_text(i), candidates);
  if (!near && fallback == Tok::NAME) return Tok::NAME;
  const Tok meant = near ? keyword_kind(*near) : fallback;
  report_keyword(i, meant, near ? std::vector<std::string>{*near} : item_keywords());
  return meant;
}

// The same inside a body: `retrun y`, `prama W : [D]`.
Tok TokenTidier::statement_keyword_for(size_t i) {
  const Tok next = raw_kind(i + 1);
  std::vector<std::string> candidates;
  if (next == Tok::NAME || next == Tok::NUMBER || next == Tok::STRING) {
    candidates = statement_keywords();
  } else if (next == Tok::LPAREN || next == Tok::MINUS) {
    for (size_t k = i + 1; k < raw_.size() && raw_kind(k) != Tok::NL && raw_kind(k) != Tok::RBRACE;
         ++k) {
      if (raw_kind(k) == Tok::ASSIGN) return Tok::NAME;
    }
    candidates = {"return", "repeat"};
  }
  const auto near = suggest(raw_text(i), candidates);
  if (!near) return Tok::NAME;
  report_keyword(i, keyword_kind(*near), {*near});
  return keyword_kind(*near);
}

void TokenTidier::report_keyword(size_t i, Tok, const std::vector<std::string>& candidates) {
  const Span place = span(raw_[i].begin, raw_[i].end);
  Diagnostic* error = report(
      make_diagnostic(DiagId::E0011, place, fmt::format("unknown keyword `{}`", raw_text(i))));
  if (error == nullptr) return;
  if (candidates.size() == 1) {
    error->helps.push_back(
        {fmt::format("did you mean `{}`?", candidates[0]), place, candidates[0]});
  } else {
    error->help(
        "an item starts with `import`, `dim`, `let`, `fn`, `layer` or `model`, or is a section "
        "`name { .. }`");
  }
}

void TokenTidier::emit(Tok kind, uint32_t begin, uint32_t end, bool inserted) {
  out_.tokens.push_back({kind, begin, end, statement_, inserted});
  if (kind == Tok::NL || kind == Tok::LBRACE || kind == Tok::RBRACE) {
    ++statement_;
    out_.reported.push_back(false);
    statement_begin_ = out_.tokens.size();
  }
}

void TokenTidier::insert_newline() {
  const Span place = after_last();
  emit(Tok::NL, place.begin, place.end, true);
}

bool TokenTidier::at_start() const {
  const Tok kind = last();
  return kind == Tok::NL || kind == Tok::LBRACE ||
         (kind == Tok::COMMA && in_section_ && !stack_.empty() &&
          stack_.back().kind == Tok::LBRACE);
}

bool TokenTidier::item_starts(size_t i) const {
  if (!first_[i] || indent_[i] != 0 || raw_kind(i + 1) == Tok::COLON) return false;
  const Tok kind = raw_kind(i);
  if (kind == Tok::DIM) {
    // Also a statement; an item when the block it would stand in is indented.
    return stack_.empty() || stack_.back().kind != Tok::LBRACE || stack_.back().indent > 0 ||
           stack_.back().dedent >= 0 || stack_.size() == 1;
  }
  if (is_item_keyword(kind)) return true;
  if (kind != Tok::NAME) return false;
  static const std::vector<std::string> kSections{"train", "cluster", "device", "mesh", "plan"};
  if (std::find(kSections.begin(), kSections.end(), raw_text(i)) == kSections.end()) return false;
  return raw_kind(i + 1) == Tok::LBRACE ||
         (raw_kind(i + 1) == Tok::NAME && raw_kind(i + 2) == Tok::LBRACE);
}

// `x = `, `x, y = `, `x: ` at token i.
bool TokenTidier::binding_starts(size_t i) const {
  for (; raw_kind(i) == Tok::NAME; i += 2) {
    const Tok next = raw_kind(i + 1);
    if (next == Tok::ASSIGN || next == Tok::COLON) return true;
    if (next != Tok::COMMA) return false;
  }
  return false;
}

Tok TokenTidier::raw_kind(size_t i) const {
  return i < raw_.size() ? raw_[i].kind : Tok::END;
}

std::string_view TokenTidier::raw_text(size_t i) const {
  return text_.substr(raw_[i].begin, raw_[i].end - raw_[i].begin);
}

size_t TokenTidier::next_significant(size_t i) const {
  while (i + 1 < raw_.size() && raw_kind(i) == Tok::NL) ++i;
  return i;
}

Span TokenTidier::after_last() const {
  for (auto it = out_.tokens.rbegin(); it != out_.tokens.rend(); ++it) {
    if (it->kind != Tok::NL && !it->inserted) return span(it->end, it->end);
  }
  return span(0, 0);
}

Diagnostic* TokenTidier::report(Diagnostic diagnostic) {
  return report_in(statement_, std::move(diagnostic));
}

Diagnostic* TokenTidier::report_in(int32_t statement, Diagnostic diagnostic) {
  const auto index = static_cast<size_t>(statement);
  if (out_.reported[index]) return nullptr;
  out_.reported[index] = true;
  return &diagnostics_.add(std::move(diagnostic));
}

TokenList tidy_tokens(const Sources& sources, FileId file, Diagnostics& diagnostics) {
  return TokenTidier(sources, file, diagnostics).run();
}

}  // namespace cad::frontend
