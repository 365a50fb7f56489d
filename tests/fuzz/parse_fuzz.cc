// Any bytes are a program, an encoding error or syntax errors with places inside the text; and what
// parses without errors survives formatting: the same tree, and a second time changes nothing.
#include <cstddef>
#include <cstdint>
#include <string>

#include "frontend/ast_print.h"
#include "frontend/format.h"
#include "frontend/parse.h"

namespace {

using namespace cad;            // NOLINT
using namespace cad::frontend;  // NOLINT

void require(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Sources sources;
  Diagnostics diagnostics;
  const Result<FileId> file =
      load_source(sources, "fuzz.cad", std::string(reinterpret_cast<const char*>(data), size));
  if (!file.ok()) return 0;
  const Ast ast = parse(sources, *file, diagnostics);
  const std::string tree = print_ast(ast);
  for (const Diagnostic& each : diagnostics.all()) {
    require(each.primary.has_value() && each.primary->span.begin <= each.primary->span.end &&
            each.primary->span.end <= sources.file(*file).text.size());
  }
  if (diagnostics.has_errors()) return 0;
  const std::string once = format(ast, sources, *file);
  const FileId again = sources.add("once.cad", once);
  const Ast second = parse(sources, again, diagnostics);
  require(!diagnostics.has_errors());
  require(print_ast(second) == tree);
  require(format(second, sources, again) == once);
  return 0;
}
