// frontend/elaborate_dimnames.cc -- what a dim's name stands for: a dim parameter (a list of dims
// when lowered), a dim of the body, or one of the file; and dims made for the occasion.
#include <algorithm>

#include "base/suggest.h"
#include "frontend/elaborator.h"

namespace cad::frontend {

bool Elaborator::contains(const DimList& dims, ir::DimId d) const {
  return std::find(dims.begin(), dims.end(), d) != dims.end();
}

ir::Size Elaborator::size(const DimList& dims) const {
  ir::Size product = 1;
  for (ir::DimId d : dims) product = product * graph.dim(d).size;
  return product;
}

ir::DimId Elaborator::file_dim(const std::string& name) {
  auto [at, added] = file_dims_.emplace(name, ir::DimId{});
  if (added) {
    const DimDecl& decl = module.dims.at(name);
    at->second = graph.add_dim(
        name, decl.state == DimDecl::State::kResolved ? decl.size : ir::Size::symbol(name));
  }
  return at->second;
}

std::optional<DimList> Elaborator::find_dims(const std::string& name) {
  if (body == nullptr) return std::nullopt;
  if (auto at = body->local_dims.find(name); at != body->local_dims.end()) return at->second;
  if (body->definition != nullptr) {
    const int formal = body->definition->signature.find_formal(name);
    if (formal >= 0) return body->formals[static_cast<size_t>(formal)];
  }
  if (body->unit->dims.count(name) != 0) return DimList{file_dim(name)};
  return std::nullopt;
}

std::vector<std::string> Elaborator::visible_dims() const {
  std::vector<std::string> names;
  for (const auto& [name, dims] : body->local_dims) names.push_back(name);
  if (body->definition != nullptr) {
    for (const Formal& f : body->definition->signature.formals) names.push_back(f.name);
  }
  for (const auto& [name, span] : body->unit->dims) names.push_back(name);
  return names;
}

std::optional<DimList> Elaborator::dims_named(const std::string& name, Span span) {
  if (auto dims = find_dims(name)) return dims;
  statement_failed_ = true;
  if (body->unit->silent(name) || body->broken_names.count(name) != 0) return std::nullopt;
  auto value = body->values.find(name);
  if (value != body->values.end()) {
    Diagnostic& d = error(DiagId::E0107, span, fmt::format("`{}` is a value, not a dim", name),
                          "square brackets hold dims");
    d.label(value->second.span, "bound here");
    return std::nullopt;
  }
  Diagnostic& d = error(DiagId::E0107, span, fmt::format("unknown dim `{}`", name), "not declared");
  if (auto near = suggest(name, visible_dims())) {
    d.help(fmt::format("a dim with a similar name exists: `{}`", *near));
    auto at = body->unit->dims.find(*near);
    if (at != body->unit->dims.end())
      d.label(at->second, fmt::format("`{}` is declared here", *near));
  } else {
    d.help(fmt::format("declare it: `dim {}`", name));
  }
  return std::nullopt;
}

// The dims of `T`, `(H, K)`, `()`: names only.
std::optional<DimList> Elaborator::dims_of_side(const DimSide& side, const std::string& what) {
  DimList out;
  for (ExprId id : side.dims) {
    const Expr& e = body->ast->expr(strip_parens(*body->ast, id));
    if (e.kind == ExprKind::kError) {
      statement_failed_ = true;
      return std::nullopt;
    }
    if (e.kind != ExprKind::kName) {
      const std::string text(module.sources->text(e.span));
      error(DiagId::E0214, e.span, fmt::format("only names stand in the brackets of {}", what),
            e.kind == ExprKind::kNumber ? "a number" : "an expression")
          .help(fmt::format("name it with a line `dim N = {}` and write `N` here", text));
      return std::nullopt;
    }
    auto dims = dims_named(e.text, e.span);
    if (!dims) return std::nullopt;
    for (ir::DimId d : *dims) {
      if (contains(out, d)) {
        error(DiagId::E0209, e.span, fmt::format("`{}` is there twice", e.text), "again");
        return std::nullopt;
      }
      out.push_back(d);
    }
  }
  return out;
}

// Plain items and `..`: the dims that a reduction or contraction names.
std::optional<DimList> Elaborator::dims_of_items(const Call& call) {
  DimList out;
  for (const DimItem& item : *call.dims) {
    if (item.kind == DimItemKind::kDots) {
      if (!body->has_pack) {
        error(DiagId::E0107, item.span, "`..` has no meaning here",
              "no argument of this definition has `..`");
        return std::nullopt;
      }
      out.insert(out.end(), body->pack.begin(), body->pack.end());
      continue;
    }
    if (item.kind != DimItemKind::kPlain) {
      error(DiagId::E0110, item.span, fmt::format("`{}` takes names of dims here", call.name),
            "not a dim");
      return std::nullopt;
    }
    auto dims = dims_of_side(item.left, fmt::format("`{}`", call.name));
    if (!dims) return std::nullopt;
    for (ir::DimId d : *dims) {
      if (contains(out, d)) {
        error(DiagId::E0209, item.span, fmt::format("{} is there twice", dim_text(d)), "again");
        return std::nullopt;
      }
      out.push_back(d);
    }
  }
  return out;
}

// Another dim of the same size: `D.1` beside D, the first that is not taken. Made once, used often.
ir::DimId Elaborator::alternate(ir::DimId base, const std::function<bool(ir::DimId)>& taken) {
  std::vector<ir::DimId>& made = alternates_[base.index];
  for (ir::DimId d : made) {
    if (!taken(d)) return d;
  }
  const ir::Dim original = graph.dim(base);
  const ir::DimId d = graph.add_dim(original.name, original.size);
  graph.dims[static_cast<size_t>(d.index)].pack = original.pack;
  alternates_[base.index].push_back(d);
  return d;
}

// A dim of a body, or one that a composition needs. Lowered bodies reuse those of equal name and
// size that the body does not hold already.
ir::DimId Elaborator::local_dim(const std::string& name, const ir::Size& size) {
  std::vector<ir::DimId>& pool = local_pool_[name];
  if (mode == Mode::kLower) {
    for (ir::DimId d : pool) {
      if (body->used.count(d) == 0 && graph.dim(d).size == size) {
        body->used.insert(d);
        return d;
      }
    }
  }
  const ir::DimId d = graph.add_dim(name, size);
  pool.push_back(d);
  body->used.insert(d);
  return d;
}

}  // namespace cad::frontend
