// frontend/parse.h -- text to tree. The grammar is grammar/Cad.g4; ANTLR's own types stay inside
// parse.cc. Errors never stop it: the Ast holds what could be parsed and marks the rest broken.
#pragma once

#include "base/diagnostic.h"
#include "base/result.h"
#include "base/source.h"
#include "frontend/ast.h"

namespace cad::frontend {

// Skips one BOM, checks UTF-8, adds the file. The error names line and byte offset.
Result<FileId> load_source(Sources& sources, std::string path, std::string text);

// Parses a whole file.
Ast parse(const Sources& sources, FileId file, Diagnostics& diagnostics);

// Parses one expression (a `--set` value, a REPL line): `ast` gets its nodes. Invalid and a
// diagnostic when the text is not one expression.
ExprId parse_expression(const Sources& sources, FileId file, Ast& ast, Diagnostics& diagnostics);

}  // namespace cad::frontend
