// frontend/syntax_errors.cc -- see syntax_errors.h. A table by rule, offending token and the
// tokens around it: special cases first, then "expected X, found Y".
#include "frontend/syntax_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/suggest.h"

namespace cad::frontend {
namespace {

class Describer {
 public:
  Describer(const Sources& sources, FileId file, const TokenList& tokens, const SyntaxFault& fault)
      : sources_(sources), file_(file), list_(tokens.tokens), fault_(fault) {
    first_ = fault.at;
    while (first_ > 0 && list_[first_ - 1].statement == list_[fault.at].statement) --first_;
  }

  Diagnostic describe() {
    if (auto error = dangling()) return std::move(*error);
    if (auto error = reserved()) return std::move(*error);
    if (auto error = misplaced()) return std::move(*error);
    if (auto error = header()) return std::move(*error);
    if (auto error = statement()) return std::move(*error);
    if (auto error = operators()) return std::move(*error);
    if (auto error = list()) return std::move(*error);
    return general();
  }

 private:
  [[nodiscard]] Tok kind(size_t i) const { return i < list_.size() ? list_[i].kind : Tok::END; }
  [[nodiscard]] Tok found() const { return kind(fault_.at); }
  [[nodiscard]] Tok before() const { return fault_.at > first_ ? kind(fault_.at - 1) : Tok::NONE; }
  [[nodiscard]] Span span(size_t i) const { return {file_, list_[i].begin, list_[i].end}; }
  [[nodiscard]] std::string text(size_t i) const { return std::string(sources_.text(span(i))); }
  [[nodiscard]] bool expects(Tok kind) const {
    return std::find(fault_.expected.begin(), fault_.expected.end(), kind) != fault_.expected.end();
  }
  [[nodiscard]] bool in(std::string_view rule) const {
    return std::find(fault_.rules.begin(), fault_.rules.end(), rule) != fault_.rules.end();
  }
  [[nodiscard]] bool rule(std::string_view name) const {
    return !fault_.rules.empty() && fault_.rules[0] == name;
  }
  [[nodiscard]] bool line_ends() const {
    return found() == Tok::NL || found() == Tok::RBRACE || found() == Tok::END ||
           list_[fault_.at].inserted;
  }
  // Where the offending token stands; a line end is marked just after what precedes it.
  [[nodiscard]] Span place() const {
    if (!line_ends()) return span(fault_.at);
    size_t i = fault_.at;
    while (i > 0 && (kind(i) == Tok::NL || kind(i) == Tok::END || kind(i) == Tok::RBRACE ||
                     list_[i].inserted))
      --i;
    return {file_, list_[i].end, list_[i].end};
  }
  [[nodiscard]] std::string found_words() const {
    if (line_ends() && found() != Tok::RBRACE)
      return found() == Tok::END ? "the end of the file" : "the end of the line";
    return found() == Tok::NAME || found() == Tok::NUMBER || found() == Tok::STRING ||
                   found() == Tok::QUANTITY
               ? fmt::format("`{}`", text(fault_.at))
               : token_words(found());
  }
  // The innermost bracket open at the offending token.
  [[nodiscard]] std::optional<size_t> opener() const {
    int depth = 0;
    for (size_t i = fault_.at; i > first_;) {
      --i;
      const Tok k = kind(i);
      if (k == Tok::RPAREN || k == Tok::RBRACK) ++depth;
      if (k == Tok::LPAREN || k == Tok::LBRACK || k == Tok::ATL) {
        if (depth == 0) return i;
        --depth;
      }
    }
    return std::nullopt;
  }
  Diagnostic error(DiagId id, Span place, std::string message, std::string label = "") const {
    return make_diagnostic(id, place, std::move(message), std::move(label));
  }

