// cli/repl_input.h -- where the REPL's inputs come from: a terminal with editing, completion and
// history (libedit), or a pipe, line by line and silent. Both join lines to whole inputs: an open
// bracket, or a line that ends in an operator, goes on.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/repl_complete.h"

namespace cad::cli {

// True when `text` cannot be all of an input yet.
bool goes_on(const std::string& text);

class LineReader {
 public:
  virtual ~LineReader() = default;
  // The next line without its end; nullopt at the end of input. `more`: it goes on an input.
  // `cancelled` is set when Ctrl-C gave up what was typed.
  virtual std::optional<std::string> line(bool more, bool& cancelled) = 0;
  // A whole input, to remember.
  virtual void remember(const std::string& input) = 0;
};

using Completer = std::function<Completions(const std::string& line)>;

std::unique_ptr<LineReader> pipe_reader(bool echo);  // echo: prints prompts and lines, a transcript
std::unique_ptr<LineReader> terminal_reader(Completer completer);

// A whole input; nullopt at the end.
std::optional<std::string> read_input(LineReader& reader);

inline constexpr const char* kPrompt = "cad> ";
inline constexpr const char* kMorePrompt = "...> ";

}  // namespace cad::cli
