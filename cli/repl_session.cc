// cli/repl_session.cc -- see repl_session.h. The text of a session keeps the offsets of the loaded
// file: what was typed anew is blanked where it stood, so that places in diagnostics stay true.
#include "cli/repl_session.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "base/text.h"
#include "cli/load_program.h"
#include "frontend/elaborate.h"
#include "frontend/parse.h"

namespace cad::cli {
namespace {

using frontend::SectionValue;
using frontend::SessionBody;

struct DiskReader : frontend::FileReader {
  Result<std::string> read(const std::string& path) override { return read_file(path); }
};

std::string label(int number) {
  return number > 0 ? fmt::format("<input {}>", number) : fmt::format("<saved {}>", -number);
}

// ----------------------------------------------------------------- items and what replaces them

std::vector<std::string> keys_of(const frontend::Ast& ast, const frontend::Item& item) {
  std::vector<std::string> keys;
  switch (item.kind) {
    case frontend::ItemKind::kDim:
      for (const frontend::DimBind& bind : item.binds) keys.push_back(bind.name.text);
      break;
    case frontend::ItemKind::kLet:
      keys.push_back(item.name.text);
      break;
    case frontend::ItemKind::kDef:
      keys.push_back(ast.def(item.def).name.text);
      break;
    case frontend::ItemKind::kSection: {
      const frontend::Section& section = ast.section(item.section);
      keys.push_back("section " + section.kind.text + " " + section.name.text);
      break;
    }
    case frontend::ItemKind::kImport:
      keys.push_back("import " + item.name.text);
      break;
    case frontend::ItemKind::kError:
      break;
  }
  return keys;
}

void blank(std::string& text, size_t from, size_t to) {
  std::fill(text.begin() + static_cast<ptrdiff_t>(from), text.begin() + static_cast<ptrdiff_t>(to),
            ' ');
}

// Of `dim A, B = 2, C` some stay: each leaves with the comma at its side, offsets are kept.
void blank_dims(std::string& text, const frontend::Item& item, const std::set<std::string>& keys) {
  const std::vector<frontend::DimBind>& binds = item.binds;
  std::vector<size_t> kept;
  for (size_t i = 0; i < binds.size(); ++i) {
    if (keys.count(binds[i].name.text) == 0) kept.push_back(i);
  }
  blank(text, item.keyword.end, binds[kept[0]].span.begin);
  for (size_t k = 1; k < kept.size(); ++k) {
    if (kept[k] == kept[k - 1] + 1) continue;
    // Up to the comma before the next one that stays.
    const size_t end = text.rfind(',', binds[kept[k]].span.begin);
    blank(text, binds[kept[k - 1]].span.end, end);
  }
  blank(text, binds[kept.back()].span.end, item.span.end);
}

// `text` with the items of these keys blanked out; `left`: how many items still stand in it.
std::string without(const std::string& text, const std::set<std::string>& keys, size_t& left) {
  left = 0;
  Sources sources;
  Diagnostics ignored;
  const FileId file = sources.add("", text);
  const frontend::Ast ast = frontend::parse(sources, file, ignored);
  std::string out = text;
  for (const frontend::Item& item : ast.items) {
    const std::vector<std::string> own = keys_of(ast, item);
    const auto gone = static_cast<size_t>(
        std::count_if(own.begin(), own.end(), [&](const auto& k) { return keys.count(k) != 0; }));
    left += gone < own.size() || own.empty() ? 1 : 0;
    if (gone == 0) continue;
    if (gone == own.size()) {
      blank(out, item.span.begin, item.span.end);
    } else {
      blank_dims(out, item, keys);
    }
  }
  return out;
}

// Warnings and lints only of what is new; errors always.
void add_new(const Diagnostics& found, const SessionProgram& program, int fresh, Diagnostics& to) {
  for (const Diagnostic& d : found.all()) {
    const bool error = diag_level(d.id) == Level::kError;
    if (!error && fresh != 0) {
      if (!d.primary) continue;
      const Span at = program.sources.origin(d.primary->span);
      if (program.sources.file(at.file).path != label(fresh)) continue;
    }
    to.add(d);
  }
}

std::string first_word(const std::string& text) {
  size_t end = 0;
  while (end < text.size() &&
         (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_'))
    ++end;
  return text.substr(0, end);
}

// `NAME {` or `NAME NAME {`.
bool starts_section(const std::string& text) {
  std::string rest = text;
  for (int i = 0; i < 2; ++i) {
    const std::string word = first_word(rest);
    if (word.empty()) return false;
    rest = trimmed(rest.substr(word.size()));
    if (!rest.empty() && rest[0] == '{') return true;
  }
  return false;
}

// An `=` outside of brackets that is not part of `==`, `<=`, `>=` or `!=`.
bool binds_names(const std::string& text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '#' || c == '"') return false;
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (c != '=' || depth != 0) continue;
    if (i + 1 < text.size() && text[i + 1] == '=') return false;
    return i == 0 || std::string("<>!").find(text[i - 1]) == std::string::npos;
  }
  return false;
}

constexpr std::string_view kSaved = "# cad> ", kSavedMore = "# ...> ";

}  // namespace

InputKind input_kind(const std::string& text) {
  const std::string all = trimmed(text);
  if (all.empty() || all[0] == '#') {
    const size_t line = all.find('\n');
    return line == std::string::npos ? InputKind::kNothing : input_kind(all.substr(line));
  }
  if (all[0] == ':') return InputKind::kCommand;
  const std::string word = first_word(all);
  const bool alone = word.size() == all.size();
  const char next = alone ? '\0' : all[word.size()];
  if (next == ' ' || next == '\t' || next == '\n') {
    for (const char* keyword : {"import", "dim", "let", "fn", "layer", "model"}) {
      if (word == keyword) return InputKind::kItem;
    }
    for (const char* keyword : {"param", "state", "use", "repeat", "return"}) {
      if (word == keyword) return InputKind::kStatement;
    }
  }
  if (starts_section(all)) return InputKind::kItem;
  return binds_names(all) ? InputKind::kStatement : InputKind::kExpression;
}

// ------------------------------------------------------------------------------------- changes

Session::Session() {
  Diagnostics none;
  build(0, none);
}

void Session::choose(const std::string& train, const std::string& model) {
  train_ = train;
  model_ = model;
}

bool Session::load(const std::string& path, std::vector<frontend::Setting> settings,
                   Diagnostics& diagnostics) {
  Result<std::string> text = read_file(path);
  if (!text.ok()) {
    diagnostics.add(text.error());
    return false;
  }
  path_ = path;
  file_text_ = std::move(*text);
  items_.clear();
  statements_.clear();
  settings_ = std::move(settings);
  return build(0, diagnostics);
}

bool Session::reload(Diagnostics& diagnostics) {
  if (!path_.empty()) {
    Result<std::string> text = read_file(path_);
    if (!text.ok()) {
      diagnostics.add(text.error());
      return false;
    }
    file_text_ = std::move(*text);
  }
  return build(0, diagnostics);
}

bool Session::set(const std::vector<frontend::Setting>& settings, Diagnostics& diagnostics) {
  for (const frontend::Setting& setting : settings) {
    settings_.erase(std::remove_if(settings_.begin(), settings_.end(),
                                   [&](const auto& s) { return s.name == setting.name; }),
                    settings_.end());
    if (!setting.value.empty()) settings_.push_back(setting);
  }
  return build(-1, diagnostics);
}

bool Session::define(int number, const std::string& text, Diagnostics& diagnostics) {
  Item item;
  item.number = number;
  item.text = text;
  Sources sources;
  Diagnostics ignored;
  const FileId file = sources.add("", text);
  const frontend::Ast ast = frontend::parse(sources, file, ignored);
  for (const frontend::Item& part : ast.items) {
    for (const std::string& key : keys_of(ast, part)) item.keys.insert(key);
  }
  std::vector<Item> kept;
  for (Item& old : items_) {
    size_t left = 0;
    old.text = without(old.text, item.keys, left);
    for (const std::string& key : item.keys) old.keys.erase(key);
    if (left > 0) kept.push_back(std::move(old));
  }
  items_ = std::move(kept);
  items_.push_back(std::move(item));
  return build(number, diagnostics);
}

bool Session::bind(int number, const std::string& text, Diagnostics& diagnostics) {
  statements_.push_back({number, text});
  if (!build(number, diagnostics)) return false;
  drop_unused();
  return true;
}

// A statement goes when every name that it binds was bound again and nothing needs the old value.
void Session::drop_unused() {
  std::set<std::string> wanted;
  for (const auto& values : program_->values) {
    for (const BoundValue& v : values) wanted.insert(v.name);
  }
  std::vector<TypedStatement> statements;
  std::vector<frontend::Typed> typed;
  std::vector<std::vector<BoundValue>> values;
  const std::set<std::string> all = wanted;
  for (size_t i = statements_.size(); i-- > 0;) {
    const std::vector<BoundValue>& bound = program_->values[i];
    if (std::none_of(bound.begin(), bound.end(),
                     [&](const BoundValue& v) { return wanted.count(v.name) != 0; }))
      continue;
    for (const BoundValue& v : bound) wanted.erase(v.name);
    for (const std::string& name : all) {
      if (program_->typed[i].mentions(name)) wanted.insert(name);
    }
    statements.push_back(statements_[i]);
    typed.push_back(program_->typed[i]);
    values.push_back(bound);
  }
  std::reverse(statements.begin(), statements.end());
  std::reverse(typed.begin(), typed.end());
  std::reverse(values.begin(), values.end());
  statements_ = std::move(statements);
  program_->typed = std::move(typed);
  program_->values = std::move(values);
}

// ------------------------------------------------------------------------------------ checking

bool Session::build(int fresh, Diagnostics& diagnostics) {
  auto program = std::make_shared<SessionProgram>();
  program_ = program;
  Sources& sources = program->sources;
  const std::string name = path_.empty() ? "<session>" : path_;
  // A byte-order mark and bytes that are not UTF-8 are a matter of the file alone.
  Result<FileId> loaded = frontend::load_source(sources, name, file_text_);
  if (!loaded.ok()) {
    diagnostics.add(loaded.error());
    return false;
  }
  struct Piece {
    size_t at;
    FileId part;
    size_t length;
  };
  size_t left = 0;
  std::set<std::string> keys;
  for (const Item& item : items_) keys.insert(item.keys.begin(), item.keys.end());
  std::string text = without(sources.file(*loaded).text, keys, left);
  std::vector<Piece> pieces{{0, *loaded, text.size()}};
  for (const Item& item : items_) {
    Result<FileId> part = frontend::load_source(sources, label(item.number), item.text);
    if (!part.ok()) {
      diagnostics.add(part.error());
      return false;
    }
    text += "\n";
    pieces.push_back({text.size(), *part, item.text.size()});
    text += item.text + "\n";
  }
  program->file = sources.add(name, text);
  for (const Piece& piece : pieces) {
    sources.add_piece(program->file, static_cast<uint32_t>(piece.at), piece.part,
                      static_cast<uint32_t>(piece.length));
  }
  frontend::CheckOptions options;
  options.settings = settings_;
  options.train = train_;
  options.model = model_;
  options.whole_library = true;
  DiskReader reader;
  Diagnostics found;
  program->module = frontend::check(sources, program->file, reader, options, found);
  add_new(found, *program, fresh, diagnostics);
  return !found.has_errors() && check_statements(diagnostics);
}

bool Session::check_statements(Diagnostics& diagnostics) {
  SessionProgram& program = *program_;
  SessionBody body(*program.module, SessionBody::Walk::kCheck, diagnostics);
  for (const TypedStatement& statement : statements_) {
    Result<FileId> file =
        frontend::load_source(program.sources, label(statement.number), statement.text);
    if (!file.ok()) {
      diagnostics.add(file.error());
      return false;
    }
    auto typed = frontend::parse_typed(program.sources, *file, frontend::TypedKind::kStatement,
                                       label(statement.number), program.counts, diagnostics);
    if (!typed || !body.run(*typed)) return false;
    std::vector<BoundValue> values;
    const frontend::StmtKind kind = typed->ast.stmt(typed->statements[0]).kind;
    for (const std::string& name : typed->bound()) {
      BoundValue bound;
      bound.name = name;
      bound.param = kind == frontend::StmtKind::kParam;
      bound.instance = kind == frontend::StmtKind::kUse;
      const auto value = body.value(name);
      if (!value && !bound.instance) continue;  // a name inside a repeat
      if (value) {
        bound.kind = value->kind;
        bound.number = value->number;
        bound.flag = value->flag;
        if (value->kind == SectionValue::Kind::kTensor) {
          const ir::Type& type = body.graph().type(value->value);
          bound.dtype = type.dtype;
          for (const ir::DimId dim : type.dims) bound.dims.push_back(body.graph().dim(dim).name);
        }
      }
      values.push_back(std::move(bound));
    }
    program.typed.push_back(std::move(*typed));
    program.values.push_back(std::move(values));
  }
  return true;
}

// ------------------------------------------------------------------------------------- reading

const BoundValue* Session::find(const std::string& name) const {
  for (size_t i = program_->values.size(); i-- > 0;) {
    for (const BoundValue& v : program_->values[i]) {
      if (v.name == name) return &v;
    }
  }
  return nullptr;
}

std::vector<const BoundValue*> Session::values() const {
  std::vector<const BoundValue*> out;
  for (const auto& list : program_->values) {
    for (const BoundValue& v : list) {
      if (find(v.name) == &v) out.push_back(&v);
    }
  }
  return out;
}

std::optional<frontend::Typed> Session::parse(int number, const std::string& text,
                                              Diagnostics& diagnostics) {
  Result<FileId> file = frontend::load_source(program_->sources, label(number), text);
  if (!file.ok()) {
    diagnostics.add(file.error());
    return std::nullopt;
  }
  std::map<std::string, int> counts = program_->counts;
  return frontend::parse_typed(program_->sources, *file, frontend::TypedKind::kExpression,
                               fmt::format("input_{}", number), counts, diagnostics);
}

std::string Session::input_name(size_t statement, const std::string& name) {
  return fmt::format("{}:{}", statement, name);
}

void Session::replay(SessionBody& body, const std::set<size_t>& given,
                     const std::function<void(size_t)>& after) const {
  for (size_t i = 0; i < program_->typed.size(); ++i) {
    if (given.count(i) == 0) {
      if (!body.run(program_->typed[i])) return;
      if (after) after(i);
      continue;
    }
    for (const BoundValue& v : program_->values[i])
      body.give(v.name, input_name(i, v.name), v.dtype, v.dims);
  }
}

std::set<size_t> Session::needed_by(const frontend::Typed& expression) const {
  std::set<size_t> needed;
  std::set<std::string> wanted;
  for (const BoundValue* v : values()) {
    if (expression.mentions(v->name)) wanted.insert(v->name);
  }
  for (size_t i = program_->typed.size(); i-- > 0;) {
    bool binds = false;
    for (const BoundValue& v : program_->values[i]) binds = wanted.erase(v.name) != 0 || binds;
    if (!binds) continue;
    needed.insert(i);
    for (const auto& list : program_->values) {
      for (const BoundValue& v : list) {
        if (program_->typed[i].mentions(v.name)) wanted.insert(v.name);
      }
    }
  }
  return needed;
}

bool Session::is_leaf(size_t statement) const {
  const std::vector<BoundValue>& values = program_->values[statement];
  if (values.size() != 1 || values[0].instance || values[0].param ||
      values[0].kind != SectionValue::Kind::kTensor)
    return false;
  for (size_t i = 0; i < statement; ++i) {
    for (const BoundValue& v : program_->values[i]) {
      const bool constant = !v.instance && v.kind != SectionValue::Kind::kTensor;
      if (!constant && program_->typed[statement].mentions(v.name)) return false;
    }
  }
  return true;
}

// ------------------------------------------------------------------------------- saved sessions

std::string Session::text() const {
  std::set<std::string> keys;
  for (const Item& item : items_) keys.insert(item.keys.begin(), item.keys.end());
  size_t left = 0;
  std::string out;
  // The statements of an earlier `:save` are those of this session by now.
  const std::string kept = without(file_text_, keys, left);
  const auto lines = [](const std::string& text, const auto& take) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      take(text.substr(at, end - at));
      at = end + 1;
    }
  };
  lines(kept, [&](const std::string& line) {
    const bool saved = line.rfind(kSaved, 0) == 0 || line.rfind(kSavedMore, 0) == 0;
    // A line that was all of an item which was typed anew.
    const bool emptied = !line.empty() && line.find_first_not_of(' ') == std::string::npos;
    if (!saved && !emptied) out += line + "\n";
  });
  while (out.size() > 1 && out.compare(out.size() - 2, 2, "\n\n") == 0) out.pop_back();
  for (const Item& item : items_) out += (out.empty() ? "" : "\n") + trimmed(item.text) + "\n";
  if (statements_.empty() && settings_.empty()) return out;
  if (!out.empty()) out += "\n";
  for (const frontend::Setting& s : settings_)
    out += fmt::format("{}:set {}={}\n", kSaved, s.name, s.value);
  for (const TypedStatement& statement : statements_) {
    bool first = true;
    lines(trimmed(statement.text), [&](const std::string& line) {
      out += fmt::format("{}{}\n", first ? kSaved : kSavedMore, line);
      first = false;
    });
  }
  return out;
}

std::vector<std::string> Session::saved_inputs() const {
  std::vector<std::string> inputs;
  for (size_t at = 0; at < file_text_.size();) {
    const size_t end = std::min(file_text_.find('\n', at), file_text_.size());
    const std::string line = trimmed(file_text_.substr(at, end - at));
    at = end + 1;
    if (line.rfind(kSaved, 0) == 0) inputs.push_back(line.substr(kSaved.size()));
    if (line.rfind(kSavedMore, 0) == 0 && !inputs.empty())
      inputs.back() += "\n" + line.substr(kSavedMore.size());
  }
  return inputs;
}

}  // namespace cad::cli