  // `a +` with nothing after it, `x =`, `-> `.
  std::optional<Diagnostic> dangling() const {
    const bool nothing = line_ends() || found() == Tok::RPAREN || found() == Tok::RBRACK ||
                         found() == Tok::COMMA || found() == Tok::LBRACE;
    if (before() == Tok::NONE || !nothing) return std::nullopt;
    const Tok last = before();
    const size_t at = fault_.at - 1;
    if (is_operator(last) && last != Tok::ATL) {
      Diagnostic e = error(DiagId::E0010, span(at),
                           fmt::format("`{}` has no right operand", text(at)), "nothing follows");
      e.help(fmt::format("write the operand, or remove `{}`", text(at)));
      return e;
    }
    // `@[K]` without an operand
    if (last == Tok::RBRACK && expects(Tok::NAME) && expects(Tok::LPAREN) && !expects(Tok::COMMA)) {
      Diagnostic e = error(DiagId::E0010, span(at), "this contraction has no right operand",
                           "nothing follows");
      e.help("write the tensor to contract with");
      return e;
    }
    if (last == Tok::ASSIGN && expects(Tok::NAME)) {
      return error(DiagId::E0010, span(at), "expected an expression after `=`", "nothing follows");
    }
    if (last == Tok::COLON && expects(Tok::NAME)) {
      return error(DiagId::E0010, span(at),
                   rule("type") ? "expected a type after `:`" : "expected a value after `:`",
                   "nothing follows");
    }
    if (last == Tok::ARROW && rule("type")) {
      Diagnostic e =
          error(DiagId::E0012, span(at), "expected a type after `->`", "nothing follows");
      e.help("write the result's dims: `-> [B, T]`");
      return e;
    }
    return std::nullopt;
  }

  std::optional<Diagnostic> reserved() const {
    const bool listed =
        before() == Tok::LPAREN || before() == Tok::LBRACK || before() == Tok::COMMA;
    if (!is_reserved(found()) || before() == Tok::NONE || !(expects(Tok::NAME) || listed))
      return std::nullopt;
    const bool naming = !expects(Tok::NUMBER) && !(rule("expr") && listed);
    const Tok k = found();
    if (!naming && (k == Tok::NOT || k == Tok::AND || k == Tok::OR)) return std::nullopt;
    Diagnostic e =
        error(DiagId::E0014, span(fault_.at),
              fmt::format("`{}` is a reserved word", text(fault_.at)), "expected a name");
    e.help("choose another name");
    return e;
  }

  // Statements among items, items in bodies.
  std::optional<Diagnostic> misplaced() const {
    const Tok k = found();
    if (before() != Tok::NONE) return std::nullopt;
    if (rule("file") || rule("item")) {
      if (k == Tok::PARAM || k == Tok::STATE || k == Tok::USE || k == Tok::REPEAT ||
          k == Tok::RETURN) {
        Diagnostic e = error(DiagId::E0001, span(fault_.at),
                             fmt::format("`{}` stands outside a definition", text(fault_.at)));
        e.help("put it in the body of a `layer`, `fn` or `model`");
        return e;
      }
      Diagnostic e =
          error(DiagId::E0001, place(), fmt::format("expected an item, found {}", found_words()));
      e.help(
          "an item starts with `import`, `dim`, `let`, `fn`, `layer` or `model`, or is a section "
          "`name { .. }`");
      return e;
    }
    if (rule("block") || rule("stmt")) {
      if (k == Tok::FN || k == Tok::LAYER || k == Tok::MODEL || k == Tok::IMPORT || k == Tok::LET) {
        Diagnostic e = error(DiagId::E0001, span(fault_.at),
                             fmt::format("`{}` stands inside a body", text(fault_.at)));
        e.help(k == Tok::LET ? "a binding in a body needs no keyword: `name = value`"
                             : "move it out: definitions do not nest");
        return e;
      }
      Diagnostic e = error(DiagId::E0001, place(),
                           fmt::format("expected a statement, found {}", found_words()));
      e.help(
          "a statement is `name = value`, or starts with `param`, `state`, `use`, `repeat`, "
          "`return` or `dim`");
      return e;
    }
    if (rule("section") || rule("entry")) {
      Diagnostic e =
          error(DiagId::E0001, place(), fmt::format("expected a setting, found {}", found_words()));
      e.help("a setting is `key: value`");
      return e;
    }
    return std::nullopt;
  }

