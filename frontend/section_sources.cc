// frontend/section_sources.cc -- data sources of train and eval sections: `text(..)`, `tokens(..)`,
// `npy(..)`, `csv(..)`, `synthetic(..)`, or a tuple of them. Reading the files is the trainer's.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/suggest.h"
#include "frontend/section_checker.h"

namespace cad::frontend {

namespace {

using Kind = ir::DataSource::Kind;
const std::vector<std::pair<std::string, Kind>> kSources = {{"text", Kind::kText},
                                                            {"tokens", Kind::kTokens},
                                                            {"npy", Kind::kNpy},
                                                            {"csv", Kind::kCsv},
                                                            {"synthetic", Kind::kSynthetic}};

const char* kind_name(Kind kind) {
  for (const auto& [name, k] : kSources) {
    if (k == kind) return name.c_str();
  }
  return "";
}

std::optional<ir::DType> dtype_of(const std::string& name) {
  if (name == "f32") return ir::DType::kF32;
  if (name == "i32") return ir::DType::kI32;
  if (name == "bool") return ir::DType::kBool;
  return std::nullopt;
}

}  // namespace

std::vector<DataUse> SectionChecker::read_data(const Key& key, ExprId value,
                                               const std::vector<DataUse>* train) {
  std::vector<DataUse> uses;
  bool fine = true;
  for (const Arg& arg : elements(value)) {
    if (!arg.name.empty()) {
      read_.wrong_form(key, value);
      return {};
    }
    auto use = read_source(key, arg.value);
    if (!use) return {};
    uses.push_back(std::move(*use));
  }
  if (train != nullptr) {
    if (train->empty() || !reuse_names(uses, *train, expr(value).span)) return {};
  }
  for (const DataUse& use : uses) fine = check_source(use, train == nullptr) && fine;
  if (!fine || !check_declarations(uses)) return {};
  return uses;
}

std::optional<DataUse> SectionChecker::read_source(const Key& key, ExprId value) {
  const Expr& e = expr(strip_parens(module_.main().ast, value));
  if (e.kind != ExprKind::kCall || expr(e.left).kind != ExprKind::kName) {
    read_.wrong_form(key, value);
    return std::nullopt;
  }
  const Expr& callee = expr(e.left);
  const auto found = std::find_if(kSources.begin(), kSources.end(),
                                  [&](const auto& s) { return s.first == callee.text; });
  if (found == kSources.end()) {
    std::vector<std::string> names;
    for (const auto& [name, kind] : kSources) names.push_back(name);
    Diagnostic& d = read_.report(DiagId::E0319, callee.span,
                                 fmt::format("there is no data source `{}`", callee.text));
    if (auto near = suggest(callee.text, names)) {
      d.help(fmt::format("did you mean `{}`?", *near));
    } else {
      d.note("sources are `text`, `tokens`, `npy`, `csv` and `synthetic`");
    }
    return std::nullopt;
  }
  DataUse use;
  use.kind = found->second;
  use.span = e.span;
  for (const Arg& arg : e.args) {
    const Expr& v = expr(strip_parens(module_.main().ast, arg.value));
    if (v.kind == ExprKind::kError) return std::nullopt;
    if (arg.name.empty()) {
      if (v.kind != ExprKind::kString) {
        read_.report(DiagId::E0320, v.span,
                     fmt::format("`{}` wants its files as texts in quotes", callee.text));
        return std::nullopt;
      }
      use.files.push_back(v.text);
    } else if (arg.name.text == "dtype" && use.kind == Kind::kTokens && v.kind == ExprKind::kName) {
      if (v.text != "u16" && v.text != "u32") {
        read_.report(DiagId::E0320, v.span, "the dtype of a token file is `u16` or `u32`");
        return std::nullopt;
      }
      use.wide_tokens = v.text == "u32";
    } else if (!read_declaration(use, arg)) {
      return std::nullopt;
    }
  }
  return use;
}

// x: i32[B, T]
bool SectionChecker::read_declaration(DataUse& use, const Arg& arg) {
  const Expr& v = expr(arg.value);
  const bool dims = v.kind == ExprKind::kDims && expr(v.left).kind == ExprKind::kName;
  const std::optional<ir::DType> dtype = dims ? dtype_of(expr(v.left).text) : std::nullopt;
  if (!dtype) {
    read_.report(DiagId::E0320, v.span, fmt::format("`{}` wants a dtype and dims", arg.name.text))
        .help(fmt::format("write `{}: f32[B, D]`, `i32[..]` or `bool[..]`", arg.name.text));
    return false;
  }
  DataDeclaration declaration;
  declaration.name = arg.name;
  declaration.dtype = *dtype;
  declaration.span = v.span;
  for (const DimItem& item : v.dims) {
    const Expr* name =
        item.kind == DimItemKind::kPlain ? plain_name(module_.main().ast, item.left) : nullptr;
    if (name == nullptr) {
      read_.report(DiagId::E0320, item.span,
                   fmt::format("the dims of `{}` are names", arg.name.text));
      return false;
    }
    declaration.dims.push_back({name->text, name->span});
  }
  use.names.push_back(declaration);
  return true;
}

bool SectionChecker::check_source(const DataUse& use, bool declared) {
  const char* kind = kind_name(use.kind);
  const size_t names = use.names.size();
  const auto fail = [&](std::string message, std::string help) {
    read_.report(DiagId::E0320, use.span, std::move(message)).help(std::move(help));
    return false;
  };
  if (names == 0 && declared) {
    return fail(fmt::format("`{}` names no data", kind),
                fmt::format("declare what it gives: `{}(.., x: i32[B, T])`", kind));
  }
  const bool windows = use.kind == Kind::kText || use.kind == Kind::kTokens;
  if (use.kind == Kind::kSynthetic) {
    if (!use.files.empty()) return fail("`synthetic` reads no file", "leave the file out");
    return true;
  }
  if (use.files.empty())
    return fail(fmt::format("`{}` wants a file", kind),
                fmt::format("`{}(\"data/file\", ..)`", kind));
  if (use.kind == Kind::kNpy && use.files.size() != names) {
    return fail(fmt::format("`npy` has {} file{} for {} name{}", use.files.size(),
                            use.files.size() == 1 ? "" : "s", names, names == 1 ? "" : "s"),
                "give one file for each name, in the same order");
  }
  if (use.kind != Kind::kNpy && use.files.size() != 1) {
    return fail(fmt::format("`{}` wants one file, not {}", kind, use.files.size()),
                "a file name may be a glob: `\"data/*.txt\"`");
  }
  if (!windows) return true;
  if (names > 2)
    return fail(fmt::format("`{}` gives one name or two, not {}", kind, names),
                "the second is the first shifted by one");
  for (const DataDeclaration& name : use.names) {
    if (name.dtype == ir::DType::kI32 && name.dims.size() == 2) continue;
    read_
        .report(DiagId::E0320, name.span,
                fmt::format("`{}` gives `i32` windows of two dims: rows and positions", kind))
        .help(fmt::format("write `{}: i32[B, T]`", name.name.text));
    return false;
  }
  if (names == 2 && use.names[0].dims[1].text != use.names[1].dims[1].text) {
    read_.report(DiagId::E0320, use.names[1].span,
                 fmt::format("`{}` is `{}` shifted by one: their dims are the same",
                             use.names[1].name.text, use.names[0].name.text));
    return false;
  }
  return true;
}

bool SectionChecker::check_declarations(const std::vector<DataUse>& uses) {
  std::set<std::string> seen;
  const DataDeclaration* first = nullptr;
  bool fine = true;
  for (const DataUse& use : uses) {
    for (const DataDeclaration& name : use.names) {
      if (!seen.insert(name.name.text).second) {
        read_.report(DiagId::E0302, name.name.span,
                     fmt::format("the data name `{}` is given twice", name.name.text));
        fine = false;
      }
      std::set<std::string> dims;
      for (const Name& dim : name.dims) {
        if (module_.dims.count(dim.text) == 0) {
          unknown_dim(dim);
          fine = false;
        } else if (!dims.insert(dim.text).second) {
          read_.report(DiagId::E0320, dim.span,
                       fmt::format("a tensor never holds the same dim twice: `{}`", dim.text));
          fine = false;
        }
      }
      if (name.dims.empty()) {
        read_.report(DiagId::E0320, name.span,
                     fmt::format("`{}` has no dims: the first is the batch dim", name.name.text));
        fine = false;
        continue;
      }
      if (first == nullptr) first = &name;
      if (name.dims[0].text == first->dims[0].text) continue;
      read_
          .report(DiagId::E0320, name.dims[0].span,
                  fmt::format("the first dim is the batch dim, one for all data: `{}` and `{}`",
                              first->dims[0].text, name.dims[0].text))
          .label(first->dims[0].span, "the batch dim");
      fine = false;
    }
  }
  return fine;
}

// Silent when definitions have reported the name, or when its line could not be parsed.
void SectionChecker::unknown_dim(const Name& dim) {
  const std::string message = fmt::format("unknown dim `{}`", dim.text);
  for (const Diagnostic& d : diagnostics_.all()) {
    if (d.message == message) return;
  }
  if (module_.main().ast.broken) return;
  std::vector<std::string> names;
  for (const auto& [known, decl] : module_.dims) names.push_back(known);
  Diagnostic& d = read_.report(DiagId::E0107, dim.span, message);
  if (auto near = suggest(dim.text, names)) d.help(fmt::format("did you mean `{}`?", *near));
}

// The names and types of an eval's data are those of the train section.
bool SectionChecker::reuse_names(std::vector<DataUse>& uses, const std::vector<DataUse>& train,
                                 Span where) {
  std::vector<DataDeclaration> names;
  for (const DataUse& use : train) names.insert(names.end(), use.names.begin(), use.names.end());
  for (DataUse& use : uses) {
    for (const DataDeclaration& name : use.names) {
      const auto same = std::find_if(names.begin(), names.end(), [&](const DataDeclaration& n) {
        return n.name.text == name.name.text;
      });
      const auto equal_dims = [](const DataDeclaration& a, const DataDeclaration& b) {
        return a.dtype == b.dtype &&
               std::equal(a.dims.begin(), a.dims.end(), b.dims.begin(), b.dims.end(),
                          [](const Name& x, const Name& y) { return x.text == y.text; });
      };
      if (same == names.end() || !equal_dims(*same, name)) {
        read_
            .report(DiagId::E0321, name.name.span,
                    fmt::format("`{}` is not declared so in the training data", name.name.text))
            .help("leave the declaration out: an evaluation reuses names and types");
        return false;
      }
    }
  }
  const bool undeclared =
      std::all_of(uses.begin(), uses.end(), [](const DataUse& use) { return use.names.empty(); });
  if (!undeclared) return true;
  if (uses.size() == 1) {
    uses[0].names = names;
    return true;
  }
  if (uses.size() != train.size()) {
    read_.report(
        DiagId::E0321, where,
        fmt::format("{} sources here, {} in the training data", uses.size(), train.size()));
    return false;
  }
  for (size_t i = 0; i < uses.size(); ++i) uses[i].names = train[i].names;
  return true;
}

}  // namespace cad::frontend
