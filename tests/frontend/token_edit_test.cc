// Any one token of gpt.cad removed or doubled: nothing where the program is still right, else one
// or two errors, the first within one line of the edit in 95 % of the cases, and never a crash.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/diagnostic.h"
#include "frontend/module.h"

namespace cad::frontend {
namespace {

struct Token {
  size_t begin, end;
  int line;
};

bool word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Close enough to the language's own tokens for editing: words, numbers, strings, operators.
std::vector<Token> tokens_of(const std::string& text) {
  std::vector<Token> tokens;
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '\n') ++line;
    if (std::isspace(static_cast<unsigned char>(text[i])) != 0) {
      ++i;
      continue;
    }
    if (text[i] == '#') {
      while (i < text.size() && text[i] != '\n') ++i;
      continue;
    }
    size_t end = i + 1;
    if (text[i] == '"') {
      while (text[end] != '"') ++end;
      ++end;
    } else if (word(text[i])) {
      const bool number = std::isdigit(static_cast<unsigned char>(text[i])) != 0;
      while (end < text.size() &&
             (word(text[end]) ||
              (number && (text[end] == '.' || (text[end] == '-' && text[end - 1] == 'e')))))
        ++end;
    } else if (text.compare(i, 2, "@[") == 0 || text.compare(i, 2, "->") == 0 ||
               text.compare(i, 2, "|>") == 0) {
      end = i + 2;
    }
    tokens.push_back({i, end, line});
    i = end;
  }
  return tokens;
}

struct NoFiles : FileReader {
  Result<std::string> read(const std::string& path) override {
    return make_error(DiagId::E0001, "no file " + path, kExitNoInput);
  }
};

struct Outcome {
  size_t errors = 0;
  int first_line = 0;
  std::set<int> labelled;  // lines that any error points at
};

Outcome check_text(const std::string& text) {
  Sources sources;
  NoFiles files;
  Diagnostics diagnostics;
  const FileId file = sources.add("gpt.cad", text);
  check(sources, file, files, {}, diagnostics);
  Outcome out;
  out.errors = diagnostics.errors();
  for (const Diagnostic& d : diagnostics.all()) {
    if (diag_level(d.id) != Level::kError || !d.primary) continue;
    const int line = sources.line_column(d.primary->span.file, d.primary->span.begin).line;
    out.first_line = out.first_line == 0 ? line : std::min(out.first_line, line);
    out.labelled.insert(line);
    for (const Label& label : d.secondary)
      out.labelled.insert(sources.line_column(label.span.file, label.span.begin).line);
  }
  return out;
}

class TokenEdits : public testing::TestWithParam<bool> {};

TEST_P(TokenEdits, OneOrTwoErrorsNearTheEdit) {
  std::ifstream in(COLAUTO_SOURCE_DIR "/examples/gpt.cad");
  std::stringstream stream;
  stream << in.rdbuf();
  const std::string text = stream.str();
  ASSERT_EQ(check_text(text).errors, 0U);
  const bool doubled = GetParam();
  int faulty = 0;
  int near = 0;
  int many = 0;
  std::string far_off;
  for (const Token& t : tokens_of(text)) {
    std::string edited = text;
    if (doubled) {
      edited.insert(t.end, " " + text.substr(t.begin, t.end - t.begin));
    } else {
      edited.erase(t.begin, t.end - t.begin);
    }
    const Outcome out = check_text(edited);
    if (out.errors == 0) continue;
    ++faulty;
    const std::string what = std::to_string(t.line) + " `" + text.substr(t.begin, t.end - t.begin) +
                             "` (" + std::to_string(out.errors) + " errors, first at " +
                             std::to_string(out.first_line) + ") ";
    if (std::abs(out.first_line - t.line) <= 1) {
      ++near;
    } else {
      far_off += "\n  far: " + what;
    }
    if (out.errors > 2) {
      ++many;
      far_off += "\n  many: " + what;
    }
  }
  EXPECT_GT(faulty, 200);
  EXPECT_EQ(many, 0) << far_off;
  EXPECT_GE(near, faulty * 95 / 100) << far_off;
  RecordProperty("faulty", faulty);
  RecordProperty("near", near);
}

// An argument that lost its `i32` is found where ids are wanted; the error points back at it.
TEST(TokenEdit, AnArgumentThatIsNoIds) {
  std::ifstream in(COLAUTO_SOURCE_DIR "/examples/gpt.cad");
  std::stringstream stream;
  stream << in.rdbuf();
  std::string text = stream.str();
  const size_t at = text.find("tokens: i32[B, T]");
  ASSERT_NE(at, std::string::npos);
  text.erase(at + 8, 3);
  const int line =
      static_cast<int>(std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n')) +
      1;
  const Outcome out = check_text(text);
  EXPECT_LE(out.errors, 2U);
  EXPECT_EQ(out.labelled.count(line), 1U);
  EXPECT_EQ(out.labelled.count(line + 3), 1U);  // the gather
}

INSTANTIATE_TEST_SUITE_P(Gpt, TokenEdits, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "doubled" : "removed"; });

}  // namespace
}  // namespace cad::frontend