  std::optional<Diagnostic> header() const {
    if (expects(Tok::ARROW) && rule("defHead")) {
      const Tok k = found();
      if (k == Tok::COLON) {
        Diagnostic e =
            error(DiagId::E0012, span(fault_.at), "a result type is written after `->`, not `:`");
        e.helps.push_back({"write `->`", span(fault_.at), "->"});
        return e;
      }
      Diagnostic e = error(DiagId::E0012, line_ends() ? place() : span(fault_.at),
                           "the result type is missing", "expected `-> type` here");
      e.help(k == Tok::LBRACK || k == Tok::NAME || k == Tok::LPAREN
                 ? "put `->` before it"
                 : "write what it returns: `-> [B, T]`");
      return e;
    }
    if (rule("defHead") && expects(Tok::LPAREN) && before() != Tok::NONE && before() != Tok::FN &&
        before() != Tok::LAYER && before() != Tok::MODEL) {
      Diagnostic e = error(DiagId::E0001, place(),
                           fmt::format("expected `(` and the arguments, found {}", found_words()));
      e.help("a definition is `layer Name[dims](x: [B, T]) -> [B, T] { .. }`");
      return e;
    }
    if (rule("param") && expects(Tok::COLON)) {
      Diagnostic e = error(DiagId::E0001, place(),
                           fmt::format("expected `:` and a type, found {}", found_words()));
      e.help(fmt::format("an argument needs its type: `{}: [B, T]`",
                         before() == Tok::NAME ? text(fault_.at - 1) : "x"));
      return e;
    }
    if (rule("block") && expects(Tok::LBRACE)) {
      Diagnostic e =
          error(DiagId::E0013, place(), fmt::format("expected `{{`, found {}", found_words()),
                "the block starts here");
      e.help("write the block in braces: `{ .. }`");
      return e;
    }
    return std::nullopt;
  }

  std::optional<Diagnostic> statement() const {
    if (!rule("stmt") || !expects(Tok::ASSIGN)) return section();
    if (kind(first_) == Tok::NAME && fault_.at == first_ + 1) {
      const Tok k = found();
      if (k == Tok::LPAREN || k == Tok::LBRACK || k == Tok::DOT || is_operator(k)) {
        Diagnostic e = error(DiagId::E0015, span(first_), "a value alone is not a statement");
        e.help(fmt::format("bind it: `{} = ..`, or `return` it", text(first_) == "x" ? "y" : "x"));
        return e;
      }
      if (line_ends()) {
        Diagnostic e = error(DiagId::E0015, span(first_),
                             fmt::format("`{}` alone is not a statement", text(first_)));
        e.help(fmt::format("bind a value: `{} = ..`, or `return {}`", text(first_), text(first_)));
        if (const auto near = suggest(text(first_), statement_keywords()))
          e.help(fmt::format("did you mean `{}`?", *near));
        return e;
      }
    }
    if (kind(first_) == Tok::PARAM || kind(first_) == Tok::STATE) return std::nullopt;
    return error(DiagId::E0001, place(), fmt::format("expected `=`, found {}", found_words()));
  }

  std::optional<Diagnostic> section() const {
    if (kind(first_) != Tok::NAME || before() == Tok::NONE) return std::nullopt;
    if (!rule("section") && !rule("sectionHead") && !rule("entry") && !rule("setting") &&
        !rule("item"))
      return std::nullopt;
    const bool nested = in("entry");
    if (in("stmt") || !(expects(Tok::LBRACE) || expects(Tok::COLON) || nested)) return std::nullopt;
    if (found() == Tok::ASSIGN && nested) {
      Diagnostic e =
          error(DiagId::E0001, span(fault_.at), "a setting is written with `:`, not `=`");
      e.helps.push_back({"write `:`", span(fault_.at), ":"});
      return e;
    }
    if (found() == Tok::ASSIGN) {
      Diagnostic e = error(DiagId::E0011, span(first_),
                           fmt::format("`{}` needs a keyword here", text(first_)));
      e.help(fmt::format("a constant is `let {0} = ..`, a dim `dim {0} = ..`", text(first_)));
      return e;
    }
    if (nested) {
      Diagnostic e = error(DiagId::E0001, place(),
                           fmt::format("expected `:` or `{{` after `{}`, found {}",
                                       text(fault_.at - 1), found_words()));
      e.help("a setting is `key: value`, a nested section `name { .. }`");
      return e;
    }
    std::vector<std::string> words = item_keywords();
    for (const char* name : {"train", "cluster", "device", "mesh", "plan"})
      words.emplace_back(name);
    const auto near = suggest(text(first_), words);
    if (near && *near != text(first_)) {
      Diagnostic e =
          error(DiagId::E0011, span(first_), fmt::format("unknown keyword `{}`", text(first_)));
      e.helps.push_back({fmt::format("did you mean `{}`?", *near), span(first_), *near});
      return e;
    }
    Diagnostic e =
        error(DiagId::E0001, place(), fmt::format("expected `{{`, found {}", found_words()));
    e.help(
        "a section is `name { key: value .. }`; other items start with `import`, `dim`, `let`, "
        "`fn`, `layer` or `model`");
    return e;
  }

