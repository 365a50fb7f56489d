// frontend/resolve.cc -- loading files and collecting names; dims and lets are in resolve_dims.cc.
#include "frontend/resolve.h"

#include <algorithm>
#include <cctype>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/embedded.h"
#include "base/suggest.h"
#include "frontend/parse.h"

namespace cad::frontend {

namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// `a/./b`, `a/x/../b` -> `a/b`: one file, one unit.
std::string normal_path(const std::string& path) {
  std::vector<std::string> parts;
  size_t from = 0;
  const bool absolute = !path.empty() && path[0] == '/';
  while (from <= path.size()) {
    size_t to = path.find('/', from);
    if (to == std::string::npos) to = path.size();
    const std::string part = path.substr(from, to - from);
    if (part == ".." && !parts.empty() && parts.back() != "..") {
      parts.pop_back();
    } else if (!part.empty() && part != ".") {
      parts.push_back(part);
    }
    from = to + 1;
  }
  std::string out = absolute ? "/" : "";
  for (size_t i = 0; i < parts.size(); ++i) out += (i > 0 ? "/" : "") + parts[i];
  return out;
}

void defined_twice(const Name& name, Span first, const char* what, Diagnostics& diagnostics) {
  Diagnostic d =
      make_diagnostic(DiagId::E0103, name.span,
                      fmt::format("{} `{}` is defined twice", what, name.text), "defined again");
  d.label(first, "first defined here");
  diagnostics.add(std::move(d));
}

class Collector {
 public:
  Collector(Module& module, Unit& unit, Diagnostics& diagnostics)
      : module_(module), unit_(unit), diagnostics_(diagnostics) {}

  void run() {
    for (const Item& item : unit_.ast.items) {
      if (unsure(item)) remember_names(item);
      switch (item.kind) {
        case ItemKind::kDim:
          for (const DimBind& bind : item.binds) dim(bind, item.broken);
          break;
        case ItemKind::kLet:
          let(item);
          break;
        case ItemKind::kDef:
          definition(item);
          break;
        default:
          break;
      }
    }
    if (lost_dims_ || lost_lets_) remember_undeclared();
  }

 private:
  // A `dim` or `let` line lost a name that is nowhere in the text: any undeclared one may have been
  // it.
  void remember_undeclared() {
    for (const Expr& e : unit_.ast.exprs) {
      if (e.kind != ExprKind::kName) continue;
      const bool upper = std::isupper(static_cast<unsigned char>(e.text[0])) != 0;
      if (upper ? !lost_dims_ : !lost_lets_) continue;
      if (unit_.dims.count(e.text) == 0) unit_.silent_names.insert(e.text);
    }
  }

  // Lines that did not parse, and sections of an unknown kind: often a line without its keyword.
  bool unsure(const Item& item) const {
    if (item.broken || item.kind == ItemKind::kError) return true;
    if (item.kind == ItemKind::kDef) return unit_.ast.def(item.def).broken;
    if (item.kind != ItemKind::kSection) return false;
    static const char* const kKinds[] = {"train", "cluster", "device", "mesh", "plan"};
    const Section& s = unit_.ast.section(item.section);
    return std::none_of(std::begin(kKinds), std::end(kKinds),
                        [&](const char* k) { return s.kind.text == k; });
  }

  // The words of the item's first line, or of all its lines when it is a list of dims.
  void remember_names(const Item& item) {
    if (item.kind == ItemKind::kDef || item.kind == ItemKind::kError) unit_.lost = true;
    lost_dims_ = lost_dims_ || item.kind == ItemKind::kDim;
    lost_lets_ = lost_lets_ || (item.kind == ItemKind::kLet && item.name.empty());
    const std::string& text = module_.sources->file(item.span.file).text;
    size_t at = item.span.begin, end = text.find_first_of("\r\n", at);
    if (end == std::string::npos) end = text.size();
    if (item.kind == ItemKind::kDim) end = std::max(end, static_cast<size_t>(item.span.end));
    while (at < end) {
      if (text[at] == '#') break;
      if (std::isalpha(static_cast<unsigned char>(text[at])) == 0 && text[at] != '_') {
        ++at;
        continue;
      }
      size_t to = at;
      while (to < end &&
             (std::isalnum(static_cast<unsigned char>(text[to])) != 0 || text[to] == '_'))
        ++to;
      unit_.silent_names.insert(text.substr(at, to - at));
      at = to;
    }
  }

