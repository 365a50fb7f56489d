// cli/repl_complete.h -- what Tab offers at the end of a line: commands, names of the session, the
// standard library and the language, settings, and file names, by what the command takes.
#pragma once

#include <string>
#include <vector>

#include "cli/repl_session.h"

namespace cad::cli {

struct Completions {
  size_t start = 0;                // of the word in the line
  std::vector<std::string> words;  // whole words that begin with it, sorted
  bool space = true;               // put a blank behind a word that is the only one
};
Completions complete(const Session& session, const std::string& line);  // up to the cursor

// Everything that `:doc` knows.
std::vector<std::string> documented_names(const Session& session);

}  // namespace cad::cli
