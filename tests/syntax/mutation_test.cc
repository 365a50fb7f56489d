// tests/syntax/mutation_test.cc -- any one token of a real program removed or doubled: the parser
// reports at most two errors, the first of them within a line of the edit, and never crashes; what
// is still a program survives formatting.
#include <cstdlib>
#include <iostream>

#include "frontend/format.h"
#include "frontend/tokens.h"
#include "tests/syntax/syntax_testing.h"

namespace cad::frontend {
namespace {

struct Tally {
  int edits = 0, silent = 0, far = 0, many = 0;
};

// Checks one edited text; `line` is the edit's line.
void check_edit(const std::string& text, int line, const std::string& what, Tally& tally) {
  const Parsed parsed = parse_text(text);
  ++tally.edits;
  const size_t errors = parsed.diagnostics.errors();
  if (errors == 0) {
    ++tally.silent;  // still a program, as far as the grammar knows: one more input to format
    const std::string once = format(parsed.ast, parsed.sources, parsed.file);
    const Parsed again = parse_text(once);
    EXPECT_EQ(parsed.printed(), again.printed()) << what;
    EXPECT_EQ(once, format(again.ast, again.sources, again.file)) << what;
    return;
  }
  int first = 1 << 30;
  for (size_t i = 0; i < errors; ++i) first = std::min(first, parsed.place(i).line);
  const bool is_far = std::abs(first - line) > 1;
  tally.far += is_far ? 1 : 0;
  tally.many += errors > 2 ? 1 : 0;
  if ((is_far || errors > 2) && std::getenv("COLAUTO_SHOW_MUTATIONS") != nullptr) {
    std::cout << what << " in line " << line << "\n" << parsed.errors() << "\n";
  }
  if (errors > 2) ADD_FAILURE() << what << " in line " << line << "\n" << parsed.errors();
}

Tally mutate(const std::string& path) {
  const std::string text = read_repository_file(path);
  Sources sources;
  const FileId file = sources.add("original", text);
  Tally tally;
  for (const Token& token : lex(text)) {
    if (token.kind == Tok::COMMENT || token.kind == Tok::END) continue;
    const std::string word = text.substr(token.begin, token.end - token.begin);
    const int line = sources.line_column(file, token.begin).line;
    const std::string shown = token.kind == Tok::NL ? "newline" : "`" + word + "`";
    std::string removed = text;
    removed.erase(token.begin, word.size());
    if (token.kind == Tok::NL) removed.insert(token.begin, " ");
    check_edit(removed, line, "removed " + shown, tally);
    std::string doubled = text;
    doubled.insert(token.end, " " + word);
    check_edit(doubled, line, "doubled " + shown, tally);
  }
  return tally;
}

void expect_good(const Tally& tally) {
  EXPECT_GT(tally.edits, 300);
  EXPECT_EQ(tally.many, 0);
  const int reported = tally.edits - tally.silent;
  EXPECT_GE(reported, tally.edits * 6 / 10);
  EXPECT_LE(tally.far * 20, reported) << tally.far << " of " << reported << " are far off";
}

TEST(Mutation, Gpt) {
  expect_good(mutate("examples/gpt.cad"));
}
TEST(Mutation, Optimizers) {
  expect_good(mutate("stdlib/optimizers.cad"));
}
TEST(Mutation, Losses) {
  expect_good(mutate("stdlib/losses.cad"));
}

}  // namespace
}  // namespace cad::frontend