  // A name is one thing in a file.
  bool fresh(const Name& name, const char* what) {
    if (name.empty()) return false;
    auto [at, added] = names_.emplace(name.text, name.span);
    if (!added) defined_twice(name, at->second, what, diagnostics_);
    return added;
  }

  void dim(const DimBind& bind, bool broken) {
    if (!fresh(bind.name, "dim")) return;
    const std::string& name = bind.name.text;
    unit_.dims.emplace(name, bind.name.span);
    unit_.dim_order.push_back(name);
    auto at = module_.dims.find(name);
    if (at == module_.dims.end()) {
      DimDecl decl;
      decl.name = name;
      decl.unit = &unit_;
      decl.value = bind.value;
      decl.span = bind.name.span;
      decl.broken = broken;
      module_.dims.emplace(name, std::move(decl));
      module_.dim_order.push_back(name);
    } else if (!at->second.value.valid() && bind.value.valid() && !broken) {
      at->second.value = bind.value;  // the importer left it free: this file gives the size
      at->second.unit = &unit_;
    }
  }

  void let(const Item& item) {
    if (!fresh(item.name, "let")) return;
    LetDecl decl;
    decl.name = item.name.text;
    decl.unit = &unit_;
    decl.value = item.value;
    decl.span = item.name.span;
    unit_.lets.emplace(decl.name, std::move(decl));
  }

  void definition(const Item& item) {
    const Def& def = unit_.ast.def(item.def);
    if (!fresh(def.name, def_keyword(def.kind))) return;
    auto d = std::make_unique<Definition>();
    d->unit = &unit_;
    d->kind = def.kind;
    d->name = def.name.text;
    d->ast = item.def;
    unit_.definitions[d->name] = d.get();
    module_.definitions.push_back(std::move(d));
  }

  Module& module_;
  Unit& unit_;
  Diagnostics& diagnostics_;
  std::map<std::string, Span> names_;
  bool lost_dims_ = false, lost_lets_ = false;
};

class Loader {
 public:
  Loader(Module& module, FileReader& reader, Diagnostics& diagnostics)
      : module_(module), reader_(reader), diagnostics_(diagnostics) {}

  Unit* load(FileId file) {
    auto owned = std::make_unique<Unit>();
    Unit* unit = owned.get();
    module_.units.push_back(std::move(owned));
    const std::string path = normal_path(module_.sources->file(file).path);
    by_path_[path] = unit;
    loading_.push_back(path);
    unit->ast = parse(*module_.sources, file, diagnostics_);
    Collector(module_, *unit, diagnostics_).run();
    for (const Item& item : unit->ast.items) {
      if (item.kind == ItemKind::kImport) import(*unit, item);
    }
    loading_.pop_back();
    return unit;
  }

 private:
  void import(Unit& unit, const Item& item) {
    if (item.broken || item.path.empty()) {
      if (!item.name.empty()) unit.imports[item.name.text] = nullptr;
      return;
    }
    const std::string& alias = item.name.text;
    if (!alias.empty()) {
      if (auto at = unit.import_spans.find(alias); at != unit.import_spans.end()) {
        defined_twice(item.name, at->second, "import", diagnostics_);
        return;
      }
      unit.import_spans[alias] = item.name.span;
      unit.imports[alias] = nullptr;  // until it is loaded: errors in it are enough
    }
    const std::string& own = module_.sources->file(unit.ast.file).path;
    const std::string path =
        normal_path(item.path[0] == '/' ? item.path : folder_of(own) + item.path);
    if (circle(item, path)) return;
    Unit* target = nullptr;
    if (auto at = by_path_.find(path); at != by_path_.end()) {
      target = at->second;
    } else {
      Result<std::string> text = reader_.read(path);
      if (!text.ok()) {
        Diagnostic d = make_diagnostic(DiagId::E0106, item.path_span,
                                       fmt::format("cannot read the imported file `{}`", path),
                                       "imported here");
        d.note(text.error().message);
        d.note("the name of an imported file is relative to the file that imports it");
        d.exit_code = kExitNoInput;
        diagnostics_.add(std::move(d));
        return;
      }
      Result<FileId> file = load_source(*module_.sources, path, std::move(*text));
      if (!file.ok()) {
        diagnostics_.add(file.error());
        return;
      }
      target = load(*file);
    }
    if (!alias.empty()) unit.imports[alias] = target;
  }

