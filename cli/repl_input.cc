// cli/repl_input.cc -- whole inputs from lines, and the reader of pipes. The terminal's reader is
// repl_terminal.cc.
#include "cli/repl_input.h"

#include <cstdio>
#include <iostream>

#include "cli/command.h"
#include "cli/repl_commands.h"

namespace cad::cli {
namespace {

// Brackets still open in `text`; strings and comments do not count. `last`: the end of the last
// word or sign.
int open_brackets(const std::string& text, std::string& last) {
  int depth = 0;
  bool in_string = false;
  std::string seen;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"' || c == '\n') in_string = false;
      seen = c;
      continue;
    }
    if (c == '#') {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') continue;
    seen += c;
    if (seen.size() > 3) seen.erase(0, seen.size() - 3);
  }
  last = seen;
  return depth;
}

bool takes_more(const std::string& text) {
  if (input_kind(text) != InputKind::kCommand) return true;
  const ReplCommand* command = find_repl_command(split_command(text).first);
  return command != nullptr && command->takes == Argument::kExpression;
}

class PipeReader : public LineReader {
 public:
  explicit PipeReader(bool echo) : echo_(echo) {}

  std::optional<std::string> line(bool more, bool& cancelled) override {
    cancelled = false;
    std::string text;
    if (!std::getline(std::cin, text)) return std::nullopt;
    if (!text.empty() && text.back() == '\r') text.pop_back();
    if (echo_) {
      print((more ? kMorePrompt : kPrompt) + text + "\n");
      std::fflush(stdout);
    }
    return text;
  }
  void remember(const std::string&) override {}

 private:
  bool echo_;
};

}  // namespace

bool goes_on(const std::string& text) {
  if (!takes_more(text)) return false;
  std::string last;
  const int depth = open_brackets(text, last);
  if (depth != 0) return depth > 0;
  if (last.empty()) return false;
  const auto ends = [&](std::string_view sign) {
    return last.size() >= sign.size() &&
           last.compare(last.size() - sign.size(), sign.size(), sign) == 0;
  };
  for (const char* sign : {"+", "-", "*", "/", "%", "^", ",", "=", "->", "|>", "<", ">"}) {
    if (ends(sign)) return true;
  }
  return false;
}

std::unique_ptr<LineReader> pipe_reader(bool echo) {
  return std::make_unique<PipeReader>(echo);
}

std::optional<std::string> read_input(LineReader& reader) {
  std::string input;
  for (bool more = false;;) {
    bool cancelled = false;
    const std::optional<std::string> line = reader.line(more, cancelled);
    if (cancelled) {
      input.clear();
      more = false;
      continue;
    }
    if (!line) {
      if (!more) return std::nullopt;
      break;  // the end inside an input: what is there is tried
    }
    input += (more ? "\n" : "") + *line;
    if (!goes_on(input)) break;
    more = true;
  }
  reader.remember(input);
  return input;
}

}  // namespace cad::cli
