// cli/repl_complete.cc -- see repl_complete.h.
#include "cli/repl_complete.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>

#include "cli/repl_commands.h"
#include "frontend/builtin_docs.h"
#include "frontend/module_data.h"
#include "frontend/section_tables.h"
#include "ir/op.h"

namespace cad::cli {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

void add_program_names(const Session& session, std::vector<std::string>& names) {
  const frontend::Module& module = session.module();
  for (const auto& [name, definition] : module.main().definitions) names.push_back(name);
  for (const auto& [name, let] : module.main().lets) names.push_back(name);
  for (const auto& [alias, unit] : module.main().imports) {
    if (unit == nullptr) continue;
    for (const auto& [name, definition] : unit->definitions) names.push_back(alias + "." + name);
  }
  for (const auto& [name, dim] : module.dims) names.push_back(name);
  for (const BoundValue* v : session.values()) names.push_back(v->name);
  names.insert(names.end(), module.library_names.begin(), module.library_names.end());
}

std::vector<std::string> expression_names(const Session& session) {
  std::vector<std::string> names = frontend::builtin_names();
  add_program_names(session, names);
  for (const char* word : {"dim", "let", "fn", "layer", "model", "param", "use", "repeat", "import",
                           "true", "false", "and", "or", "not", "train", "inf"})
    names.emplace_back(word);
  return names;
}

// Dims, lets and settings; nested ones as `eval.every`.
std::vector<std::string> setting_names(const Session& session) {
  std::vector<std::string> names;
  const frontend::Module& module = session.module();
  for (const auto& [name, dim] : module.dims) names.push_back(name);
  for (const auto& [name, let] : module.main().lets) names.push_back(name);
  const frontend::SectionTable* train = frontend::find_table("train");
  if (!frontend::section_tables().empty() && train != nullptr) {
    for (const frontend::Key& key : train->keys) names.emplace_back(key.name);
    for (const std::string& nested : train->nested) {
      const frontend::SectionTable* table = frontend::find_table(nested);
      if (table == nullptr) continue;
      for (const frontend::Key& key : table->keys) names.push_back(nested + "." + key.name);
    }
  }
  return names;
}

// Files and folders (with a slash behind) that begin with `word`.
std::vector<std::string> file_names(const std::string& word) {
  const size_t slash = word.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : word.substr(0, slash + 1);
  std::vector<std::string> names;
  DIR* open = opendir(folder.empty() ? "." : folder.c_str());
  if (open == nullptr) return names;
  const bool hidden = word.size() > folder.size() && word[folder.size()] == '.';
  while (const dirent* entry = readdir(open)) {
    std::string name = entry->d_name;
    if (name == "." || name == ".." || (name[0] == '.' && !hidden)) continue;
    name = folder + name;
    struct stat info {};
    if (stat(name.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) name += '/';
    names.push_back(std::move(name));
  }
  closedir(open);
  return names;
}

Completions matching(size_t start, const std::string& word, std::vector<std::string> names) {
  Completions out;
  out.start = start;
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (std::string& name : names) {
    if (name.compare(0, word.size(), word) == 0) out.words.push_back(std::move(name));
  }
  return out;
}

}  // namespace

Completions complete(const Session& session, const std::string& line) {
  const size_t first = line.find_first_not_of(" \t");
  size_t start = line.size();
  while (start > 0 && is_word(line[start - 1])) --start;
  // `alias.Name`, `eval.every`: one word.
  if (start > 1 && line[start - 1] == '.' && is_word(line[start - 2])) {
    --start;
    while (start > 0 && is_word(line[start - 1])) --start;
  }
  if (first == std::string::npos || line[first] != ':')
    return matching(start, line.substr(start), expression_names(session));
  const size_t blank = line.find_first_of(" \t", first);
  if (blank == std::string::npos) {
    std::vector<std::string> names;
    for (const ReplCommand& c : repl_commands()) names.push_back(std::string(":") + c.name);
    return matching(first, line.substr(first), std::move(names));
  }
  const ReplCommand* command = find_repl_command(line.substr(first + 1, blank - first - 1));
  if (command == nullptr) return {};
  const size_t argument = std::min(line.find_first_not_of(" \t", blank), line.size());
  switch (command->takes) {
    case Argument::kNone:
      return {};
    case Argument::kFile: {
      Completions out =
          matching(argument, line.substr(argument), file_names(line.substr(argument)));
      out.space = out.words.size() != 1 || out.words[0].back() != '/';
      return out;
    }
    case Argument::kSetting: {
      std::vector<std::string> names = setting_names(session);
      for (std::string& name : names) name += '=';
      Completions out = matching(start, line.substr(start), std::move(names));
      out.space = false;
      return out;
    }
    case Argument::kCommand: {
      std::vector<std::string> names;
      for (const ReplCommand& c : repl_commands()) names.emplace_back(c.name);
      return matching(start, line.substr(start), std::move(names));
    }
    case Argument::kName:
      return matching(start, line.substr(start), documented_names(session));
    case Argument::kText:
    case Argument::kExpression:
      break;
  }
  return matching(start, line.substr(start), expression_names(session));
}

std::vector<std::string> documented_names(const Session& session) {
  std::vector<std::string> names = frontend::builtin_names();
  add_program_names(session, names);
#define CAD_OP(enumerator, text, family) names.emplace_back(text);
#include "ir/ops.def"
#undef CAD_OP
  for (const frontend::SectionTable& table : frontend::section_tables()) {
    names.emplace_back(table.kind);
    for (const frontend::Key& key : table.keys) names.emplace_back(key.name);
  }
#define CAD_DIAGNOSTIC(id, level, title) names.emplace_back(#id);
#include "base/diagnostics.def"
#undef CAD_DIAGNOSTIC
  return names;
}

}  // namespace cad::cli
