// frontend/builtin_docs.h -- a line on each builtin function: its form and what it gives. For
// people
// (`:doc` of the REPL); what is accepted is decided by builtins_*.cc, and docs/language.md says
// more.
#pragma once

#include <string>
#include <vector>

namespace cad::frontend {

struct BuiltinDoc {
  const char* name;
  const char* form;   // "softmax[S](x)"
  const char* gives;  // "exp(x) over its sum along S; .."
};
const std::vector<BuiltinDoc>& builtin_docs();  // one for each of builtin_names()
std::vector<std::string> builtin_names();       // builtins.cc

}  // namespace cad::frontend
