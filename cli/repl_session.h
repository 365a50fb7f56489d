// cli/repl_session.h -- a REPL session as a value: one program text (the loaded file, then what was
// typed, later definitions in place of earlier ones of the same name), settings, and the statements
// typed at the prompt (`x = normal[B, D](1.0)`), which stand in one body outside every definition.
// A change works on a copy: a session is always a program without errors. What an expression is
// worth is repl_evaluate.h; commands are repl_commands.cc.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "frontend/expression.h"
#include "frontend/module.h"

namespace cad::cli {

// What an input is, by its first words.
enum class InputKind { kNothing, kCommand, kItem, kStatement, kExpression };
InputKind input_kind(const std::string& text);

// A name that a statement bound.
struct BoundValue {
  std::string name;
  bool instance = false;  // of a layer: not a value
  bool param = false;
  frontend::SectionValue::Kind kind = frontend::SectionValue::Kind::kTensor;
  ir::DType dtype = ir::DType::kF32;  // kTensor
  std::vector<std::string> dims;      // kTensor, names of the program
  ir::Scalar number;                  // kNumber
  bool flag = false;                  // kBool
};

struct TypedStatement {
  int number = 0;  // of the input
  std::string text;
};

// Everything that checking made of a session's text.
struct SessionProgram {
  Sources sources;
  FileId file;  // the whole text
  std::shared_ptr<const frontend::Module> module;
  std::vector<frontend::Typed> typed;           // one a statement
  std::vector<std::vector<BoundValue>> values;  // one a statement
  std::map<std::string, int> counts;            // calls of layers so far, see parse_typed
};

class Session {
 public:
  Session();

  // Changes. False, with errors in `diagnostics`: only the sources of the attempt are of use then.
  bool load(const std::string& path, std::vector<frontend::Setting> settings,
            Diagnostics& diagnostics);    // drops what was typed
  bool reload(Diagnostics& diagnostics);  // keeps it
  bool set(const std::vector<frontend::Setting>& settings, Diagnostics& diagnostics);
  bool define(int number, const std::string& text, Diagnostics& diagnostics);
  bool bind(int number, const std::string& text, Diagnostics& diagnostics);
  void choose(const std::string& train, const std::string& model);

  [[nodiscard]] const std::string& path() const { return path_; }  // empty: no file
  [[nodiscard]] const std::vector<frontend::Setting>& settings() const { return settings_; }
  [[nodiscard]] const std::vector<TypedStatement>& statements() const { return statements_; }
  [[nodiscard]] const frontend::Module& module() const { return *program_->module; }
  [[nodiscard]] const SessionProgram& program() const { return *program_; }
  // The value a name has now, nullptr when nothing typed bound it.
  [[nodiscard]] const BoundValue* find(const std::string& name) const;
  [[nodiscard]] std::vector<const BoundValue*> values() const;  // of all names, oldest first

  // Parses an expression typed as input `number`.
  std::optional<frontend::Typed> parse(int number, const std::string& text,
                                       Diagnostics& diagnostics);
  // Walks the statements into `body`. Those whose index is in `given` are not run: their tensors
  // become inputs of input_name(). `after` is called behind each that was run.
  void replay(frontend::SessionBody& body, const std::set<size_t>& given,
              const std::function<void(size_t)>& after = {}) const;
  static std::string input_name(size_t statement, const std::string& name);
  // Indices of the statements that `names` and the expression need, in order.
  [[nodiscard]] std::set<size_t> needed_by(const frontend::Typed& expression) const;
  [[nodiscard]] bool is_leaf(size_t statement) const;  // a tensor that is made from no other

  // The whole as a program that loads again; settings and statements as comments, which
  // saved_inputs() of the loaded file gives back for `:load` to type again.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::vector<std::string> saved_inputs() const;

 private:
  struct Item {
    int number = 0;
    std::string text;
    std::set<std::string> keys;  // what it defines: "B", "section train gpt", "import blocks"
  };
  bool build(int fresh, Diagnostics& diagnostics);
  bool check_statements(Diagnostics& diagnostics);
  void drop_unused();

  std::string path_, file_text_;
  std::string train_, model_;
  std::vector<Item> items_;
  std::vector<TypedStatement> statements_;
  std::vector<frontend::Setting> settings_;
  std::shared_ptr<SessionProgram> program_;
};

}  // namespace cad::cli
