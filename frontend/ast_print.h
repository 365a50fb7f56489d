// frontend/ast_print.h -- the tree as text, for `--emit=ast` and tests: one line a statement,
// expressions as (op left right). Without positions, so that equal trees print equal texts.
#pragma once

#include <string>

#include "frontend/ast.h"

namespace cad::frontend {

std::string print_ast(const Ast& ast);
std::string print_expr(const Ast& ast, ExprId id);
std::string print_type(const Ast& ast, TypeId id);  // also used in messages: "i32[B, T]"

}  // namespace cad::frontend
