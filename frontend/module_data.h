// frontend/module_data.h -- what a checked program is made of: files, dims, lets, definitions with
// their signatures, and what checking learned (types of bindings, conditions on sizes). Filled by
// check() (check.cc), read by the elaborator (elaborate.h), the sections (sections.h) and printers.
//
// Sizes: every dim of a file has a Size over *base* dims, those that are free or declared as a
// number: of `dim D = 192, H = 6, K = D / H` K is D/H. Values are in `declared` (from the program
// and `--set`) and `bindings` (also the free dims that `train` or `--set` bind).
// Inside definitions dim parameters and constant arguments are symbols that start with `$`.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/diagnostic.h"
#include "frontend/ast.h"
#include "frontend/module.h"
#include "ir/scalar.h"
#include "ir/type.h"

namespace cad::frontend {

struct Unit;
struct Definition;

// A type of a signature or binding with its names looked up. `terms` in written order.
struct TypePattern {
  enum class Kind { kError, kTensor, kConstant } kind = Kind::kError;
  enum class Constant { kInt, kFloat, kBool };
  struct Term {
    bool dots = false;
    int formal = -1;  // index into Signature::formals, else a dim of the file (or body)
    std::string name;
    Span span;
  };
  Constant constant = Constant::kFloat;  // kConstant
  ir::DType dtype = ir::DType::kF32;     // kTensor
  bool plain = true;                     // kTensor: no dtype written, follows the precision
  std::vector<Term> terms;
  Span span;
  [[nodiscard]] bool dots() const;
  [[nodiscard]] bool has_formal(int formal) const;
};

struct Formal {  // a dim parameter
  std::string name;
  int arrow_of = -1;   // index of the formal at the left of `->`
  bool arrow = false;  // has one at its right
  Span span;
};

struct Parameter {  // an argument
  std::string name;
  TypePattern type;
  ExprId value;  // default, in the definition's own file; may be invalid
  Span span;
};

struct Signature {
  std::vector<Formal> formals;
  std::vector<Parameter> parameters;
  std::vector<TypePattern> results;
  bool dots = false;    // `..` stands somewhere in it
  bool broken = false;  // errors were reported: calls of it are silent
  [[nodiscard]] int find_formal(const std::string& name) const;
  [[nodiscard]] int find_parameter(const std::string& name) const;
};

// A fact about sizes that a definition needs; `$`-symbols in it are its own parameters.
struct DefCondition {
  enum class Kind { kEqual, kAtMost, kWhole } kind = Kind::kEqual;  // ==, <=; left whole and >= 0
  ir::Size left, right;
  std::string what;    // the fact, "a split of `D` into (H, K)"
  std::string help;    // may be empty
  std::string dim;     // left is the size of this dim: the help is the line `dim NAME = right`
  Span span;           // where in the body
  std::string origin;  // "`Conv`": the definition in which it arose
};

// One binding of a body, for `check --types` and hovers.
struct BindingInfo {
  std::string name;
  Span span;
  std::string type;   // "[B, T, D]", with sizes in `sizes`
  std::string sizes;  // "T = 128, D = 192"
  std::string kind;   // "param", "state", "value", "use", "argument", "result"
  // It, or one before it in this definition, has more elements than a tensor may have.
  bool too_large = false;
};

struct Definition {
  Unit* unit = nullptr;
  DefKind kind = DefKind::kFn;
  std::string name;
  DefId ast;
  Signature signature;
  enum class State {
    kUnresolved,
    kResolved,
    kChecking,
    kChecked,
    kFailed
  } state = State::kUnresolved;
  std::vector<DefCondition> conditions;
  std::vector<BindingInfo> bindings;
  std::set<std::string> file_dims;  // dims of the file that body, signature and callees name
  std::vector<Definition*> callees;
  bool owns = false;  // has parameters or states, itself or through calls
  [[nodiscard]] const Def& def() const;
  [[nodiscard]] Span name_span() const;
};

struct LetDecl {
  std::string name;
  Unit* unit = nullptr;
  ExprId value;
  Span span;
  enum class State { kUnresolved, kResolving, kResolved, kFailed } state = State::kUnresolved;
  bool is_bool = false, bool_value = false;
  ir::Scalar scalar;
  bool overridden = false;  // by --set
};

struct DimDecl {
  std::string name;
  Unit* unit = nullptr;
  ExprId value;  // invalid: free
  Span span;     // of the name
  enum class State { kUnresolved, kResolving, kResolved, kFailed } state = State::kUnresolved;
  bool base = false;  // free or a number: its own symbol
  ir::Size size;
  bool broken = false;  // its line did not parse: sizes with it are not judged
  std::string from;     // what gave its value when not the declaration: "`--set D=8`"
};

// One file: the program, an import, or a file of the standard library.
struct Unit {
  Ast ast;
  bool library = false;
  std::map<std::string, Definition*> definitions;
  std::map<std::string, LetDecl> lets;
  std::map<std::string, Unit*> imports;  // by alias
  std::map<std::string, Span> import_spans;
  std::vector<std::string> dim_order;
  std::map<std::string, Span> dims;  // declared here
  // Names that stand in lines which did not parse: what they would have been is not known, so that
  // they are unknown is no news. `lost` : a definition's own name may be among the missing.
  std::set<std::string> silent_names;
  bool lost = false;
  [[nodiscard]] bool silent(const std::string& name) const {
    return ast.lost_items || silent_names.count(name) != 0;
  }
};

// A value given from outside the program's dim and let lines.
struct Override {
  std::string text;  // as written: "64"
  double number = 0;
  std::string from;  // "`--set B=64`" or "`B: 64` of train `gpt`"
  Span span;         // of a train entry; invalid for --set
};

struct Module {
  Sources* sources = nullptr;
  std::vector<std::unique_ptr<Unit>> units;    // [0] is the program
  std::vector<std::unique_ptr<Unit>> library;  // parsed files of the standard library
  std::vector<std::unique_ptr<Definition>> definitions;
  std::map<std::string, Definition*> library_definitions;  // of the files that are parsed
  std::vector<std::string> library_names;                  // of all files: for did-you-mean
  std::map<std::string, DimDecl> dims;  // of all files, unified by name; the importer's win
  std::vector<std::string> dim_order;
  CheckOptions options;

