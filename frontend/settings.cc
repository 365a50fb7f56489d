// frontend/settings.cc -- see settings.h. A setting's text becomes syntax: `--set steps=10` is an
// entry of the train section in use, with spans in a source of its own named "--set steps".
#include "frontend/settings.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/suggest.h"
#include "frontend/elaborate.h"
#include "frontend/parse.h"
#include "frontend/section_tables.h"
#include "frontend/section_values.h"

namespace cad::frontend {

namespace {

std::vector<std::string> split_dots(const std::string& name) {
  std::vector<std::string> parts(1);
  for (char c : name) {
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Diagnostic usage(DiagId id, std::string message) {
  return make_error(id, std::move(message), kExitUsage);
}

class SettingsReader {
 public:
  SettingsReader(Module& module, Diagnostics& diagnostics)
      : module_(module), ast_(module.main().ast), diagnostics_(diagnostics) {}

  void run() {
    choose_train();
    choose_model();
    std::set<std::string> seen;
    for (const Setting& setting : module_.options.settings) {
      if (!seen.insert(setting.name).second) {
        diagnostics_.add(
            usage(DiagId::E0302, fmt::format("`--set {}` is given twice", setting.name)));
        continue;
      }
      apply(setting);
    }
    bind_train_dims();
  }

 private:
  void choose_train() {
    const auto sections = train_sections(ast_);
    std::vector<std::string> names;
    for (SectionId id : sections) {
      const Section& section = ast_.section(id);
      names.push_back(section.name.text);
      if (module_.options.train.empty() || section.name.text == module_.options.train) chosen_ = id;
    }
    if (module_.options.train.empty() || chosen_.valid()) return;
    Diagnostic d =
        usage(DiagId::E0308, fmt::format("there is no train section `{}`", module_.options.train));
    names.erase(std::remove(names.begin(), names.end(), ""), names.end());
    if (auto near = suggest(module_.options.train, names)) {
      d.help(fmt::format("did you mean `--train {}`?", *near));
    } else if (!names.empty()) {
      d.note(fmt::format("the program has `{}`", fmt::join(names, "`, `")));
    }
    diagnostics_.add(d);
  }

  void choose_model() {
    if (module_.options.model.empty() || module_.main().silent(module_.options.model)) return;
    Diagnostic error = make_error(DiagId::E0121, "", kExitUsage);
    if (chosen_model(module_, error) == nullptr) diagnostics_.add(std::move(error));
  }

  // ------------------------------------------------------------------ one --set

  void apply(const Setting& setting) {
    const auto path = split_dots(setting.name);
    if (path.size() == 1) {
      const SectionTable* train = find_table("train");
      const Key* key = chosen_.valid() ? find_key(*train, setting.name) : nullptr;
      if (key != nullptr) return set_key(setting, chosen_, *key);
      if (module_.dims.count(setting.name) != 0) return set_dim(setting);
      if (module_.main().lets.count(setting.name) != 0) return set_let(setting);
      return unknown(setting, names_at_top());
    }
    SectionId at;
    for (size_t i = 0; i + 1 < path.size(); ++i) {
      at = step_into(setting, at, path[i]);
      if (!at.valid()) return;
    }
    const SectionTable* table = find_table(ast_.section(at).kind.text);
    if (table == nullptr) return;  // an unknown section: reported with the section
    if (const Key* key = find_key(*table, path.back())) return set_key(setting, at, *key);
    if (at == chosen_ && module_.dims.count(path.back()) != 0)
      return set_dim({path.back(), setting.value});
    std::vector<std::string> names;
    const std::string front = setting.name.substr(0, setting.name.size() - path.back().size());
    for (const Key& key : table->keys) names.push_back(front + key.name);
    unknown(setting, names);
  }

  // The section that `part` names, by kind or by name, under `at` (invalid: the file and the train
  // section in use). A nested section that is not written yet is made.
  SectionId step_into(const Setting& setting, SectionId at, const std::string& part) {
    std::vector<std::string> names;
    if (!at.valid()) {
      if (chosen_.valid() && (part == "train" || part == ast_.section(chosen_).name.text))
        return chosen_;
      if (chosen_.valid()) {
        if (SectionId found = nested(chosen_, part, names); found.valid()) return found;
      }
      for (const Item& item : ast_.items) {
        if (item.kind != ItemKind::kSection) continue;
        const Section& section = ast_.section(item.section);
        if (section.kind.text == "train") continue;
        if (section.kind.text == part || section.name.text == part) return item.section;
        names.push_back(section.kind.text);
      }
      if (chosen_.valid()) at = chosen_;
    } else if (SectionId found = nested(at, part, names); found.valid()) {
      return found;
    }
    if (at.valid()) {
      const SectionTable* table = find_table(ast_.section(at).kind.text);
      if (table != nullptr && std::count(table->nested.begin(), table->nested.end(), part) != 0) {
        return make_section(at, part);
      }
      if (table != nullptr) names.insert(names.end(), table->nested.begin(), table->nested.end());
    }
    Diagnostic d = usage(DiagId::E0310,
                         fmt::format("`--set {}`: there is no section `{}`", setting.name, part));
    if (auto near = suggest(part, names)) d.help(fmt::format("did you mean `{}`?", *near));
    diagnostics_.add(d);
    return {};
  }

  SectionId nested(SectionId at, const std::string& part, std::vector<std::string>& names) const {
    SectionId by_kind;
    for (const Entry& entry : ast_.section(at).entries) {
      if (!entry.section.valid()) continue;
      const Section& section = ast_.section(entry.section);
      if (section.name.text == part) return entry.section;
      if (section.kind.text == part && !by_kind.valid()) by_kind = entry.section;
      names.push_back(section.name.empty() ? section.kind.text : section.name.text);
    }
    return by_kind;
  }

  SectionId make_section(SectionId at, const std::string& kind) {
    const SectionId id{static_cast<int32_t>(ast_.sections.size())};
    Section section;
    const FileId file = module_.sources->add("--set " + kind, kind);
    section.span = {file, 0, static_cast<uint32_t>(kind.size())};
    section.kind = {kind, section.span};
    section.braces = section.span;
    ast_.sections.push_back(section);
    Entry entry;
    entry.section = id;
    entry.span = section.span;
    section_of(at).entries.push_back(entry);
    return id;
  }

  Section& section_of(SectionId id) { return ast_.sections[static_cast<size_t>(id.index)]; }

  void unknown(const Setting& setting, const std::vector<std::string>& names) {
    Diagnostic d =
        usage(DiagId::E0310,
              fmt::format("`--set {}`: no dim, `let` or setting has this name", setting.name));
    if (auto near = suggest(setting.name, names)) {
      d.help(fmt::format("did you mean `{}`?", *near));
    } else {
      d.note(
          "dims, lets and the keys of the train section can be set; nested ones as in `--set "
          "eval.every=10`");
    }
    diagnostics_.add(d);
  }

  std::vector<std::string> names_at_top() const {
    std::vector<std::string> names;
    for (const auto& [name, dim] : module_.dims) names.push_back(name);
    for (const auto& [name, let] : module_.main().lets) names.push_back(name);
    if (!chosen_.valid()) return names;
    for (const Key& key : find_table("train")->keys) names.emplace_back(key.name);
    for (const char* kind : {"eval", "save"}) {
      for (const Key& key : find_table(kind)->keys)
        names.push_back(fmt::format("{}.{}", kind, key.name));
    }
    return names;
  }

  // ------------------------------------------------------------------ values

  // `why`: what is wrong with a value that can be read.
  void unreadable(const Setting& setting, const std::string& wants, std::string why = "") {
    const std::string got = setting.value.empty() ? "the value is empty"
                            : why.empty() ? fmt::format("`{}` is not understood", setting.value)
                                          : fmt::format("`{}` {}", setting.value, why);
    Diagnostic d = usage(DiagId::E0311, fmt::format("`--set {}`: {}", setting.name, got));
    d.note(fmt::format("`{}` wants {}", setting.name, wants));
    diagnostics_.add(d);
  }

  // The value as syntax in the program's tree; invalid when it is not one expression.
  ExprId parse_value(const Setting& setting) {
    const FileId file = module_.sources->add("--set " + setting.name, setting.value);
    Diagnostics errors;
    const ExprId id = parse_expression(*module_.sources, file, ast_, errors);
    return errors.has_errors() ? ExprId{} : id;
  }

  std::optional<double> parse_number(const Setting& setting) {
    if (setting.value == "true") return 1;
    if (setting.value == "false") return 0;
    const ExprId id = parse_value(setting);
    if (!id.valid()) return std::nullopt;
    return plain_number(module_, ast_, id);
  }

  static bool numeric(KeyKind kind) {
    return kind == KeyKind::kCount || kind == KeyKind::kSteps || kind == KeyKind::kWhole ||
           kind == KeyKind::kPositive || kind == KeyKind::kOpenFraction;
  }

  void set_key(const Setting& setting, SectionId section, const Key& key) {
    ExprId value;
    const bool quoted =
        !setting.value.empty() && (setting.value[0] == '"' || setting.value[0] == '(');
    const bool raw = key.kind == KeyKind::kString ||
                     (key.kind == KeyKind::kInit && setting.value.rfind("load(", 0) != 0);
    if (raw && !quoted && !setting.value.empty()) {
      value = raw_text(setting);
    } else {
      value = parse_value(setting);
      const bool number_wanted =
          value.valid() && numeric(key.kind) && ast_.expr(value).kind != ExprKind::kQuantity;
      if (!value.valid() || (number_wanted && !plain_number(module_, ast_, value))) {
        return unreadable(setting, wanted(key));
      }
    }
    Entry entry;
    entry.key = {key.name, ast_.expr(value).span};
    entry.value = value;
    entry.span = ast_.expr(value).span;
    auto& entries = section_of(section).entries;
    entries.erase(std::remove_if(
                      entries.begin(), entries.end(),
                      [&](const Entry& e) { return !e.section.valid() && e.key.text == key.name; }),
                  entries.end());
    // steps and epochs exclude each other: the one that is set wins
    const std::string other = setting.name == "steps"    ? "epochs"
                              : setting.name == "epochs" ? "steps"
                                                         : "";
    if (!other.empty()) {
      entries.erase(
          std::remove_if(entries.begin(), entries.end(),
                         [&](const Entry& e) { return !e.section.valid() && e.key.text == other; }),
          entries.end());
    }
    entries.push_back(entry);
  }

  ExprId raw_text(const Setting& setting) {
    const FileId file = module_.sources->add("--set " + setting.name, setting.value);
    Expr expr;
    expr.kind = ExprKind::kString;
    expr.text = setting.value;
    expr.span = {file, 0, static_cast<uint32_t>(setting.value.size())};
    ast_.exprs.push_back(expr);
    return {static_cast<int32_t>(ast_.exprs.size()) - 1};
  }

  void set_let(const Setting& setting) {
    auto number = parse_number(setting);
    const char* wants = "a number, or `true` or `false`";
    if (!number) return unreadable(setting, wants);
    if (std::isnan(*number)) return unreadable(setting, wants, "is not a number");
    module_.set_overrides[setting.name] = {setting.value, *number, origin(setting), {}};
  }

  void set_dim(const Setting& setting) {
    if (!may_set(setting.name, fmt::format("--set {}", setting.name), {}, setting.value)) return;
    auto number = parse_number(setting);
    const char* wants = "a whole number, at least 0: it is a dim";
    if (!number) return unreadable(setting, wants);
    if (const char* why = no_size(*number); why != nullptr) return unreadable(setting, wants, why);
    module_.set_overrides[setting.name] = {setting.value, *number, origin(setting), {}};
  }

  // Why a number is no size; nullptr when it is one.
  static const char* no_size(double x) {
    if (std::isnan(x)) return "is not a number";
    if (std::isinf(x)) return "is infinite";
    if (x < 0) return "is below 0";
    if (x != std::floor(x)) return "has a fraction";
    return x > 9e18 ? "is too large: a size is at most 9e18" : nullptr;
  }

  static std::string origin(const Setting& setting) {
    return fmt::format("`--set {}={}`", setting.name, setting.value);
  }

  // ------------------------------------------------------------------ dims that cannot be set

  // False, after an error that names what to set, when the dim is an alias or an expression.
  bool may_set(const std::string& name, const std::string& how, Span span,
               const std::string& value) {
    const DimDecl& dim = module_.dims.at(name);
    if (!dim.value.valid()) return true;
    const Ast& ast = dim.unit->ast;
    const ExprId inner = strip_parens(ast, dim.value);
    const Expr& expr = ast.expr(inner);
    if (expr.kind == ExprKind::kNumber || expr.kind == ExprKind::kError) return true;
    const std::string text(module_.sources->text(expr.span));
    std::vector<std::string> bases;
    collect_bases(ast, inner, bases, 0);
    Diagnostic d =
        span.valid() ? make_diagnostic(DiagId::E0312, span,
                                       fmt::format("`{}` cannot be set: it is `{}`", name, text))
                     : usage(DiagId::E0312,
                             fmt::format("`{}`: `{}` cannot be set, it is `{}`", how, name, text));
    const Label declared{dim.span, fmt::format("`{}` is declared here", name)};
    if (d.primary) {
      d.secondary.push_back(declared);
    } else {
      d.primary = declared;
    }
    if (expr.kind == ExprKind::kName && bases.size() == 1 && !span.valid()) {
      d.help(fmt::format("set what it stands for: `--set {}={}`", bases[0], value));
    } else if (!bases.empty()) {
      d.help(fmt::format("set `{}` instead", fmt::join(bases, "` or `")));
    } else {
      d.help(fmt::format("declare it as a number: `dim {} = ..`", name));
    }
    diagnostics_.add(d);
    return false;
  }

  // The dims and lets of an expression that can be set, those under aliases and expressions
  // included.
  void collect_bases(const Ast& ast, ExprId id, std::vector<std::string>& bases, int depth) const {
    if (depth > 100) return;
    for (ExprId part : left_spine(ast, id)) {
      const Expr& expr = ast.expr(part);
      if (expr.kind == ExprKind::kParen) collect_bases(ast, expr.left, bases, depth + 1);
      if (expr.kind == ExprKind::kUnary || expr.kind == ExprKind::kBinary)
        collect_bases(ast, expr.right, bases, depth + 1);
      if (expr.kind != ExprKind::kName) continue;
      auto dim = module_.dims.find(expr.text);
      if (dim == module_.dims.end()) continue;
      const bool settable = !dim->second.value.valid() ||
                            dim->second.unit->ast.expr(dim->second.value).kind == ExprKind::kNumber;
      if (!settable) {
        collect_bases(dim->second.unit->ast, dim->second.value, bases, depth + 1);
      } else if (std::find(bases.begin(), bases.end(), expr.text) == bases.end()) {
        bases.push_back(expr.text);
      }
    }
  }

  // ------------------------------------------------------------------ dims bound by train

  void bind_train_dims() {
    if (!chosen_.valid()) return;
    const Section& section = ast_.section(chosen_);
    const SectionTable* table = find_table("train");
    for (const Entry& entry : section.entries) {
      if (entry.section.valid() || entry.broken || !entry.value.valid()) continue;
      const std::string& name = entry.key.text;
      if (find_key(*table, name) != nullptr || module_.dims.count(name) == 0) continue;
      if (!may_set(name, "", entry.key.span, "")) continue;
      if (module_.set_overrides.count(name) != 0) continue;
      auto number = plain_number(module_, ast_, entry.value);
      const Span span = ast_.expr(entry.value).span;
      if (!number) {
        diagnostics_.add(
            make_diagnostic(DiagId::E0303, span,
                            fmt::format("the dim `{}` wants a whole number, at least 0", name)));
      } else if (const char* why = no_size(*number); why != nullptr) {
        diagnostics_.add(make_diagnostic(
            DiagId::E0304, span, fmt::format("the dim `{}` wants a whole number, at least 0", name),
            why));
      } else {
        const std::string text(module_.sources->text(span));
        const std::string of =
            section.name.empty() ? "" : fmt::format(" of `train {}`", section.name.text);
        module_.train_overrides[name] = {text, *number, fmt::format("`{}: {}`{}", name, text, of),
                                         span};
      }
    }
  }

  Module& module_;
  Ast& ast_;
  Diagnostics& diagnostics_;
  SectionId chosen_;
};

}  // namespace

std::vector<SectionId> train_sections(const Ast& ast) {
  std::vector<SectionId> found;
  for (const Item& item : ast.items) {
    if (item.kind == ItemKind::kSection && ast.section(item.section).kind.text == "train") {
      found.push_back(item.section);
    }
  }
  return found;
}

const Section* chosen_train(const Module& module) {
  const Ast& ast = module.main().ast;
  const Section* chosen = nullptr;
  for (SectionId id : train_sections(ast)) {
    const Section& section = ast.section(id);
    if (module.options.train.empty() || section.name.text == module.options.train)
      chosen = &section;
  }
  return chosen;
}

void read_settings(Module& module, Diagnostics& diagnostics) {
  SettingsReader(module, diagnostics).run();
}

}  // namespace cad::frontend
