// frontend/elaborate_dims.cc -- brackets after a value: rename, split, merge (`x[T -> S]`), gather
// and select (`w[V = ids]`), slices (`x[T = 0 : N -> N]`). All items of a bracket act at once.
#include <algorithm>
#include <cmath>

#include "frontend/elaborator.h"

namespace cad::frontend {

using ir::Attrs;
using ir::Op;
using ir::ValueId;

EValue Elaborator::index(const EValue& x, const Expr& e) {
  if (!x.tensor()) {
    if (x.kind == EValue::Kind::kMany) {
      error(DiagId::E0213, e.op_span, "brackets take one value, this is several",
            "several results");
    } else {
      error(DiagId::E0216, e.op_span, "brackets take a tensor, this is a constant", "not a tensor");
    }
    return {};
  }
  bool arrows = false, indices = false;
  for (const DimItem& item : e.dims) {
    switch (item.kind) {
      case DimItemKind::kArrow:
        arrows = true;
        break;
      case DimItemKind::kIndex:
      case DimItemKind::kSlice:
        indices = true;
        break;
      default: {
        Diagnostic& d =
            error(DiagId::E0209, item.span, "a dim alone says nothing here", "no `->` and no `=`");
        d.help(
            "`x[T -> S]` renames, `x[T = 3]` selects, `x[T = 0 : N -> N]` slices, `f[T](x)` calls");
        return {};
      }
    }
  }
  builder.span = e.span;
  if (arrows && !indices) return index_rename(x, e);
  if (indices && !arrows) return index_gather(x, e);
  error(DiagId::E0209, e.op_span, "`->` and `=` do not mix in one bracket", "both")
      .help("write two brackets: `x[T -> S][V = ids]`");
  return {};
}

bool Elaborator::source_dims(ValueId x, const DimList& from, Span span, const std::string& what) {
  for (ir::DimId d : from) {
    if (type(x).has(d)) continue;
    Diagnostic& err = error(DiagId::E0209, span,
                            fmt::format("{} is not among the dims of {}", dim_text(d), show(x)),
                            fmt::format("{} of a dim that is not there", what));
    err.note(fmt::format("the dims are {}", sizes_of(type(x).dims)));
    return false;
  }
  return true;
}

namespace {

// `D -> E`, `D -> (H, K)`, `(H, K) -> D`.
struct RenameItem {
  DimList from, to;
  const DimItem* at;
};

// nullopt: a side is none, a dim is not there or is renamed twice.
std::optional<std::vector<RenameItem>> rename_items(Elaborator& e, ValueId v, const Expr& expr) {
  std::vector<RenameItem> items;
  DimList gone;
  for (const DimItem& item : expr.dims) {
    auto from = e.dims_of_side(item.left, "a rename");
    if (!from || !e.source_dims(v, *from, item.left.span, "a rename")) return std::nullopt;
    auto to = e.dims_of_side(item.right, "a rename");
    if (!to) return std::nullopt;
    for (ir::DimId d : *from) {
      if (e.contains(gone, d)) {
        e.error(DiagId::E0209, item.left.span, fmt::format("{} is renamed twice", e.dim_text(d)),
                "again");
        return std::nullopt;
      }
      gone.push_back(d);
    }
    items.push_back({*from, *to, &item});
  }
  return items;
}

DimList dims_of_all(const std::vector<RenameItem>& items, DimList RenameItem::*side) {
  DimList all;
  for (const RenameItem& item : items)
    all.insert(all.end(), (item.*side).begin(), (item.*side).end());
  return all;
}

// No dim twice in the result.
bool results_differ(Elaborator& e, ValueId v, const std::vector<RenameItem>& items) {
  const DimList gone = dims_of_all(items, &RenameItem::from);
  DimList made;
  for (const RenameItem& item : items) {
    for (ir::DimId d : item.to) {
      const bool stays = e.type(v).has(d) && !e.contains(gone, d);
      if (stays || e.contains(made, d)) {
        const std::string& name = e.graph.dim(d).name;
        e.error(DiagId::E0204, item.at->right.span,
                fmt::format("the result would hold {} twice", e.dim_text(d)),
                stays ? fmt::format("already in {}", e.show(v)) : "twice in this bracket")
            .help(fmt::format("rename to an alias: `dim {}2 = {}`", name, name));
        return false;
      }
      made.push_back(d);
    }
  }
  return true;
}

bool sizes_agree(Elaborator& e, const std::vector<RenameItem>& items) {
  for (const RenameItem& item : items) {
    if (item.from == item.to) continue;
    const bool one = item.from.size() == 1 && item.to.size() == 1;
    const std::string from = e.show(item.from), to = e.show(item.to);
    Elaborator::Need n;
    n.what = one                     ? fmt::format("rename `{}` to `{}`", from, to)
             : item.from.size() <= 1 ? fmt::format("split `{}` into ({})", from, to)
                                     : fmt::format("merge ({}) into `{}`", from, to);
    n.span = item.at->span;
    if (!e.need_equal(e.size(item.from), e.size(item.to), n)) return false;
  }
  return true;
}

// To stand-ins, where one item's new dim is another's old one.
ValueId renamed_apart(Elaborator& e, ValueId v, std::vector<RenameItem>& items) {
  const DimList gone = dims_of_all(items, &RenameItem::from),
                made = dims_of_all(items, &RenameItem::to);
  bool clash = false;
  for (const RenameItem& item : items) {
    for (ir::DimId d : item.to) clash = clash || (e.contains(gone, d) && !e.contains(item.from, d));
  }
  if (!clash) return v;
  std::vector<std::pair<ir::DimId, ir::DimId>> pairs;
  for (RenameItem& item : items) {
    for (ir::DimId& d : item.from) {
      const ir::DimId other = e.alternate(d, [&](ir::DimId c) {
        return e.type(v).has(c) || e.contains(made, c) ||
               std::any_of(pairs.begin(), pairs.end(),
                           [&](const auto& p) { return p.second == c; });
      });
      pairs.emplace_back(d, other);
      d = other;
    }
  }
  return e.rename(v, pairs);
}

}  // namespace

EValue Elaborator::index_rename(const EValue& x, const Expr& e) {
  ValueId v = local(x.value);
  auto items = rename_items(*this, v, e);
  if (!items || !results_differ(*this, v, *items) || !sizes_agree(*this, *items)) return {};
  const bool all_single = std::all_of(items->begin(), items->end(), [](const RenameItem& item) {
    return item.from.size() == 1 && item.to.size() == 1;
  });
  if (all_single) {
    std::vector<std::pair<ir::DimId, ir::DimId>> pairs;
    for (const RenameItem& item : *items) pairs.emplace_back(item.from[0], item.to[0]);
    return tensor_of(rename(v, pairs), e.span);
  }
  v = renamed_apart(*this, v, *items);
  for (const RenameItem& item : *items) v = regroup(v, item.from, item.to);
  return tensor_of(v, e.span);
}

EValue Elaborator::index_gather(const EValue& x, const Expr& e) {
  struct Item {
    ir::DimId dim;
    EValue index;
    const DimItem* at;
  };
  std::vector<Item> items;
  EValue v = x;
  v.value = local(v.value);
  for (const DimItem& item : e.dims) {
    auto dims = dims_named(item.name.text, item.name.span);
    if (!dims || !source_dims(v.value, *dims, item.name.span, "an index")) return {};
    ir::DimId one{};
    v.value = merged(v.value, *dims, &one);
    if (item.kind == DimItemKind::kSlice) {
      v = index_slice(v, item, one, e);
      if (v.error()) return {};
      continue;
    }
    EValue index = eval(item.value);
    if (index.error()) return {};
    v.value = local(v.value);
    items.push_back({one, index, &item});
  }
  // An index that brings in a dim which another item removes: that one gets a stand-in first.
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].index.tensor()) continue;
    for (Item& other : items) {
      if (&other == &items[i] || !type(items[i].index.value).has(other.dim) ||
          !type(v.value).has(other.dim))
        continue;
      const ir::DimId stand_in =
          alternate(other.dim, [&](ir::DimId c) { return type(v.value).has(c); });
      v.value = rename(v.value, {{other.dim, stand_in}});
      other.dim = stand_in;
    }
  }
  for (const Item& item : items) {
    v = index_one(v, item.dim, item.index, *item.at, e);
    if (v.error()) return {};
  }
  v.span = e.span;
  return v;
}

