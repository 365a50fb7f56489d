// frontend/expression.h -- what is typed at a prompt, in the context of a checked program: single
// statements and expressions, walked into a graph one after another as if they stood in one body
// outside every definition. Types and messages are those of definitions, for it is the same walk
// (elaborator.h). Not here: definitions that are typed (they become text of the program), values.
//
//   auto typed = parse_typed(sources, file, TypedKind::kStatement, "", counts, diagnostics);
//   SessionBody body(module, SessionBody::Walk::kLower, diagnostics);
//   body.run(*typed);                             // x = normal[B, D](1.0)
//   auto y = body.evaluate(*other);               // mean(x ^ 2)
//   body.output("y", y->at(0).value);
//   ir::Graph g = body.take();
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "frontend/elaborate.h"

namespace cad::frontend {

struct ScopeNames;

enum class TypedKind { kStatement, kExpression };

// One input, parsed. Layers that a binding `y = ..` calls have paths below `y`, its random draws
// are keyed by `y`: neither changes when other inputs come or go. (Models share their parameters,
// as in a section.)
struct Typed {
  TypedKind kind = TypedKind::kExpression;
  Ast ast;
  std::vector<StmtId> statements;  // kStatement
  ExprId expression;               // kExpression
  std::string path, site;          // of what it calls and draws
  std::shared_ptr<const ScopeNames> names;

  [[nodiscard]] std::vector<std::string> bound() const;  // names its statements (may) bind
  [[nodiscard]] bool mentions(const std::string& name) const;
};

// `file` holds the text as typed, `site` keys an expression's draws. Nullopt: reported. `counts`:
// how often each layer was called below each path so far; it is counted on.
std::optional<Typed> parse_typed(Sources& sources, FileId file, TypedKind kind,
                                 const std::string& site, std::map<std::string, int>& counts,
                                 Diagnostics& diagnostics);

class SessionBody {
 public:
  // kCheck: by signature, every condition checked; the graph is scratch. kLower: calls expanded,
  // parameters and states become inputs; only for what passed kCheck.
  enum class Walk { kCheck, kLower };
  SessionBody(const Module& module, Walk walk, Diagnostics& diagnostics);
  ~SessionBody();
  SessionBody(const SessionBody&) = delete;
  SessionBody& operator=(const SessionBody&) = delete;

  bool run(const Typed& statement);  // false: reported
  std::optional<std::vector<SectionValue>> evaluate(const Typed& expression);
  // The value bound to a name; nullopt when it is none or an instance.
  std::optional<SectionValue> value(const std::string& name);
  // Makes `name` an input (kOther, path `input`) of this type from now on; dims of the program.
  void give(const std::string& name, const std::string& input, ir::DType dtype,
            const std::vector<std::string>& dims);

  [[nodiscard]] const ir::Graph& graph() const;
  void output(const std::string& name, ir::ValueId value);
  ir::Graph take();  // what nothing uses is gone

 private:
  std::unique_ptr<Elaborator> elaborator_;
  std::vector<std::unique_ptr<Unit>> units_;  // of each input
  void enter(const Typed& typed);
};

// A definition on its own: its tensor arguments are data inputs, its dim parameters dims of their
// own name (a stand-in dim `N` for `..`), constants without a default the symbol of their name.
// Outputs "result:0", ... in evaluation (`training` is false).
Result<ir::Graph> lower_definition(const Module& module, const Definition& definition);

}  // namespace cad::frontend
