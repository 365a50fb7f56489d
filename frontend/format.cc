// frontend/format.cc -- see format.h. Works on tokens, not on the tree: what is printed is the same
// sequence of tokens, so the tree cannot change. Three steps: lines (where to break, how far to
// indent), spacing within a line, and alignment of runs of lines. There is no line width: breaks
// are the author's.
#include "frontend/format.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "frontend/tokens.h"

namespace cad::frontend {
namespace {

constexpr int kIndent = 2;        // of a block
constexpr int kContinuation = 4;  // of a line that goes on with a statement
constexpr size_t kCommentColumn = 45;

struct Line {
  int indent = 0;
  std::string text;     // without indentation
  std::string comment;  // trailing, or the whole line when `text` is empty
  bool blank_before = false;
  // Where spaces may be put in to align a run of lines: before the `:` and the `=` of a param or
  // state, or before the value of a setting.
  enum class Run { kNone, kParam, kSetting } run = Run::kNone;
  std::vector<size_t> pads;
  int block = 0;  // lines of one block have one number
};

class Formatter {
 public:
  Formatter(const Ast& ast, std::string_view text, const TokenList& list)
      : ast_(ast), text_(text), tokens_(list.tokens) {}

  std::string run() {
    find_blocks();
    for (size_t i = 0; i < tokens_.size(); ++i) token(i);
    align_runs();
    align_comments();
    return join();
  }

 private:
  struct Bracket {
    Tok kind = Tok::NONE;
    bool contraction = false;  // `@[`
    bool hangs = false;        // the last token of its line: what follows is indented below it
    bool broken = false;       // a `{` whose block takes several lines
    int line_indent = 0;
    int block = 0;
  };