EValue Elaborator::index_one(const EValue& x, ir::DimId dim, const EValue& index,
                             const DimItem& item, const Expr& e) {
  const Span index_span = body->ast->expr(item.value).span;
  Site site{"the index", item.span, {&x, &index}};
  Attrs attrs;
  attrs.dim = dim;
  if (index.is_number()) {
    if (!index.whole) {
      const auto n = value_of(*index.number);
      if (!n || *n != std::floor(*n)) {
        error(DiagId::E0212, index_span, "an index is a whole number", "has a fraction");
        return {};
      }
    }
    if (!check_index(*index.number, dim, index_span)) return {};
    auto r = make(Op::kSelect, {x.value, constant(*index.number, ir::DType::kI32)},
                  std::move(attrs), site);
    return r ? tensor_of(*r, e.span) : EValue{};
  }
  auto ids = as_tensor(index, std::nullopt, index_span, "an index");
  if (!ids) return {};
  if (type(*ids).dtype != ir::DType::kI32) {
    Diagnostic& d =
        error(DiagId::E0205, index_span, fmt::format("an index is `i32`, this is {}", show(*ids)),
              describe(index));
    if (index.bound.valid()) d.label(index.bound, "not `i32` here");
    d.help("declare it so, as in `ids: i32[B]`, or cast it: `i32(..)`");
    return {};
  }
  const Op op = type(*ids).rank() == 0 ? Op::kSelect : Op::kGather;
  auto r = make(op, {local(x.value), *ids}, std::move(attrs), site);
  return r ? tensor_of(*r, e.span) : EValue{};
}

