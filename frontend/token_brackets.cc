// frontend/token_brackets.cc -- brackets: matching, the nesting limit, and repair. Where brackets
// match as written nothing is touched. Where they do not, line starts, indentation and keywords in
// column 0 tell which one is missing or stray, so that one fault costs one statement.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "frontend/token_tidier.h"

namespace cad::frontend {
namespace {

Tok closer_of(Tok opener) {
  return opener == Tok::LPAREN ? Tok::RPAREN : opener == Tok::LBRACE ? Tok::RBRACE : Tok::RBRACK;
}

const char* bracket_text(Tok kind) {
  switch (kind) {
    case Tok::LPAREN:
      return "(";
    case Tok::RPAREN:
      return ")";
    case Tok::LBRACK:
      return "[";
    case Tok::RBRACK:
      return "]";
    case Tok::LBRACE:
      return "{";
    default:
      return "}";
  }
}

bool is_word(std::string_view text) {
  return std::isalnum(static_cast<unsigned char>(text.front())) != 0;
}

}  // namespace

bool TokenTidier::brackets_balance() const {
  std::vector<Tok> open;
  for (size_t i = 0; i < raw_.size(); ++i) {
    switch (raw_kind(i)) {
      case Tok::LPAREN:
      case Tok::LBRACE:
        open.push_back(raw_kind(i));
        break;
      case Tok::LBRACK:
      case Tok::ATL:
        open.push_back(Tok::LBRACK);
        break;
      case Tok::RPAREN:
      case Tok::RBRACK:
      case Tok::RBRACE:
        if (open.empty() || closer_of(open.back()) != raw_kind(i)) return false;
        open.pop_back();
        break;
      case Tok::IMPORT:
      case Tok::LET:
      case Tok::FN:
      case Tok::LAYER:
      case Tok::MODEL:
        if (!open.empty() && first_[i] && indent_[i] == 0 && raw_kind(i + 1) != Tok::COLON)
          return false;
        break;
      default:
        break;
    }
  }
  return open.empty();
}

// At the first token of a line, where brackets do not match: closes those that were forgotten.
void TokenTidier::resync_line(size_t i) {
  if (balanced_ || stack_.empty() || raw_kind(i) == Tok::NL) return;
  if (item_starts(i)) return close_all();
  const Tok kind = raw_kind(i);
  const bool keyword = kind == Tok::PARAM || kind == Tok::STATE || kind == Tok::USE ||
                       kind == Tok::REPEAT || kind == Tok::RETURN;
  bool closed = false;
  while (in_round()) {
    const Opener& top = stack_.back();
    // Two operands in a row are nothing anywhere; `x =` is nothing inside parentheses.
    const bool apart = ends_operand(last()) && starts_operand(kind) && kind != Tok::LPAREN &&
                       kind != Tok::MINUS && indent_[i] <= top.indent;
    const bool binds = raw_kind(i + 1) == Tok::ASSIGN && kind == Tok::NAME &&
                       (top.kind == Tok::LPAREN || last() == Tok::LBRACK || ends_operand(last())) &&
                       indent_[i] <= top.indent;
    if (!keyword && !apart && !binds) break;
    pop_repaired();
    closed = true;
  }
  if (closed && last() != Tok::NL && last() != Tok::LBRACE) insert_newline();
  if (!stack_.empty() && stack_.back().kind == Tok::LBRACE && kind != Tok::RBRACE &&
      indent_[i] <= stack_.back().indent && stack_.back().dedent < 0 && !out_.tokens.empty()) {
    stack_.back().dedent = static_cast<int>(out_.tokens.size()) - 1;
  }
}

bool TokenTidier::in_round() const {
  return !stack_.empty() && stack_.back().kind != Tok::LBRACE;
}

bool TokenTidier::open_bracket(size_t i) {
  const Tok kind = raw_kind(i) == Tok::ATL ? Tok::LBRACK : raw_kind(i);
  const Span place = span(raw_[i].begin, raw_[i].end);
  if (kind == Tok::LBRACE && !balanced_) {
    while (in_round()) pop_repaired();
    if (last() == Tok::LBRACE) {
      if (Diagnostic* error = report(make_diagnostic(DiagId::E0004, place, "unexpected `{`"))) {
        error->help("remove it");
      }
      return false;
    }
  }
  if (static_cast<int>(stack_.size()) + chained_ >= kMaxNesting) {
    too_deep(i);
    return false;
  }
  push(kind, place, kind == Tok::LBRACE ? statement_indent_ : indent_[i]);
  return true;
}

void TokenTidier::close_round(size_t i) {
  const Tok kind = raw_kind(i);
  const Span place = span(raw_[i].begin, raw_[i].end);
  size_t at = stack_.size();
  while (at > 0 && stack_[at - 1].kind != Tok::LBRACE && closer_of(stack_[at - 1].kind) != kind)
    --at;
  const bool found = at > 0 && stack_[at - 1].kind != Tok::LBRACE;
  if (!found && !in_round()) {
    if (Diagnostic* error = report(make_diagnostic(
            DiagId::E0004, place, fmt::format("`{}` closes nothing", bracket_text(kind))))) {
      error->help("remove it, or open it before");
    }
    return;
  }
  if (!found) {  // `(x]`: taken for the right closer
    const Opener top = stack_.back();
    if (Diagnostic* error = report(make_diagnostic(
            DiagId::E0004, place,
            fmt::format("`{}` is closed by `{}`", bracket_text(top.kind), bracket_text(kind)),
            fmt::format("expected `{}`", bracket_text(closer_of(top.kind)))))) {
      error->label(top.span, "opened here");
    }
    pop();
    emit(closer_of(top.kind), place.begin, place.end);
    return;
  }
  while (stack_.size() > at) pop_repaired();
  pop();
  emit(kind, place.begin, place.end);
}

void TokenTidier::close_brace(size_t i) {
  const Span place = span(raw_[i].begin, raw_[i].end);
  if (!balanced_ || std::none_of(stack_.begin(), stack_.end(),
                                 [](const Opener& o) { return o.kind == Tok::LBRACE; })) {
    while (in_round()) pop_repaired();
  }
  if (stack_.empty() || (!in_round() && !balanced_ && last() == Tok::RBRACE && !first_[i] &&
                         stack_.back().indent != indent_[i])) {
    if (Diagnostic* error = report(make_diagnostic(DiagId::E0004, place, "`}` closes nothing"))) {
      error->help("remove it, or open it before");
    }
    return;
  }
  while (!balanced_ && first_[i] && stack_.back().indent > indent_[i]) {
    const bool meant_for_outer = std::any_of(
        stack_.begin(), stack_.end() - 1,
        [&](const Opener& o) { return o.kind == Tok::LBRACE && o.indent == indent_[i]; });
    if (!meant_for_outer) break;
    pop_brace_repaired(true);
  }
  const bool comma_ends = last() == Tok::COMMA && in_section_;
  if (last() != Tok::NL && last() != Tok::LBRACE && !comma_ends) insert_newline();
  pop();
  emit(Tok::RBRACE, place.begin, place.end);
}

// Closes whatever is open: at an item in column 0, and at the end of the file.
void TokenTidier::close_all() {
  bool reported = false;
  while (!stack_.empty()) {
    if (in_round()) {
      pop_repaired();
    } else {
      pop_brace_repaired(!reported);
      reported = true;
    }
  }
  if (!out_.tokens.empty() && last() != Tok::NL) insert_newline();
}

void TokenTidier::pop_repaired() {
  const Opener top = stack_.back();
  report_unclosed(top, static_cast<int>(out_.tokens.size()) - 1);
  const Span place = after_last();
  pop();
  emit(closer_of(top.kind), place.begin, place.end, true);
}

void TokenTidier::pop_brace_repaired(bool report_it) {
  const Opener top = stack_.back();
  const int before = top.dedent >= 0 ? top.dedent : static_cast<int>(out_.tokens.size()) - 1;
  if (report_it) report_unclosed(top, before);
  const bool comma_ends = last() == Tok::COMMA && in_section_;
  if (last() != Tok::NL && last() != Tok::LBRACE && !comma_ends) insert_newline();
  const Span place = after_last();
  pop();
  emit(Tok::RBRACE, place.begin, place.end, true);
  insert_newline();
}

// Dims in brackets have a comma, an arrow or an operator between them: of `x @[D Wq` the brackets
// end after `D`.
int TokenTidier::end_of_dims(const Opener& opener, int before) const {
  int at = before;
  while (at >= 0 && out_.tokens[static_cast<size_t>(at)].begin > opener.span.begin) --at;
  for (++at; at < before; ++at) {
    const Tok kind = out_.tokens[static_cast<size_t>(at)].kind;
    const Tok next = out_.tokens[static_cast<size_t>(at) + 1].kind;
    if ((kind == Tok::NAME || kind == Tok::NUMBER) && (next == Tok::NAME || next == Tok::NUMBER))
      return at;
  }
  return before;
}

// `before`: the token after which the closer was expected.
void TokenTidier::report_unclosed(const Opener& opener, int before) {
  if (before < 0) return;
  int32_t statement = out_.tokens[static_cast<size_t>(before)].statement;
  if (opener.kind != Tok::LBRACE) statement = statement_;
  while (before > 0 && (out_.tokens[static_cast<size_t>(before)].kind == Tok::NL ||
                        out_.tokens[static_cast<size_t>(before)].inserted)) {
    --before;
  }
  if (opener.kind == Tok::LBRACK) before = end_of_dims(opener, before);
  const Token& previous = out_.tokens[static_cast<size_t>(before)];
  const uint32_t at = previous.end;
  const std::string closer = bracket_text(closer_of(opener.kind));
  if (Diagnostic* error = report_in(
          statement, make_diagnostic(DiagId::E0003, span(at, at),
                                     fmt::format("`{}` is never closed", bracket_text(opener.kind)),
                                     fmt::format("expected `{}` here", closer)))) {
    error->label(opener.span, "opened here");
    if (opener.kind == Tok::LBRACE) {
      error->help(fmt::format("add `{}` on a line of its own", closer));
    } else {
      const std::string_view word = text_.substr(previous.begin, previous.end - previous.begin);
      error->helps.push_back({word.size() > 24 || !is_word(word)
                                  ? fmt::format("add `{}` where the mark is", closer)
                                  : fmt::format("add `{}` after `{}`", closer, word),
                              span(at, at), closer});
    }
  }
}

// A body whose header is gone (commented out, say): statements among items, and a `}` that closes
// nothing. One error; all of them are dropped.
bool TokenTidier::skip_orphans(size_t i) {
  if (balanced_ || !stack_.empty() || !first_[i] || indent_[i] == 0 || !at_start()) return false;
  const Tok kind = raw_kind(i);
  const bool keyword = kind == Tok::PARAM || kind == Tok::STATE || kind == Tok::USE ||
                       kind == Tok::REPEAT || kind == Tok::RETURN;
  if (!keyword && !binding_starts(i)) return false;
  int depth = 0;
  size_t next = i;
  for (; next + 1 < raw_.size() && !item_starts(next); ++next) {
    if (raw_kind(next) == Tok::LBRACE) ++depth;
    if (raw_kind(next) == Tok::RBRACE && --depth < 0) break;
  }
  if (depth >= 0) return false;
  if (Diagnostic* error =
          report(make_diagnostic(DiagId::E0001, span(raw_[i].begin, raw_[i].end),
                                 fmt::format("`{}` stands outside a definition", raw_text(i))))) {
    error->help("a body needs a header: `layer Name(x: [B, T]) -> [B, T] {`");
  }
  out_.lost_items = true;
  skip_to_ = next + 1;
  emit(Tok::NL, raw_[i].begin, raw_[i].begin, true);
  out_.tokens.pop_back();  // only the statement's number was wanted
  return true;
}

// One error; the item is dropped and the next one in column 0 goes on.
void TokenTidier::too_deep(size_t i) {
  const Span place = span(raw_[i].begin, raw_[i].end);
  if (Diagnostic* error = report(make_diagnostic(DiagId::E0005, place, "nested too deeply"))) {
    error->note(fmt::format("brackets, blocks, `-`, `not` and `^` may nest {} deep", kMaxNesting))
        .help("name a part of the expression with a binding of its own");
  }
  out_.lost_items = true;
  out_.tokens.resize(item_begin_);
  stack_.clear();
  chains_.assign(1, {});
  chained_ = 0;
  size_t next = i + 1;
  while (next + 1 < raw_.size() && !item_starts(next)) ++next;
  skip_to_ = next;
}

void TokenTidier::push(Tok kind, Span place, int indent) {
  stack_.push_back({kind, place, indent, -1});
  chains_.emplace_back();
}

void TokenTidier::pop() {
  chained_ -= chains_.back().tight + chains_.back().loose;
  stack_.pop_back();
  chains_.pop_back();
}

}  // namespace cad::frontend
