// frontend/format.h -- a program in the one style. Idempotent, and the tree stays the same.
// Comments and single blank lines are kept, and so are line breaks inside brackets and before
// pipes; spacing, indentation and the alignment of neighbouring lines are the formatter's.
#pragma once

#include <string>

#include "base/source.h"
#include "frontend/ast.h"

namespace cad::frontend {

// `ast` is the tree of `file` and has no errors (a broken file is returned as it is).
std::string format(const Ast& ast, const Sources& sources, FileId file);

}  // namespace cad::frontend