// A constant index must lie within the dim, as far as that is known.
bool Elaborator::check_index(const ir::Scalar& index, ir::DimId dim, Span span) {
  const auto n = value_of(index);
  const auto size = with_known(graph.dim(dim).size, *known).constant();
  if (n && *n < 0) {
    Diagnostic& d =
        error(DiagId::E0212, span, "an index does not count from the end", fmt::format("{:g}", *n));
    d.help(fmt::format("write `{} = {} - {:g}`", graph.dim(dim).name, graph.dim(dim).name, -*n));
    return false;
  }
  if (n && size && *n >= static_cast<double>(*size)) {
    error(DiagId::E0212, span, fmt::format("index {:g} is outside {}", *n, dim_text(dim)),
          fmt::format("the last one is {}", *size - 1));
    return false;
  }
  if (auto s = index.as_size(); s && !n) {
    Need need_inside;
    need_inside.what = fmt::format("an index into `{}`", graph.dim(dim).name);
    need_inside.span = span;
    DefCondition c;
    c.kind = DefCondition::Kind::kAtMost;
    c.left = *s + ir::Size(1);
    c.right = graph.dim(dim).size;
    c.what = need_inside.what;
    c.span = span;
    return need(std::move(c));
  }
  return true;
}

EValue Elaborator::index_slice(EValue x, const DimItem& item, ir::DimId dim, const Expr& e) {
  const auto begin = slice_bound(item.value, dim);
  if (!begin) return {};
  const auto end = slice_bound(item.end, dim);
  if (!end) return {};
  x.value = local(x.value);
  auto to = dims_of_side(item.right, "a slice");
  if (!to) return {};
  if (to->size() != 1) {
    if (item.right.dims.size() != 1) {
      error(DiagId::E0212, item.right.span, "a slice goes into one dim", "not one name");
      return {};
    }
    return slice_into_many(x, dim, *begin, *end, *to, item, e);
  }
  if (type(x.value).has((*to)[0]) && (*to)[0] != dim) {
    Diagnostic& d = error(DiagId::E0204, item.right.span,
                          fmt::format("the result would hold {} twice", dim_text((*to)[0])),
                          fmt::format("already in {}", show(x.value)));
    d.help(fmt::format("slice into an alias: `dim {}2 = {}`", graph.dim((*to)[0]).name,
                       graph.dim((*to)[0]).name));
    return {};
  }
  if (!slice_sizes(dim, *begin, *end, size(*to), item)) return {};
  if ((*to)[0] == dim) return x;
  Attrs attrs;
  attrs.dim = dim;
  attrs.to = (*to)[0];
  attrs.start = *begin;
  auto r = make(Op::kSlice, {x.value}, std::move(attrs), Site{"the slice", item.span, {&x}});
  return r ? tensor_of(*r, e.span) : EValue{};
}

bool Elaborator::slice_sizes(ir::DimId dim, const ir::Size& begin, const ir::Size& end,
                             const ir::Size& length, const DimItem& item) {
  Need n;
  n.span = item.span;
  n.what = fmt::format("the distance of a slice and `{}`", show_side(item.right));
  n.help = fmt::format("`dim {} = {}`", show_side(item.right), reader_text(end - begin));
  if (!need_equal(end - begin, length, n)) return false;
  DefCondition inside;
  inside.kind = DefCondition::Kind::kAtMost;
  inside.left = end;
  inside.right = graph.dim(dim).size;
  inside.what = fmt::format("the end of a slice of `{}`", graph.dim(dim).name);
  inside.span = item.span;
  return need(std::move(inside));
}

// At lowering a dim parameter may stand for several dims, or none.
EValue Elaborator::slice_into_many(EValue x, ir::DimId dim, const ir::Size& begin,
                                   const ir::Size& end, const DimList& to, const DimItem& item,
                                   const Expr& e) {
  if (!slice_sizes(dim, begin, end, size(to), item)) return {};
  Attrs attrs;
  attrs.dim = dim;
  attrs.to = local_dim("N", size(to));
  attrs.start = begin;
  const ir::DimId one = attrs.to;
  auto r = make(Op::kSlice, {x.value}, std::move(attrs), Site{"the slice", item.span, {&x}});
  if (!r) return {};
  return tensor_of(regroup(*r, {one}, to), e.span);
}

std::string Elaborator::show_side(const DimSide& side) const {
  return std::string(module.sources->text(side.span));
}

std::optional<ir::Size> Elaborator::slice_bound(ExprId id, ir::DimId dim) {
  auto s = size_of(id, "a bound of a slice");
  if (!s) return std::nullopt;
  if (auto c = with_known(*s, *known).constant(); c && *c < 0) {
    Diagnostic& d = error(DiagId::E0212, body->ast->expr(id).span,
                          "a slice does not count from the end", std::to_string(*c));
    d.help(fmt::format("write `{} - {}`", graph.dim(dim).name, -*c));
    return std::nullopt;
  }
  return s;
}

}  // namespace cad::frontend
