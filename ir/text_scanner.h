// ir/text_scanner.h -- the hand that moves over a text: what the readers of sizes (size_text.cc)
// and of scalar expressions (scalar.cc) share. Their grammars are their own.
#pragma once

#include <cctype>
#include <string>

namespace cad::ir {

struct TextScanner {
  const std::string& text;
  size_t at = 0;
  bool failed = false;
  int depth = 0;

  [[nodiscard]] bool done() const { return at >= text.size(); }
  [[nodiscard]] bool digit() const {
    return !done() && std::isdigit(static_cast<unsigned char>(text[at])) != 0;
  }
  void blanks() {
    while (!done() && std::isspace(static_cast<unsigned char>(text[at])) != 0) ++at;
  }
  // Moves past `token`, and blanks before it, if it is next.
  bool take(const char* token) {
    blanks();
    const std::string want = token;
    if (text.compare(at, want.size(), want) != 0) return false;
    at += want.size();
    return true;
  }
  // The name that is next, of a dim or a function; may be empty.
  std::string name() {
    static const std::string kMarks = "_.$@#:'{}";
    const size_t start = at;
    while (!done() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 ||
                       kMarks.find(text[at]) != std::string::npos))
      ++at;
    return text.substr(start, at - start);
  }
};

}  // namespace cad::ir