  // What other languages write.
  std::optional<Diagnostic> operators() const {
    const Tok k = found();
    if (k == Tok::STAR && before() == Tok::STAR) {
      const Span both{file_, list_[fault_.at - 1].begin, list_[fault_.at].end};
      Diagnostic e = error(DiagId::E0001, both, "there is no operator `**`");
      e.helps.push_back({"a power is `^`", both, "^"});
      return e;
    }
    if (k == Tok::ASSIGN && rule("expr") && opener() && kind(*opener()) == Tok::LPAREN) {
      return named_with_equals();
    }
    if (k == Tok::ASSIGN && (rule("arg") || (!expects(Tok::ASSIGN) && opener()))) {
      if (kind(*opener()) == Tok::LPAREN) return named_with_equals();
    }
    if (k == Tok::LBRACK && before() == Tok::AT) {
      const Span both{file_, list_[fault_.at - 1].begin, list_[fault_.at].end};
      Diagnostic e = error(DiagId::E0001, both, "the contraction `@[` is written without a space");
      e.helps.push_back({"write `@[`", both, "@["});
      return e;
    }
    const bool operand = (expects(Tok::NAME) && expects(Tok::LPAREN)) || before() == Tok::COMMA;
    if (k == Tok::LBRACK && operand) {
      Diagnostic e =
          error(DiagId::E0001, span(fault_.at), "brackets hold dims and follow a name or a value");
      e.help("a data declaration is `x: f32[B, T]`; a list of values stands in parentheses");
      return e;
    }
    if (k == Tok::LBRACE && operand) {
      Diagnostic e = error(DiagId::E0001, span(fault_.at), "braces hold blocks, not values");
      e.help("a list of values stands in parentheses: `(a: 1, b: 2)`");
      return e;
    }
    if (k == Tok::NAME && before() == Tok::NUMBER && !expects(Tok::NAME) &&
        kind(fault_.at + 1) != Tok::COLON) {
      Diagnostic e =
          error(DiagId::E0008, span(fault_.at), fmt::format("unknown unit `{}`", text(fault_.at)));
      if (const auto near = suggest(text(fault_.at), units()))
        e.help(fmt::format("did you mean `{}`?", *near));
      return e;
    }
    return std::nullopt;
  }

  std::optional<Diagnostic> named_with_equals() const {
    Diagnostic e =
        error(DiagId::E0001, span(fault_.at), "a named argument is written with `:`, not `=`");
    e.helps.push_back({"write `:`; to compare write `==`", span(fault_.at), ":"});
    return e;
  }

  // Two operands in a row; brackets that hold nothing.
  std::optional<Diagnostic> list() const {
    const auto open = opener();
    if (!open) return std::nullopt;
    const std::string closer = kind(*open) == Tok::LPAREN ? ")" : "]";
    if (found() == Tok::RBRACK && fault_.at == *open + 1) {
      Diagnostic e = error(DiagId::E0001, {file_, list_[*open].begin, list_[fault_.at].end},
                           "empty brackets", "expected dims between them");
      e.help(kind(*open) == Tok::ATL ? "name the dims to sum over: `a @[K] b`"
                                     : "name the dims, or leave out the brackets");
      return e;
    }
    if (before() == Tok::COMMA &&
        (found() == Tok::COMMA || found() == Tok::RPAREN || found() == Tok::RBRACK)) {
      Diagnostic e = error(DiagId::E0001, span(fault_.at - 1), "nothing stands after this `,`");
      e.help("remove it");
      return e;
    }
    const bool operand =
        ends_operand(before()) && (starts_operand(found()) || is_reserved(found()));
    if (!operand) return std::nullopt;
    Diagnostic e = error(DiagId::E0001, span(fault_.at),
                         fmt::format("expected `,` or `{}`, found {}", closer, found_words()));
    e.label(span(*open), "in these brackets");
    e.help("put a `,` or an operator before it");
    return e;
  }