  // Set by read_settings() (sections) before dims are resolved. --set of dims and lets of the
  // program, and the dims that the chosen train section binds.
  std::map<std::string, Override> set_overrides;
  std::map<std::string, Override> train_overrides;

  ir::Bindings declared;              // base dims with a number (declaration, --set)
  ir::Bindings bindings;              // every dim whose value is known, aliases too
  std::vector<DefCondition> pending;  // with `//` over free dims: wait for bindings

  struct Note {  // a fact that is no error: `check` prints it
    Span span;   // invalid: of the library
    std::string text;
  };
  std::vector<Note> notes;

  std::shared_ptr<void> section_data;  // whatever the sections keep (sections.h)

  [[nodiscard]] Unit& main() const { return *units[0]; }
  [[nodiscard]] const Definition* find(const Unit& unit, const std::string& name) const;
  [[nodiscard]] Definition* find(const Unit& unit, const std::string& name);
  [[nodiscard]] const Definition* find_member(const Unit& unit, const std::string& alias,
                                              const std::string& name) const;
};

// Result of looking at one equation with what is known about dims.
enum class Decision { kYes, kNo, kOpen };
// `symbols` are substituted before deciding (declared or final bindings).
Decision decide_equal(const ir::Size& left, const ir::Size& right, const ir::Bindings& symbols);
Decision decide_at_most(const ir::Size& left, const ir::Size& right, const ir::Bindings& symbols);
Decision decide_whole(const ir::Size& size, const ir::Bindings& symbols);
// Sizes with everything known put in; `$` of dim parameters taken off for the reader.
ir::Size with_known(const ir::Size& size, const ir::Bindings& symbols);
std::string reader_text(const ir::Size& size);

// Checks a definition's body once (and those it calls). False when it has errors.
bool ensure_checked(Module& module, Definition& definition, Diagnostics& diagnostics);

}  // namespace cad::frontend
