// tests/syntax/syntax_testing.h -- parse a text or a file of the repository in one call.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "base/render.h"
#include "frontend/ast_print.h"
#include "frontend/parse.h"

namespace cad::frontend {

struct Parsed {
  Sources sources;
  Diagnostics diagnostics;
  FileId file;
  Ast ast;
  [[nodiscard]] std::string printed() const { return print_ast(ast); }
  [[nodiscard]] std::string errors() const { return render_short(diagnostics, sources); }
  [[nodiscard]] LineColumn place(size_t index) const {
    const Diagnostic& d = diagnostics.all().at(index);
    return sources.line_column(file, d.primary->span.begin);
  }
};

inline Parsed parse_text(const std::string& text) {
  Parsed parsed;
  Result<FileId> file = load_source(parsed.sources, "test.cad", text);
  if (!file.ok()) {
    parsed.diagnostics.add(file.error());
    return parsed;
  }
  parsed.file = *file;
  parsed.ast = parse(parsed.sources, parsed.file, parsed.diagnostics);
  return parsed;
}

inline std::string read_repository_file(const std::string& path) {
  std::ifstream in(std::string(COLAUTO_SOURCE_DIR) + "/" + path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace cad::frontend