  // For every `{` whether its block stands on one line.
  void find_blocks() {
    std::vector<size_t> open;
    one_line_.assign(tokens_.size(), true);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i].kind == Tok::LBRACE) open.push_back(i);
      if (tokens_[i].kind != Tok::RBRACE || open.empty()) continue;
      const size_t begin = open.back();
      open.pop_back();
      one_line_[begin] = line_breaks(tokens_[begin].end, tokens_[i].begin) == 0;
    }
  }

  [[nodiscard]] int line_breaks(uint32_t begin, uint32_t end) const {
    int count = 0;
    for (uint32_t i = begin; i < end; ++i) {
      if (text_[i] == '\n' || (text_[i] == '\r' && !(i + 1 < text_.size() && text_[i + 1] == '\n')))
        ++count;
    }
    return count;
  }

  // Comments between the last thing printed and the token at `end`, then the token's own break.
  void token(size_t i) {
    const Token& t = tokens_[i];
    while (comment_ < ast_.comments.size() && ast_.comments[comment_].span.begin < t.begin) {
      comment(ast_.comments[comment_++], t);
    }
    if (t.kind == Tok::NL) {
      last_ = Tok::NL;
      statement_ = true;
      return;
    }
    if (t.kind == Tok::END) return;
    if (drops_comma(i)) {
      position_ = t.end;
      last_ = Tok::COMMA;
      statement_ = true;
      return;
    }
    if (breaks_before(i)) {
      start_line(t, i);
    } else {
      lines_.back().text += space_before(i) ? " " : "";
    }
    mark_alignment(i);
    put(i);
  }

  void comment(const Comment& comment, const Token& next) {
    std::string words(text_.substr(comment.span.begin, comment.span.end - comment.span.begin));
    while (!words.empty() && std::isspace(static_cast<unsigned char>(words.back())) != 0)
      words.pop_back();
    const bool same_line =
        !lines_.empty() && line_breaks(position_, comment.span.begin) == 0 && position_ > 0;
    if (same_line) {
      lines_.back().comment = words;
    } else {
      Line line;
      line.indent = next.kind == Tok::RBRACE || statement_ || lines_.empty()
                        ? block_indent()
                        : continuation_indent(false);
      line.comment = words;
      line.blank_before = wants_blank(comment.span.begin, false);
      line.block = block_number();
      lines_.push_back(line);
    }
    position_ = comment.span.end;
    broken_by_comment_ = true;
  }

  // A comma between settings is dropped where a line ends or the section closes.
  [[nodiscard]] bool drops_comma(size_t i) const {
    if (tokens_[i].kind != Tok::COMMA || !section_ || stack_.empty() ||
        stack_.back().kind != Tok::LBRACE)
      return false;
    const Token& next = tokens_[i + 1];
    return next.kind == Tok::RBRACE || line_breaks(tokens_[i].end, next.begin) > 0;
  }

  [[nodiscard]] bool breaks_before(size_t i) const {
    if (lines_.empty() || broken_by_comment_) return true;
    const Token& t = tokens_[i];
    if (t.kind == Tok::RBRACE && !stack_.empty())
      return stack_.back().broken && last_ != Tok::LBRACE;
    if (last_ == Tok::LBRACE && !stack_.empty()) return stack_.back().broken;
    if (last_ == Tok::NL) return stack_.empty() || stack_.back().broken;
    return line_breaks(position_, t.begin) > 0;
  }

  [[nodiscard]] bool wants_blank(uint32_t begin, bool closes) const {
    if (lines_.empty() || closes || opened_ || in_round()) return false;
    return line_breaks(position_, begin) > 1;
  }

  void start_line(const Token& t, size_t i) {
    Line line;
    const bool closes = t.kind == Tok::RBRACE;
    line.blank_before = statement_ && wants_blank(t.begin, closes);
    if (closes) {
      line.indent = stack_.empty() ? 0 : stack_.back().line_indent;
    } else if (statement_) {
      line.indent = block_indent();
    } else {
      line.indent = continuation_indent(t.kind == Tok::RPAREN || t.kind == Tok::RBRACK);
    }
    line.block = block_number();
    if (!lines_.empty() && in_round() && last_is_opener_) stack_.back().hangs = true;
    if (!closes && !statement_)
      line.indent = continuation_indent(t.kind == Tok::RPAREN || t.kind == Tok::RBRACK);
    lines_.push_back(line);
    line_begin_ = i;
    broken_by_comment_ = false;
  }

  [[nodiscard]] bool in_round() const {
    return !stack_.empty() && stack_.back().kind != Tok::LBRACE;
  }
  [[nodiscard]] int block_number() const { return stack_.empty() ? 0 : stack_.back().block; }
  [[nodiscard]] int block_indent() const {
    for (auto it = stack_.rbegin(); it != stack_.rend(); ++it) {
      if (it->kind == Tok::LBRACE) return it->line_indent + kIndent;
    }
    return 0;
  }
  [[nodiscard]] int continuation_indent(bool closer) const {
    if (in_round() && (stack_.back().hangs || last_is_opener_))
      return stack_.back().line_indent + (closer ? 0 : kIndent);
    return statement_indent_ + kContinuation;
  }

  void put(size_t i) {
    const Token& t = tokens_[i];
    Line& line = lines_.back();
    if (statement_) {
      statement_indent_ = line.indent;
      statement_kind_ = t.kind;
      statement_begin_ = i;
      if (stack_.empty()) section_ = t.kind == Tok::NAME;
    }
    line.text += word(t);
    contraction_closed_ = false;
    last_is_opener_ = false;
    opened_ = false;
    switch (t.kind) {
      case Tok::LPAREN:
      case Tok::LBRACK:
      case Tok::ATL:
        stack_.push_back({t.kind == Tok::ATL ? Tok::LBRACK : t.kind, t.kind == Tok::ATL, false,
                          false, line.indent, block_number()});
        last_is_opener_ = true;
        break;
      case Tok::LBRACE:
        stack_.push_back({Tok::LBRACE, false, false, !one_line_[i], statement_indent_, ++blocks_});
        opened_ = true;
        break;
      case Tok::RPAREN:
      case Tok::RBRACK:
      case Tok::RBRACE:
        if (!stack_.empty()) {
          contraction_closed_ = stack_.back().contraction;
          stack_.pop_back();
        }
        break;
      default:
        break;
    }
    unary_ = t.kind == Tok::MINUS && !ends_operand(last_);
    last_ = t.kind;
    position_ = t.end;
    statement_ = t.kind == Tok::LBRACE || (t.kind == Tok::COMMA && section_ && !stack_.empty() &&
                                           stack_.back().kind == Tok::LBRACE);
  }

  [[nodiscard]] std::string word(const Token& t) const {
    std::string text(text_.substr(t.begin, t.end - t.begin));
    if (t.kind != Tok::QUANTITY) return text;
    size_t unit = text.size();
    while (unit > 0 &&
           (std::isalpha(static_cast<unsigned char>(text[unit - 1])) != 0 || text[unit - 1] == '/'))
      --unit;
    size_t digits = unit;
    while (digits > 0 && std::isspace(static_cast<unsigned char>(text[digits - 1])) != 0) --digits;
    return text.substr(0, digits) + " " + text.substr(unit);
  }

  [[nodiscard]] bool space_before(size_t i) const {
    const Tok k = tokens_[i].kind;
    switch (last_) {  // nothing after these
      case Tok::LPAREN:
      case Tok::LBRACK:
      case Tok::ATL:
      case Tok::AT:
      case Tok::DOT:
        return false;
      case Tok::MINUS:
        if (unary_) return false;
        break;
      case Tok::LBRACE:
        return k != Tok::RBRACE;
      default:
        break;
    }
    switch (k) {  // nothing before these
      case Tok::RPAREN:
      case Tok::RBRACK:
      case Tok::COMMA:
      case Tok::DOT:
        return false;
      case Tok::COLON: {
        const bool param =
            (statement_kind_ == Tok::PARAM || statement_kind_ == Tok::STATE) && !in_round();
        const bool slice = in_round() && stack_.back().kind == Tok::LBRACK;
        return param || slice;
      }
      case Tok::LPAREN:
      case Tok::LBRACK:
        // a call or brackets hold on to what they apply to
        if (last_ == Tok::NAME || last_ == Tok::RPAREN) return false;
        return last_ != Tok::RBRACK || contraction_closed_;
      default:
        return true;
    }
  }

  void mark_alignment(size_t i) {
    Line& line = lines_.back();
    const Tok k = tokens_[i].kind;
    if (in_round() || i == statement_begin_ || line_begin_ != statement_begin_) return;
    const bool param = statement_kind_ == Tok::PARAM || statement_kind_ == Tok::STATE;
    if (param &&
        ((k == Tok::COLON && line.pads.empty()) || (k == Tok::ASSIGN && line.pads.size() == 1))) {
      line.run = Line::Run::kParam;
      line.pads.push_back(line.text.size());
    }
    if (line.run != Line::Run::kNone) return;
    // the value after `key:`, or the `{` of a nested section on one line
    if (!section_ || stack_.empty() || !stack_.back().broken) return;
    const bool value = last_ == Tok::COLON && i == statement_begin_ + 2;
    const bool nested = k == Tok::LBRACE && one_line_[i];
    if (value || nested) {
      line.run = Line::Run::kSetting;
      line.pads.push_back(line.text.size());
    }
  }

  // Neighbouring lines of one block and kind get their marked places in one column.
  void align_runs() {
    for (size_t begin = 0; begin < lines_.size();) {
      size_t end = begin + 1;
      const Line& first = lines_[begin];
      if (first.run != Line::Run::kNone) {
        while (end < lines_.size() && lines_[end].run == first.run &&
               lines_[end].block == first.block && !lines_[end].blank_before)
          ++end;
        for (size_t column = 0; column < 2; ++column) align_column(begin, end, column);
      }
      begin = end;
    }
  }

  void align_column(size_t begin, size_t end, size_t column) {
    size_t widest = 0;
    for (size_t k = begin; k < end; ++k) {
      if (lines_[k].pads.size() > column) widest = std::max(widest, lines_[k].pads[column]);
    }
    for (size_t k = begin; k < end; ++k) {
      Line& line = lines_[k];
      if (line.pads.size() <= column) continue;
      const size_t added = widest - line.pads[column];
      line.text.insert(line.pads[column], added, ' ');
      for (size_t later = column + 1; later < line.pads.size(); ++later) line.pads[later] += added;
    }
  }

  void align_comments() {
    const auto trailing = [](const Line& line) {
      return !line.comment.empty() && !line.text.empty();
    };
    for (size_t begin = 0; begin < lines_.size();) {
      size_t end = begin + 1;
      if (trailing(lines_[begin])) {
        while (end < lines_.size() && trailing(lines_[end]) && !lines_[end].blank_before) ++end;
        size_t column = kCommentColumn;
        for (size_t k = begin; k < end; ++k) column = std::max(column, width(lines_[k]) + 2);
        for (size_t k = begin; k < end; ++k) lines_[k].text.append(column - width(lines_[k]), ' ');
      }
      begin = end;
    }
  }

  // In code points: strings may hold any.
  static size_t width(const Line& line) {
    const auto points = std::count_if(line.text.begin(), line.text.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    });
    return static_cast<size_t>(line.indent) + static_cast<size_t>(points);
  }

  std::string join() const {
    std::string out;
    for (const Line& line : lines_) {
      if (line.blank_before) out += '\n';
      out.append(static_cast<size_t>(line.indent), ' ');
      out += line.text;
      out += line.comment;
      out += '\n';
    }
    return out;
  }

  const Ast& ast_;
  const std::string_view text_;
  const std::vector<Token>& tokens_;
  std::vector<bool> one_line_;
  std::vector<Line> lines_;
  std::vector<Bracket> stack_;
  size_t comment_ = 0;     // the next one
  uint32_t position_ = 0;  // in the text, behind what was printed last
  Tok last_ = Tok::NL;
  Tok statement_kind_ = Tok::NONE;
  size_t statement_begin_ = 0, line_begin_ = 0;
  int statement_indent_ = 0, blocks_ = 0;
  bool statement_ = true;  // the next token starts a statement
  bool section_ = false;   // in an item that is a section
  bool opened_ = false;    // the last token was `{`
  bool last_is_opener_ = false;
  bool contraction_closed_ = false;
  bool unary_ = false;
  bool broken_by_comment_ = false;
};

}  // namespace

std::string format(const Ast& ast, const Sources& sources, FileId file) {
  const std::string& text = sources.file(file).text;
  if (ast.broken) return text;
  Diagnostics ignored;  // there are none: the tree has no errors
  const TokenList list = tidy_tokens(sources, file, ignored);
  return Formatter(ast, text, list).run();
}

}  // namespace cad::frontend