  bool circle(const Item& item, const std::string& path) {
    const auto first = std::find(loading_.begin(), loading_.end(), path);
    if (first == loading_.end() && loading_.size() < kMaxImports) return false;
    if (first == loading_.end()) {
      diagnostics_.add(make_diagnostic(DiagId::E0106, item.path_span, "imports nest too deeply",
                                       fmt::format("more than {} files deep", kMaxImports)));
      return true;
    }
    Diagnostic d =
        make_diagnostic(DiagId::E0106, item.path_span, fmt::format("`{}` imports itself", path),
                        "an import in a circle");
    if (loading_.end() - first > 1) {
      d.note(fmt::format("the circle is `{}` -> `{}`",
                         fmt::join(std::vector<std::string>(first, loading_.end()), "` -> `"),
                         path));
    }
    diagnostics_.add(std::move(d));
    return true;
  }

  static constexpr size_t kMaxImports = 200;

  Module& module_;
  FileReader& reader_;
  Diagnostics& diagnostics_;
  std::map<std::string, Unit*> by_path_;
  std::vector<std::string> loading_;
};

}  // namespace

void load_units(Module& module, FileId file, FileReader& reader, Diagnostics& diagnostics) {
  Loader(module, reader, diagnostics).load(file);
}

namespace {

// Names defined at the start of a line by one of the keywords, without parsing: "fn name".
std::vector<std::string> defined_names(std::string_view text,
                                       const std::vector<std::string_view>& keywords) {
  std::vector<std::string> names;
  size_t at = 0;
  while (at < text.size()) {
    for (std::string_view keyword : keywords) {
      if (text.substr(at, keyword.size()) != keyword) continue;
      const size_t from = at + keyword.size();
      size_t to = from;
      while (to < text.size() &&
             (std::isalnum(static_cast<unsigned char>(text[to])) != 0 || text[to] == '_'))
        ++to;
      names.emplace_back(text.substr(from, to - from));
    }
    const size_t end = text.find('\n', at);
    if (end == std::string_view::npos) break;
    at = end + 1;
  }
  return names;
}

void mention(const Ast& ast, std::set<std::string>& names) {
  for (const Expr& e : ast.exprs) {
    if (e.kind == ExprKind::kName) names.insert(e.text);
  }
}

void parse_library_file(Module& module, std::string_view path, Diagnostics& diagnostics) {
  auto unit = std::make_unique<Unit>();
  unit->library = true;
  Result<FileId> file = load_source(*module.sources, "<stdlib>" + std::string(path.substr(6)),
                                    std::string(*embedded_file(path)));
  if (!file.ok()) {
    diagnostics.add(file.error());
    return;
  }
  unit->ast = parse(*module.sources, *file, diagnostics);
  for (const Item& item : unit->ast.items) {
    if (item.kind != ItemKind::kDef) continue;
    const Def& def = unit->ast.def(item.def);
    auto d = std::make_unique<Definition>();
    d->unit = unit.get();
    d->kind = def.kind;
    d->name = def.name.text;
    d->ast = item.def;
    unit->definitions[d->name] = d.get();
    module.library_definitions.emplace(d->name, d.get());
    module.definitions.push_back(std::move(d));
  }
  module.library.push_back(std::move(unit));
}

}  // namespace

void load_library(Module& module, Diagnostics& diagnostics) {
  struct File {
    std::string_view path;
    std::vector<std::string> names;
    bool parsed = false;
  };
  std::vector<File> files;
  for (std::string_view path : embedded_files("stdlib/")) {
    File file;
    file.path = path;
    file.names = defined_names(*embedded_file(path), {"fn ", "layer ", "model "});
    module.library_names.insert(module.library_names.end(), file.names.begin(), file.names.end());
    files.push_back(std::move(file));
  }
  std::set<std::string> wanted;
  for (const auto& unit : module.units) mention(unit->ast, wanted);
  for (bool more = true; more;) {
    more = false;
    for (File& file : files) {
      if (file.parsed) continue;
      file.parsed = module.options.whole_library;
      for (const std::string& name : file.names) {
        if (wanted.count(name) == 0) continue;
        file.parsed = true;
        break;
      }
      if (!file.parsed) continue;
      more = true;
      parse_library_file(module, file.path, diagnostics);
      mention(module.library.back()->ast, wanted);
    }
  }
}

std::vector<std::string> library_devices() {
  std::vector<std::string> names;
  for (std::string_view path : embedded_files("stdlib/")) {
    for (std::string& name : defined_names(*embedded_file(path), {"device "}))
      names.push_back(std::move(name));
  }
  return names;
}

}  // namespace cad::frontend