  Diagnostic general() const {
    const auto open = opener();
    const bool listed = before() == Tok::COMMA && open && rule("expr");
    const bool operand = (expects(Tok::NUMBER) && expects(Tok::LPAREN)) || listed;
    std::string expected;
    if (operand) {
      expected = "an expression";
    } else if (rule("type") && (before() == Tok::COLON || before() == Tok::ARROW)) {
      expected = "a type";
    } else {
      expected = expected_words();
    }
    Diagnostic e = error(DiagId::E0001, place(),
                         fmt::format("expected {}, found {}", expected, found_words()));
    if (rule("importItem") && expects(Tok::STRING)) {
      e.help("write the file's name in quotes: `import \"blocks.cad\" as blocks`");
    }
    if (ends_operand(before()) && starts_operand(found()) && expects(Tok::NL)) {
      e.help("put an operator between them, or a new line");
    }
    return e;
  }

  // The expected tokens in words. After an operand every operator fits: those are left out.
  [[nodiscard]] std::string expected_words() const {
    std::vector<std::string> words;
    const bool operators = expects(Tok::PLUS) && expects(Tok::STAR);
    for (const Tok k : fault_.expected) {
      const bool suffix = k == Tok::LPAREN || k == Tok::LBRACK || k == Tok::DOT;
      if (operators && (is_operator(k) || suffix || k == Tok::AT)) continue;
      words.push_back(token_words(k));
    }
    if (operators && words.size() < 3) words.insert(words.begin(), "an operator");
    if (words.empty()) return "something else";
    if (words.size() > 5) words.resize(5);
    std::string joined;
    for (size_t i = 0; i < words.size(); ++i) {
      joined += i == 0 ? "" : i + 1 == words.size() ? " or " : ", ";
      joined += words[i];
    }
    return joined;
  }

  const Sources& sources_;
  const FileId file_;
  const std::vector<Token>& list_;
  const SyntaxFault& fault_;
  size_t first_ = 0;  // of the statement
};

}  // namespace

std::string token_words(Tok kind) {
  switch (kind) {
    case Tok::NL:
      return "the end of the line";
    case Tok::END:
      return "the end of the file";
    case Tok::NAME:
      return "a name";
    case Tok::NUMBER:
      return "a number";
    case Tok::QUANTITY:
      return "a quantity";
    case Tok::STRING:
      return "a string";
    case Tok::NONE:
    case Tok::OPEN_STRING:
    case Tok::COMMENT:
    case Tok::WS:
    case Tok::BAD:
      return "something else";
    default:
      break;
  }
  static const std::vector<std::pair<Tok, const char*>> kTexts{
      {Tok::IMPORT, "import"}, {Tok::AS, "as"},         {Tok::DIM, "dim"},
      {Tok::LET, "let"},       {Tok::FN, "fn"},         {Tok::LAYER, "layer"},
      {Tok::MODEL, "model"},   {Tok::PARAM, "param"},   {Tok::STATE, "state"},
      {Tok::USE, "use"},       {Tok::REPEAT, "repeat"}, {Tok::RETURN, "return"},
      {Tok::NOT, "not"},       {Tok::AND, "and"},       {Tok::OR, "or"},
      {Tok::ATL, "@["},        {Tok::AT, "@"},          {Tok::ARROW, "->"},
      {Tok::PIPE, "|>"},       {Tok::DOTS, ".."},       {Tok::DOT, "."},
      {Tok::LE, "<="},         {Tok::GE, ">="},         {Tok::EQ, "=="},
      {Tok::NE, "!="},         {Tok::LT, "<"},          {Tok::GT, ">"},
      {Tok::ASSIGN, "="},      {Tok::COLON, ":"},       {Tok::COMMA, ","},
      {Tok::LPAREN, "("},      {Tok::RPAREN, ")"},      {Tok::LBRACK, "["},
      {Tok::RBRACK, "]"},      {Tok::LBRACE, "{"},      {Tok::RBRACE, "}"},
      {Tok::PLUS, "+"},        {Tok::MINUS, "-"},       {Tok::STAR, "*"},
      {Tok::SLASH, "/"},       {Tok::PERCENT, "%"},     {Tok::DSLASH, "//"},
      {Tok::CARET, "^"}};
  for (const auto& [k, text] : kTexts) {
    if (k == kind) return fmt::format("`{}`", text);
  }
  return "something else";
}

Diagnostic describe_fault(const Sources& sources, FileId file, const TokenList& tokens,
                          const SyntaxFault& fault) {
  return Describer(sources, file, tokens, fault).describe();
}

}  // namespace cad::frontend
